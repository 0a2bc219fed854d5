"""The model card of a pruned model: what it was made for, how well it does, which heads are gone, how to load it.

Everything comes from the model and, where it was exported from a run, from the run's record: a number that is not known is
not written. Paths of the machine are not either; the record of a run has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from auber.export import charts
from auber.export.howto import BEST_SPANS, NOUNS
from auber.export.source import Source
from auber.metrics.spans import LONGEST_ANSWER
from auber.models.encoders.base import Encoder

PICTURE = "heads.svg"
_CELL, _LEFT, _TOP, _EDGE = 18, 64, 40, 12  # pixels
_PRESENT, _REMOVED = "#0b5fa5", "#e4e4e4"
_ALIKE = {  # what the hub calls a metric: our names for it
    "accuracy": ("token_accuracy",),
    "exact_match": ("span_exact",),
    "f1": ("entity_f1", "span_f1"),
    "matthews_correlation": ("matthews",),
    "pearsonr": ("pearson",),
    "spearmanr": ("spearman",),
}
_HUB_METRICS = {ours: theirs for theirs, names in _ALIKE.items() for ours in names}
_SHARES_OF_ROWS = (
    "accuracy",
    "span_exact",
)  # whose interval follows from the score and the number of rows

_CARD = """---
library_name: transformers
pipeline_tag: {tag}
tags:
- auber
- attention-head-pruning
- {model_type}
{metrics}---

# {name}

{noun} (`{architecture}`) without {removed} of its {total} attention heads, which were removed with the package
`auber` (after Lee, Lee and Kang: *AUBER: Automated BERT Regularization*). Nothing is left of a removed head.

{scores}

## Heads

![The heads of each layer: blue ones are there, grey ones are removed]({picture})

{table}

## Load

The layers have different numbers of heads, which transformers cannot build by itself. `modeling_auber.py` in this folder,
{lines} lines that need torch and transformers 5 alone, tells it how. Read it, then allow it:

```python
{load}
```

The same flag goes with `{auto_class}.from_pretrained`, with `AutoModel` for the encoder without its
classifier, and with `SentenceTransformer`. With the package `auber`, `auber.load` loads a copy of this folder and runs no code
from it. Without either, transformers refuses the weights; never add `ignore_mismatched_sizes=True`, which replaces the pruned layers by
random ones.

## Limits

- The heads were chosen for one task and its rows. What the model does on other tasks, texts or languages is unknown.
- What the model that it was made from gets wrong, this one can get wrong too; pruning removes heads, not biases.
- Fewer heads make a smaller model; how much faster it is depends on the machine.
- Its licence is that of the model and the data it was made from. Add it to this file before others use it.

## Provenance

{provenance}
"""

_ANSWER = (
    """import numpy
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{place}")
model = AutoModelForQuestionAnswering.from_pretrained("{place}", trust_remote_code=True)

questions, contexts = ["what is old", "who sings"], ["the clock is old", "a bird sings in the tree"]
rows = tokenizer(questions, contexts, padding=True, truncation="only_second", max_length={longest},
                 return_offsets_mapping=True, return_tensors="pt")
places = rows.pop("offset_mapping")  # of each token, in characters
with torch.inference_mode():
    output = model(**rows)
starts, ends = output.start_logits.numpy(), output.end_logits.numpy()
"""
    + BEST_SPANS
)


@dataclass(frozen=True)
class _Purpose:
    """What a model of one kind is for, and how it is used."""

    tag: str  # the hub's name of the kind
    load: str


_PURPOSES = {
    "sequence": _Purpose(
        "text-classification",
        """from transformers import pipeline

classify = pipeline("text-classification", model="{place}", trust_remote_code=True)""",
    ),
    "tokens": _Purpose(
        "token-classification",
        """from transformers import pipeline

