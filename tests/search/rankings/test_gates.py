from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from auber.models.costs import UnitCosts
from auber.models.surgery import gated
from auber.search.rankings import gates
from auber.search.rankings.gates import GateTraining, HardConcrete
from auber.training.batches import RowCollator
from auber.training.cuda_graphs import CudaGraphCapture
from auber.training.devices import Hardware
from tests.recorders import Repeater, refuse
from tests.search.made import random_rows, ranking_inputs, self_labelled
from tests.small import small_config
from tests.tiny_models import MODEL_TYPES, tiny_model

DISTRIBUTIONS = [HardConcrete(2 / 3, 0.1), HardConcrete(0.4, 0.3)]
LOCATIONS = torch.tensor([-6.0, -3.0, -1.6, 0.0, 0.7, 3.0])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_the_probabilities_against_sampling(distribution):
    draws, generator = 200_000, torch.Generator().manual_seed(0)
    uniform = torch.rand(draws, len(LOCATIONS), generator=generator)
    drawn = distribution.draw(LOCATIONS, uniform)
    assert (drawn.min(), drawn.max()) == (0, 1)
    error = 5 * math.sqrt(0.25 / draws)
    is_open, is_full = ((drawn > 0).double().mean(0), (drawn == 1).double().mean(0))
    expected = distribution.open_probability(LOCATIONS.double())
    assert is_open.tolist() == pytest.approx(expected.tolist(), abs=error)
    expected = 1 - distribution.open_probability(-LOCATIONS.double())  # by symmetry
    assert is_full.tolist() == pytest.approx(expected.tolist(), abs=error)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
def test_the_gradients(distribution):
    location = LOCATIONS.double().requires_grad_()
    uniform = torch.tensor([0.3, 0.5, 0.6, 0.4, 0.5, 0.2], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda value: distribution.draw(value, uniform), location)
    (gradient,) = torch.autograd.grad(distribution.open_probability(location).sum(), location)
    chance = distribution.open_probability(location)
    assert gradient.tolist() == pytest.approx((chance * (1 - chance)).tolist())


def test_values_without_noise_and_extreme_draws():
    found = DISTRIBUTIONS[0].value(torch.tensor([-3.0, 0.0, 3.0]))
    assert found.tolist() == pytest.approx([0.0, 0.5, 1.0])
    location = torch.zeros(2, requires_grad=True)
    drawn = DISTRIBUTIONS[0].draw(location, torch.tensor([0.0, 1 - 2**-24]))
    assert drawn.tolist() == [0.0, 1.0]
    assert torch.autograd.grad(drawn.sum(), location)[0].tolist() == [0.0, 0.0]


def ignore(step):
    pass


def some_inputs(model_type="bert", count=29, **settings):
    """Return inputs for a regression model, by default with batches of 8, 8, 8 and 5 rows."""
    model = tiny_model(model_type, num_labels=1)
    settings = {"epochs": 3, "batch_size": 8, "learning_rate": 0.2, **settings}
    config = small_config(**{f"voita__{name}": value for name, value in settings.items()})
    return ranking_inputs(model, rows=self_labelled(model, count), config=config)


def test_a_higher_penalty_closes_more():
    training, steps = GateTraining(some_inputs(count=24, epochs=5, batch_size=4)), []
    trials = [training.train(penalty, steps.append) for penalty in (1e-6, 0.05, 10.0)]
    assert training.steps == 30
    assert steps == [*range(1, 31)] * 3
    assert trials[0].closed < 2
    assert trials[-1].closed > 9
    assert trials[0].expected_open > trials[1].expected_open > trials[2].expected_open
    assert trials[0].loss < trials[-1].loss
    assert training.train(0.05, ignore) == trials[1], "every training begins with the same state"


def test_half_precision_is_close():
    inputs = some_inputs(epochs=1, learning_rate=0.1)
    half = replace(inputs, hardware=replace(inputs.hardware, precision="bfloat16"))
    exact, rounded = (GateTraining(each).train(0.01, ignore) for each in (inputs, half))
    assert rounded.locations != exact.locations
    assert rounded.locations == pytest.approx(exact.locations, abs=0.05)


def test_the_loss_of_a_trial_is_the_mean_over_the_last_epoch(monkeypatch):
    losses, row_losses = [], gates.row_losses

    def listening(*arguments):
        losses.append(row_losses(*arguments))
        return losses[-1]

    monkeypatch.setattr(gates, "row_losses", listening)
    trial = GateTraining(some_inputs()).train(0.01, ignore)
    assert [len(batch) for batch in losses] == [8, 8, 8, 5] * 3
    assert trial.loss == pytest.approx(torch.cat(losses[-4:]).mean().item(), rel=1e-5)


