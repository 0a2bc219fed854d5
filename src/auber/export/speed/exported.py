"""An exported graph beside the unpruned one, in onnxruntime.

The weights of the unpruned model are not at hand once a run is over. Its size is: the removed heads are put back as zeros,
and a product with zeros takes as long as any other.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from auber.errors import ConfigError
from auber.export.base import Exported
from auber.export.graph import graph_call, open_graph, write_graph
from auber.export.speed.record import Pair
from auber.export.speed.request import USUAL_LENGTH
from auber.export.zeros import put_back
from auber.models.random_rows import random_rows
from auber.system.progress import Progress
from auber.training.timing import Limits, make_timer, side_by_side


def time_exported(exported: Exported, *, limits: Limits, progress: Progress) -> Pair:
    """The latency of one row of the usual length, or of as many tokens as the model has positions for."""
    if exported.graph is None:
        raise ConfigError(
            f"{exported.place}: only an ONNX graph can be timed, found an export to {exported.to}"
        )
    source, threads = exported.source, torch.get_num_threads()
    length = min(USUAL_LENGTH, source.encoder.num_positions)
    batch = random_rows(source.encoder, source.inputs, rows=1, length=length)
    with tempfile.TemporaryDirectory(prefix="auber-speed-") as folder:
        progress.begin("writing unpruned graph", 0)
        unpruned = Path(folder) / "unpruned.onnx"
        write_graph(put_back(source.model, source.encoder.removed), unpruned, source.inputs)
        progress.end()
        progress.begin("latency", limits.repeats)
        calls = [
            graph_call(open_graph(path, threads), batch) for path in (unpruned, exported.graph)
        ]
        seconds = side_by_side(calls, make_timer(torch.device("cpu")), limits, progress.step)
        progress.end()
    return Pair.of(("onnxruntime", "cpu", "float32"), 1, length, *seconds)
