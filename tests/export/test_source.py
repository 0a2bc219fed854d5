from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from auber.data.task_types import TASK_TYPES
from auber.errors import RunError
from auber.export.source import read_source
from tests.export.models import save_pruned

FINISHED = Path(__file__).parents[1] / "fixtures" / "first-edition" / "finished"


@pytest.fixture
def run(tmp_path):
    return Path(shutil.copytree(FINISHED, tmp_path / "mine"))


def test_a_run_of_the_first_edition(run):
    source, model = read_source(run), read_source(run / "model")
    assert source.name == "mine"
    assert source.encoder.removed == model.encoder.removed
    assert (source.units["heads"], source.result.task) == ((3, 8), "words")
    assert model.row_length == model.encoder.num_positions
    path = run / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "config": {**result["config"], "max_length": 5}}))
    assert read_source(run).row_length == 5


def test_an_incomplete_run_is_refused(run):
    shutil.rmtree(run / "model")
    message = "mine: a model is needed, the run's own was deleted; make the run again with"
    with pytest.raises(RunError, match=message):
        read_source(run)
    (run / "result.json").unlink()
    message = "mine: the run is not finished; continue it with --resume$"
    with pytest.raises(RunError, match=message):
        read_source(run)


@pytest.mark.parametrize(
    ("model_type", "kind", "inputs"),
    [
        ("bert", "spans", ("input_ids", "attention_mask", "token_type_ids")),
        ("distilbert", "tokens", ("input_ids", "attention_mask")),
    ],
)
def test_inputs_are_those_of_tokenizer_and_model(model_type, kind, inputs, tmp_path):
    save_pruned(tmp_path, model_type=model_type, kind=kind)
    source = read_source(tmp_path)
    assert source.inputs == inputs
    assert source.task_type is TASK_TYPES[kind]
