"""The declared stages of each strategy, and the effort of each."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from auber.data.splits import make_splits
from auber.models.encoders import encoder_of
from auber.run.stages import declare_strategy
from auber.run.validation import check_pruning
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
    steps = FakeSteps(request=request, splits=splits, encoder=encoder, fold_models=folds)
    strategy = declare_strategy(steps)
    assert [stage.name for stage in strategy.stages] == names.split()
