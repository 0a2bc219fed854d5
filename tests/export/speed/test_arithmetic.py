from __future__ import annotations

import pytest
from torch.utils.flop_counter import FlopCounterMode

from auber.data.task_types import TASK_TYPES
from auber.export.speed.arithmetic import count_multiply_adds, count_parameters
from auber.models.encoders import encoder_of
from auber.models.random_rows import random_rows
from auber.models.surgery import remove_heads
from tests.export.models import UNEVEN
from tests.tiny_models import MODEL_TYPES, tiny_model


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("kind", TASK_TYPES)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_count_is_what_torch_counts(model_type, kind, pruned):
    model = tiny_model(model_type, kind=kind, attention="eager")
    if pruned:
        remove_heads(model, UNEVEN)
    batch = random_rows(encoder_of(model), ("input_ids", "attention_mask"), rows=1, length=11)
    with FlopCounterMode(display=False) as counter:
        model(**batch)
    assert 2 * count_multiply_adds(model, 11) == counter.get_total_flops()


def test_parameters_of_a_removed_head():
    whole, pruned = tiny_model("bert"), tiny_model("bert")
    remove_heads(pruned, {1: [2]})
    # 8 rows of 32 weights and a bias in query, key and value; 8 columns of 32 in output
    assert count_parameters(whole) - count_parameters(pruned) == 3 * 8 * (32 + 1) + 8 * 32
