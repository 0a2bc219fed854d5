from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auber.config import make_config
from auber.data.rows import QuestionRows, Rows, WordRows
from auber.data.splits import group_rows, make_splits, set_aside
from auber.errors import TaskError

SIZES = {
    "rows": st.integers(30, 400),
    "seed": st.integers(0, 2**32),
    "fraction": st.sampled_from([0.25, 0.5, 2 / 3, 0.9, 1.0]),
    "max_rows": st.sampled_from([0, 5, 20]),
}


def config(**changes):
    return make_config(
        "paper", settings={key.replace("__", "."): value for key, value in changes.items()}
    )


def labels(rows, classes=2):
    return [row % classes for row in range(rows)]


def ordered(indices):
    return list(indices) == sorted(set(indices))


@settings(max_examples=60, deadline=None)
@given(**SIZES, classes=st.integers(2, 4), is_regression=st.booleans())
def test_seen_separates_reward_set_and_mini_train(
    rows, seed, fraction, max_rows, classes, is_regression
):
    chosen = config(seed=seed, reward__fraction=fraction, reward__max_rows=max_rows)
    found = make_splits(labels(rows, classes), chosen, 3, is_regression)
    everything = tuple(range(rows))
    assert found.first == found.original_first == everything
    assert ordered(found.last_train)
    assert ordered(found.last_watch)
    assert sorted(found.last_train + found.last_watch) == list(everything)
    for layer in found.layers:
        assert ordered(layer.mini_train)
        assert ordered(layer.reward)
        assert set(layer.mini_train) | set(layer.reward) <= set(everything)
        assert max_rows == 0 or len(layer.reward) <= max_rows
        if fraction == 1:
            assert layer.mini_train == everything
        else:
            assert not set(layer.mini_train) & set(layer.reward)
            assert max_rows or len(layer.mini_train) + len(layer.reward) == rows
        if not is_regression:
            assert {row % classes for row in layer.reward} == set(range(classes))


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_heldout_never_tunes_on_the_reward_set_before_the_end(rows, seed, fraction, max_rows):
    chosen = config(
        protocol="heldout", seed=seed, reward__fraction=fraction, reward__max_rows=max_rows
    )
    found = make_splits(labels(rows), chosen, 3, False)
    tune, watch, reward = set(found.first), set(found.last_watch), set(found.layers[0].reward)
    assert not tune & reward
    assert not tune & watch
    assert not reward & watch
    assert reward | tune <= set(found.last_train)
    assert found.original_first == found.last_train
    assert sorted(found.last_train + found.last_watch) == list(range(rows))
    for layer in found.layers:
        assert layer.reward == found.layers[0].reward
        assert set(layer.mini_train) <= tune
        assert ordered(layer.mini_train)
        assert fraction < 1 or layer.mini_train == found.first


def test_shares_are_those_of_the_method():
    seen = make_splits(labels(3000), config(), 12, False)
    sizes = [(len(layer.reward), len(layer.mini_train)) for layer in seen.layers]
    assert sizes == [(2000, 1000)] * 12
    assert (len(seen.last_watch), len(seen.last_train)) == (300, 2700)
    unwatched = make_splits(labels(50), config(last__watch_fraction=0.0), 1, False)
    assert (unwatched.last_watch, unwatched.last_train) == ((), tuple(range(50)))
    heldout = make_splits(labels(1000), config(protocol="heldout"), 2, False)
    layer = heldout.layers[0]
    assert (len(heldout.first), len(layer.reward), len(layer.mini_train)) == (600, 300, 200)
    assert (len(heldout.last_watch), len(heldout.last_train)) == (100, 900)


