"""Masked, gated and removed heads: the same function, for every family and attention it has.

The outcome of the checks is the table in docs/encoders.md; AUBER_REGENERATE=1 rewrites it.
"""

from __future__ import annotations

import copy
import itertools
import os
import random
from pathlib import Path

import pytest
import torch

from auber.errors import ModelError, PlanError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import gated, masked, remove, remove_remaining
from tests.tiny_models import (
    ATTENTIONS,
    HEADS,
    LAYERS,
    MODEL_TYPES,
    NEURONS,
    VARIANTS,
    random_batch,
    tiny_model,
)

PAGE = Path(__file__).parents[2] / "docs" / "encoders.md"
SUBSETS = [*itertools.chain(*(itertools.combinations(range(HEADS), size) for size in range(HEADS)))]
FLEXIBLE = [name for name in MODEL_TYPES if name not in ("deberta-v2", "mpnet")]
UNEVEN = PruningPlan({0: [0, 3], 2: [1]}, {0: range(5, 40), 1: [0, 47], 2: [7]})


def random_plan(seed):
    """Return a plan with random units of both kinds, uneven over the layers."""
    draw = random.Random(seed)
    counts = [(HEADS, HEADS - 1), (NEURONS, NEURONS - 1)]
    return PruningPlan(*(
        {layer: draw.sample(range(total), draw.randint(0, most)) for layer in range(LAYERS)}
        for total, most in counts
    ))  # fmt: skip


PLANS = [
    *(PruningPlan({1: heads}) for heads in SUBSETS),
    PruningPlan(neurons={1: range(NEURONS - 1)}),
    UNEVEN,
    *map(random_plan, range(6)),
]


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def assert_close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def rows_of(heads, head_dim=8):
    """Return the rows of query, key and value that belong to these positions."""
    return [head * head_dim + feature for head in heads for feature in range(head_dim)]


def gradients_of(projection):
    """Return the gradients of a projection's weight and bias; of its third if it is fused."""
    linear = getattr(projection, "fused", projection)
    gradients = [parameter.grad for parameter in linear.parameters()]
    if linear is not projection:
        gradients = [gradient.chunk(3)[projection.third] for gradient in gradients]
    return gradients


# What must hold for each family and attention implementation


def masked_is_removed(model_type, attention):
    model = tiny_model(model_type, attention=attention)
    batch = random_batch(model)
    whole = logits(model, batch)
    for plan in PLANS:
        with masked(model, plan):
            found = logits(model, batch)
        smaller = copy.deepcopy(model)
        remove(smaller, plan)
        assert_close(logits(smaller, batch), found)
        if plan:
            assert (found - whole).abs().max() > 1e-4  # removing does something at all
    assert torch.equal(logits(model, batch), whole)


def gradients_flow(model_type, attention):
    gone = [0, *range(9, 40)]
    plan = PruningPlan({1: [0, 2]}, {1: gone})
    model = tiny_model(model_type, attention=attention)
    batch = random_batch(model)
    parts = encoder_of(model).parts(1)
    with masked(model, plan):
        model(**batch).logits.sum().backward()
    for projection in parts.projections:
        for gradient in gradients_of(projection):
            assert torch.count_nonzero(gradient[rows_of([0, 2])]) == 0
    assert torch.count_nonzero(parts.output.weight.grad[:, rows_of([0, 2])]) == 0
    assert torch.count_nonzero(parts.contract.weight.grad[:, gone]) == 0
    for half in parts.expand.weight.grad.chunk(1 + parts.is_gated):
        assert torch.count_nonzero(half[gone]) == 0
    smaller = copy.deepcopy(model)
    smaller.zero_grad()
    remove(smaller, plan)
    smaller(**batch).logits.sum().backward()
    kept = encoder_of(smaller).parts(1)
    for mine, theirs in zip(kept.projections, parts.projections, strict=True):
        weight, whole = gradients_of(mine)[0], gradients_of(theirs)[0]
        assert torch.isfinite(weight).all()
        assert weight.abs().sum() > 0
        assert_close(weight, whole[rows_of([1, 3])], atol=1e-4)
    left = [neuron for neuron in range(NEURONS) if neuron not in gone]
    assert_close(kept.contract.weight.grad, parts.contract.weight.grad[:, left], atol=1e-4)


