from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from auber.errors import ModelError
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.surgery import remove
from auber.training import latency
from auber.training.devices import Hardware
from auber.training.latency import Saving, measure_saving
from auber.training.timing import Limits, Ratio
from tests.small import cpu
from tests.tiny_models import MODEL_TYPES, tiny_model


@pytest.fixture(autouse=True)
def _in_short(monkeypatch):
    monkeypatch.setattr(latency, "LIMITS", Limits(repeats=6))


def mostly_heads(heads, length):
    """Return a model of two layers that has little but its heads."""
    return tiny_model(
        hidden_size=4 * heads**2,
        num_attention_heads=heads,
        intermediate_size=4,
        num_hidden_layers=2,
        max_position_embeddings=length,
    )


def work_of(call):
    """Return the operations of a call in place of its seconds."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def test_what_a_head_saves_is_its_share_of_the_work(monkeypatch):
    monkeypatch.setattr(latency, "make_timer", lambda device: work_of)
    model = mostly_heads(8, 64)
    rounds = []
    found = measure_saving(model, cpu(), 4, 64, rounds.append)
    assert rounds == [1, 2, 3, 4, 5, 6]
    assert (found.heads, found.rows, found.length) == (8, 4, 64)
    assert found.ratio.low == found.ratio.high
    assert found.percent == pytest.approx(100 / 16, rel=0.03)
    assert found.percent < 100 / 16, "all of them together cannot save more than all of the time"
    assert encoder_of(model).removed == PruningPlan()


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_and_only_the_heads_that_are_there(model_type):
    model = tiny_model(model_type).train()
    heads = encoder_of(model).num_heads
    layers = encoder_of(model).num_layers
    remove(model, PruningPlan({0: [0], 1: range(1, heads)}))
    found = measure_saving(model, cpu(), 1, 8, lambda done: None)
    assert found.heads == (heads - 1) // 2 + (layers - 2) * (heads // 2), "one stays in layer 1"
    assert model.training
    others = {layer: encoder_of(model).present(layer)[1:] for layer in range(layers) if layer != 1}
    remove(model, PruningPlan(others))
    assert measure_saving(model, cpu(), 1, 8, lambda done: None) is None


def test_the_time_of_a_head_is_its_share_of_what_all_of_them_save():
    found = Saving(40, 1, 128, Ratio(1.25, 1.2, 1.3))
    assert found.percent == pytest.approx(0.5)  # a fifth of the time in forty parts
    assert found.words("cpu").startswith("a removed head saves 0.50 % of the model's time; 1 row ")
    assert found.to_json() == {
        "percent_a_head": pytest.approx(0.5),
        "heads": 40,
        "rows": 1,
        "length": 128,
        "ratio": {"median": 1.25, "low": 1.2, "high": 1.3},
    }


@pytest.mark.parametrize(
    "ratio", [Ratio(1.05, 0.99, 1.1), Ratio(0.9, 0.8, 0.95), Ratio(1.0, 1.0, 1.0)], ids=str
)
def test_noise_is_not_rewarded(ratio):
    found = Saving(40, 32, 128, ratio)
    assert found.percent == 0
    assert found.words("cuda").startswith(
        "a removed head saves no measurable time, so none is rewarded; 32 rows"
    )


def test_rows_that_do_not_fit_are_an_error(monkeypatch):
    def refuse(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore")

    monkeypatch.setattr(latency, "side_by_side", refuse)
    message = (
        r"^timing: 9 rows of 8 tokens do not fit into the memory of cpu \(CUDA out of memory\.\); "
        r"lower reward\.latency_rows$"
    )
    with pytest.raises(ModelError, match=message):
        measure_saving(tiny_model(), cpu(), 9, 8, lambda done: None)


@pytest.mark.gpu
def test_a_gpu_times_its_own_work(monkeypatch):
    # six pairs are their own interval, and on a GPU one late launch among them decides it
    monkeypatch.setattr(latency, "LIMITS", Limits(repeats=50))
    hardware = Hardware(torch.device("cuda"), "bfloat16", 1)
    found = measure_saving(mostly_heads(16, 128).cuda(), hardware, 1024, 128, lambda done: None)
    assert found.heads == 16
    assert found.ratio.low > 1
    assert 0.5 < found.percent < 100 / 32
