"""Score tables: the metric of every mask of some layers, read from exhaustive runs or from a file.

A run's folder is large and stays where it was made; the tables of many runs fit into one file that
anyone can replay. No score is rounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from auber.errors import RunError
from auber.search.methods import Mask
from auber.search.players.exhaustive import MOST_HEADS, all_masks
from auber.system.files import write_text
from auber.system.records import Count, Name, Number, Record, Whole, parse, read, read_json

Units = Literal["heads", "neurons"]
_AGAIN = "record the layers again"
# A list of numbers, on several lines.
_NUMBERS = re.compile(r"\[\n\s*([-+.\deE]+(?:,\s+[-+.\deE]+)*)\s+\]")


class LayerTable(Record):
    """One layer as the run met it; a mask names positions among the heads that were present.

    Blocks of neurons are numbered like heads. Their state is that of the contracting matrix.
    """

    layer: Count
    heads: Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_HEADS)]
    reward_rows: Count
    states: dict[Name, dict[Name, tuple[Number, ...]]]  # by matrix and norm: a number per position
    scores: tuple[Number, ...]  # the metric of every mask, in the order of `all_masks`

    @field_validator("heads")
    @classmethod
    def _check_heads(cls, heads: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(heads)) < len(heads):
            raise ValueError("must name each head once")
        return heads

    @model_validator(mode="after")
    def _check_lengths(self) -> LayerTable:
        expected = 2 ** len(self.heads) - 1
        if len(self.scores) != expected:
            raise ValueError(f"must have {expected} scores, found {len(self.scores)}")
        states = (state for by_norm in self.states.values() for state in by_norm.values())
        if any(len(state) != len(self.heads) for state in states):
            raise ValueError("must have states of one number per head")
        return self

    @cached_property
    def known(self) -> dict[Mask, float]:
        """The metric of each mask."""
        return dict(zip(all_masks(range(len(self.heads))), self.scores, strict=True))

    @property
    def optimum(self) -> float:
        """The metric of the best mask."""
        return max(self.scores)

    @property
    def best(self) -> Mask:
        """The heads that the best mask removes; among equals the fewest, then the first."""
        mask = max(self.known, key=self.known.__getitem__)
        return tuple(self.heads[position] for position in mask)


class RunTables(Record):
    """The tables of one run."""

    model: Name
    task: Name
    metric: Name
    protocol: Name
    units: Units = "heads"
    seed: Whole
    command: str | None = None  # None: started from Python
    provenance: dict[str, Any]
    layers: Annotated[tuple[LayerTable, ...], Field(min_length=1)]


class TablesFile(Record):
    """The tables of some runs."""

    format: Literal[1] = 1
    kind: Literal["auber score tables"] = "auber score tables"
    runs: Annotated[tuple[RunTables, ...], Field(min_length=1)]


def read_tables(paths: Sequence[Path]) -> list[RunTables]:
    """Return the tables of run folders and files of tables; no layer may come twice."""
    found: list[RunTables] = []
    for path in paths:
        if path.is_dir():
            found.append(_read_run(path))
        else:
            missing = "give a run's folder or a file made with --tables"
            found += read(TablesFile, path, _AGAIN, missing=missing).runs
    seen: set[tuple[object, ...]] = set()
    for run in found:
        for table in run.layers:
            key = (run.model, run.task, run.metric, run.protocol, run.units, run.seed, table.layer)
            if key in seen:
                raise RunError(f"{', '.join(map(str, key))} is there twice; name each run once")
            seen.add(key)
    return found


def write_tables(path: Path, runs: Sequence[RunTables]) -> None:
    """Write tables into one file."""
    write_compact(path, TablesFile(runs=tuple(runs)).to_json())


def write_compact(path: Path, data: Mapping[str, Any]) -> None:
    """Write JSON with each list of numbers on one line."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    text = _NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text)
    write_text(path, text + "\n", follow=True)


def _read_run(folder: Path) -> RunTables:
    result = read_json(folder / "result.json", _AGAIN, missing="name a finished run")
    if not isinstance(result, dict) or result.get("method") != "exhaustive":
        raise RunError(f"{folder}: must be a run of method exhaustive, which scores every mask")
    config = {"reward.measure": "metric", "search.prior": "none", **result.get("config", {})}
    found = config["reward.measure"], config["search.prior"]
    if found != ("metric", "none"):
        raise RunError(
            f"{folder}: must be a run with reward.measure = metric and search.prior = none, found "
            f"{' and '.join(map(str, found))}; record one with --preset paper"
        )
    layers = []
    for path in sorted((folder / "stages").glob("layer-*.json")):
        search = read_json(path, _AGAIN).get("search")
        if search is not None:  # a layer of one head is skipped
            numbers = {key: search[key] for key in LayerTable.model_fields if key in search}
            layers.append({**numbers, "layer": int(path.stem.removeprefix("layer-"))})
    origin = {key: result.get(key) for key in RunTables.model_fields}
    tables = {**origin, "units": "heads", "layers": layers}
    return parse(RunTables, tables, str(folder), _AGAIN)