def weights_come_back(model_type, attention):
    """Attention weights are returned for the remaining heads."""
    model = tiny_model(model_type, attention=attention)
    batch = random_batch(model)
    remove(model, {1: [0, 2]})
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    attentions = output.attentions
    assert [weights.shape[1] for weights in attentions] == [4, 2, 4]
    assert_close(attentions[1].sum(-1), torch.ones(attentions[1].shape[:-1]))


def empty_layer_works(model_type, attention):
    model = tiny_model(model_type, attention=attention)
    batch = random_batch(model)
    plan = PruningPlan({0: range(HEADS), 2: [1]}, {0: [1], 1: range(NEURONS)})
    with masked(model, plan, allow_empty_layers=True):
        expected = logits(model, batch)
    remove(model, plan, allow_empty_layers=True)
    assert encoder_of(model).present(0) == encoder_of(model).present_neurons(1) == ()
    assert_close(logits(model, batch), expected)


CHECKS = {
    "masked equals removed": masked_is_removed,
    "gradients": gradients_flow,
    "attention weights": weights_come_back,
    "no unit left": empty_layer_works,
}


# What transformers offers; only eager attention returns its weights.
OFFERED = [
    (*variant, name)
    for variant in VARIANTS
    for name in CHECKS
    if name != "attention weights" or variant[1] == "eager"
]


@pytest.mark.parametrize(("model_type", "attention", "name"), OFFERED)
def test_every_family_and_attention(model_type, attention, name):
    CHECKS[name](model_type, attention)


@pytest.mark.slow  # torch compiles it
@pytest.mark.filterwarnings("ignore")  # of torch, about its own compiler
@pytest.mark.parametrize("model_type", FLEXIBLE)
def test_masked_equals_removed_in_flex_attention(model_type):
    """Without gradients, which torch computes on GPUs only."""
    model, like = (tiny_model(model_type, attention=name) for name in ("flex_attention", "eager"))
    batch = random_batch(model)
    assert_close(logits(model, batch), logits(like, batch))
    with masked(model, UNEVEN):
        expected = logits(model, batch)
    remove(model, UNEVEN)
    assert_close(logits(model, batch), expected)


def test_the_page_has_the_table_of_the_checks():
    rows = [["model type", "attention", *CHECKS], ["---"] * (2 + len(CHECKS))]
    for model_type, attention in itertools.product(MODEL_TYPES, ATTENTIONS):
        places = ((model_type, attention, name) for name in CHECKS)
        cells = ["yes" if each in OFFERED else "not in transformers" for each in places]
        rows.append([model_type, attention, *cells])
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    page = PAGE.read_text(encoding="utf-8")
    found = "".join(line for line in page.splitlines(keepends=True) if line.startswith("|"))
    if os.environ.get("AUBER_REGENERATE") == "1":
        PAGE.write_text(page.replace(found, table), encoding="utf-8")
    else:
        assert found == table


# Details that do not differ between families


@pytest.mark.parametrize(("model_type", "attention"), VARIANTS)
def test_a_masked_unit_has_no_effect(model_type, attention):
    model = tiny_model(model_type, attention=attention)
    batch = random_batch(model)
    with masked(model, PruningPlan({1: [0, 2]}, {1: [3, 40]})):
        before = logits(model, batch)
        parts = encoder_of(model).parts(1)
        with torch.no_grad():
            for projection in parts.projections:
                projection.weight[rows_of([0, 2])] = 1e3 * torch.randn(16, 32)
                if projection.bias is not None:
                    projection.bias[rows_of([0, 2])] = 1e3
            parts.output.weight[:, rows_of([0, 2])] = -1e3
            for half in parts.expand.weight.chunk(1 + parts.is_gated):
                half[[3, 40]] = 1e3 * torch.randn(2, 32)
            if parts.expand.bias is not None:
                parts.expand.bias[[3, 40]] = 1e3
            parts.contract.weight[:, [3, 40]] = -1e3
        assert torch.equal(logits(model, batch), before)
    assert not torch.equal(logits(model, batch), before)


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_gates_scale_heads_and_receive_gradients(model_type):
    model = tiny_model(model_type)
    batch = random_batch(model)
    whole = logits(model, batch)
    with gated(model, {layer: torch.ones(HEADS) for layer in range(LAYERS)}):
        assert torch.equal(logits(model, batch), whole)
    gate = torch.tensor([1.0, 0.5, 1.0, 0.0], requires_grad=True)
    with gated(model, {1: gate}):
        loss = model(**batch).logits.square().sum()
        loss.backward()
    neuron_gate = torch.rand(NEURONS, generator=torch.Generator().manual_seed(2))
    neuron_gate.requires_grad_()
    with gated(model, {}, {2: neuron_gate}):
        model(**batch).logits.square().sum().backward()
    # the derivative against a finite difference, in float64
    model = model.double()
    step = 1e-3 if model_type == "modernbert" else 1e-6  # it rotates in float32

    def value(heads, neurons):
        with gated(model, heads, neurons):
            return logits(model, batch).square().sum().item()

    for tensor, units, gates in (
        (gate, range(HEADS), lambda moved: ({1: moved}, {})),
        (neuron_gate, (0, 17, 47), lambda moved: ({}, {2: moved})),
    ):
        for unit in units:
            up, down = tensor.detach().double(), tensor.detach().double()
            up[unit] += step
            down[unit] -= step
            slope = (value(*gates(up)) - value(*gates(down))) / (2 * step)
            assert tensor.grad[unit].item() == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_each_row_may_have_gates_of_its_own(model_type):
    model = tiny_model(model_type)
    batch = random_batch(model)
    rows = len(batch["input_ids"])
    gates = torch.rand(rows, HEADS, generator=torch.Generator().manual_seed(1))
    with gated(model, {1: gates}):
        together = logits(model, batch)
    for row in range(rows):
        with gated(model, {1: gates[row]}):
            alone = logits(model, batch)[row]
        assert_close(together[row], alone, atol=1e-6)


