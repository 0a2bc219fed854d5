"""Score tables: the metric of every mask of some layers, read from exhaustive runs or from a file of such tables.

A run's folder is large and stays where it was made; the tables of many runs are one file that can be kept and replayed by
anybody. Both are read into the same records, and a file is checked as if a stranger had written it. No score is rounded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from auber.config import show_name
from auber.errors import RunError
from auber.regret.files import compact_json, write_kept
from auber.run.files import is_run, read_json, read_result
from auber.search.methods import Mask
from auber.search.players.exhaustive import MOST_HEADS, all_masks
from auber.search.stages import is_layer_stage, layer_of

KIND = "auber score tables"
FORMAT = 1

States = Mapping[str, Mapping[str, tuple[float, ...]]]


@dataclass(frozen=True)
class LayerTable:
    """One layer as the run met it. A mask names positions among the heads that were there."""

    layer: int
    heads: tuple[int, ...]  # their numbers in the unpruned model
    reward_rows: int
    states: States  # by matrix and norm: one number per position
    scores: tuple[float, ...]  # the metric of every mask, in the order of `all_masks`

    @cached_property
    def known(self) -> dict[Mask, float]:
        """The metric by mask."""
        return dict(zip(all_masks(range(len(self.heads))), self.scores, strict=True))

    @property
    def unpruned(self) -> float:
        """The metric with all heads."""
        return self.scores[0]

    @property
    def optimum(self) -> float:
        """The metric of the best mask."""
        return max(self.scores)

    @property
    def best(self) -> Mask:
        """The numbers of the heads that the best mask removes; among equals the fewest, then the first."""
        return tuple(
            self.heads[position] for position in max(self.known, key=self.known.__getitem__)
        )


@dataclass(frozen=True)
class RunTables:
    """The tables of one run, and where they come from."""

    model: str
    task: str
    metric: str
    protocol: str
    seed: int
    command: str | None  # that made the run; None: it was made from Python
    provenance: Mapping[str, Any]
    layers: tuple[LayerTable, ...]


def read_tables(paths: Sequence[Path]) -> list[RunTables]:
    """The tables of runs (folders) and of files of tables; no layer may come twice."""
    found: list[RunTables] = []
    for path in paths:
        found += [_read_run(path)] if path.is_dir() else _read_file(path)
    seen: set[tuple[object, ...]] = set()
    for run in found:
        for table in run.layers:
            key = (run.model, run.task, run.metric, run.protocol, run.seed, table.layer)
            if key in seen:
                raise RunError(
                    f"layer {table.layer} of {run.model}, {run.task} by {run.metric}, {run.protocol}, seed {run.seed} comes twice; "
                    "name each run and each file of tables once"
                )
            seen.add(key)
    return found


def write_tables(path: Path, tables: Sequence[RunTables]) -> None:
    """Keep tables in one file; the same bytes from the same tables."""
    write_kept(
        path,
        compact_json({"format": FORMAT, "kind": KIND, "runs": [asdict(run) for run in tables]}),
    )


def _read_run(folder: Path) -> RunTables:
    if not is_run(folder):
        raise RunError(
            f"{folder}: not a run's folder (it has no run.json); name runs of method exhaustive"
        )
    result, where = read_result(folder), f"{folder}: result.json"
    method = _take(result, "method", str, where)
    if method != "exhaustive":
        raise RunError(
            f"{folder}: only a run of method exhaustive has scored every mask, found method {method:.40}; "
            "make one with 'auber prune --method exhaustive --preset paper'"
        )
    _require_plain_games(folder, _take({"config": {}, **result}, "config", dict, where))
    layers = []
    for path in sorted((folder / "stages").glob("*.json")):
        if not is_layer_stage(path.stem):
            continue
        stage = read_json(path)
        if isinstance(stage, dict) and "search" not in stage and stage.get("removed") == []:
            continue  # a layer of one head, which is passed over
        search = _take(stage, "search", dict, str(path))
        if "scores" not in search:
            raise RunError(
                f"{path}: the scores of all masks are missing, as an older version left them out; run it anew"
            )
        layer = layer_of(path.stem)
        if layer is None:
            raise RunError(
                f"{path}: its name must be layer-NUMBER.json; remove what is no layer's record"
            )
        layers.append(_read_layer({**search, "layer": layer}, str(path)))
    if not layers:
        raise RunError(
            f"{folder}: has searched no layer, as none of them has two heads; name a run with scores of masks to replay"
        )
    return replace(_read_origin(result, where), layers=tuple(layers))


def _require_plain_games(folder: Path, config: Mapping[str, Any]) -> None:
    """What is replayed are games that begin with all heads and are paid by the metric."""
    for key, plain in (("reward.measure", "metric"), ("search.prior", "none")):
        found = config.get(key, plain)
        if found != plain:
            raise RunError(
                f"{folder}: regret is measured on runs with {key} = {plain}, found {found!r:.40}; record one with '--preset paper'"
            )


def _read_file(path: Path) -> list[RunTables]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(
            f"{path}: no such file; give a run's folder or a file made by 'auber regret --tables'"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{path}: cannot be read as JSON ({error}); give a run's folder or a file made by 'auber regret --tables'"
        ) from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise RunError(
            f"{path}: must be a run's folder or a file made by 'auber regret --tables', found something else"
        )
    if data.get("format") != FORMAT:
        raise RunError(
            f"{path}: format {FORMAT} can be read, found {data.get('format')!r}; make the file anew"
        )
    entries = _take(data, "runs", list, str(path))
    if not entries:
        raise RunError(
            f"{path}: must hold the tables of at least one run, found none; make the file anew"
        )
    return [_read_entry(entry, f"{path}: run {index}") for index, entry in enumerate(entries)]


def _read_entry(data: Any, where: str) -> RunTables:
    run, layers = _read_origin(data, where), _take(data, "layers", list, where)
    if not layers:
        raise RunError(
            f"{where}: must hold the table of at least one layer, found none; make the file anew"
        )
    found = (_read_layer(layer, f"{where}: layer {index}") for index, layer in enumerate(layers))
    return replace(run, layers=tuple(found))


def _read_origin(data: Any, where: str) -> RunTables:
    """What run it was, without its layers."""
    return RunTables(
        model=_take(data, "model", str, where),
        task=_take(data, "task", str, where),
        metric=_take(data, "metric", str, where),
        protocol=_take(data, "protocol", str, where),
        seed=_take(data, "seed", int, where),
        command=None if data.get("command") is None else _take(data, "command", str, where),
        provenance=_take(data, "provenance", dict, where),
        layers=(),
    )


def _read_layer(data: Any, where: str) -> LayerTable:
    heads = _take(data, "heads", list, where)
    if not 1 <= len(heads) <= MOST_HEADS or not all(type(head) is int for head in heads):
        raise RunError(f"{where}: heads must be 1 to {MOST_HEADS} numbers, found {heads!r:.60}")
    if len({*heads}) != len(heads):
        raise RunError(
            f"{where}: each head may be named once, found {heads!r:.60}; make the file anew"
        )
    return LayerTable(
        layer=_take(data, "layer", int, where),
        heads=tuple(heads),
        reward_rows=_take(data, "reward_rows", int, where),
        states=_read_states(_take(data, "states", dict, where), len(heads), where),
        scores=_numbers(data.get("scores"), 2 ** len(heads) - 1, f"{where}: scores"),
    )


def _read_states(data: Mapping[str, Any], num_heads: int, where: str) -> States:
    states: dict[str, dict[str, tuple[float, ...]]] = {}
    for matrix in data:
        by_norm = _take(data, matrix, dict, f"{where}: states")
        states[matrix] = {
            norm: _numbers(
                by_norm[norm], num_heads, f"{where}: state {show_name(matrix)} {show_name(norm)}"
            )
            for norm in by_norm
        }
    return states


def _take(data: Any, key: str, kind: type, where: str) -> Any:
    value = data.get(key) if isinstance(data, dict) else None
    if type(value) is not kind:
        name = show_name(key)
        raise RunError(
            f"{where}: {name} must be of type {kind.__name__}, found {value!r:.40}; make the file anew"
        )
    if (
        isinstance(value, str) and not value.isprintable()
    ):  # names end up in tables and on terminals
        raise RunError(
            f"{where}: {show_name(key)} must be printable text, found {value!r:.40}; make the file anew"
        )
    return value


def _numbers(values: Any, count: int, where: str) -> tuple[float, ...]:
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(
            type(value) in (int, float) and abs(value) <= sys.float_info.max for value in values
        )
    ):
        found = f"{len(values)} values" if isinstance(values, list) else repr(values)
        raise RunError(
            f"{where}: must be {count} finite numbers, found {found:.60}; make the file anew"
        )
    return tuple(float(value) for value in values)