def test_layers_redraw_and_seeds_decide():
    found = make_splits(labels(200), config(seed=3), 2, False)
    assert found == make_splits(labels(200), config(seed=3), 2, False)
    assert found.layers[0] != found.layers[1]
    assert found.layers != make_splits(labels(200), config(seed=4), 2, False).layers
    # A layer's draw does not depend on how many layers there are.
    assert make_splits(labels(200), config(seed=3), 1, False).layers[0] == found.layers[0]
    heldout = make_splits(labels(200), config(seed=3, protocol="heldout"), 2, False)
    assert heldout.layers[0].mini_train != heldout.layers[1].mini_train
    folds, again, others = (
        make_splits(labels(90), config(protocol="crossfit", seed=seed), 1, False).folds
        for seed in (0, 0, 1)
    )
    assert folds == again != others
    assert sorted(map(len, folds)) == sorted(map(len, others)) == [30, 30, 30]


SINGLE = [0] * 60 + [1] * 36 + [2, 3, 4, 5]  # their quota of one comes out of the large classes'


@pytest.mark.parametrize(
    ("uneven", "most", "expected"),
    [
        ([0] * 700 + [1] * 295 + [2] * 5, 100, {0: 70, 1: 29, 2: 1}),
        (SINGLE, 20, {0: 10, 1: 6, 2: 1, 3: 1, 4: 1, 5: 1}),
        (SINGLE, 6, dict.fromkeys(range(6), 1)),
    ],
)
def test_a_bound_keeps_the_shares_of_the_classes(uneven, most, expected):
    found = make_splits(uneven, config(reward__fraction=1.0, reward__max_rows=most), 1, False)
    assert Counter(uneven[row] for row in found.layers[0].reward) == expected


@pytest.mark.parametrize(("protocol", "size"), [("seen", 25), ("heldout", 30)])
def test_a_rare_class_is_always_in_the_reward_set(protocol, size):
    rare = [0] * 30 + [1] * 69 + [2]
    for seed in range(20):
        chosen = config(protocol=protocol, seed=seed, reward__fraction=0.25)
        for layer in make_splits(rare, chosen, 2, False).layers:
            assert 99 in layer.reward
            assert len(layer.reward) == size
    numbers = [row / 7 for row in range(50)]  # to predict, so without classes
    found = make_splits(numbers, config(protocol=protocol, reward__max_rows=3), 1, True)
    assert len(found.layers[0].reward) == 3


@pytest.mark.parametrize("protocol", ["seen", "heldout", "crossfit"])
def test_the_json_names_the_rows_of_every_part(protocol):
    found = make_splits(labels(40), config(protocol=protocol), 2, False)
    data = json.loads(json.dumps(found.to_json()))
    assert data.pop("protocol") == protocol
    for name in ("first", "original_first", "last_train", "last_watch"):
        assert data.pop(name) == list(getattr(found, name))
    layers = [[list(layer.mini_train), list(layer.reward)] for layer in found.layers]
    assert [[each["mini_train"], each["reward"]] for each in data.pop("layers")] == layers
    assert data == ({"folds": list(map(list, found.folds))} if protocol == "crossfit" else {})


# fmt: off
TOO_SMALL = [
    (0, 1, {}, "train, rows to watch: at least one row is needed, there would be none; raise "
     "last.watch_fraction or give more rows$"),
    (4, 2, {}, "train, rows to watch: at least one row is needed, there would be none; raise"),
    (20, 2, {"reward__fraction": 0.99},
     "train, mini-train: at least one row is needed, .* be none; lower reward.fraction or give"),
    (20, 5, {"reward__fraction": 0.1},
     "reward set: at least one row of each of the 5 classes is needed, it would have 2 of 20 rows; "
     "raise reward.fraction or give more rows$"),
    (40, 4, {"reward__max_rows": 3},
     "reward set: at least one row of each of the 4 classes is needed, reward.max_rows allows 3; "
     "raise it$"),
    (3, 2, {"protocol": "heldout"},
     "reward set: .* it would have 1 of 3 rows; choose protocol seen or give more rows$"),
    (4, 1, {"protocol": "heldout"},
     "train, rows to watch: .* be none; choose protocol seen or give more rows$"),
    (20, 2, {"protocol": "heldout", "reward__fraction": 0.99},
     "train, mini-train: .* be none; lower reward.fraction or give more rows$"),
    (30, 2, {"protocol": "crossfit", "reward__folds": 40},
     "folds: at least one row for each of 40 is needed, found 30; lower reward.folds or give"),
]
# fmt: on


