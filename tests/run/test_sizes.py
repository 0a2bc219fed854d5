"""Runs to a target size: plan, result, resume, matched runs, and what is refused."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import auber
from auber.data.encoding import encode_split
from auber.errors import ConfigError, TaskError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.run.files import find_run
from auber.run.result_record import ResultRecord
from auber.run.sizes import Sizes
from auber.run.summary import describe_change, describe_sizes
from auber.run.validation import request_pruning
from auber.search.registry import get_method
from auber.system.records import read
from auber.training.evaluation import predict
from tests.small import Messages, small_config, small_start, small_task
from tests.tiny_models import HEADS, LAYERS, NEURONS

TASK = small_task()
CONFIG = small_config()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The folder of a finished fine-tuning."""
    folder = tmp_path_factory.mktemp("runs") / "start"
    auber.finetune(*small_start(), task=TASK, config=CONFIG, out=folder)
    return folder


def prune(start, name, method="fisher", *, config=CONFIG, **options):
    return auber.prune(
        start, task=TASK, method=method, config=config, out=start.parent / name, **options
    )


@pytest.fixture(scope="module")
def half(start):
    """A finished run to half of the multiply-adds, and its folder."""
    return prune(start, "half", keep=0.5), start.parent / "half"


def test_the_plan_and_the_result(half):
    pruned, folder = half
    result = pruned.result
    share = pruned.plan.cost(pruned.model, 24).multiply_adds
    assert 0.45 < share <= 0.5
    assert pruned.plan.heads
    assert pruned.plan.neurons
    assert result["remaining"]["multiply_adds"] == pytest.approx(share, abs=1e-5)
    assert 0.5 < result["remaining"]["parameters"] < 1
    assert result["neurons"] == {
        "removed": pruned.plan.num_neurons,
        "total": LAYERS * NEURONS,
        "per_layer": NEURONS,
    }
    assert result["heads"]["removed"] == pruned.plan.num_heads
    assert (
        PruningPlan.from_json(result["plan"])
        == pruned.plan
        == PruningPlan.read(folder / "plan.json")
    )
    assert result["tuned_layers"] == []
    assert {path.stem for path in (folder / "stages").glob("*.json")} == {"first", "plan", "last"}
    assert read(ResultRecord, folder / "result.json", "").plan == pruned.plan


def test_the_saved_model_gives_the_same_answers(half):
    pruned, folder = half
    loaded, tokenizer = auber.load(folder / "model"), auber.load_tokenizer(folder / "model")
    assert encoder_of(loaded).removed == pruned.plan
    rows = encode_split(tokenizer, TASK, "dev", 24)
    assert torch.equal(predict(loaded, rows), predict(pruned.model.eval(), rows))
    assert auber.evaluate(folder, task=TASK, config=CONFIG).score == pruned.result["dev"]["score"]


def test_resuming_gives_the_same_bits(half, start):
    pruned, folder = half
    again = prune(start, "half", keep=0.5, resume=True)
    assert (again.plan, again.result) == (pruned.plan, pruned.result)
    stopped = shutil.copytree(folder, folder.with_name("stopped"))
    (stopped / "result.json").unlink()
    for name in ("plan.json", "last.json"):  # all that came after the first tuning
        (stopped / "stages" / name).unlink()
    again = prune(start, "stopped", keep=0.5, resume=True)
    assert again.result["model_sha256"] == pruned.result["model_sha256"]
    with pytest.raises(
        auber.AuberError, match=r"holds another run: size.keep was 0.5 and is now 0.6"
    ):
        prune(start, "half", keep=0.6, resume=True)


@pytest.mark.parametrize("method", ["random", "original+tuning"])
def test_other_methods_match_a_run(half, start, method):
    pruned, folder = half
    other = prune(start, method, method, heads=folder)
    steps = [run.result["cost"]["tuning_steps"] for run in (pruned, other)]
    assert steps[0] == steps[1] > 0
    share = other.plan.cost(other.model, 24).multiply_adds
    assert share == 1 if method == "original+tuning" else 0.45 < share <= 0.5


