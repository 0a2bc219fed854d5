from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from auber.search.rankings import gates
from auber.search.rankings.gates import GateTraining, HardConcrete
from auber.training.cuda_graphs import CudaGraphCapture
from auber.training.devices import Hardware
from tests.recorders import Repeater, refuse
from tests.search.made import ranking_inputs, self_labelled
from tests.small import small_config
from tests.tiny_models import MODEL_TYPES, tiny_model

LAWS = [HardConcrete(2 / 3, 0.1), HardConcrete(0.4, 0.3)]
LOCATIONS = torch.tensor([-6.0, -3.0, -1.6, 0.0, 0.7, 3.0])


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_expected_open_gates_against_sampling(law):
    draws = 200_000
    gates = law.draw(
        LOCATIONS, torch.rand(draws, len(LOCATIONS), generator=torch.Generator().manual_seed(0))
    )
    assert (gates.min(), gates.max()) == (0, 1)
    open_share = (gates > 0).double().mean(0)
    expected = law.open_probability(LOCATIONS.double())
    error = 5 * math.sqrt(0.25 / draws)
    assert open_share.tolist() == pytest.approx(expected.tolist(), abs=error)
    # the chance of being fully open follows by symmetry
    assert (gates == 1).double().mean(0).tolist() == pytest.approx(
        (1 - law.open_probability(-LOCATIONS.double())).tolist(), abs=error
    )


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_gradient_of_the_penalty(law):
    location = LOCATIONS.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda value: law.open_probability(value).sum(), location)
    (gradient,) = torch.autograd.grad(law.open_probability(location).sum(), location)
    chance = law.open_probability(location)
    assert gradient.tolist() == pytest.approx((chance * (1 - chance)).tolist())


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_gradient_of_a_draw(law):
    uniform = torch.tensor([0.3, 0.5, 0.6, 0.4, 0.5, 0.2], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda value: law.draw(value, uniform), LOCATIONS.double().requires_grad_()
    )


def test_extreme_draws_are_finite():
    location = torch.zeros(2, requires_grad=True)
    gates = LAWS[0].draw(location, torch.tensor([0.0, 1 - 2**-24]))
    assert gates.tolist() == [0.0, 1.0]
    assert torch.autograd.grad(gates.sum(), location)[0].tolist() == [0.0, 0.0]


def test_values_lie_in_the_middle_of_the_draws():
    assert LAWS[0].value(torch.tensor([-3.0, 0.0, 3.0])).tolist() == pytest.approx([0.0, 0.5, 1.0])


def unheard(step):
    """Nobody listens."""


def test_a_higher_penalty_closes_more():
    model = tiny_model(num_labels=1)
    config = small_config(voita__epochs=5, voita__batch_size=4, voita__learning_rate=0.2)
    work = ranking_inputs(model, rows=self_labelled(model), config=config)
    training = GateTraining(work)
    steps = []
    trials = [training.train(penalty, steps.append) for penalty in (1e-6, 0.05, 10.0)]
    assert training.steps == 30
    assert steps == [*range(1, 31)] * 3
    assert trials[0].closed < 2
    assert trials[-1].closed > 9
    assert trials[0].expected_open > trials[1].expected_open > trials[2].expected_open
    assert trials[0].loss < trials[-1].loss
    assert training.train(0.05, steps.append) == trials[1], "every training starts alike"


def test_half_precision_is_close():
    model = tiny_model(num_labels=1)
    config = small_config(voita__epochs=1, voita__batch_size=8)
    work = ranking_inputs(model, rows=self_labelled(model), config=config)
    half = replace(work, hardware=replace(work.hardware, precision="bfloat16"))
    exact, rounded = (GateTraining(one).train(0.01, unheard) for one in (work, half))
    assert rounded.locations != exact.locations
    assert rounded.locations == pytest.approx(exact.locations, abs=0.05)


