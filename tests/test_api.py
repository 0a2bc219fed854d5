from __future__ import annotations

import json

import pytest
import torch

import auber
from auber.data.encoding import encode_rows
from auber.data.generated import build_tokenizer
from auber.errors import CheckpointError, ConfigError, RunError, TaskError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.system.progress import Progress
from auber.training.evaluation import predict
from tests.small import small_config, small_start, small_task
from tests.tiny_models import tiny_model


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A fine-tuned start that several prunings share."""
    folder = tmp_path_factory.mktemp("runs") / "start"
    model, tokenizer = small_start()
    auber.finetune(model, tokenizer, task=small_task(), config=small_config(), out=folder)
    return folder


@pytest.fixture(scope="module")
def pruned(start):
    folder = start.parent / "auber"
    return folder, auber.prune(start, task=small_task(), config=small_config(), out=folder)


def test_a_whole_run_leaves_a_model_that_scores_what_it_reports(pruned):
    folder, outcome = pruned
    result = json.loads((folder / "result.json").read_text())
    assert result == json.loads(json.dumps(outcome.result))
    assert result["heads"]["removed"] == outcome.plan.num_removed
    assert json.loads((folder / "plan.json").read_text()) == outcome.plan.to_json()
    scores = auber.evaluate(folder, task=small_task(), config=small_config())
    assert scores.score == result["dev"]["score"]
    assert scores.loss == pytest.approx(result["dev"]["loss"], abs=1e-6)
    loaded = auber.load(folder / "model")
    rows = encode_rows(auber.load_tokenizer(folder / "model"), small_task().dev, 24, False)
    assert torch.equal(predict(loaded, rows), predict(outcome.model, rows))


def test_dev_is_looked_at_once(pruned):
    folder, _ = pruned
    events = [
        json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()
    ]
    assert events.count("dev_evaluation") == 1


def test_the_run_accounts_for_itself(pruned):
    folder, outcome = pruned
    result = outcome.result
    assert (result["method"], result["protocol"], result["seed"]) == ("auber", "seen", 0)
    assert (result["model"], result["labels"]) == ("BertForSequenceClassification", 2)
    assert result["rows"] == {"train": 60, "dev": 24}
    assert result["gap"] == pytest.approx(result["train"]["score"] - result["dev"]["score"])
    assert result["cost"]["rewards_asked"] >= result["cost"]["rewards_computed"] > 0
    assert result["cost"]["rewards_computed"] == len(
        (folder / "scores.jsonl").read_text().splitlines()
    )
    assert result["tuned_layers"] == [layer for layer in range(3) if outcome.plan.removed(layer)]
    assert result["config"]["agent.episodes"] == 6
    assert result["provenance"]["versions"]["torch"] == torch.__version__
    splits = json.loads((folder / "splits.json").read_text())
    assert len(splits["layers"]) == 3


def test_the_same_seed_gives_the_same_run(pruned, start, tmp_path):
    _, outcome = pruned
    again = auber.prune(start, task=small_task(), config=small_config(), out=tmp_path / "again")
    assert again.plan == outcome.plan
    for key in ("dev", "train", "plan", "tuned_layers", "start"):
        assert again.result[key] == outcome.result[key]
    assert all(
        torch.equal(again.model.state_dict()[name], value)
        for name, value in outcome.model.state_dict().items()
    )


def test_a_complete_run_is_handed_back_at_once(pruned, start):
    folder, outcome = pruned
    before = (folder / "result.json").stat().st_mtime_ns
    again = auber.prune(start, task=small_task(), config=small_config(), out=folder, resume=True)
    assert again.plan == outcome.plan
    assert (folder / "result.json").stat().st_mtime_ns == before


def test_random_matches_another_run(pruned, start, tmp_path):
    folder, outcome = pruned
    matched = auber.prune(
        start,
        task=small_task(),
        method="random",
        heads_from=folder,
        config=small_config(),
        out=tmp_path / "random",
    )
    assert matched.plan.num_removed == outcome.plan.num_removed
    assert matched.result["tuned_layers"] == outcome.result["tuned_layers"]
    assert matched.result["cost"]["tuning_steps"] > 0
    assert matched.result["cost"]["rewards_asked"] == 0
    assert all(len(heads) < 4 for heads in matched.plan.values())


def test_the_controls_remove_nothing(pruned, start, tmp_path):
    folder, outcome = pruned
    original = auber.prune(
        start, task=small_task(), method="original", config=small_config(), out=tmp_path / "o"
    )
    assert original.plan.num_removed == 0
    assert original.result["cost"]["tuning_steps"] == 0
    assert original.result["dev"] == json.loads((start / "result.json").read_text())["dev"]
    control = auber.prune(
        start,
        task=small_task(),
        method="original+tuning",
        heads_from=folder,
        config=small_config(),
        out=tmp_path / "c",
    )
    assert control.plan.num_removed == 0
    assert control.result["tuned_layers"] == outcome.result["tuned_layers"]


class Counter(Progress):
    """Counts the stages that were planned, fell away and ended."""

    planned = ended = weighed = 0

    def plan(self, stages):
        self.planned = stages

    def weigh(self, work):
        assert len(work) == self.planned
        assert min(work) >= 0
        self.weighed += 1

    def skip(self, stages):
        self.planned -= stages

    def end(self):
        self.ended += 1


@pytest.mark.parametrize(
    "method",
    ["auber", "greedy", "random", "confidence", "michel", "voita", "original", "original+tuning"],
)
def test_the_stages_shown_are_the_stages_there_are(method, start, tmp_path):
    counter = Counter()
    heads = 1 if method in ("random", "confidence", "michel", "voita") else None
    arguments = {
        "task": small_task(),
        "method": method,
        "heads": heads,
        "config": small_config(agent__episodes=2),
    }
    auber.prune(start, **arguments, out=tmp_path / "run", progress=counter)
    assert counter.ended == counter.planned > 0
    assert counter.weighed == 1


@pytest.mark.parametrize("method", ["auber-query", "auber-key", "auber-l2", "auber-reverse"])
def test_the_ablations_are_settings(method, start):
    config = small_config(agent__episodes=2, layer__epochs=0, last__epochs=0)
    result = auber.prune(start, task=small_task(), method=method, config=config).result
    changed = {
        "auber-query": ("matrix", "query"),
        "auber-key": ("matrix", "key"),
        "auber-l2": ("norm", "l2"),
    }
    key, value = changed.get(method, ("order", "reverse"))
    assert result["config"][f"search.{key}"] == value
    assert result["method"] == method


def test_heldout_keeps_the_reward_rows_from_the_first_tuning(tmp_path):
    model, tokenizer = small_start()
    config = small_config(protocol="heldout", first__when="always")
    auber.prune(model, tokenizer, task=small_task(), config=config, out=tmp_path / "run")
    splits = json.loads((tmp_path / "run" / "splits.json").read_text())
    assert json.loads((tmp_path / "run" / "result.json").read_text())["protocol"] == "heldout"
    first, watch = set(splits["first"]), set(splits["last_watch"])
    for layer in splits["layers"]:
        assert not first & set(layer["reward"])
        assert set(layer["mini_train"]) <= first
        assert not watch & set(layer["reward"])


def test_a_live_model_is_left_untouched(tmp_path):
    model, tokenizer = small_start()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rows = [{"text": f"the key is {word}", "label": word} for word in ("good", "bad") * 10]
    outcome = auber.prune(
        model, tokenizer, train=rows, dev=rows[:6], config=small_config(agent__episodes=2)
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert type(outcome.model) is type(model)


def test_a_pruned_model_can_be_pruned_again(pruned, tmp_path):
    """The heads that are gone stay gone and are counted."""
    folder, outcome = pruned
    again = auber.prune(
        str(folder / "model"),
        task=small_task(),
        method="random",
        heads=1,
        config=small_config(last__epochs=0),
        out=tmp_path / "r",
    )
    assert again.plan.num_removed == outcome.plan.num_removed + 1
    assert outcome.plan.num_removed > 0
    assert all({*heads} <= {*again.plan.removed(layer)} for layer, heads in outcome.plan.items())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "aubre"}, ConfigError, "Unknown method 'aubre'. Did you mean 'auber'?"),
        (
            {"heads": 2},
            ConfigError,
            "method 'auber' decides itself how many heads go; leave out --heads",
        ),
        (
            {"method": "random"},
            ConfigError,
            "method 'random' must be told how many heads to remove; give --heads P or",
        ),
        (
            {"method": "random", "heads": 10},
            ConfigError,
            r"--heads must be from 0 to 9 \(one head stays in each layer\), found 10",
        ),
        ({"method": "random", "heads": -1}, ConfigError, "--heads must be 0 or more, found -1"),
        (
            {"method": "original", "heads": 5},
            ConfigError,
            "method 'original' removes no heads; leave out --heads",
        ),
        (
            {"train": [], "dev": []},
            ConfigError,
            "give either a task or train and dev rows, found both",
        ),
        ({"task": None}, ConfigError, "give either a task or train and dev rows, found neither"),
        (
            {"task": None, "train": [{}]},
            ConfigError,
            "train rows need dev rows beside them, found train alone",
        ),
        (
            {"metric": "f1"},
            ConfigError,
            "^metric is for rows given as train and dev, found a task beside it; leave one out$",
        ),
        (
            {"labels": ["a", "b"]},
            ConfigError,
            "^labels is for rows given as train and dev, found a task beside it",
        ),
        (
            {"dev": "dev.csv"},
            ConfigError,
            "^dev is for rows given as train and dev, found a task beside it",
        ),
        ({"task": "mprc"}, TaskError, "Unknown task 'mprc'. Did you mean 'mrpc'?"),
        ({"method": "random", "heads_from": "nowhere"}, RunError, "nowhere: not a run's folder"),
        (
            {"config": small_config(agent__replay_size=4)},
            ConfigError,
            r"agent.replay_size must be at least agent.learning_starts \(8\), found 4: no update would ever be made",
        ),
        (
            {"config": small_config(agent__learning_starts=25, agent__choose="rollout")},
            ConfigError,
            "^layer 0: agent.episodes must be so many that the agent learns, found 6: its games on 4 heads make 24 moves at most, and the "
            "first update waits for 25; raise it, lower agent.learning_starts, or let agent.choose=best decide$",
        ),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_computed(
    start, tmp_path, arguments, error, message
):
    with pytest.raises(error, match=message):
        auber.prune(
            start,
            **{"task": small_task(), "config": small_config(), "out": tmp_path / "x", **arguments},
        )
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("work", [auber.prune, auber.finetune])
def test_too_few_rows_leave_no_folder_behind(work, tmp_path):
    model, tokenizer = small_start()
    message = "^train, rows to watch: at least one row is needed, it would have none of 4; raise last.watch_fraction or give more rows$"
    with pytest.raises(TaskError, match=message):
        work(model, tokenizer, task=small_task(4), config=small_config(), out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_more_heads_than_can_be_searched_through_are_said_before_the_first_tuning(tmp_path):
    model, tokenizer = small_start(hidden_size=34, num_attention_heads=17)
    message = r"^layer 0: method 'exhaustive' scores every mask and takes layers of at most 16 heads, found 17 heads; use"
    with pytest.raises(ConfigError, match=message):
        auber.prune(
            model,
            tokenizer,
            task=small_task(),
            method="exhaustive",
            config=small_config(),
            out=tmp_path / "x",
        )
    assert not (tmp_path / "x").exists()


def test_more_shards_than_rows_are_said_before_the_first_tuning(tmp_path):
    model, tokenizer = small_start()
    config = small_config(reward__shards=99, first__when="always")
    with pytest.raises(
        ConfigError,
        match=r"^reward.shards must be at most the number of reward rows \(40\), found 99; ",
    ):
        auber.prune(model, tokenizer, task=small_task(), config=config, out=tmp_path / "x")
    assert [*(tmp_path / "x" / "stages").iterdir()] == []


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [("seen", "set protocol=crossfit and give --heads"), ("crossfit", "give --heads")],
)
def test_a_search_does_not_take_its_number_from_another_run(start, pruned, protocol, remedy):
    message = f"^--heads-from is for methods that are told how many heads go, and 'auber' is none; leave it out, or {remedy}$"
    with pytest.raises(ConfigError, match=message):
        auber.prune(
            start, task=small_task(), heads_from=pruned[0], config=small_config(protocol=protocol)
        )


def test_heads_and_heads_from_exclude_each_other(start, pruned):
    with pytest.raises(ConfigError, match="--heads and --heads-from exclude each other; give one"):
        auber.prune(
            start,
            task=small_task(),
            method="random",
            heads=1,
            heads_from=pruned[0],
            config=small_config(),
        )


def test_a_group_of_processes_needs_a_folder_it_can_share(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(
        ConfigError,
        match="^out: a group of 2 processes shares the run's folder, found none; give out='runs/mine'$",
    ):
        auber.prune(*small_start(), task=small_task(), config=small_config())


class Stop(Progress):
    """Stops a run at its first stage."""

    def begin(self, stage, total):
        raise KeyboardInterrupt


def test_a_run_begun_by_a_group_does_not_go_on_as_one_process(start, tmp_path, monkeypatch):
    asked = {"task": small_task(), "config": small_config(), "out": tmp_path / "run"}
    with monkeypatch.context() as group:
        group.setattr("auber.api.num_processes", lambda: 2)
        with pytest.raises(KeyboardInterrupt):
            auber.prune(start, **asked, progress=Stop())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["processes"] == 2
    message = r"run: is another run: processes was 2 and is now 1; use the same settings \(torchrun --nproc-per-node 2\) or another --out$"
    with pytest.raises(RunError, match=message):
        auber.prune(start, **asked, resume=True)


def test_a_run_goes_on_where_torch_finds_another_number_of_cores(start, tmp_path):
    """With the number that it was begun with, as the message says."""
    task, out = small_task(), tmp_path / "run"
    torch.set_num_threads(1)
    with pytest.raises(KeyboardInterrupt):
        auber.prune(start, task=task, config=small_config(threads=0), out=out, progress=Stop())
    torch.set_num_threads(2)
    try:
        message = r"run: is another run: computed_on_threads was 1 and is now 2; use the same settings \(--set threads=1\) or"
        with pytest.raises(RunError, match=message):
            auber.prune(start, task=task, config=small_config(threads=0), out=out, resume=True)
        pruned = auber.prune(start, task=task, config=small_config(threads=1), out=out, resume=True)
    finally:
        torch.set_num_threads(1)
    assert pruned.result["provenance"]["threads"] == 1


def test_a_live_model_needs_its_tokenizer():
    model, _ = small_start()
    with pytest.raises(ConfigError, match="a live model needs its tokenizer beside it"):
        auber.prune(model, task=small_task(), config=small_config())


def test_a_start_of_another_protocol_is_refused(start):
    with pytest.raises(
        RunError,
        match="was made with protocol 'seen', this run has 'heldout'; start from a run made with",
    ):
        auber.prune(start, task=small_task(), config=small_config(protocol="heldout"))


def test_a_start_of_other_rows_is_refused_in_words(start):
    message = (
        r"start: was made with other rows \(task agreement\) than this run has \(task agreement\); start from a run made with the "
        "same, or from the pretrained model$"
    )
    with pytest.raises(RunError, match=message):
        auber.prune(start, task=small_task(40), config=small_config())


@pytest.mark.parametrize(
    "key", ["layer.epochs", "last.learning_rate", "reward.fraction", "max_length"]
)
@pytest.mark.parametrize("method", ["random", "original+tuning"])
def test_a_run_with_other_tunings_cannot_be_matched(pruned, start, tmp_path, key, method):
    value = {
        "layer.epochs": 3,
        "last.learning_rate": 1e-4,
        "reward.fraction": 0.5,
        "max_length": 20,
    }[key]
    was = small_config().flat()[key]
    message = rf"auber: has {key} = {was}, this run {value}; a run is compared only with the same tuning: give --set {key}={was}$"
    config = small_config().replace({key: value})
    with pytest.raises(RunError, match=message):
        auber.prune(start, task=small_task(), method=method, heads_from=pruned[0], config=config)


@pytest.mark.parametrize("method", ["random", "original+tuning"])
def test_a_run_from_other_weights_cannot_be_matched(pruned, tmp_path, method):
    model, tokenizer = small_start()
    with pytest.raises(
        RunError, match="the run to match started from other fine-tuned weights than this one"
    ):
        auber.prune(
            model, tokenizer, task=small_task(), method=method, heads_from=pruned[0],
            config=small_config(first__when="always", seed=0, first__epochs=1),
        )  # fmt: skip


def test_a_damaged_run_cannot_be_matched(start, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "result.json").write_text('{"format": 1}')
    with pytest.raises(
        RunError,
        match="result.json: lacks 'data'; it is damaged or of another version, make the run again",
    ):
        auber.prune(
            start, task=small_task(), method="random", heads_from=tmp_path, config=small_config()
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"config": {"seed": 1}},
            r"^config: a preset's name or a Config is needed, found dict; single settings go into auber",
        ),
        ({"heads": "3"}, "^--heads must be a whole number, found '3'$"),
        ({"heads": True}, "^--heads must be a whole number, found True$"),
        (
            {"task": 3},
            "^task: a name or a TaskData is needed, found int; auber.make_task makes one of rows$",
        ),
        (
            {"model": None},
            "^model: a folder, a hub name, a finished run or a live transformers model is needed, found NoneType$",
        ),
        (
            {"resume": True},
            "^resume: goes on with the run in a folder, found none; give out='runs/mine'$",
        ),
    ],
)
def test_a_value_of_another_type_is_a_mistake_in_one_line(start, arguments, message):
    arguments = {
        "model": start,
        "task": small_task(),
        "config": small_config(),
        "method": "random",
        "heads": 1,
        **arguments,
    }
    with pytest.raises(auber.AuberError, match=message):
        auber.prune(arguments.pop("model"), **arguments)


def long_rows():
    """One row of each split is longer than a tiny model has positions."""
    rows = [{"text": f"the key is {word}", "label": word} for word in ("good", "bad") * 10]
    return [*rows, {"text": "the key " * 100, "label": "good"}]


def test_rows_must_fit_the_positions_of_the_model():
    model, tokenizer = small_start()
    most = encoder_of(model).most_tokens
    task = auber.make_task(long_rows()[:-1], long_rows())
    message = rf"^task own: a dev row has 202 tokens and BertForSequenceClassification positions for {most}; set max_length={most}$"
    config = small_config(max_length=512)
    for call in (
        lambda: auber.prune(model, tokenizer, task=task, method="random", heads=1, config=config),
        lambda: auber.finetune(model, tokenizer, task=task, config=config),
        lambda: auber.evaluate(model, tokenizer, task=task, config=config),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
    auber.evaluate(model, tokenizer, task=task, config=small_config(max_length=most))
    auber.evaluate(
        model, tokenizer, task=task, config=config, split="train"
    )  # no row of it is that long


@pytest.mark.parametrize("model_type", ["modernbert", "deberta-v2"])
def test_relative_positions_do_not_run_out(model_type):
    assert encoder_of(tiny_model(model_type)).most_tokens is None


def test_rows_that_are_cut_are_counted(tmp_path):
    said = []

    class Listener(Progress):
        def say(self, text):
            said.append(text)

    model, tokenizer = small_start()
    task = auber.make_task(long_rows(), long_rows()[:6])
    auber.prune(
        model,
        tokenizer,
        task=task,
        method="random",
        heads=1,
        config=small_config(),
        progress=Listener(),
    )
    assert said[0] == "1 of 21 train rows are cut to 24 tokens (max_length)"


def test_a_run_of_other_rows_cannot_be_matched(pruned):
    model, tokenizer = small_start()
    message = r"auber: has other rows of its task; a run can be matched only with the same$"
    with pytest.raises(RunError, match=message):
        auber.prune(
            model,
            tokenizer,
            task=small_task(40),
            method="random",
            heads_from=pruned[0],
            config=small_config(),
        )


def test_only_runs_of_one_kind_can_be_matched(start, pruned):
    with pytest.raises(RunError, match="a run can be matched only with the same"):
        auber.prune(
            start,
            task=small_task(),
            method="random",
            heads_from=pruned[0],
            config=small_config(seed=3),
        )


def test_a_matched_run_must_share_the_start(pruned, tmp_path):
    model, tokenizer = small_start(seed=5)
    with pytest.raises(
        RunError, match="the run to match started from other fine-tuned weights than this one"
    ):
        auber.prune(
            model,
            tokenizer,
            task=small_task(),
            method="random",
            heads_from=pruned[0],
            config=small_config(),
            out=tmp_path / "r",
        )


def test_evaluating_on_a_task_of_other_labels(pruned):
    model, tokenizer = small_start(num_labels=3)
    message = r"^the live BertForSequenceClassification: its trained classifier has 3 labels, the task has 2; choose the task"
    with pytest.raises(CheckpointError, match=message):
        auber.evaluate(model, tokenizer, task=small_task(), config=small_config())


def test_labels_in_another_order_are_not_scored_upside_down(tmp_path):
    model, tokenizer = small_start()
    names = small_task().label_names
    model.config.id2label = dict(enumerate(reversed(names)))
    checkpoint.save(model, tokenizer, tmp_path / "model")
    order = rf": its classifier orders the labels {names[1]}, {names[0]}, the task {names[0]}, {names[1]}; give the task that order \(--labels {names[1]},{names[0]}\)$"
    with pytest.raises(CheckpointError, match=f"^{tmp_path / 'model'}{order}"):
        auber.evaluate(tmp_path / "model", task=small_task(), config=small_config())
    with pytest.raises(CheckpointError, match=f"^the live BertForSequenceClassification{order}"):
        auber.evaluate(model, tokenizer, task=small_task(), config=small_config())


LIVE = "^the live BertForSequenceClassification: its "


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_labels": 3},
            f"{LIVE}trained classifier has 3 labels, the task has 2; choose the task it was trained on",
        ),
        (
            {"vocab_size": 20},
            f"{LIVE}tokenizer has 59 tokens, its model 20; use the tokenizer the model was trained with",
        ),
    ],
)
def test_a_live_model_must_fit_the_task_as_a_folder_must(changes, message):
    model, tokenizer = (
        tiny_model("bert", **{"vocab_size": 59, "pad_token_id": 0, **changes}),
        build_tokenizer(),
    )
    for call in (auber.prune, auber.finetune, auber.evaluate):
        with pytest.raises(CheckpointError, match=message):
            call(model, tokenizer, task=small_task(), config=small_config())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_live_model_is_tuned_in_float32_as_its_folder_is(dtype, tmp_path):
    model, tokenizer = small_start()
    model.to(dtype)
    checkpoint.save(model, tokenizer, tmp_path / "model")
    config = small_config(first__when="always", first__epochs=1)
    live, stored = (
        auber.finetune(*given, task=small_task(), config=config, out=tmp_path / out)
        for given, out in (((model, tokenizer), "live"), ((tmp_path / "model",), "stored"))
    )
    assert model.dtype == dtype
    assert live.model.dtype == torch.float32
    assert live.result["dev"] == stored.result["dev"]
    assert checkpoint.weights_digest(live.model) == checkpoint.weights_digest(stored.model)
    assert live.model.config.id2label == dict(enumerate(small_task().label_names))


@pytest.mark.parametrize("is_live", [True, False])
def test_classes_of_other_names_are_taken_with_one_warning(is_live, tmp_path, caplog):
    model, tokenizer = small_start()
    model.config.id2label = {0: "bad", 1: "good"}
    checkpoint.save(model, tokenizer, tmp_path / "model")
    given = (model, tokenizer) if is_live else (tmp_path / "model",)
    ours = ", ".join(small_task().label_names)
    words = (
        f"its classes are bad, good, the task's {ours}: they are taken for each other in this order"
    )
    auber.evaluate(*given, task=small_task(), config=small_config())
    config = small_config(agent__episodes=1, last__epochs=0, layer__epochs=0)
    auber.prune(*given, task=small_task(), method="greedy", config=config, out=tmp_path / "run")
    found = [record.getMessage() for record in caplog.records if "classes" in record.getMessage()]
    names = (
        ["the live BertForSequenceClassification", "BertForSequenceClassification"]
        if is_live
        else [tmp_path / "model", "model"]
    )
    assert found == [f"careful: {name}: {words}" for name in names]
    caplog.clear()
    auber.evaluate(tmp_path / "run", task=small_task(), config=small_config())
    assert "classes" not in caplog.text, "the run's model has the task's names"
