"""What can be tested of captures without a GPU, and the memory that they share on one."""

from __future__ import annotations

import gc
from contextlib import contextmanager, nullcontext
from weakref import WeakSet

import pytest
import torch

from auber.training import cuda_graphs
from auber.training.cuda_graphs import CaptureError, CudaGraphCapture, ShapeGraphs
from tests.recorders import Repeater, refuse


def batch(rows, width, value=1.0):
    return {"input_ids": torch.full((rows, width), value)}


class Sums:
    """A computation that records the sum of each batch."""

    def __init__(self):
        self.found = []

    def __call__(self, given):
        self.found.append(given["input_ids"].sum().item())


def test_each_shape_is_captured_at_its_second_batch_and_then_replayed():
    sums, capture = Sums(), Repeater()
    run = ShapeGraphs(sums, capture)
    counts, batches = [], []
    for value, (rows, width) in enumerate([(2, 3), (2, 3), (3, 2), (2, 3), (3, 2), (3, 2), (1, 6)]):
        batches.append(batch(rows, width, value))
        run(batches[-1])
        counts.append(capture.recorded)
    assert sums.found == [6 * value for value in range(7)], "each batch once, with its own values"
    assert counts == [0, 1, 1, 1, 2, 2, 2]
    assert [each["input_ids"][0, 0].item() for each in batches] == list(range(7)), "not changed"


def test_after_a_capture_error_nothing_is_computed():
    sums = Sums()
    run = ShapeGraphs(sums, refuse)
    run(batch(2, 3))
    for _ in range(2):
        with pytest.raises(CaptureError, match="synchronizing"):
            run(batch(2, 3))
    assert sums.found == [6]


def test_graphs_share_the_pool_of_living_graphs(monkeypatch):
    """Like torch: a graph without a pool makes one, and a pool without graphs is refused."""
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
    monkeypatch.setattr(cuda_graphs, "_error_on_synchronization", nullcontext)
    capture = CudaGraphCapture(torch.device("cuda", 0))
    replays = [capture(lambda: None) for _ in range(2)]
    del replays[0]
    replays.append(capture(lambda: None))
    assert [replay() for replay in replays] == [0, 0]
    replays.clear()
    gc.collect()
    assert capture(lambda: None)() == 1


@pytest.mark.gpu
def test_a_capture_whose_graphs_are_gone_captures_again():
    place = torch.ones(1000, device="cuda")
    capture = CudaGraphCapture(place.device)
    for _ in range(3):
        results = []
        replay = capture(lambda results=results: results.append(place.cumsum(0)))
        replay()
        assert results[0][-1].item() == 1000
        del replay  # the result still exists: its memory belongs to the pool


def test_the_reason_is_the_first_error_and_its_place():
    def fail():
        raise ValueError("the first\nmore")

    try:
        try:
            fail()
        except ValueError:
            raise RuntimeError("capture_end failed")  # noqa: B904 - as a graph's context does
    except RuntimeError as error:
        text, _, place = cuda_graphs._reason(error).partition(", at ")
    assert text == "the first"
    assert place.startswith(__file__)


def test_tensors_are_created_on_the_device():
    with cuda_graphs._CreateOnDevice(torch.device("meta")):
        assert torch.arange(3).device.type == "meta"
        assert torch.arange(3, device="cpu").tolist() == [0, 1, 2]
        zero = torch.tensor(0.0, dtype=torch.bfloat16, device="cpu")
        assert (zero.item(), zero.dtype, zero.shape) == (0.0, torch.bfloat16, ())
        dtypes = [torch.tensor(value).dtype for value in (True, 1, 1.5)]
        assert dtypes == [torch.bool, torch.int64, torch.float32]
        assert torch.tensor([1, 2]).tolist() == [1, 2]