def test_even_widths_give_an_ordinary_model(start):
    import transformers

    config = CONFIG.replace({"size.even": True})
    pruned = prune(start, "even", config=config, keep=0.8)
    folder = start.parent / "even" / "model"
    assert not (folder / "modeling_auber.py").exists()
    entries = json.loads((folder / "config.json").read_text())
    assert "auto_map" not in entries
    assert 0 < entries["intermediate_size"] < NEURONS
    assert entries["intermediate_size"] % 8 == 0
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    rows = encode_split(auber.load_tokenizer(folder), TASK, "dev", 24)
    assert torch.equal(predict(loaded.eval(), rows), predict(pruned.model.eval(), rows))
    again = prune(start, "even", config=config, keep=0.8, resume=True)
    assert again.plan == pruned.plan


def test_a_pruned_model_is_pruned_further(half, start):
    _, folder = half
    smaller = prune(folder, "quarter", keep=0.3)
    assert smaller.plan.cost(smaller.model, 24).multiply_adds <= 0.3
    assert all(len(gone) < HEADS for gone in smaller.plan.heads.values())


class CutError(Exception):
    pass


@pytest.fixture(scope="module")
def several(start):
    """A finished run to three sizes, cut before the second and resumed, and its folder."""
    folder = start.parent / "several"
    with pytest.MonkeyPatch.context() as patch:
        tune_size = Sizes.tune_size

        def cut(sizes, waypoint, previous):
            if waypoint.share == 0.5:
                raise CutError
            return tune_size(sizes, waypoint, previous)

        patch.setattr(Sizes, "tune_size", cut)
        with pytest.raises(CutError):
            prune(start, "several", keep=[0.4, 0.8, 0.5])
    kept = (folder / "stages" / "last-0.8.json").read_bytes()
    pruned = prune(start, "several", keep=[0.4, 0.8, 0.5], resume=True)
    assert (folder / "stages" / "last-0.8.json").read_bytes() == kept
    return pruned, folder


def test_several_sizes_are_as_each_alone(several, half, start):
    _, folder = several
    result = read(ResultRecord, folder / "result.json", "")
    assert [size.name for size in result.sizes] == ["0.8", "0.5", "0.4"]
    alone = {"0.5": half[0], "0.4": prune(start, "alone", keep=0.4)}
    for size in result.sizes[1:]:
        other = alone[size.name].result
        assert size.model_sha256 == other["model_sha256"]
        assert (size.plan, size.dev.score) == (alone[size.name].plan, other["dev"]["score"])
        assert size.tuning.steps > 0
        assert auber.evaluate(folder / "models" / size.name, task=TASK, config=CONFIG).score == (
            size.dev.score
        )
    shares = [size.after.multiply_adds for size in result.sizes]
    assert shares == sorted(shares, reverse=True)


def test_the_model_of_several_sizes_is_the_smallest_and_stored_once(several):
    pruned, folder = several
    result = read(ResultRecord, folder / "result.json", "")
    smallest = result.sizes[-1]
    assert result.chosen == "0.4"
    assert (result.plan, result.dev, result.model_sha256) == (
        smallest.plan,
        smallest.dev,
        smallest.model_sha256,
    )
    assert pruned.plan == result.plan == PruningPlan.read(folder / "plan.json")
    assert len({path.resolve() for path in folder.rglob("*.safetensors")}) == 3
    assert auber.evaluate(folder, task=TASK, config=CONFIG).score == result.dev.score
    assert find_run(folder / "models" / "0.8") == find_run(folder / "model") == folder
    assert sum(stage.stem.startswith("plan-") for stage in (folder / "stages").iterdir()) == 3


TUNED = CONFIG.replace({"last.epochs": 1, "last.watch_fraction": 0.0})
TAUGHT = TUNED.replace(
    {
        "teacher.outputs": 0.5,
        "teacher.hidden": 1.0,
        "teacher.copies": 2,
        "teacher.below": 0.7,
    }
)


