"""What can be tested of recordings without a GPU."""

from __future__ import annotations

import gc
from contextlib import contextmanager, nullcontext
from weakref import WeakSet

import pytest
import torch

from auber.training import cuda_graphs as recording
from auber.training.cuda_graphs import (
    CaptureError,
    CudaGraphCapture,
    ShapeGraphs,
    _CreateOnDevice,
    _reason,
    capture_for,
)
from tests.recorders import Repeater, refuse


def batch(rows, width, value=1.0):
    return {"input_ids": torch.full((rows, width), value)}


class Sums:
    """Work that leaves the sum of a batch."""

    def __init__(self):
        self.found = []

    def __call__(self, given):
        self.found.append(given["input_ids"].sum().item())


def test_each_shape_is_recorded_when_it_comes_again_and_then_replayed():
    sums, recorder = Sums(), Repeater()
    run = ShapeGraphs(sums, recorder)
    counts = []
    for value, (rows, width) in enumerate([(2, 3), (2, 3), (3, 2), (2, 3), (3, 2), (3, 2), (1, 6)]):
        run(batch(rows, width, value))
        counts.append(recorder.recorded)
    assert sums.found == [6 * value for value in range(7)], (
        "every batch once, each with its own numbers"
    )
    assert counts == [0, 1, 1, 1, 2, 2, 2], "the last comes once and is not recorded"


def test_what_was_given_stays_as_it_was():
    run = ShapeGraphs(Sums(), Repeater())
    given = [batch(2, 3, value) for value in (1.0, 2.0, 3.0)]
    for one in given:
        run(one)
    assert [one["input_ids"][0, 0].item() for one in given] == [1.0, 2.0, 3.0]


def test_work_that_cannot_be_recorded_is_not_done():
    sums = Sums()
    run = ShapeGraphs(sums, refuse)
    run(batch(2, 3))
    for _ in range(2):
        with pytest.raises(CaptureError, match="synchronizing"):
            run(batch(2, 3))
    assert sums.found == [6]


def test_only_a_gpu_has_a_recorder():
    assert capture_for(torch.device("cpu")) is None


def test_recordings_share_the_pool_of_those_that_live(monkeypatch):
    """As torch does: a graph that is given no pool makes one, and one that all its graphs have left takes no further graph."""
    pools: list[WeakSet] = []

    class Graph:
        def pool(self):
            return next(number for number, graphs in enumerate(pools) if self in graphs)

        def replay(self):
            return self.pool()

    @contextmanager
    def record(graph, pool):
        if pool is None:
            pools.append(WeakSet())
        else:
            assert pools[pool], "use_count > 0 INTERNAL ASSERT FAILED"
        pools[-1 if pool is None else pool].add(graph)
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: None)
    monkeypatch.setattr(recording, "_error_on_synchronization", nullcontext)
    recorder = CudaGraphCapture(torch.device("cuda", 0))
    replays = [recorder(lambda: None) for _ in range(2)]
    del replays[0]
    replays.append(recorder(lambda: None))
    assert [replay() for replay in replays] == [0, 0]
    replays.clear()
    gc.collect()
    assert recorder(lambda: None)() == 1


@pytest.mark.gpu
def test_a_recorder_whose_recordings_are_gone_records_anew():
    place = torch.ones(1000, device="cuda")
    recorder = CudaGraphCapture(place.device)
    for _ in range(3):
        kept = []
        replay = recorder(lambda kept=kept: kept.append(place.cumsum(0)))
        replay()
        assert kept[0][-1].item() == 1000
        del replay  # the result is still there: its memory is the pool's


def test_the_reason_is_the_first_error_and_its_place():
    def fail():
        raise ValueError("the first\nmore")

    try:
        try:
            fail()
        except ValueError:
            raise RuntimeError("capture_end failed")  # noqa: B904 - as leaving a graph's context does
    except RuntimeError as error:
        text, _, place = _reason(error).partition(", at ")
    assert text == "the first"
    assert place.startswith(__file__)


def test_what_a_model_makes_on_the_host_is_made_on_the_device():
    with _CreateOnDevice(torch.device("meta")):
        assert torch.arange(3).device.type == "meta"
        assert torch.arange(3, device="cpu").tolist() == [0, 1, 2]
        zero = torch.tensor(0.0, dtype=torch.bfloat16, device="cpu")
        assert (zero.item(), zero.dtype, zero.shape) == (0.0, torch.bfloat16, ())
        assert [torch.tensor(value).dtype for value in (True, 1, 1.5)] == [
            torch.bool,
            torch.int64,
            torch.float32,
        ]
        assert torch.tensor([1, 2]).tolist() == [1, 2]
