"""Run the Python blocks of a page as a reader would, and compare with this package's answers."""

from __future__ import annotations

import re
from typing import Any

import torch

from auber.data.encoding import encode_questions, encode_words
from auber.data.rows import QuestionRows, WordRows
from auber.metrics.spans import best_spans
from auber.training.evaluation import predict
from tests.tiny_models import tiny_tokenizer


def run_lines(page: str, **names: Any) -> dict[str, Any]:
    """Run the only block of Python in a page and return its names."""
    (lines,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(lines, "lines", "exec"), names)
    return names


def own_answers(model: Any, found: dict[str, Any]) -> list[Any]:
    """Return this package's answers to the sentences, or questions, of a block."""
    return _tags(model, found["sentences"]) if "sentences" in found else _answers(model, found)


def _tags(model: Any, sentences: list[list[str]]) -> list[list[str]]:
    names = list(model.config.id2label.values())
    unknown = tuple((0,) * len(words) for words in sentences)
    rows = encode_words(
        tiny_tokenizer(),
        WordRows(tuple(map(tuple, sentences)), unknown),
        model.config.max_position_embeddings,
        names,
        "snippets",
    )
    tags = predict(model, rows)[rows.truth(torch.device("cpu")).places].argmax(-1).tolist()
    return [[names[tags.pop(0)] for _ in words] for words in sentences]


def _answers(model: Any, found: dict[str, Any]) -> list[str]:
    questions, contexts = tuple(found["questions"]), tuple(found["contexts"])
    longest = model.config.max_position_embeddings
    rows = encode_questions(
        tiny_tokenizer(), QuestionRows(questions, contexts, ((),) * len(questions)), longest, "here"
    )
    spans = best_spans(predict(model, rows), rows.truth(torch.device("cpu"))).tolist()
    encoded = tiny_tokenizer()(
        list(questions),
        list(contexts),
        truncation="only_second",
        max_length=longest,
        return_offsets_mapping=True,
    )
    return [
        context[places[first][0] : places[last][1]]
        for context, places, (first, last) in zip(
            contexts, encoded["offset_mapping"], spans, strict=True
        )
    ]
