"""Mistakes of a run are reported before anything is computed, and leave no folder."""

from __future__ import annotations

import copy

import pytest

import auber
from auber.errors import ConfigError, RunError, TaskError
from auber.models.checkpoint import weights_digest
from auber.models.surgery import remove
from auber.run.validation import request_pruning
from auber.search.registry import get_method
from tests.run.test_fold_models import SETTINGS, prune
from tests.small import Messages, small_config, small_start, small_task

TASK = small_task()
CONFIG = small_config()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The folder of a finished fine-tuning."""
    folder = tmp_path_factory.mktemp("runs") / "start"
    auber.finetune(*small_start(), task=TASK, config=CONFIG, out=folder)
    return folder


@pytest.fixture(scope="module")
def searched(start):
    """The folder of a finished search."""
    auber.prune(start, task=TASK, config=CONFIG, out=start.parent / "auber")
    return start.parent / "auber"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "aubre"}, ConfigError, "Unknown method 'aubre'. Did you mean 'auber'?"),
        ({"heads": 2}, ConfigError, "method 'auber' decides itself how many heads to remove; "),
        (
            {"method": "confidence"},
            ConfigError,
            "method .confidence. must be given what to remove; give keep SHARE, ",
        ),
        (
            {"method": "random", "heads": 10},
            ConfigError,
            r"heads must be from 0 to 9 \(one head stays in each layer\), found 10",
        ),
        ({"method": "random", "heads": -1}, ConfigError, "heads must be 0 or more, found -1"),
        ({"method": "random", "heads": True}, ConfigError, "heads must be a whole number, found"),
        ({"method": "original", "heads": 5}, ConfigError, "method 'original' removes no heads; "),
        ({"method": "random", "heads": "nowhere"}, RunError, "nowhere: not a run's folder"),
        ({"task": "mprc"}, TaskError, "Unknown task 'mprc'. Did you mean 'mrpc'?"),
        ({"task": 3}, TaskError, "task: .* is needed, found int; auber.make_task makes one of"),
        (
            {"config": {"seed": 1}},
            ConfigError,
            "config: must be a preset's name or a Config, found dict; pass single settings",
        ),
        ({"model": None}, ConfigError, "model: must be a folder, a hub name, a finished run or a"),
        (
            {"out": None, "resume": True},
            ConfigError,
            "resume: continues the run in a folder, found none; give out='runs/mine'$",
        ),
        ({"resume": "yes"}, ConfigError, "resume: must be True, False or 'upgrade', found 'yes'$"),
        (
            {"config": small_config(agent__replay_size=4)},
            ConfigError,
            r"agent.replay_size must be at least agent.learning_starts \(8\), found 4: no update",
        ),
        (
            {"config": small_config(agent__learning_starts=25, agent__choose="rollout")},
            ConfigError,
            "layer 0: agent.episodes must be .*, found 6: its games on 4 heads make 24 moves at",
        ),
        (
            {"config": small_config(search__layers="1,3")},
            ConfigError,
            r"search.layers must name layers of the model, which has 3 \(0 to 2\), found 3; ",
        ),
        (
            {"config": small_config(protocol="heldout")},
            RunError,
            ".*was made with protocol 'seen', this run has 'heldout'; start from a run made with",
        ),
        (
            {"task": small_task(40)},
            RunError,
            r".*start: was made with other rows \(task agreement\) than this run has \(task ",
        ),
    ],
)
def test_wrong_arguments(start, tmp_path, arguments, error, message):
    given = {"model": start, "task": TASK, "config": CONFIG, "out": tmp_path / "x", **arguments}
    with pytest.raises(error, match=f"^{message}"):
        auber.prune(**given)
    assert not (tmp_path / "x").exists()


def test_too_many_heads_for_exhaustive_search(tmp_path):
    model, tokenizer = small_start(hidden_size=34, num_attention_heads=17)
    message = "^layer 0: method 'exhaustive' scores every mask and takes layers of at most 16 heads"
    with pytest.raises(ConfigError, match=message):
        auber.prune(model, tokenizer, task=TASK, method="exhaustive", config=CONFIG)


def test_more_shards_than_rows():
    config = small_config(reward__shards=99, first__when="always")
    message = r"^reward.shards must be at most the number of reward rows \(40\), found 99; "
    with pytest.raises(ConfigError, match=message):
        auber.prune(*small_start(), task=TASK, config=config)


NO_ORIGIN = "an origin is for fold models, which method {} under protocol {} does not use; leave it"
NOT_SEEN = "under protocol seen, which tunes after each layer before the next is decided, found {}"
TRAINED = {"first__when": "never"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"origin": True},
            "an origin goes with a fine-tuned model, and this one is still to be tuned; leave it",
        ),
        ({"origin": True, "protocol": "seen"}, NO_ORIGIN.format("auber", "seen")),
        ({"origin": True, "method": "original"}, NO_ORIGIN.format("original", "crossfit")),
        ({"first__epochs": 0}, "first.epochs must be at least 1 under protocol crossfit, which "),
        ({"reward__shards": 2}, "reward.shards must be 1 under protocol crossfit, where each fold"),
        (
            {"reward__measure": "metric", "reward__caution": 1.0},
            "reward.caution must be 0 where rewards are changes of accuracy, which is no mean over "
            "rows, found 1; set it to 0, or reward.measure=smooth$",
        ),
        (
            {"protocol": "seen", "search__prior": "voita"},
            f"search.prior must be none {NOT_SEEN.format('voita')}; set protocol=crossfit$",
        ),
        (
            {"protocol": "seen", "search__heads": 4},
            f"search.heads must be 0 {NOT_SEEN.format(4)}; set protocol=crossfit$",
        ),
        ({"search__heads": 10}, r"search.heads must be from 0 to 9 \(one head stays in each of "),
        ({"search__heads": 4, "search__layers": "1"}, "search.heads must be from 0 to 3 "),
        ({"heads": 11}, "search.heads must be from 0 to 9 "),
        ({"heads": 0}, "heads must be at least 1 for a search, found 0; leave it out, and the "),
    ],
)
def test_what_fold_models_cannot_have(arguments, message, tmp_path):
    if "origin" in arguments:
        arguments = {**arguments, "origin": small_start()[0]}
    with pytest.raises(ConfigError, match=f"^{message}"):
        prune(tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_a_fine_tuned_model_needs_no_origin():
    messages = Messages()
    request = request_pruning(
        *small_start(),
        task=TASK,
        method=get_method("auber"),
        heads=None,
        origin=None,
        config=small_config(protocol="crossfit", **TRAINED),
        progress=messages,
    )
    assert weights_digest(request.pretrained) == weights_digest(request.start.model)
    assert request.pretrained is not request.start.model
    assert messages.said == [
        "warning: BertForSequenceClassification is fine-tuned and may have seen the rows that "
        "rewards come from, so rewards may be too optimistic; origin names the model behind it, "
        "if known"
    ]


def test_an_origin_of_another_build(tmp_path):
    pruned = copy.deepcopy(small_start()[0])
    remove(pruned, {0: [1]})
    for other in (small_start(hidden_size=48)[0], pruned):
        with pytest.raises(ConfigError, match=r"^Bert\w+: the origin must be built like the model"):
            prune(tmp_path / "run", first__when="never", origin=other)


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [("seen", "set protocol=crossfit and give heads"), ("crossfit", "give heads")],
)
def test_a_search_takes_no_number_from_another_run(start, searched, protocol, remedy):
    message = (
        "^heads is for methods that take the number of heads to remove, and 'auber' "
        f"decides it; leave it out, or {remedy}$"
    )
    config = small_config(protocol=protocol)
    with pytest.raises(ConfigError, match=message):
        auber.prune(start, task=TASK, heads=searched, config=config)


def test_groups_of_processes(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    message = "^out: a group of 2 processes shares the run's folder, found none; give out='runs/"
    with pytest.raises(ConfigError, match=message):
        auber.prune(*small_start(), task=TASK, config=CONFIG)
    message = "^reward.latency must be 0 in a group of 2 processes, each of which measures another"
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "run", **{**SETTINGS, "reward__latency": 0.5})


# Runs that are not matched


@pytest.mark.parametrize(
    ("key", "value", "method"),
    [
        ("layer.epochs", 3, "random"),
        ("last.learning_rate", 1e-4, "original+tuning"),
        ("reward.fraction", 0.5, "random"),
        ("max_length", 20, "random"),
    ],
)
def test_a_run_with_other_tunings(searched, start, key, value, method):
    was = CONFIG.flat()[key]
    message = (
        rf"auber: has {key} = {was}, this run {value}; a run is compared only with the same "
        rf"tuning: give {key}={was}$"
    )
    config = CONFIG.replace({key: value})
    with pytest.raises(RunError, match=message):
        auber.prune(start, task=TASK, method=method, heads=searched, config=config)


@pytest.mark.parametrize(
    ("seed", "method", "config"),
    [
        (0, "original+tuning", small_config(first__when="always", first__epochs=1)),
        (5, "random", CONFIG),
    ],
)
def test_a_run_from_other_weights(searched, seed, method, config):
    message = "the run to match started from other fine-tuned weights than this one"
    model = small_start(seed=seed)
    with pytest.raises(RunError, match=message):
        auber.prune(*model, task=TASK, method=method, heads=searched, config=config)


def test_a_run_of_other_rows_or_another_seed(start, searched):
    given = {"method": "random", "heads": searched}
    message = "auber: has other rows of its task; a run can be matched only with the same$"
    with pytest.raises(RunError, match=message):
        auber.prune(*small_start(), task=small_task(40), config=CONFIG, **given)
    with pytest.raises(RunError, match="a run can be matched only with the same"):
        auber.prune(start, task=TASK, config=small_config(seed=3), **given)
