"""A fine-tuning run records its pretrained model; fold models are trained from that."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import auber
from auber.errors import ConfigError, RunError
from auber.run.files import read_source
from auber.system.progress import Progress
from tests.run.test_fold_models import SETTINGS, TASK
from tests.small import small_config, small_start, small_task

CONFIG = small_config(**SETTINGS)


class Sayings(Progress):
    """Keeps the messages."""

    def __init__(self):
        super().__init__()
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with an encoder and a run that has tuned it."""
    folder = tmp_path_factory.mktemp("made")
    auber.save(*small_start(bare=True), folder / "encoder")
    auber.finetune(folder / "encoder", task=TASK, config=CONFIG, out=folder / "start")
    return folder


@pytest.fixture
def places(made, tmp_path):
    """Return the folder of an encoder, and of a run that has tuned it."""
    return tuple(shutil.copytree(made / name, tmp_path / name) for name in ("encoder", "start"))


def prune(start, **more):
    return auber.prune(start, task=TASK, config=CONFIG, out=start.parent / "run", **more)


def test_it_is_found_again(places):
    encoder, start = places
    listener = Sayings()
    found = prune(start, progress=listener)
    assert f"fold models are trained from {encoder}, which {start} was tuned from" in listener.said
    named = auber.prune(start, task=TASK, config=CONFIG, out=start.parent / "named", origin=encoder)
    assert (found.plan, found.result["dev"]) == (named.plan, named.result["dev"])
    assert found.result["cost"]["scout_steps"] > 0


def test_a_run_may_go_on_with_the_same_weights_from_elsewhere(places):
    _, start = places
    prune(start)
    moved = shutil.copytree(start, start.parent / "moved")
    again = auber.prune(moved, task=TASK, config=CONFIG, out=start.parent / "run", resume=True)
    assert (
        again.result["plan"]
        == json.loads((start.parent / "run" / "result.json").read_text())["plan"]
    )


def test_a_start_serves_both_protocols_that_tune_it_on_all_rows(places):
    _, start = places
    seen = auber.prune(
        start, task=TASK, config=CONFIG.replace({"protocol": "seen"}), out=start.parent / "seen"
    )
    crossed = prune(start)
    assert seen.result["start"] == crossed.result["start"]
    with pytest.raises(
        RunError,
        match=r"start: was made with protocol 'crossfit', this run has 'heldout'; start from a run "
        r"made with",
    ):
        auber.prune(
            start,
            task=TASK,
            config=CONFIG.replace({"protocol": "heldout"}),
            out=start.parent / "held",
        )


def test_it_is_gone(places):
    encoder, start = places
    shutil.rmtree(encoder)
    message = (
        f"^{start}: was tuned from {encoder}, which fold models are trained from and which "
        f"cannot be read .*; name it with --origin, or"
    )
    with pytest.raises(ConfigError, match=message):
        prune(start)
    assert not (start.parent / "run").exists()


def test_it_is_another_by_now(places):
    encoder, start = places
    shutil.rmtree(encoder)
    auber.save(*small_start(bare=True, seed=5), encoder)
    message = (
        f"^{start}: was tuned from {encoder}, which fold models are trained from and which has "
        f"other weights now; name the earlier ones"
    )
    with pytest.raises(ConfigError, match=message):
        prune(start)


def test_it_was_tuned_itself(places):
    _, start = places
    second = start.parent / "second"
    auber.finetune(start / "model", task=TASK, config=CONFIG, out=second)
    message = (
        f"^{second}: was tuned from {start / 'model'}, which fold models are trained from and "
        f"which was fine-tuned itself, so that it may have seen these rows: name"
    )
    with pytest.raises(ConfigError, match=message):
        prune(second)


def test_a_model_that_has_lost_heads_has_no_origin_with_the_same(places):
    _, start = places
    first = prune(start)
    assert first.plan
    for place in (start.parent / "run", start.parent / "run" / "model"):
        message = (
            f"^{place}: has lost heads already, and fold models are trained from a model with "
            f"the same heads .*; choose --protocol seen$"
        )
        with pytest.raises(ConfigError, match=message):
            auber.prune(place, task=TASK, config=CONFIG, out=start.parent / "again")


def test_a_live_model_has_no_place(tmp_path):
    auber.finetune(*small_start(), task=TASK, config=CONFIG, out=tmp_path / "start")
    message = (
        f"^{tmp_path / 'start'}: does not record what it was tuned from, which fold models are "
        f"trained from: name it with --origin, or choose"
    )
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "start")