def test_small_sizes_learn_from_the_unpruned_model(start):
    folder = start.parent / "taught"
    with pytest.MonkeyPatch.context() as patch:
        tune_size = Sizes.tune_size

        def cut(sizes, waypoint, previous):
            if waypoint.share == 0.6:
                raise CutError
            return tune_size(sizes, waypoint, previous)

        patch.setattr(Sizes, "tune_size", cut)
        with pytest.raises(CutError):
            prune(start, "taught", config=TAUGHT, keep=[0.8, 0.6])
    pruned = prune(start, "taught", config=TAUGHT, keep=[0.8, 0.6], resume=True)
    assert {path.stem for path in (folder / "stages").glob("last-*.json")} == {
        "last-0.8",
        "last-0.6",
    }
    alone = prune(start, "taught-alone", config=TAUGHT, keep=0.6)
    prune(start, "untaught", config=TUNED, keep=[0.8, 0.6])
    assert alone.result["model_sha256"] == pruned.result["model_sha256"]
    (large, small), (same, other) = (
        [
            json.loads((start.parent / name / f"stages/last-{size}.json").read_text())
            for size in (0.8, 0.6)
        ]
        for name in ("taught", "untaught")
    )
    assert large["model_sha256"] == same["model_sha256"]
    assert small["model_sha256"] != other["model_sha256"]
    assert small["tuning"]["steps"] == 3 * other["tuning"]["steps"]


def test_sizes_of_voita_share_their_gates(start):
    both = prune(start, "gates", "voita", keep=[0.8, 0.6])
    alone = prune(start, "gates-alone", "voita", keep=0.6)
    assert both.result["model_sha256"] == alone.result["model_sha256"]
    stages = start.parent / "gates" / "stages"
    records = [json.loads((stages / f"plan-{share}.json").read_text()) for share in (0.8, 0.6)]
    first, second = ({trial["penalty"] for trial in record["trials"]} for record in records)
    assert first & second
    steps = json.loads((start.parent / "gates-alone" / "stages" / "plan.json").read_text())
    per_trial = steps["gate_steps"] / len(steps["trials"])
    assert both.result["cost"]["gate_steps"] == per_trial * len(first | second)


def test_before_and_after(half, start):
    pruned, _ = half
    before, after = pruned.result["before"], pruned.result["after"]
    assert before["score"] == auber.evaluate(start, task=TASK, config=CONFIG).score
    assert after["score"] == pruned.result["dev"]["score"]
    assert before["multiply_adds"] == 1
    assert after["multiply_adds"] == pruned.result["remaining"]["multiply_adds"]
    assert before["parameters"] > after["parameters"] == pruned.model.num_parameters()
    assert before["milliseconds"] > 0
    assert after["milliseconds"] > 0
    line = describe_change(pruned.result)
    share = f"{100 * after['multiply_adds']:.0f}"
    assert line.startswith(
        f"With {share} % of the multiply-adds and {after['parameters']:,} parameters (unpruned: "
    )
    score, old_score = (f"{100 * each['score']:.1f}" for each in (after, before))
    assert (
        f", dev accuracy is {score} (unpruned: {old_score}) on {after['rows']} rows, and a " in line
    )
    assert line.endswith(" on this CPU")


@pytest.mark.parametrize("tolerance", [10, 100])
def test_a_tolerance_chooses_a_size(start, tolerance):
    fresh = small_start()
    folder = start.parent / f"tolerance-{tolerance}"
    messages = Messages()
    pruned = auber.prune(
        *fresh,
        task=TASK,
        method="fisher",
        config=CONFIG.replace({"first.when": "always", "size.tolerance": float(tolerance)}),
        out=folder,
        progress=messages,
    )
    result = read(ResultRecord, folder / "result.json", "")
    splits = json.loads((folder / "splits.json").read_text())
    held_out = set(splits["held_out"])
    assert len(held_out) == (30 if tolerance == 10 else 12)
    assert not held_out & {*splits["first"], *splits["last_train"], *splits["last_watch"]}
    sizes = result.sizes
    assert sizes[0].keep == 1
    assert not sizes[0].plan
    assert sizes[0].held_out.loss == 0
    assert all(size.held_out.is_within for size in sizes[:-1])
    for size in sizes:
        assert size.held_out.rows == len(held_out)
        assert size.held_out.is_within == (size.held_out.bound <= tolerance)
        assert size.held_out.bound >= size.held_out.loss - 1e-9
    within = [size for size in sizes if size.held_out.is_within]
    assert result.chosen == within[-1].name
    assert (within == list(sizes)) == (tolerance == 100)
    lines = [line for line in messages.said if "held-out rows" in line]
    assert len(lines) == len(sizes) - 1
    *_, chosen = describe_sizes(pruned.result)
    assert chosen.startswith("chosen: ")
    assert encoder_of(pruned.model).removed == within[-1].plan


