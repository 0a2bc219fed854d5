"""The shape of a model is enough to say what is wrong with a study's runs."""

from __future__ import annotations

import pytest

from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove_heads
from auber.study.checks import _outline
from tests.small import small_task
from tests.study.tiny import tiny_study
from tests.tiny_models import MODEL_TYPES, tiny_model, tiny_tokenizer


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_outline_of_a_model_has_its_shape(model_type, tmp_path):
    model = tiny_model(model_type)
    remove_heads(model, PruningPlan({0: (1,)}))
    checkpoint.save(model, tiny_tokenizer(), tmp_path / "model")
    outline, _ = _outline(tiny_study(tmp_path / "model"), small_task())
    assert {parameter.device.type for parameter in outline.parameters()} == {"meta"}, (
        "no weights are read"
    )
    found, wanted = encoder_of(outline), encoder_of(model)
    assert (found.num_layers, found.removed, found.most_tokens) == (
        wanted.num_layers,
        wanted.removed,
        wanted.most_tokens,
    )
    for layer in range(wanted.num_layers):
        assert found.present(layer) == wanted.present(layer)