@pytest.mark.parametrize(("count", "classes", "changes", "message"), TOO_SMALL)
def test_sets_too_small_are_refused(count, classes, changes, message):
    with pytest.raises(TaskError, match=f"^{message}"):
        make_splits(labels(count, classes), config(**changes), 2, False)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(30, 300),
    seed=st.integers(0, 2**32),
    folds=st.integers(2, 7),
    classes=st.integers(2, 4),
)
def test_crossfit_divides_all_rows_into_even_folds(rows, seed, folds, classes):
    settings = {"seed": seed, "reward__folds": folds}
    found = make_splits(labels(rows, classes), config(protocol="crossfit", **settings), 2, False)
    assert sorted(row for fold in found.folds for row in fold) == list(range(rows))
    assert all(map(ordered, found.folds))
    sizes = [len(fold) for fold in found.folds]
    assert len(sizes) == folds
    assert max(sizes) - min(sizes) <= 1
    for name in range(classes):
        of_class = [sum(row % classes == name for row in fold) for fold in found.folds]
        assert max(of_class) - min(of_class) <= 1
    seen = make_splits(labels(rows, classes), config(**settings), 2, False)
    everything = tuple(range(rows))
    assert [layer.reward for layer in found.layers] == [everything] * 2, "every row pays"
    layers = tuple(replace(layer, reward=everything) for layer in seen.layers)
    assert replace(found, protocol="seen", folds=()) == replace(seen, layers=layers)


def test_a_fold_model_may_use_all_rows_but_its_fold():
    config = make_config("default", settings={"protocol": "crossfit", "reward.folds": 4})
    splits = make_splits([0, 1] * 60, config, 3, False)
    for fold, scored in enumerate(splits.folds):
        own = splits.without_fold(fold)
        assert set(own.first) == set(range(120)) - set(scored)
        pairs = [(own.last_train, splits.last_train), (own.last_watch, splits.last_watch)]
        pairs += [
            (mine.mini_train, layer.mini_train)
            for mine, layer in zip(own.layers, splits.layers, strict=True)
        ]
        for mine, all_rows in pairs:
            assert mine == tuple(row for row in all_rows if row not in scored)


# Rows that share a text


def test_rows_are_grouped_by_any_text_in_common():
    first = ("a", "b", "c", "d", "e", "f", "a")
    second = ("t", "u", "t", "c", "v", "w", "x")
    groups = group_rows(Rows(first, second, (0,) * 7), most=7)
    assert sorted(groups) == [(0, 2, 3, 6), (1,), (4,), (5,)]
    assert sorted(group_rows(Rows(("a", "b", "a"), None, (0, 1, 1)), 3)) == [(0, 2), (1,)]
    words = (("a", "b"), ("b", "a"), ("a", "b"))
    assert sorted(group_rows(WordRows(words, ((0, 0),) * 3), 3)) == [(0, 2), (1,)]
    asked = QuestionRows(("q", "r", "s"), ("c", "c", "d"), ((), (), ()))
    assert sorted(group_rows(asked, 3)) == [(0, 1), (2,)]


def test_a_group_larger_than_a_fold_is_divided_by_first_texts_with_a_warning(caplog):
    first = (*"aabbbb", "c", "d")
    second = (*["same"] * 7, "other")
    groups = group_rows(Rows(first, second, (0,) * 8), most=3)
    assert sorted(groups) == [(0, 1), (2,), (3,), (4,), (5,), (6,), (7,)]
    assert caplog.messages == [
        "folds: 7 of 8 train rows are connected by the texts that they share, in groups of more "
        "than the 3 rows of a fold; these are divided by their first text, so a fold model may "
        "score a text that it was tuned on"
    ]


