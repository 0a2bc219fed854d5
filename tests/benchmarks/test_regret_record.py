"""Tables recorded from a tiny model: every score is that of the masked models, and replays work."""

from __future__ import annotations

import subprocess
import sys
from statistics import fmean

import pytest

import auber
from auber.config import make_config
from auber.data.encoding import encode_split
from auber.data.splits import make_splits
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import masked
from auber.search.blocks import rank_by_norm
from auber.search.players.exhaustive import all_masks
from auber.system.progress import Progress
from auber.training.evaluation import predict
from benchmarks import tiny
from benchmarks.common import ROOT
from benchmarks.regret import record
from benchmarks.regret.result import measure_regret
from benchmarks.regret.tables import read_tables

SETTINGS = {"threads": 1, "max_length": 16, "first.epochs": 1, "first.learning_rate": 1e-3}
SETTINGS |= {"reward.folds": 2}


@pytest.fixture
def task(monkeypatch):
    task = auber.make_task(tiny.GOLDEN / "train.csv", tiny.GOLDEN / "dev.csv", name="words")
    monkeypatch.setattr(record, "load_task", lambda name, data: task)
    return task


def accuracy_by_hand(models, folds, train, rewarded, plan):
    """Mask each model, and count its right answers on its rows."""
    right = []
    for model, fold in zip(models, folds, strict=True):
        rows = train.select([row for row in fold if row in rewarded])
        with masked(model, plan):
            right += (predict(model, rows).argmax(-1) == rows.labels).tolist()
    return fmean(right)


@pytest.mark.parametrize(
    ("units", "protocol"), [("heads", "seen"), ("neurons", "seen"), ("neurons", "crossfit")]
)
def test_every_mask_is_scored(units, protocol, task, tmp_path, monkeypatch):
    tuned, finetune = [], record.api.finetune

    def keep(*given, **named):
        tuned.append(finetune(*given, **named))
        return tuned[-1]

    monkeypatch.setattr(record.api, "finetune", keep)
    monkeypatch.setattr(record, "_BLOCKS", 3)
    model, out = tiny.save_model(tmp_path / "model"), tmp_path / "out.json"
    words = ["--model", model, "--task", "words", "--layers", "0,1", "--units", units]
    words += ["--protocol", protocol, "--out", out]
    words += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    record.main([str(word) for word in words])
    (run,) = read_tables([out])
    assert (run.model, run.task, run.protocol, run.units) == ("model", "words", protocol, units)
    config = make_config("default", settings=SETTINGS | {"protocol": protocol})
    splits = make_splits(task.train.labels, config, 2, without_classes=False, rows=task.train)
    folds = splits.folds or [range(len(task.train))]
    assert len(tuned) == len(folds)
    models = [each.model for each in tuned]
    train, encoder = encode_split(tuned[0].tokenizer, task, "train", 16), encoder_of(models[0])
    for layer, table in enumerate(run.layers):
        rewarded = splits.layers[layer].reward
        assert (table.layer, table.reward_rows) == (layer, len(rewarded))
        blocks = [(head,) for head in range(4)]
        if units == "neurons":
            blocks = rank_by_norm(encoder, layer, encoder.present_neurons(layer), 3)
        for mask in all_masks(range(len(blocks))):
            plan = PruningPlan(**{units: {layer: [unit for at in mask for unit in blocks[at]]}})
            by_hand = accuracy_by_hand(models, folds, train, rewarded, plan)
            assert table.known[mask] == pytest.approx(by_hand)
    result = measure_regret([run], ["paper", "surrogate", "random"], 1, Progress())
    assert [panel.units for panel in result.panels] == [units]


def test_a_gpu_machine_needs_no_optional_package():
    code = (
        "import sys\n"
        "for name in 'ray onnx jinja2 matplotlib mlflow datasets gymnasium'.split():\n"
        "    sys.modules[name] = None\n"
        "import benchmarks.regret.record, benchmarks.develop\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
