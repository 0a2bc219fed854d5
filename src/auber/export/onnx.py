"""The target `onnx`: a folder with the graph, the tokenizer, the config with the labels, and how to run it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from auber.export.base import Compute, Exported, write_checked
from auber.export.graph import graph_call, open_graph, require_packages, write_graph
from auber.export.source import Source
from auber.progress import Progress

GRAPH = "model.onnx"
_LABELS = "[config.id2label[label] for label in logits.argmax(axis=-1).tolist()]"
_HOW_TO = """# {name}

A text classifier as an ONNX graph: any batch size, up to {longest} tokens. {removed} of {total} attention heads are removed.
Run in this folder, with `pip install onnxruntime transformers`:

```python
import onnxruntime
from transformers import AutoConfig, AutoTokenizer

tokenizer, config = AutoTokenizer.from_pretrained("."), AutoConfig.from_pretrained(".")
session = onnxruntime.InferenceSession("{graph}", providers=["CPUExecutionProvider"])

rows = tokenizer(["a first text", "and another one"], padding=True, truncation=True, max_length={longest}, return_tensors="np")
(logits,) = session.run(["logits"], {{each.name: rows[each.name] for each in session.get_inputs()}})
answers = {answers}
print(answers)
```

Pairs of texts: `tokenizer(firsts, seconds, ...)`. onnxruntime has telemetry; `ORT_DISABLE_TELEMETRY=1` switches it off.
"""


def export(source: Source, place: Path, progress: Progress) -> Exported:
    """Write the folder, if the packages of `auber[onnx]` are there."""
    require_packages("--to onnx")
    progress.plan(2)
    exported = write_checked("onnx", source, place, _write, _compute, progress)
    return replace(exported, graph=place / GRAPH)


def _write(source: Source, folder: Path) -> None:
    write_graph(source.model, folder / GRAPH, source.inputs)
    source.tokenizer.save_pretrained(folder)
    source.model.config.save_pretrained(folder)
    encoder, config = source.encoder, source.model.config
    is_regression = config.problem_type == "regression"
    text = _HOW_TO.format(
        name=source.name,
        longest=encoder.num_positions,
        removed=encoder.removed.num_removed,
        total=encoder.num_layers * encoder.num_heads,
        graph=GRAPH,
        answers="logits[:, 0].tolist()" if is_regression else _LABELS,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def _compute(source: Source, folder: Path) -> Compute:
    session = open_graph(folder / GRAPH, torch.get_num_threads())
    return lambda batch: graph_call(session, batch)()