@settings(max_examples=40, deadline=None)
@given(
    premises=st.lists(st.integers(0, 40), min_size=40, max_size=120),
    seed=st.integers(0, 2**32),
    folds=st.integers(2, 5),
    data=st.data(),
)
def test_a_premise_stays_in_one_fold_and_folds_stay_even(premises, seed, folds, data):
    own = [data.draw(st.integers(0, 1)) for _ in premises]
    hypotheses = tuple(f"hypothesis {row}" for row in range(len(own)))
    rows = Rows(tuple(f"premise {name}" for name in premises), hypotheses, tuple(own))
    chosen = config(protocol="crossfit", seed=seed, reward__folds=folds)
    found = make_splits(own, chosen, 1, False, rows)
    assert sorted(row for fold in found.folds for row in fold) == list(range(len(own)))
    largest = max(Counter(premises).values())
    if largest <= len(own) // folds:
        places = {premises[row]: number for number, fold in enumerate(found.folds) for row in fold}
        for number, fold in enumerate(found.folds):
            assert {places[premises[row]] for row in fold} == {number}
    assert max(map(len, found.folds)) - min(map(len, found.folds)) <= 2 * largest


def test_rows_without_a_text_in_common_are_dealt_as_before():
    rows = Rows(tuple(map(str, range(61))), None, tuple(labels(61, 3)))
    given = (rows.labels, config(protocol="crossfit", reward__folds=4), 1, False)
    assert make_splits(*given, rows) == make_splits(*given)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=40, max_size=80),
    classes=st.integers(1, 3),
)
def test_rows_set_aside_share_no_text_with_others(rows, classes):
    names = [sum(row) % classes for row in rows]
    premises, hypotheses = zip(*rows, strict=True)
    pairs = Rows(
        tuple(f"premise {name}" for name in premises),
        tuple(f"hypothesis {name}" for name in hypotheses),
        tuple(names),
    )
    texts = pairs.texts()
    try:
        kept, aside = set_aside(pairs, names, 0.2)
    except TaskError:  # all rows may hang together
        return
    assert sorted(kept + aside) == list(range(len(rows)))
    assert not {t for r in kept for t in texts[r]} & {t for r in aside for t in texts[r]}
    counts, most = Counter(names[row] for row in aside), Counter(names)
    assert all(count <= round(0.2 * most[name]) for name, count in counts.items())


def test_a_share_of_each_class_is_set_aside():
    texts = Rows(tuple(f"text {row}" for row in range(100)), None, (0,) * 100)
    names = ["rare"] * 2 + ["some"] * 20 + ["most"] * 78
    kept, aside = set_aside(texts, names, 0.2)
    assert Counter(names[row] for row in aside) == {"some": 4, "most": 16}
    assert set_aside(texts, names, 0.2) == (kept, aside)
    with pytest.raises(TaskError, match="^dev: none of 4 rows can be set aside to evaluate on"):
        set_aside(Rows(("same",) * 4, None, (0, 1, 0, 1)), [0, 1, 0, 1], 0.2)


def test_rows_held_out_for_a_tolerance_are_in_no_other_list():
    chosen = config(size__tolerance=5.0, protocol="heldout")
    found = make_splits(labels(300), chosen, 2, False)
    assert len(found.held_out) == 60
    held_out = set(found.held_out)
    lists = [found.first, found.last_train, found.last_watch, found.original_first]
    lists += [rows for layer in found.layers for rows in (layer.reward, layer.mini_train)]
    assert not any(held_out & set(rows) for rows in lists)
    assert "held_out" in found.to_json()
    assert "held_out" not in make_splits(labels(300), config(), 2, False).to_json()
    with pytest.raises(TaskError, match=r"^--tolerance 1 needs 300 rows .* at least 2$"):
        make_splits(labels(300), config(size__tolerance=1.0), 2, False)