def test_a_tolerance_names_what_it_lacks(start):
    with pytest.raises(
        TaskError, match=r"^size.tolerance 1 needs 300 rows held out of train, and .*60"
    ):
        prune(start, "refused", config=CONFIG.replace({"size.tolerance": 1.0}))
    with pytest.raises(
        ConfigError, match="^method 'auber' decides .* leave out size.tolerance, or"
    ):
        prune(start, "refused", "auber", config=CONFIG.replace({"size.tolerance": 10.0}))
    with pytest.raises(ConfigError, match="^out: several sizes need a folder, found none; give "):
        auber.prune(start, task=TASK, method="fisher", keep=[0.8, 0.5], config=CONFIG)
    assert not (start.parent / "refused").exists()


def test_a_start_that_may_have_seen_the_held_out_rows_is_said(start):
    messages = Messages()
    options = {"task": TASK, "heads": None, "origin": None, "progress": messages}
    config = CONFIG.replace({"size.tolerance": 10.0})
    request_pruning(start, None, method=get_method("fisher"), config=config, **options)
    assert len(messages.said) == 1
    assert "may have seen the rows held out for the tolerance" in messages.said[0]
    unseen = start.parent / "unseen"
    auber.finetune(*small_start(), task=TASK, config=config, out=unseen)
    request_pruning(unseen, None, method=get_method("fisher"), config=config, **options)
    assert len(messages.said) == 1


def test_half_is_the_default_size(start):
    messages = Messages()
    options = {"task": TASK, "heads": None, "origin": None, "progress": messages}
    request = request_pruning(start, None, method=get_method("random"), config=CONFIG, **options)
    assert request.config.size.keep == 0.5
    assert messages.said == ["no size was given, so half of the multiply-adds are kept (keep 0.5)"]


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("fisher", {"keep": 0}, "^keep must be a share of the encoder's multiply-adds, above 0 "),
        ("fisher", {"keep": 1.5}, "above 0 and at most 1, found 1.5; give one such as 0.5$"),
        ("fisher", {"keep": [0.5, 2]}, r"at most 1, found \[0.5, 2\]; give one such as 0.5$"),
        ("fisher", {"keep": "half"}, "at most 1, found 'half'; give one such as 0.5$"),
        (
            "fisher",
            {"keep": 0.1},
            r"^keep must be at least 0.\d+ \(one head and 8 neurons stay in each layer\), found",
        ),
        (
            "fisher",
            {"keep": 0.5, "heads": 3},
            "^keep 0.5 and a number of heads exclude each other; give one of them$",
        ),
        (
            "auber",
            {"keep": 0.5},
            "^method 'auber' decides by its rewards how many heads go; leave out keep, or choose "
            "method random, michel, fisher, exchange, voita$",
        ),
        ("original", {"keep": 0.5}, "^method 'original' removes nothing; leave out keep$"),
        (
            "confidence",
            {"keep": 0.5},
            "^method 'confidence' ranks heads only; add size.units heads, or choose another m",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(start, method, options, message):
    with pytest.raises(ConfigError, match=message):
        prune(start, "refused", method, **options)
    assert not (start.parent / "refused").exists()


def test_confidence_reaches_a_size_with_heads(start):
    config = CONFIG.replace({"size.units": "heads"})
    pruned = prune(start, "confidence", "confidence", config=config, keep=0.7)
    assert not pruned.plan.neurons
    assert pruned.result["remaining"]["multiply_adds"] <= 0.7