def test_masks_nest_and_end_also_after_an_exception():
    model = tiny_model()
    batch = random_batch(model)
    whole = logits(model, batch)
    with masked(model, {0: [1], 2: [3]}):
        both = logits(model, batch)
    with masked(model, {0: [1]}):
        one = logits(model, batch)
        with masked(model, {2: [3]}):
            assert_close(logits(model, batch), both, atol=1e-6)
        assert torch.equal(logits(model, batch), one)
    with pytest.raises(KeyboardInterrupt), masked(model, {0: [1]}):
        raise KeyboardInterrupt
    assert torch.equal(logits(model, batch), whole)


def test_training_mode_keeps_its_dropout():
    model = tiny_model().train()
    batch = random_batch(model)
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        with masked(model, {0: [1]}):
            draws.append(logits(model, batch))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert model.training
    torch.manual_seed(0)
    with gated(model, {0: torch.ones(HEADS)}):
        ungated = logits(model, batch)
    torch.manual_seed(0)
    assert torch.equal(ungated, logits(model, batch))
    remove(model, {0: [1]})
    assert model.training
    assert not torch.equal(logits(model, batch), logits(model, batch))


def test_removing_in_two_steps_is_removing_at_once():
    at_once, in_steps = tiny_model(), tiny_model()
    batch = random_batch(at_once)
    whole = PruningPlan({0: [0, 3], 1: [2]}, {0: [5, 6, 40], 2: [1]})
    first = PruningPlan({0: [3]}, {0: [6, 40]})
    remove(at_once, whole)
    remove(in_steps, first)
    with masked(in_steps, whole - first):  # the units keep their first numbers
        assert_close(logits(in_steps, batch), logits(at_once, batch))
    remove(in_steps, whole - first)
    assert in_steps.config.auber_removed_heads == {"0": [0, 3], "1": [2]}
    assert in_steps.config.auber_removed_neurons == {"0": "5-6,40", "2": "1"}
    assert in_steps.config.auber_intermediate_sizes == [45, 48, 47]
    assert in_steps.config.intermediate_size == 48
    assert encoder_of(in_steps).present(0) == (1, 2)
    assert len(encoder_of(in_steps).present_neurons(0)) == 45
    assert encoder_of(in_steps).removed == whole
    for name, tensor in at_once.state_dict().items():
        assert torch.equal(in_steps.state_dict()[name], tensor)


def test_parameters_keep_their_kind():
    model = tiny_model().to(torch.bfloat16)
    parts = encoder_of(model).parts(0)
    parts.query.weight.requires_grad_(False)
    model(**random_batch(model)).logits.sum().backward()
    remove(model, {0: [1]})
    parts = encoder_of(model).parts(0)
    assert not parts.query.weight.requires_grad
    assert parts.value.weight.requires_grad
    assert parts.value.weight.dtype == torch.bfloat16
    assert parts.value.weight.grad is None
    assert parts.output.weight.is_contiguous()
    assert (parts.value.out_features, parts.output.in_features) == (24, 24)
    # new parameters, reachable for an optimiser
    assert any(parameter is parts.value.weight for parameter in model.parameters())


