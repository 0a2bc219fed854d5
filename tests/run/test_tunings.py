"""The rows and settings of the tunings of a run and of its fold models."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from auber.data.splits import LayerSplit, Splits
from auber.run import tunings
from auber.run.tunings import Tunings
from auber.system.progress import Progress
from auber.training.tuning import TuningReport
from tests.small import cpu, small_config, small_rows

# Only the last row is watched, and the tuning after layer 1 has only rows of fold 2.
SPLITS = Splits(
    "crossfit",
    first=tuple(range(12)),
    original_first=tuple(range(12)),
    layers=(LayerSplit((0, 4, 8), (1, 2, 3)), LayerSplit((8, 9), (0, 1))),
    last_train=tuple(range(11)),
    last_watch=(11,),
    folds=((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)),
)


@pytest.fixture
def heard(monkeypatch):
    calls = []

    def listen(model, rows, settings, *, watch, stage, name, seed, **_):
        calls.append(
            (stage, name, len(rows), type(settings).__name__, watch and len(watch[0]), seed)
        )
        return TuningReport(1, 0.5)

    monkeypatch.setattr(tunings, "tune", listen)
    return calls


def made(fold=None):
    job = SimpleNamespace(
        config=small_config(),
        hardware=cpu(),
        task=SimpleNamespace(metric="accuracy", is_answered=False),
        is_taught=lambda share: False,
    )
    return Tunings(job, small_rows(12), SPLITS, Progress(), fold)


def test_the_tunings_of_a_run_in_their_order(heard):
    assert len(made().run_all("model", [0, 1])) == 4
    assert [call[:5] for call in heard] == [
        ("first tuning", "first/tuning", 12, "FirstTuning", None),
        ("layer 0: tuning", "layer-00/tuning", 3, "LayerTuning", None),
        ("layer 1: tuning", "layer-01/tuning", 2, "LayerTuning", None),
        ("last tuning", "last/tuning", 11, "LastTuning", 1),
    ]


def test_a_fold_model_has_the_same_without_its_fold(heard):
    own = made()
    own.run_all("model", [0, 1])
    made(fold=1).run_all("fold model", [0, 1])
    assert [call[:5] for call in heard[4:]] == [
        ("fold model 2 of 3: first tuning", "scout-1/first/tuning", 8, "FirstTuning", None),
        ("fold model 2 of 3: layer 0: tuning", "scout-1/layer-00/tuning", 2, "LayerTuning", None),
        ("fold model 2 of 3: layer 1: tuning", "scout-1/layer-01/tuning", 2, "LayerTuning", None),
        ("fold model 2 of 3: last tuning", "scout-1/last/tuning", 7, "LastTuning", 1),
    ]
    assert [call[5] for call in heard[:4]] == [call[5] for call in heard[4:]], "from the same seeds"


def test_where_no_row_is_left_nothing_is_tuned_or_watched(heard):
    reports = made(fold=2).run_all("fold model", [0, 1])
    assert [call[1:5] for call in heard] == [
        ("scout-2/first/tuning", 8, "FirstTuning", None),
        ("scout-2/layer-00/tuning", 2, "LayerTuning", None),
        ("scout-2/last/tuning", 8, "LastTuning", None),
    ]
    assert [report.steps for report in reports] == [1, 1, 0, 1]


def test_the_first_on_other_rows(heard):
    made().first("model", (1, 2))
    assert heard[0][:3] == ("first tuning", "first/tuning", 2)


def test_the_first_again_has_a_name_of_its_own_and_is_the_same(heard):
    own = made()
    own.first("model")
    own.first_after_rewind("pruned")
    assert heard[1][:2] == ("first tuning of the pruned model", "rewind/tuning")
    assert heard[1][2:] == heard[0][2:], "rows, settings and seed"
