from __future__ import annotations

import json

import pytest

import auber
from auber.data.task_types import TASK_TYPES
from auber.errors import ModelError, RunError
from auber.export.source import open_source
from auber.training.outputs import OUTPUTS
from tests.export.models import save_pruned
from tests.tiny_models import tiny_model, tiny_tokenizer


def make_run(folder, *, finished=True, keep_weights=True):
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    if finished:
        (folder / "result.json").write_text(
            json.dumps({"task": "rte", "config": {"max_length": 5}})
        )
    if keep_weights:
        save_pruned(folder / "model")
    return folder


def test_a_run_and_its_model_folder_are_the_same(tmp_path):
    run = make_run(tmp_path / "mine")
    assert open_source(run).name == "mine"
    assert open_source(run).encoder.removed == open_source(run / "model").encoder.removed
    assert open_source(run).encoder.removed.num_removed == 6


def test_inputs_are_what_the_tokenizer_gives_and_the_model_reads(tmp_path):
    save_pruned(tmp_path / "bert")
    assert open_source(tmp_path / "bert").inputs == (
        "input_ids",
        "attention_mask",
        "token_type_ids",
    )
    auber.save(tiny_model("distilbert", pad_token_id=0), tiny_tokenizer(), tmp_path / "distilbert")
    assert open_source(tmp_path / "distilbert").inputs == ("input_ids", "attention_mask")


def test_rows_are_cut_as_the_run_did(tmp_path):
    run = make_run(tmp_path / "mine")
    assert open_source(run).row_length == 5
    model = open_source(run / "model")
    assert model.row_length == model.encoder.num_positions


def test_an_unfinished_run_is_refused(tmp_path):
    run = make_run(tmp_path / "mine", finished=False)
    with pytest.raises(RunError, match="mine: the run is not finished; continue it with --resume$"):
        open_source(run)


def test_a_run_without_weights_is_refused(tmp_path):
    run = make_run(tmp_path / "mine", keep_weights=False)
    with pytest.raises(
        RunError,
        match="mine: a model is needed, the run's own was deleted; make the run again with",
    ):
        open_source(run)


def test_a_bare_encoder_is_refused(tmp_path):
    auber.save(tiny_model("bert", bare=True), tiny_tokenizer(), tmp_path / "bare")
    message = (
        r"bare: a model \.\.\.ForSequenceClassification or \.\.\.ForTokenClassification or \.\.\.ForQuestionAnswering is needed, "
        "found BertModel; fine-tune it for a task first$"
    )
    with pytest.raises(ModelError, match=message):
        open_source(tmp_path / "bare")


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_every_kind_is_taken(kind, tmp_path):
    save_pruned(tmp_path / "mine", kind=kind)
    source = open_source(tmp_path / "mine")
    assert source.kind is TASK_TYPES[kind]
    assert source.outputs is OUTPUTS[kind]
