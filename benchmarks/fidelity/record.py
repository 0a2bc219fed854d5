"""The results of the fidelity benchmark, to JSON and back; results are added to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from auber.system.files import write_json
from auber.system.records import Count, Name, Number, Record, read

REMEDY = "measure it again"


class Entry(Record):
    """The fidelity of one model, in each form that it was measured in (float32, int8)."""

    command: str
    model: Name
    kind: Literal["reranker", "encoder", "tagger"]
    keep: Number  # share of the multiply-adds; 1: the unpruned model
    texts: Count  # that it was pruned with; 0: the unpruned model
    seed: Count
    settings: dict[str, Any]  # that differ from the preset's
    forms: dict[Name, dict[Name, Number]]
    held_out: Count  # rows that it was measured on
    seconds: Number  # of the pruning
    provenance: dict[str, Any]


class Results(Record):
    """All entries of a file."""

    format: Literal[1] = 1
    kind: Literal["fidelity"] = "fidelity"
    entries: tuple[Entry, ...]


def read_entries(path: Path) -> tuple[Entry, ...]:
    """Return the entries of a file; none if there is no file."""
    return read(Results, path, REMEDY).entries if path.exists() else ()


def add_entry(path: Path, entry: Entry) -> None:
    """Add an entry to a file."""
    results = Results(entries=(*read_entries(path), entry))
    write_json(path, results.to_json(), follow=True)
