"""What `docs/troubleshooting.md` and `docs/loading.md` say about transformers is so."""

from __future__ import annotations

import json
import logging
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

import auber
from auber.models import checkpoint
from auber.models.remote_code import MODELING_FILE
from tests.tiny_models import MODEL_TYPES, random_batch, tiny_model, tiny_tokenizer

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text()
WORDS = " ".join(PAGE.split())
PLAN = {0: [1], 2: [0, 2, 3]}


@pytest.fixture
def folder(tmp_path):
    """A pruned model as it is saved."""
    model = tiny_model()
    auber.remove(model, PLAN)
    auber.save(model, tiny_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def report(caplog):
    """Return what transformers logs while it loads; by default its logger does not propagate."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.WARNING)
    logger.addHandler(caplog.handler)
    yield lambda: caplog.text
    logger.removeHandler(caplog.handler)
    logger.setLevel(level)


def assert_refused(call, report):
    with pytest.raises(RuntimeError) as caught:
        call()
    first = str(caught.value).splitlines()[0]
    assert f"RuntimeError: {first}".replace("`", "") in WORDS
    for part in ("self.query", "self.key", "self.value", "output.dense"):
        assert re.search(rf"attention\.{part}\.weight *\| MISMATCH", report())
    assert "LOAD REPORT" in report()


def test_without_the_flag_it_is_refused(folder, report):
    assert_refused(lambda: AutoModelForSequenceClassification.from_pretrained(folder), report)


def test_a_class_that_is_no_auto_class_ignores_the_flag(folder, report):
    assert_refused(
        lambda: BertForSequenceClassification.from_pretrained(folder, trust_remote_code=True),
        report,
    )


def test_a_model_that_auber_loaded_is_not_saved_by_its_own_method(folder, tmp_path, report):
    checkpoint.load(folder).save_pretrained(tmp_path / "own")
    assert not (tmp_path / "own" / MODELING_FILE.name).exists()

    def load():
        return AutoModelForSequenceClassification.from_pretrained(
            tmp_path / "own", trust_remote_code=True
        )

    assert_refused(load, report)
    auber.save(auber.load(tmp_path / "own"), auber.load_tokenizer(folder), tmp_path / "new")
    assert (tmp_path / "new" / MODELING_FILE.name).is_file()


def test_a_folder_of_transformers_4_is_refused(report):
    folder = Path(__file__).with_name("fixtures") / "v4" / "bert"
    assert_refused(lambda: AutoModelForSequenceClassification.from_pretrained(folder), report)


def test_ignoring_the_sizes_draws_the_layers_at_random(folder, report):
    first, second = (
        AutoModelForSequenceClassification.from_pretrained(folder, ignore_mismatched_sizes=True)
        for _ in range(2)
    )
    drawn, kept = (
        "bert.encoder.layer.0.attention.self.query.weight",
        "bert.encoder.layer.1.attention.self.query.weight",
    )
    assert first.get_parameter(drawn).shape == (32, 32)  # with all its heads
    assert not torch.equal(first.get_parameter(drawn), second.get_parameter(drawn))
    assert torch.equal(first.get_parameter(kept), second.get_parameter(kept))
    assert "MISMATCH" in report()
    assert "Reinit" in report()


def test_the_file_must_come_along(folder):
    (folder / MODELING_FILE.name).unlink()
    with pytest.raises(OSError, match="does not appear to have a file named modeling_auber.py"):
        AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)


def test_the_file_says_which_transformers_it_needs(monkeypatch):
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.6")
    message = (
        r"^modeling_auber.py needs transformers 5, found 4.57.6; "
        r"pip install --upgrade transformers$"
    )
    with pytest.raises(ImportError, match=message):
        runpy.run_path(str(MODELING_FILE))


@torch.no_grad()
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_head_mask_does_nothing_and_ours_does(model_type):
    model = tiny_model(model_type)
    batch = random_batch(model)
    plain = model(**batch).logits
    assert torch.equal(model(**batch, head_mask=torch.zeros(3, 4)).logits, plain)
    assert not hasattr(model, "prune_heads")
    with auber.masked(model, PLAN):
        expected = model(**batch).logits
    assert not torch.allclose(expected, plain, atol=1e-3)
    auber.remove(model, PLAN)
    torch.testing.assert_close(model(**batch).logits, expected, atol=1e-5, rtol=0)


def test_the_settings_it_names_exist():
    known = auber.make_config().flat()
    named = set(
        re.findall(
            r"`(?:--set )?((?:first|layer|last|reward|search|agent)\.\w+|max_length)",
            " ".join(PAGE.split()),
        )
    )
    assert named >= {
        "first.batch_size",
        "layer.batch_size",
        "last.batch_size",
        "max_length",
        "reward.max_rows",
        "search.prior_share",
    }
    assert named <= set(known)


def test_the_config_is_as_the_page_on_loading_shows_it(folder):
    text = (DOCS / "loading.md").read_text()
    entries = json.loads(
        "{" + "".join(re.findall(r"^    (\"\w+\": .*)$", text, flags=re.MULTILINE)) + "}"
    )
    config = json.loads((folder / "config.json").read_text())
    assert entries["architectures"] == config["architectures"]
    assert entries["auto_map"] == config["auto_map"]
    assert auber.PruningPlan.from_json(entries["auber_removed_heads"]).num_heads == 3
