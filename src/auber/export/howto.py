"""How to run an exported graph, as the README of its folder says it: one text a kind of task.

A model of each kind has its words here, which the model card uses too. The lines do what this package does with rows of the kind: a word's tag is that of its first token, an answer is the best
span within the context. They need numpy, onnxruntime and transformers alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from auber.export.source import Source
from auber.metrics.spans import LONGEST_ANSWER

_PAGE = """# {name}

{noun} as an ONNX graph: any batch size, up to {longest} tokens. {removed} of {total} attention heads are removed.
Run in this folder, with `pip install onnxruntime transformers`:

```python
{lines}
print(answers)
```

{note} onnxruntime has telemetry; `ORT_DISABLE_TELEMETRY=1` switches it off.
"""

_OPEN = """import onnxruntime
from transformers import AutoConfig, AutoTokenizer

tokenizer, config = AutoTokenizer.from_pretrained("."), AutoConfig.from_pretrained(".")
session = onnxruntime.InferenceSession("{graph}", providers=["CPUExecutionProvider"])
"""

_TEXTS = (
    _OPEN
    + """
rows = tokenizer(["a first text", "and another one"], padding=True, truncation=True, max_length={longest}, return_tensors="np")
(logits,) = session.run(["logits"], {{each.name: rows[each.name] for each in session.get_inputs()}})
answers = {answers}"""
)
_CLASSES = "[config.id2label[label] for label in logits.argmax(axis=-1).tolist()]"
_NUMBERS = "logits[:, 0].tolist()"

_WORDS = (
    _OPEN
    + """
sentences = [["a", "first", "sentence"], ["and", "another", "one"]]
texts = [" ".join(words) for words in sentences]
rows = tokenizer(texts, padding=True, truncation=True, max_length={longest}, return_tensors="np")
(logits,) = session.run(["logits"], {{each.name: rows[each.name] for each in session.get_inputs()}})
answers = []
for row, words in enumerate(sentences):
    tags, begin = [], 0
    for word in words:
        token = rows.char_to_token(row, begin)  # the word's first one; None behind the cut
        tags.append(None if token is None else config.id2label[int(logits[row, token].argmax())])
        begin += len(word) + 1
    answers.append(tags)"""
)

# From `starts` and `ends`, each (rows, length), the encoded `rows` and the `places` of their tokens to the texts of the answers.
BEST_SPANS = """answers = []
for row, context in enumerate(contexts):
    is_context = numpy.array([part == 1 for part in rows.sequence_ids(row)])
    scores = starts[row][:, None] + ends[row][None, :]  # of the span from one token to another
    reach = numpy.arange(len(scores))[None, :] - numpy.arange(len(scores))[:, None]
    legal = is_context[:, None] & is_context[None, :] & (reach >= 0) & (reach < {longest_answer})
    first, last = numpy.unravel_index(numpy.where(legal, scores, -numpy.inf).argmax(), scores.shape)
    answers.append(context[places[row][first][0] : places[row][last][1]])"""

_QUESTIONS = (
    """import numpy
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
session = onnxruntime.InferenceSession("{graph}", providers=["CPUExecutionProvider"])

questions, contexts = ["what is old", "who sings"], ["the clock is old", "a bird sings in the tree"]
rows = tokenizer(questions, contexts, padding=True, truncation="only_second", max_length={longest},
                 return_offsets_mapping=True, return_tensors="np")
places = rows.pop("offset_mapping")  # of each token, in characters
starts, ends = session.run(["start_logits", "end_logits"], {{each.name: rows[each.name] for each in session.get_inputs()}})
"""
    + BEST_SPANS
)


@dataclass(frozen=True)
class _HowTo:
    """The part of the page that differs."""

    lines: str
    note: str


NOUNS = {
    "sequence": "A text classifier",
    "tokens": "A tagger of words",
    "spans": "A model that finds the answer to a question in a text",
}
_HOW_TO = {
    "sequence": _HowTo(_TEXTS, "Pairs of texts: `tokenizer(firsts, seconds, ...)`."),
    "tokens": _HowTo(_WORDS, "`logits` are (rows, length, tags)."),
    "spans": _HowTo(_QUESTIONS, "`start_logits` and `end_logits` are each (rows, length)."),
}


def write_how_to(source: Source, graph: str) -> str:
    """The page as Markdown; `graph` is the file's name."""
    encoder, config, how_to = source.encoder, source.model.config, _HOW_TO[source.kind.name]
    lines = how_to.lines.format(
        graph=graph,
        longest=source.row_length,
        longest_answer=LONGEST_ANSWER,
        answers=_NUMBERS if config.problem_type == "regression" else _CLASSES,
    )
    return _PAGE.format(
        name=source.name,
        noun=NOUNS[source.kind.name],
        longest=encoder.num_positions,
        removed=encoder.removed.num_removed,
        total=encoder.num_layers * encoder.num_heads,
        lines=lines,
        note=how_to.note,
    )
