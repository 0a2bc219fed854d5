"""Which layers a run goes through, and what it warns of."""

from __future__ import annotations

import pytest
import torch

import auber
from auber.errors import ModelError
from auber.run.folder import Run
from auber.system.progress import Progress
from tests.small import small_config, small_start, small_task


@pytest.fixture
def searched(monkeypatch):
    """The layers' stages in the order they were finished."""
    stages: list[str] = []
    finish = Run.finish_stage

    def listen(self, name, info, model=None, **options):
        stages.append(name)
        return finish(self, name, info, model, **options)

    monkeypatch.setattr(Run, "finish_stage", listen)
    return stages


def prune(folder, method="greedy", heads=None, **changes):
    config = small_config(first__when="never", last__epochs=0, **changes)
    given = {"task": small_task(), "method": method, "heads": heads, "config": config}
    return auber.prune(*small_start(), **given, out=folder / "run")


@pytest.mark.parametrize(("order", "expected"), [("forward", [0, 2]), ("reverse", [2, 0])])
def test_only_the_layers_named_are_searched(order, expected, searched, tmp_path):
    outcome = prune(tmp_path, search__layers="2,0", search__order=order)
    assert searched == ["first", *(f"layer-{layer:02}" for layer in expected), "last"]
    assert outcome.plan.heads.get(1, ()) == ()
    assert outcome.result["config"]["search.layers"] == "0,2"


class Shares(Progress):
    """Note how much of a run is done whenever a stage ends."""

    def __init__(self):
        super().__init__()
        self.shares = []

    def end(self):
        super().end()
        self.shares.append((self.share, self.planned))


@pytest.mark.parametrize(
    "changes",
    [
        {"search__layers": "0,2"},
        {"protocol": "crossfit", "reward__folds": 2, "search__prior": "voita"},
        {"protocol": "crossfit", "reward__folds": 2, "layer__epochs": 0, "search__heads": 2},
    ],
)
def test_progress_only_grows_and_counts_every_stage(changes):
    progress = Shares()
    config = small_config(**changes)
    start = small_start()
    auber.prune(*start, task=small_task(), method="greedy", config=config, progress=progress)
    shares, planned = zip(*progress.shares, strict=True)
    assert sorted(shares) == list(shares)
    assert shares[-1] == 1
    assert set(planned) == {progress.finished}


def test_a_ranking_that_runs_out_of_memory_says_so(monkeypatch, tmp_path):
    def pass_all(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5 MiB.\nand more")

    monkeypatch.setattr("auber.search.rankings.common.padded_batches", pass_all)
    message = (
        r"^plan: the passes of method 'michel' over the rows do not fit into the memory of "
        r"cpu \(CUDA out of memory. Tried to "
        r"allocate 5 MiB.\); free some of it, or lower max_length$"
    )
    with pytest.raises(ModelError, match=message):
        prune(tmp_path, "michel", heads=2)


@pytest.fixture
def encoder(tmp_path):
    """A bare encoder: a model folder without a classifier."""
    model, tokenizer = small_start()
    auber.save(model.bert, tokenizer, tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.mark.parametrize(
    ("changes", "found", "remedy"),
    [
        ({"first__when": "never"}, "first.when is never", "leave it at auto"),
        ({"first__epochs": 0}, "first.epochs is 0", "raise it"),
    ],
)
def test_scores_of_an_untrained_classifier_are_warned_of_once(
    encoder, changes, found, remedy, caplog
):
    config = small_config(last__epochs=0, search__layers="0", **changes)
    auber.prune(encoder, task=small_task(), method="greedy", config=config)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        f"the classifier is untrained, because the model came without one and {found}: scores say "
        f"nothing about the task or its heads; {remedy}, or start from a fine-tuned model"
    ]


def test_a_classifier_that_is_tuned_first_or_came_trained_needs_no_warning(
    encoder, tmp_path, caplog
):
    auber.prune(encoder, task=small_task(), method="original", config=small_config())
    prune(tmp_path, "original")
    assert caplog.records == []
