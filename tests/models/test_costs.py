"""What remains, against counts over the modules of the pruned and the unpruned model."""

import pytest

from auber.errors import PlanError
from auber.export.measure import count_multiply_adds
from auber.models.costs import UnitCosts
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from tests.tiny_models import HEADS, LAYERS, MODEL_TYPES, NEURONS, tiny_model

PLAN = PruningPlan({0: [0, 3], 2: [1]}, {0: range(5, 40), 1: [0, 47], 2: [7]})
EVERYTHING = PruningPlan(
    {layer: range(HEADS) for layer in range(LAYERS)},
    {layer: range(NEURONS) for layer in range(LAYERS)},
)


@pytest.mark.parametrize("length", [9, 24])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_cost_of_a_plan(model_type, length):
    model, pruned = tiny_model(model_type), tiny_model(model_type)
    remove(pruned, PLAN)
    found = PLAN.cost(model, length)
    assert found == PLAN.cost(pruned, length) == PruningPlan().cost(pruned, length)
    assert found.parameters == pytest.approx(pruned.num_parameters() / model.num_parameters())
    costs = UnitCosts.of(encoder_of(model), length)
    if model_type == "deberta-v2":  # per batch, its positions are projected once more
        assert 0 < found.multiply_adds < 1
        return
    empty = tiny_model(model_type)
    remove(empty, EVERYTHING, allow_empty_layers=True)
    whole, less, none = (count_multiply_adds(each, length) for each in (model, pruned, empty))
    assert costs.total * length == whole - none
    assert found.multiply_adds == pytest.approx((less - none) / (whole - none))


def test_a_plan_for_another_model():
    with pytest.raises(PlanError, match=r"^layer 1: its neurons are numbered 0 to 47"):
        PruningPlan(neurons={1: [48]}).cost(tiny_model())
