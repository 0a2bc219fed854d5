"""The declared stages of each strategy, and the effort of each."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from auber.data.splits import make_splits
from auber.models.encoders import encoder_of
from auber.run.request import check_pruning
from auber.run.stages import Effort, declare_strategy
from tests.small import small_config, small_start, small_task

TASK = small_task()


def make(method="auber", heads=None, **changes):
    model, tokenizer = small_start()
    config = small_config(**changes)
    request = check_pruning(
        model, tokenizer, task=TASK, method=method, heads=heads, config=config, has_classifier=False
    )
    splits = make_splits(TASK.train.labels, request.config, 3, False)
    return request, splits, encoder_of(model)


def effort_of(method="auber", **changes):
    return Effort(*make(method, **changes))


class FakeSteps(SimpleNamespace):
    """Steps without a model."""

    def __getattr__(self, name):
        return lambda *_: {}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, "first layer-00 layer-01 layer-02 last"),
        ({"search__order": "reverse", "search__layers": "0,2"}, "first layer-02 layer-00 last"),
        ({"reward__latency": 1.0, "search__layers": "1"}, "first timing layer-01 last"),
        ({"method": "random", "heads": 2}, "first plan layer-00 layer-01 layer-02 last"),
        ({"method": "original"}, "first plan"),
        ({"method": "original+tuning", "search__layers": "1"}, "first plan layer-01 last"),
        (
            {"protocol": "crossfit", "reward__folds": 2, "search__layers": "0"},
            "first scout-0 scout-1 layer-00 rewind tuning-00 last",
        ),
        (
            {
                "protocol": "crossfit",
                "reward__folds": 2,
                "search__layers": "0",
                "search__prior": "voita",
                "search__heads": 1,
                "search__rewind": False,
            },
            "first prior scout-0 scout-1 layer-00 budget tuning-00 last",
        ),
    ],
)
def test_the_stages_of_a_strategy(arguments, names):
    request, splits, encoder = make(**arguments)
    folds = splits.folds if request.needs_fold_models else None
    steps = FakeSteps(splits=splits, encoder=encoder, fold_models=folds)
    strategy = declare_strategy(request, steps)
    assert [stage.name for stage in strategy.stages] == names.split()


def test_a_fold_model_counts_its_own_rows():
    epochs = {"first__epochs": 1, "layer__epochs": 1, "last__epochs": 1}
    effort = effort_of(protocol="crossfit", reward__folds=2, **epochs)
    assert len(effort.fold_model(1, [0, 1])) == 1 + 2 + 1
    assert effort.fold_model(1, [0, 1])[0] == 30


def test_more_games_take_longer_until_every_mask_is_known():
    few, many, all_masks = (effort_of(agent__episodes=number).search(0) for number in (2, 3, 500))
    assert few < many <= all_masks == effort_of("exhaustive").search(0)
