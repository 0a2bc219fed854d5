"""`auber prune` from a pretrained encoder to a pruned folder, for layers unlike BERT's."""

from __future__ import annotations

import json

import pytest
import torch

import auber
from auber.data.generated import build_tokenizer, vocabulary
from auber.training.evaluation import predict
from tests.small import SETTINGS, small_rows
from tests.tiny_models import tiny_model

ROWS = [
    f"the {noun} {verb} red,{'yes' if (noun == 'key') == (verb == 'is') else 'no'}"
    for noun in ("key", "keys")
    for verb in ("is", "are")
]


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [("deberta-v2", {}), ("modernbert", {"classifier_pooling": "mean"})],
)
def test_a_pretrained_encoder_is_tuned_searched_pruned_and_loads(
    model_type, changes, run_auber, tmp_path
):
    size = {"vocab_size": len(vocabulary()), "pad_token_id": 0}
    auber.save(
        tiny_model(model_type, bare=True, **size, **changes), build_tokenizer(), tmp_path / "m"
    )
    for name, times in (("train", 12), ("dev", 2)):
        (tmp_path / f"{name}.csv").write_text("sentence,good\n" + "\n".join(ROWS * times) + "\n")
    # Stopping is worth so little that the agent removes heads, whatever the model has learned.
    settings = {**SETTINGS, "protocol": "seen", "agent.choose": "rollout", "agent.stop_value": -1e6}
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    options += ["--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv"]
    options += ["--text", "sentence", "--label", "good", "--quiet", "--json"]
    code, out, err = run_auber(
        "prune", "--model", tmp_path / "m", "--out", tmp_path / "run", *options
    )
    assert code == 0, err
    pruned = auber.load(tmp_path / "run" / "model")
    removed = pruned.config.auber_removed_heads
    assert removed == json.loads(out)["plan"]["heads"]
    assert [len(heads) for heads in removed.values()] == [3, 3, 3]
    logits = predict(pruned, small_rows(8))
    assert logits.shape == (8, 2)
    assert torch.isfinite(logits).all()
