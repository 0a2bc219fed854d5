"""Your own tagged words: records as rows of kind tokens.

A record has a list of words and a list of as many tags. The tags are numbered as `tags.sort_tags` orders them unless the
caller names an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from auber.data.readers import ReadSplit, Record, plain, shorten
from auber.data.rows import WordRows, check_words
from auber.errors import TaskError


def build_words(
    read: ReadSplit, text: Sequence[str], label: str, names: Sequence[str] | None
) -> tuple[WordRows, WordRows, tuple[str, ...]]:
    """Both splits, and the names of the tags."""
    from auber.metrics.tags import sort_tags  # with torch, which listing the tasks does without

    train = list(read("train"))
    rows = [_row(record, text[0], label) for record in train]
    ordered = (
        sort_tags({tag for _, tags in rows for tag in tags}) if names is None else tuple(names)
    )
    whose = "train's" if names is None else "the known labels"
    trained = _number(train, rows, ordered, whose)
    dev = list(read("dev"))
    return (
        trained,
        _number(dev, [_row(record, text[0], label) for record in dev], ordered, whose),
        ordered,
    )


def _row(record: Record, text: str, label: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    where, fields = record
    words, tags = (
        _strings(fields[column], f"{where}, column '{column}'") for column in (text, label)
    )
    check_words(words, tags, where)
    return words, tags


def _strings(value: Any, where: str) -> tuple[str, ...]:
    """A list of words or tags; tags may be whole numbers."""
    value = plain(value)
    if not isinstance(value, (list, tuple)):
        raise TaskError(
            f"{where}: must be a list, found {type(value).__name__} {value!r:.40}; use jsonl or CoNLL columns"
        )
    for number, item in enumerate(value):
        if not isinstance(item, str) and (isinstance(item, bool) or not isinstance(item, int)):
            raise TaskError(
                f"{where}, item {number}: must be text, found {type(item).__name__} {item!r:.40}; correct it"
            )
    return tuple(str(item).strip() for item in value)


def _number(
    records: Sequence[Record],
    rows: Sequence[tuple[tuple[str, ...], tuple[str, ...]]],
    names: tuple[str, ...],
    whose: str,
) -> WordRows:
    """The rows with their tags as numbers."""
    numbers = {name: number for number, name in enumerate(names)}
    for (where, _), (words, tags) in zip(records, rows, strict=True):
        for place, tag in enumerate(tags):
            if tag not in numbers:
                raise TaskError(
                    f"{where}, word {place} '{words[place]}': tag '{tag}' is not one of {whose} ({shorten(names)}); "
                    "correct it or leave the row out"
                )
    return WordRows(
        tuple(words for words, _ in rows),
        tuple(tuple(numbers[tag] for tag in tags) for _, tags in rows),
    )