# a word's tag is that of its first token
tag = pipeline("token-classification", model="{place}", trust_remote_code=True, aggregation_strategy="first")""",
    ),
    # transformers 5 has no pipeline for it
    "spans": _Purpose("question-answering", _ANSWER),
}


def write_card(source: Source, place: str) -> str:
    """The card as Markdown; `place` is what a reader gives to `from_pretrained`."""
    from auber.models.remote_code import MODELING_FILE

    encoder, config, result = source.encoder, source.model.config, source.result
    metric, purpose = None if result is None else result["metric"], _PURPOSES[source.kind.name]
    return _CARD.format(
        tag=purpose.tag,
        noun=NOUNS[source.kind.name],
        name=source.name,
        model_type=config.model_type,
        metrics=f"metrics:\n- {_HUB_METRICS.get(metric, metric)}\n" if metric else "",
        architecture=type(source.model).__name__,
        removed=encoder.removed.num_removed,
        total=encoder.num_layers * encoder.num_heads,
        scores="It was exported from a model folder that records no scores."
        if result is None
        else _scores(result),
        picture=PICTURE,
        table="\n".join(_table(encoder)),
        lines=len(MODELING_FILE.read_text(encoding="utf-8").splitlines()),
        load=purpose.load.format(
            place=place, longest=source.row_length, longest_answer=LONGEST_ANSWER
        ),
        auto_class=source.kind.auto_class,
        provenance="\n".join(_provenance(result)),
    )


def accuracy_interval(share: float, rows: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many rows; unlike the usual one it stays between 0 and 1."""
    from scipy.stats import binomtest

    low, high = binomtest(round(share * rows), rows).proportion_ci(method="wilson")
    return float(low), float(high)


def draw_heads(encoder: Encoder) -> str:
    """A map of layers and heads as SVG."""
    removed, total = encoder.removed.num_removed, encoder.num_layers * encoder.num_heads
    width = _LEFT + encoder.num_heads * _CELL + _EDGE
    height = _TOP + encoder.num_layers * _CELL + _EDGE
    label = f"{removed} of {total} heads removed; a row a layer, a column a head"
    return charts.document(max(width, 300), height, label, _cells(encoder, label))


def _cells(encoder: Encoder, label: str) -> Iterator[str]:
    yield charts.text(_EDGE, 16, label, charts.INK)
    for head in range(encoder.num_heads):
        yield charts.text(_LEFT + (head + 0.5) * _CELL, _TOP - 6, str(head), charts.GREY, "middle")
    for layer in range(encoder.num_layers):
        y, present = _TOP + layer * _CELL, set(encoder.present(layer))
        yield charts.text(_LEFT - 8, y + 13, f"layer {layer}", charts.GREY, "end")
        for head in range(encoder.num_heads):
            colour, state = (_PRESENT, "present") if head in present else (_REMOVED, "removed")
            place = f'x="{_LEFT + head * _CELL + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 2}"'
            yield f'<rect {place} fill="{colour}"><title>layer {layer}, head {head}: {state}</title></rect>'


def _table(encoder: Encoder) -> Iterator[str]:
    yield "| layer | heads left | removed |"
    yield "|---|---|---|"
    for layer in range(encoder.num_layers):
        gone = ", ".join(map(str, encoder.removed.removed(layer))) or "none"
        yield f"| {layer} | {len(encoder.present(layer))} of {encoder.num_heads} | {gone} |"


def _scores(result: dict[str, Any]) -> str:
    dev, rows = result["dev"], result["rows"]
    score = f"{100 * dev['score']:.2f}"
    if result["metric"] in _SHARES_OF_ROWS:
        low, high = accuracy_interval(dev["score"], dev["rows"])
        interval = f"{100 * low:.2f} to {100 * high:.2f} (Wilson, over dev rows; it says nothing about other seeds)"
    else:
        interval = "unknown: it takes the answers row by row, which a run does not keep"
    lines = {
        "task": result["task"],
        f"dev {result['metric']}": f"{score} on {dev['rows']} rows",
        "95 % interval": interval,
        f"train {result['metric']}": f"{100 * result['train']['score']:.2f} on {rows['train']} rows",
        "method": f"{result['method']}, protocol {result['protocol']}, seed {result['seed']}",
    }
    if dev["majority"] is not None:
        lines["most frequent class of dev"] = f"{100 * dev['majority']:.2f} % of the rows"
    if dev["one_class"]:
        lines["careful"] = "the model gives everything in dev the same answer"
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in lines.items())]
    )


def _provenance(result: dict[str, Any] | None) -> Iterator[str]:
    if result is None:
        yield "- exported from a model folder; the run that made it is not recorded"
        return
    about = result["provenance"]
    yield f"- made from: {result['model']}"
    if result["command"]:
        yield f"- command: `{result['command']}`"
    yield (
        f"- rows: {result['rows']['train']} train, {result['rows']['dev']} dev, cut to {result['config']['max_length']} tokens, "
        f"content hash `{result['data']}`"
    )
    yield f"- weights before the search: `{result['start']}`"
    yield f"- versions: {', '.join(f'{name} {version}' for name, version in about['versions'].items())}"
    if about["commit"]:
        yield f"- commit: `{about['commit']['id']}`{', with local changes' if about['commit']['dirty'] else ''}"
    yield f"- computed on: {about['device']}, {about['precision']}, {about['threads']} threads"