def some_work(model_type="bert", **changes):
    """Three batches of eight an epoch, and one of five."""
    model = tiny_model(model_type, num_labels=1)
    config = small_config(voita__epochs=3, voita__batch_size=8, voita__learning_rate=0.2)
    return replace(ranking_inputs(model, rows=self_labelled(model, 29), config=config), **changes)


def test_the_loss_of_a_trial_is_the_mean_over_the_last_epoch(monkeypatch):
    losses = []
    kept = gates.row_losses
    monkeypatch.setattr(
        gates, "row_losses", lambda *given: losses.append(kept(*given)) or losses[-1]
    )
    trial = GateTraining(some_work()).train(0.01, unheard)
    assert [len(batch) for batch in losses] == [8, 8, 8, 5] * 3
    assert trial.loss == pytest.approx(torch.cat(losses[-4:]).mean().item(), rel=1e-5)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_replayed_training_is_training(monkeypatch, model_type):
    monkeypatch.setattr(gates, "CAPTURE_WIDTH", 1)  # the same padding as without a recorder
    ordinary, recorder = GateTraining(some_work(model_type)), Repeater()
    replayed = GateTraining(some_work(model_type), recorder)
    counts = []
    for penalty in (0.001, 0.1):
        assert replayed.train(penalty, unheard) == ordinary.train(penalty, unheard)
        counts.append(recorder.recorded)
    assert counts[0] > 0
    assert counts[0] == counts[1], "another penalty replays the same steps"


def test_padding_to_recorded_widths_changes_nothing_but_rounding():
    recorder = Repeater()
    padded = GateTraining(some_work(), recorder).train(0.01, unheard)
    assert recorder.recorded == 2, "full batches and the last of an epoch"
    assert padded.locations == pytest.approx(
        GateTraining(some_work()).train(0.01, unheard).locations, abs=1e-3
    )


def test_what_cannot_be_recorded_is_said_and_trained_ordinarily(monkeypatch, caplog):
    monkeypatch.setattr(gates, "CAPTURE_WIDTH", 1)
    refused = GateTraining(some_work(), refuse)
    ordinary = GateTraining(some_work())
    for penalty in (0.001, 0.1):
        assert refused.train(penalty, unheard) == ordinary.train(penalty, unheard)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "The training of gates on BertForSequenceClassification cannot be captured as a CUDA graph and runs several times slower: "
        "called a synchronizing CUDA operation, at model.py:7"
    ]


def test_closed_training_goes_on_without_its_recordings():
    recorder = Repeater()
    training = GateTraining(some_work(), recorder)
    before = training.train(0.01, unheard)
    recorded = recorder.recorded
    training.close()
    assert training.train(0.01, unheard).locations == pytest.approx(before.locations, abs=1e-3)
    assert recorder.recorded == recorded


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.1)])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_replayed_gates_are_the_ordinary_ones_on_a_gpu(
    monkeypatch, caplog, model_type, precision, tolerance
):
    monkeypatch.setattr(
        gates, "CAPTURE_WIDTH", 1
    )  # the same padding: in half precision another one rounds otherwise
    device = torch.device("cuda")
    work = some_work(model_type, hardware=Hardware(device, precision, 1))
    recordings = []

    class Counting(CudaGraphCapture):
        def __call__(self, given):
            recordings.append(super().__call__(given))
            return recordings[-1]

    replayed, ordinary = GateTraining(work, Counting(device)), GateTraining(work)
    counts = []
    for penalty in (0.001, 0.1):
        mine, other = replayed.train(penalty, unheard), ordinary.train(penalty, unheard)
        counts.append(len(recordings))
        assert mine.locations == pytest.approx(other.locations, abs=tolerance)
        assert mine.loss == pytest.approx(other.loss, rel=0.02, abs=0.02)
    if (
        model_type == "deberta-v2"
    ):  # transformers has parts of it in TorchScript, which copies from the host
        assert "cannot be captured as a CUDA graph" in caplog.text
    else:
        assert counts[0] == counts[1] > 0, caplog.text
    replayed.close()
