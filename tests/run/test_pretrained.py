"""A fine-tuning run records its pretrained model; fold models are trained from that."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import auber
from auber.errors import ConfigError, RunError
from auber.run.files import read_source
from tests.run.test_fold_models import SETTINGS, TASK
from tests.small import Messages, small_config, small_start, small_task

CONFIG = small_config(**SETTINGS)


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


def prune(start, *, out="run", changes=(), **options):
    config = CONFIG.replace(dict(changes))
    return auber.prune(start, task=TASK, config=config, out=start.parent / out, **options)


def test_it_is_found_again(places):
    encoder, start = places
    messages = Messages()
    found = prune(start, progress=messages)
    assert f"fold models are trained from {encoder}, which {start} was tuned from" in messages.said
    named = prune(start, out="named", origin=encoder)
    assert (found.plan, found.result["dev"]) == (named.plan, named.result["dev"])
    assert found.result["cost"]["scout_steps"] > 0


def test_a_run_may_go_on_with_the_same_weights_from_elsewhere(places):
    _, start = places
    plan = prune(start).plan
    moved = shutil.copytree(start, start.parent / "moved")
    assert prune(moved, resume=True).plan == plan


def test_a_start_serves_both_protocols_that_tune_it_on_all_rows(places):
    _, start = places
    seen = prune(start, out="seen", changes={"protocol": "seen"})
    assert seen.result["start"] == prune(start).result["start"]
    message = "start: was made with protocol 'crossfit', this run has 'heldout'; start from a run"
    with pytest.raises(RunError, match=message):
        prune(start, out="held", changes={"protocol": "heldout"})


@pytest.mark.parametrize(
    ("is_there", "words"),
    [(False, "cannot be read .*; name it with"), (True, "has other weights now; name the earlier")],
)
def test_it_is_gone_or_another_by_now(places, is_there, words):
    encoder, start = places
    shutil.rmtree(encoder)
    if is_there:
        auber.save(*small_start(bare=True, seed=5), encoder)
    message = f"^{start}: was tuned from {encoder}, which fold models are trained from and which "
    with pytest.raises(ConfigError, match=message + words):
        prune(start)
    assert not (start.parent / "run").exists()


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
            f"the same heads .*; choose protocol seen$"
        )
        with pytest.raises(ConfigError, match=message):
            auber.prune(place, task=TASK, config=CONFIG, out=start.parent / "again")


def test_a_live_model_has_no_place(tmp_path):
    auber.finetune(*small_start(), task=TASK, config=CONFIG, out=tmp_path / "start")
    message = (
        f"^{tmp_path / 'start'}: does not record what it was tuned from, which fold models are "
        f"trained from: name it with origin, or choose"
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
            RunError, match=f"^{origin}: {SEEN}; give origin the model that it started from$"
        ):
            prune(start, origin=origin)
    for model in (start, start / "model"):
        with pytest.raises(RunError, match=f"^{model}: {SEEN}; give model what it started from$"):
            auber.prune(model, task=TASK, config=CONFIG.replace({"first.when": "always"}))
    assert not (start.parent / "run").exists()


def test_a_trained_classifier_may_have_seen_rows(places):
    encoder, start = places
    elsewhere = shutil.copytree(start / "model", start.parent / "elsewhere")
    messages = Messages()
    prune(elsewhere, origin=elsewhere, progress=messages)
    assert (
        f"warning: fold models are trained from {elsewhere}, whose classifier is trained "
        f"already; if it was trained on these rows, the rewards are too optimistic" in messages.said
    )
    messages = Messages()
    prune(start, out="plain", origin=encoder, progress=messages)
    assert not [words for words in messages.said if words.startswith("warning: fold models")]


def test_an_origin_that_a_run_was_not_tuned_from_is_refused(places):
    encoder, start = places
    other, tokenizer = small_start(bare=True)
    with torch.no_grad():
        next(other.parameters()).add_(0.5)
    auber.save(other, tokenizer, start.parent / "other" / "encoder")
    message = (
        f"^{start.parent / 'other' / 'encoder'}: the origin must have the weights that "
        f"{start} was tuned from, found others; "
        "give what it was tuned from, or choose protocol seen$"
    )
    with pytest.raises(ConfigError, match=message):
        prune(start, origin=start.parent / "other" / "encoder")
    assert not (start.parent / "run").exists()
    # The seed of the pruning is another one: so was the classifier that the start began with.
    prune(start, out="seed", changes={"seed": 5}, origin=encoder)


def test_a_model_of_other_rows_may_be_tuned_on(places):
    encoder, start = places
    other = small_task(40)
    auber.finetune(encoder, task=other, config=CONFIG, out=start.parent / "other")
    messages = Messages()
    found = auber.prune(
        start.parent / "other" / "model",
        task=TASK,
        config=CONFIG.replace({"first.when": "always"}),
        out=start.parent / "run",
        progress=messages,
    )
    assert found.result["cost"]["scout_steps"] > 0
    assert [
        words
        for words in messages.said
        if words.startswith("warning: fold models are trained from ")
    ]


HELD = CONFIG.replace({"protocol": "heldout", "search.prior": "none", "search.rewind": False})


def test_rows_that_tuned_a_start_are_not_held_out_of_it(places):
    with pytest.raises(RunError, match="model: was made with protocol 'crossfit', this run has 'h"):
        auber.prune(places[1] / "model", task=TASK, config=HELD)
    messages = Messages()
    auber.prune(*small_start(), task=TASK, method="random", heads=1, config=HELD, progress=messages)
    caution = "warning: BertForSequenceClassification is fine-tuned; rewards"
    assert [words for words in messages.said if words.startswith(caution)]


def test_a_control_is_not_begun_with_a_start_that_held_rows_out(places, tmp_path):
    encoder, _ = places
    start = tmp_path / "held"
    auber.finetune(encoder, task=TASK, config=HELD, out=start)
    message = (
        f"^{start}: is tuned without the rows held out, and method 'original' has them from the "
        f"start; give model what it was tuned from$"
    )
    with pytest.raises(ConfigError, match=message):
        auber.prune(start, task=TASK, method="original", config=HELD)
    with pytest.raises(ConfigError, match="model: is tuned without the rows held out"):
        auber.prune(start / "model", task=TASK, method="original", config=HELD)
    found = auber.prune(encoder, task=TASK, method="original", config=HELD)
    assert found.result["start"] != json.loads((start / "result.json").read_text())["start"]
