from __future__ import annotations

import copy

import pytest
import torch

from auber.models.surgery import remove
from auber.search.rankings.confidence import choose_plan, head_confidence
from tests.search.made import ranking_inputs
from tests.tiny_models import MODEL_TYPES, tiny_model


def slow_confidence(model, rows):
    """Use the weights of eager attention, one row at a time, without padding."""
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    found = None
    with torch.inference_mode():
        for row in range(len(rows)):
            inputs = {
                name: torch.tensor([values])
                for name, values in rows[row].items()
                if name != "labels"
            }
            attentions = eager(
                **inputs, output_attentions=True
            ).attentions  # (1, heads, length, length) a layer
            largest = [layer[0].max(-1).values.double() for layer in attentions]  # (heads, length)
            found = (
                largest
                if found is None
                else [torch.cat(pair, dim=1) for pair in zip(found, largest, strict=True)]
            )
    return [layer.mean(1).tolist() for layer in found]


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("removed", [{}, {0: [1], 2: [0, 3]}], ids=["whole", "pruned"])
def test_against_the_weights_of_eager_attention(model_type, removed):
    model = tiny_model(model_type)
    remove(model, removed)
    inputs = ranking_inputs(model)
    expected = slow_confidence(model, inputs.rows)
    found = head_confidence(inputs)
    for (_, layer), heads in found.items():
        assert tuple(heads) == inputs.encoder.present(layer)
        assert list(heads.values()) == pytest.approx(expected[layer], abs=1e-6)
    spread = [value for heads in found.values() for value in heads.values()]
    assert max(spread) - min(spread) > 0.05  # the check would be idle on heads that are all alike


def test_the_least_confident_go():
    inputs = ranking_inputs(tiny_model(), 2)
    choice = choose_plan(inputs)
    ranked = sorted(
        (value, layer, head)
        for (_, layer), heads in head_confidence(inputs).items()
        for head, value in heads.items()
    )
    assert {(layer, head) for layer, heads in choice.plan.heads.items() for head in heads} == {
        one[1:] for one in ranked[:2]
    }
    assert choice.details["confidence"]["0"].keys() == {"0", "1", "2", "3"}
