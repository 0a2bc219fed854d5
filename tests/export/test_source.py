from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import auber
from auber.data.task_types import TASK_TYPES
from auber.errors import ModelError, RunError
from auber.export.source import read_source
from auber.training.outputs import OUTPUTS
from tests.export.models import save_pruned
from tests.tiny_models import tiny_model, tiny_tokenizer

FINISHED = Path(__file__).parents[1] / "fixtures" / "first-edition" / "finished"


@pytest.fixture
def run(tmp_path):
    return Path(shutil.copytree(FINISHED, tmp_path / "mine"))


def test_a_run_of_the_first_edition(run):
    source, model = read_source(run), read_source(run / "model")
    assert source.name == "mine"
    assert source.encoder.removed == model.encoder.removed
    assert source.heads == (3, 8)
    assert source.result.task == "words"
    assert model.row_length == model.encoder.num_positions
    path = run / "result.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "config": {**result["config"], "max_length": 5}}))
    assert read_source(run).row_length == 5


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("result.json", "mine: the run is not finished; continue it with --resume$"),
        ("model", "mine: a model is needed, the run's own was deleted; make the run again with"),
    ],
)
def test_an_incomplete_run_is_refused(run, missing, message):
    path = run / missing
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    with pytest.raises(RunError, match=message):
        read_source(run)


@pytest.mark.parametrize(
    ("model_type", "inputs"),
    [
        ("bert", ("input_ids", "attention_mask", "token_type_ids")),
        ("distilbert", ("input_ids", "attention_mask")),
    ],
)
def test_inputs_are_those_of_tokenizer_and_model(model_type, inputs, tmp_path):
    auber.save(tiny_model(model_type, pad_token_id=0), tiny_tokenizer(), tmp_path)
    assert read_source(tmp_path).inputs == inputs


def test_a_bare_encoder_is_refused(tmp_path):
    auber.save(tiny_model("bert", bare=True), tiny_tokenizer(), tmp_path / "bare")
    message = (
        r"bare: a model \.\.\.ForSequenceClassification or \.\.\.ForTokenClassification or "
        r"\.\.\.ForQuestionAnswering is needed, found BertModel; fine-tune it for a task first$"
    )
    with pytest.raises(ModelError, match=message):
        read_source(tmp_path / "bare")


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_every_task_type(kind, tmp_path):
    save_pruned(tmp_path, kind=kind)
    source = read_source(tmp_path)
    assert source.task_type is TASK_TYPES[kind]
    assert source.outputs is OUTPUTS[kind]
