"""A fine-tuning run remembers what it was tuned from, and a pruning of it makes its scouts of that."""

from __future__ import annotations

import json
import shutil

import pytest

import auber
from auber.errors import ConfigError, RunError
from auber.progress import Progress
from auber.runs import read_source
from tests.pipeline.test_crossfit import SETTINGS, TASK
from tests.small import small_config, small_start

CONFIG = small_config(**SETTINGS)


class Sayings(Progress):
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def places(tmp_path):
    """An encoder's folder, and a run that has tuned it."""
    auber.save(*small_start(bare=True), tmp_path / "encoder")
    auber.finetune(tmp_path / "encoder", task=TASK, config=CONFIG, out=tmp_path / "start")
    return tmp_path / "encoder", tmp_path / "start"


def prune(start, **more):
    return auber.prune(start, task=TASK, config=CONFIG, out=start.parent / "run", **more)


def test_it_is_found_again(places):
    encoder, start = places
    listener = Sayings()
    found = prune(start, progress=listener)
    assert f"scouts are made of {encoder}, which {start} was tuned from" in listener.said
    named = auber.prune(start, task=TASK, config=CONFIG, out=start.parent / "named", origin=encoder)
    assert (found.plan, found.result["dev"]) == (named.plan, named.result["dev"])
    assert found.result["cost"]["scout_steps"] > 0


def test_a_run_may_go_on_with_the_same_weights_from_elsewhere(places):
    _, start = places
    prune(start)
    moved = shutil.copytree(start, start.parent / "moved")
    again = auber.prune(moved, task=TASK, config=CONFIG, out=start.parent / "run", resume=True)
    assert again.result["plan"] == json.loads((start.parent / "run" / "result.json").read_text())["plan"]


def test_a_start_serves_both_protocols_that_tune_it_on_all_rows(places):
    _, start = places
    seen = auber.prune(start, task=TASK, config=CONFIG.replace({"protocol": "seen"}), out=start.parent / "seen")
    crossed = prune(start)
    assert seen.result["start"] == crossed.result["start"]
    with pytest.raises(
        RunError, match=r"start: was made with protocol 'crossfit', this run has 'heldout'; start from a run made with"
    ):
        auber.prune(start, task=TASK, config=CONFIG.replace({"protocol": "heldout"}), out=start.parent / "held")


def test_it_is_gone(places):
    encoder, start = places
    shutil.rmtree(encoder)
    message = f"^{start}: was tuned from {encoder}, of which scouts are made and which cannot be read .*; name it with --origin, or"
    with pytest.raises(ConfigError, match=message):
        prune(start)
    assert not (start.parent / "run").exists()


def test_it_is_another_by_now(places):
    encoder, start = places
    shutil.rmtree(encoder)
    auber.save(*small_start(bare=True, seed=5), encoder)
    message = f"^{start}: was tuned from {encoder}, of which scouts are made and which holds other weights now; name what it was with"
    with pytest.raises(ConfigError, match=message):
        prune(start)


def test_it_was_tuned_itself(places):
    _, start = places
    second = start.parent / "second"
    auber.finetune(start / "model", task=TASK, config=CONFIG, out=second)
    message = f"^{second}: was tuned from {start / 'model'}, which was fine-tuned itself and may have seen rows that scouts must not: name"
    with pytest.raises(ConfigError, match=message):
        prune(second)


def test_a_live_model_has_no_place(tmp_path):
    auber.finetune(*small_start(), task=TASK, config=CONFIG, out=tmp_path / "start")
    message = f"^{tmp_path / 'start'}: does not say what it was tuned from, and scouts are made of that: name it with --origin, or choose"
    with pytest.raises(ConfigError, match=message):
        prune(tmp_path / "start")


def test_a_source_is_a_hub_name_or_lies_relative_to_the_run(places):
    encoder, start = places
    record = json.loads((start / "run.json").read_text())
    assert record["source"] == "../encoder"
    assert read_source(start) == str(encoder)
    for written, read in (("org/name@main", "org/name@main"), (None, None), (3, None)):
        (start / "run.json").write_text(json.dumps({**record, "source": written}))
        assert read_source(start) == read