def test_the_gradient_of_a_step_against_finite_differences_row_by_row():
    """Gates of both kinds; the penalty counts each by its multiply-adds."""
    model = tiny_model(num_labels=1)
    rows = random_rows(model, 5)
    config = small_config(size__keep=0.5, voita__batch_size=5, voita__epochs=1)
    inputs = ranking_inputs(model, None, rows, config)
    training, penalty = GateTraining(inputs), 0.3
    spread = torch.linspace(-1, 1, training.num_gates)
    with torch.no_grad():
        training._location.copy_(spread)
        training._penalty.fill_(penalty)
    uniform = torch.rand(5, training.num_gates, generator=torch.Generator().manual_seed(0))
    training._step({**RowCollator(rows)(range(5)), "uniform": uniform})
    costs, double = UnitCosts.of(inputs.encoder, 24), model.double()
    cost = {"heads": costs.head, "neurons": costs.neuron}
    weights = [cost[kind] * len(block) for (kind, _), of in training.blocks.items() for block in of]

    def loss(location):
        """One row and one unit at a time."""
        total = 0.0
        for row in range(5):
            drawn = DISTRIBUTIONS[0].draw(location, uniform[row].double()).tolist()
            gates = {"heads": {}, "neurons": {}}
            for (kind, layer), blocks in training.blocks.items():
                value = {
                    unit: gate for block in blocks for gate in [drawn.pop(0)] for unit in block
                }
                gates[kind][layer] = torch.tensor([value[unit] for unit in sorted(value)]).double()
            inputs = {name: torch.tensor([values]) for name, values in rows[row].items()}
            target = inputs.pop("labels").double()
            with gated(double, **gates), torch.inference_mode():
                total += float((double(**inputs).logits - target).square())
        chances = DISTRIBUTIONS[0].open_probability(location).tolist()
        mean = sum(weights) / len(weights)
        is_open = sum(chance * weight for chance, weight in zip(chances, weights, strict=True))
        return total / 5 + penalty * is_open / mean

    step = 1e-4
    for gate in [0, 5, 11, 12, 20, 40, training.num_gates - 1]:
        moved = torch.zeros(training.num_gates, dtype=torch.float64)
        moved[gate] = step
        expected = (loss(spread.double() + moved) - loss(spread.double() - moved)) / (2 * step)
        assert float(training._gradient[gate]) == pytest.approx(expected, rel=2e-3, abs=1e-5)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_replayed_training_is_the_same(monkeypatch, model_type):
    monkeypatch.setattr(gates, "CAPTURE_WIDTH", 1)  # the same padding as without capture
    ordinary, capture = GateTraining(some_inputs(model_type)), Repeater()
    replayed = GateTraining(some_inputs(model_type), capture)
    counts = []
    for penalty in (0.001, 0.1):
        assert replayed.train(penalty, ignore) == ordinary.train(penalty, ignore)
        counts.append(capture.recorded)
    assert counts[0] == counts[1] > 0, "another penalty replays the same steps"


def test_captured_widths_and_closing_change_only_the_rounding():
    expected = GateTraining(some_inputs()).train(0.01, ignore).locations
    capture = Repeater()
    training = GateTraining(some_inputs(), capture)
    assert training.train(0.01, ignore).locations == pytest.approx(expected, abs=1e-3)
    assert capture.recorded == 2, "full batches, and the last of an epoch"
    training.close()
    assert training.train(0.01, ignore).locations == pytest.approx(expected, abs=1e-3)
    assert capture.recorded == 2


def test_steps_that_cannot_be_captured_are_ordinary_ones(monkeypatch, caplog):
    monkeypatch.setattr(gates, "CAPTURE_WIDTH", 1)
    refused, ordinary = GateTraining(some_inputs(), refuse), GateTraining(some_inputs())
    for penalty in (0.001, 0.1):
        assert refused.train(penalty, ignore) == ordinary.train(penalty, ignore)
    assert [record.getMessage() for record in caplog.records] == [
        "The training of gates on BertForSequenceClassification cannot be captured as a CUDA graph "
        "and runs several times slower: called a synchronizing CUDA operation, at model.py:7"
    ]


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.1)])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_replayed_gates_are_the_ordinary_ones_on_a_gpu(
    monkeypatch, caplog, model_type, precision, tolerance
):
    # the same padding: in half precision another one rounds differently
    monkeypatch.setattr(gates, "CAPTURE_WIDTH", 1)
    device = torch.device("cuda")
    inputs = replace(some_inputs(model_type), hardware=Hardware(device, precision, 1))
    replays = []

    class Counting(CudaGraphCapture):
        def __call__(self, computation):
            replays.append(super().__call__(computation))
            return replays[-1]

    replayed, ordinary = GateTraining(inputs, Counting(device)), GateTraining(inputs)
    counts = []
    for penalty in (0.001, 0.1):
        mine, other = replayed.train(penalty, ignore), ordinary.train(penalty, ignore)
        counts.append(len(replays))
        assert mine.locations == pytest.approx(other.locations, abs=tolerance)
        assert mine.loss == pytest.approx(other.loss, rel=0.02, abs=0.02)
    if model_type == "deberta-v2":  # parts of it are TorchScript, which copies from the host
        assert "cannot be captured as a CUDA graph" in caplog.text
    else:
        assert counts[0] == counts[1] > 0, caplog.text
    replayed.close()