def test_autocast_and_a_bfloat16_model():
    model = tiny_model()
    batch = random_batch(model)
    with torch.autocast("cpu", dtype=torch.bfloat16), masked(model, {0: [1]}):
        assert logits(model, batch).dtype == torch.bfloat16
    model = model.to(torch.bfloat16)
    with masked(model, {0: [1]}):
        assert logits(model, batch).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({3: [0]}, r"^layer 3: the model has layers 0 to 2; correct the plan$"),
        ({1: [1, 2]}, r"^layer 1: already removed: head 1, head 2; leave it out of the plan$"),
        (
            {1: [0, 3]},
            r"^layer 1: the plan removes all 2 heads that are left; at least one must stay$",
        ),
        (
            PruningPlan(neurons={0: [4, 5]}),
            r"^layer 0: already removed: neuron 5; leave it out of the plan$",
        ),
        (
            PruningPlan(neurons={0: [0, 1, 2, 3, 4]}),
            r"^layer 0: the plan removes all 5 neurons that are left; at least one must stay$",
        ),
        (
            PruningPlan(neurons={2: [48]}),
            r"^layer 2: its neurons are numbered 0 to 47, the plan removes neuron 48; correct",
        ),
    ],
)
def test_a_plan_that_does_not_fit_changes_nothing(plan, message):
    model = tiny_model()
    remove(model, PruningPlan({1: [1, 2]}, {0: range(5, NEURONS)}))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(PlanError, match=message):
        remove(model, PruningPlan.of(plan) | PruningPlan({2: [0]}))
    with pytest.raises(PlanError, match=message), masked(model, plan):
        pass
    assert model.config.auber_removed_heads == {"1": [1, 2]}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_gates_that_do_not_fit():
    model = tiny_model()
    with pytest.raises(
        PlanError, match=r"^layer 5: the model has layers 0 to 2; correct the gates$"
    ):
        gated(model, {5: torch.ones(4)}).__enter__()
    remove(model, {0: [1]})
    message = r"^layer 0: one gate per present head, shape \(3,\), is needed, found \(4,\)$"
    with pytest.raises(PlanError, match=message):
        gated(model, {0: torch.ones(4)}).__enter__()
    with pytest.raises(PlanError, match=r"shape \(3,\), is needed, found \(2, 4\)$"):
        gated(model, {0: torch.ones(2, 4)}).__enter__()
    message = r"^layer 0: one gate per present neuron, shape \(48,\), is needed, found \(4,\)$"
    with pytest.raises(PlanError, match=message):
        gated(model, {}, {0: torch.ones(4)}).__enter__()


def test_removing_masked_heads_is_refused():
    model = tiny_model()
    with masked(model, {0: [1]}):
        remove(model, {0: [2]})
        with pytest.raises(
            ModelError, match=r"^layer 0: units were removed while masked; leave the context before"
        ):
            model(**random_batch(model))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_even_widths_make_an_ordinary_model(model_type):
    import transformers

    model = tiny_model(model_type)
    batch = random_batch(model)
    plan = PruningPlan(neurons={0: range(16), 1: range(16, 32), 2: range(0, 32, 2)})
    with masked(model, plan):
        expected = logits(model, batch)
    remove(model, plan)
    assert_close(logits(model, batch), expected)
    key = encoder_of(model).intermediate_key
    assert getattr(model.config, key) == 32
    assert not hasattr(model.config, "auber_intermediate_sizes")
    ordinary = getattr(transformers, type(model).__name__)(model.config).eval()
    ordinary.load_state_dict(model.state_dict())
    assert torch.equal(logits(ordinary, batch), logits(model, batch))
    assert encoder_of(model).num_neurons == NEURONS
    assert getattr(encoder_of(model).unpruned_config(), key) == NEURONS


def test_what_remains_of_a_plan_is_removed():
    model, plan = tiny_model(), PruningPlan({0: [1, 2]}, {1: [4, 5]})
    remove(model, PruningPlan({0: [1]}, {1: [5]}))
    with pytest.raises(PlanError, match="^layer 0: already removed: head 1"):
        remove(model, plan)
    for _ in range(2):
        remove_remaining(model, plan)
        assert encoder_of(model).removed == plan