def test_a_source_is_a_hub_name_or_lies_relative_to_the_run(places):
    encoder, start = places
    record = json.loads((start / "run.json").read_text())
    assert record["source"] == "../encoder"
    assert read_source(start) == str(encoder)
    for written, read in (("org/name@main", "org/name@main"), (None, None)):
        (start / "run.json").write_text(json.dumps({**record, "source": written}))
        assert read_source(start) == read


SEEN = "is of a run, whose model has seen rows that fold models must not see"


def test_a_model_that_has_seen_rows_is_no_origin(places):
    _, start = places
    for origin in (start, start / "model"):
        with pytest.raises(
            RunError, match=f"^{origin}: {SEEN}; give --origin the model that it started from$"
        ):
            prune(start, origin=origin)
    again = CONFIG.replace({"first.when": "always"})
    for model in (start, start / "model"):
        with pytest.raises(RunError, match=f"^{model}: {SEEN}; give --model what it started from$"):
            auber.prune(model, task=TASK, config=again, out=start.parent / "run")
    assert not (start.parent / "run").exists()


def test_a_trained_classifier_may_have_seen_rows(places):
    encoder, start = places
    elsewhere = shutil.copytree(start / "model", start.parent / "elsewhere")
    listener = Sayings()
    prune(elsewhere, origin=elsewhere, progress=listener)
    assert (
        f"careful: fold models are trained from {elsewhere}, whose classifier is trained "
        f"already; if it was trained on these rows, the rewards are too optimistic" in listener.said
    )
    listener = Sayings()
    auber.prune(
        start,
        task=TASK,
        config=CONFIG,
        out=start.parent / "plain",
        origin=encoder,
        progress=listener,
    )
    assert not [words for words in listener.said if words.startswith("careful: fold models")]


def test_an_origin_that_a_run_was_not_tuned_from_is_refused(places):
    encoder, start = places
    other, tokenizer = small_start(bare=True)
    with torch.no_grad():
        next(other.parameters()).add_(0.5)
    auber.save(other, tokenizer, start.parent / "other" / "encoder")
    message = (
        f"^{start.parent / 'other' / 'encoder'}: the origin must have the weights that "
        f"{start} was tuned from, found others; "
        "give what it was tuned from, or choose --protocol seen$"
    )
    with pytest.raises(ConfigError, match=message):
        prune(start, origin=start.parent / "other" / "encoder")
    assert not (start.parent / "run").exists()
    # The seed of the pruning is another one: so was the classifier that the start began with.
    auber.prune(
        start,
        task=TASK,
        config=CONFIG.replace({"seed": 5}),
        out=start.parent / "seed",
        origin=encoder,
    )


def test_a_model_of_other_rows_may_be_tuned_on(places):
    encoder, start = places
    other = small_task(40)
    auber.finetune(encoder, task=other, config=CONFIG, out=start.parent / "other")
    listener = Sayings()
    found = auber.prune(
        start.parent / "other" / "model",
        task=TASK,
        config=CONFIG.replace({"first.when": "always"}),
        out=start.parent / "run",
        progress=listener,
    )
    assert found.result["cost"]["scout_steps"] > 0
    assert [
        words
        for words in listener.said
        if words.startswith("careful: fold models are trained from ")
    ]


def test_rows_that_tuned_a_start_are_not_held_out_of_it(places):
    _, start = places
    held = CONFIG.replace({"protocol": "heldout", "search.prior": "none", "search.rewind": False})
    message = (
        "model: was made with protocol 'crossfit', this run has 'heldout'; start from a run made "
        "with the same"
    )
    with pytest.raises(RunError, match=message):
        auber.prune(start / "model", task=TASK, config=held)
    listener = Sayings()
    auber.prune(*small_start(), task=TASK, method="random", heads=1, config=held, progress=listener)
    assert [
        words
        for words in listener.said
        if words.startswith("careful: BertForSequenceClassification is fine-tuned; rewards")
    ]


def test_a_control_is_not_begun_with_a_start_that_held_rows_out(places, tmp_path):
    encoder, _ = places
    held = CONFIG.replace({"protocol": "heldout", "search.prior": "none", "search.rewind": False})
    start = tmp_path / "held"
    auber.finetune(encoder, task=TASK, config=held, out=start)
    message = (
        f"^{start}: is tuned without the rows held out, and method 'original' has them from the "
        f"start; give --model what it was tuned from$"
    )
    with pytest.raises(ConfigError, match=message):
        auber.prune(start, task=TASK, method="original", config=held)
    with pytest.raises(ConfigError, match="model: is tuned without the rows held out"):
        auber.prune(start / "model", task=TASK, method="original", config=held)
    found = auber.prune(encoder, task=TASK, method="original", config=held)
    assert found.result["start"] != json.loads((start / "result.json").read_text())["start"]
