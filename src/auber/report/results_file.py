"""Results files: the finished runs of a study in one small JSON file without weights.

    format, kind   `kind` is `runs`; other commands write files of other kinds
    study          the content of the study file, null for runs outside a study
    settings       the settings of one run; other runs list only their differences
    left_out       the runs without a result, and why
    notes          sentences for readers, if there are any
    runs           one line for each finished run and each fine-tuned start

Saving more folders or files of the same study adds their runs. Existing lines stay byte for byte,
and a run with two different results is an error.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from auber.errors import ConfigError, RunError
from auber.report.records import RunRecord
from auber.report.runs import LeftOut, RunSet, read_folder
from auber.study.folder import joined_studies, study_differences
from auber.study.plan import Study, make_study
from auber.system.files import write_text
from auber.system.records import Name, Record, parse, read_json

FORMAT = 1
KIND = "runs"
REMEDY = "save the results again"


class _Line(RunRecord):
    config: dict[str, Any] = Field(default_factory=dict)  # made of the settings of file and line
    settings: dict[str, Any]  # those that differ from the common ones
    lacking: tuple[str, ...]  # common settings that the run does not have


class _Content(Record):
    format: Literal[1]
    kind: Literal["runs"]
    study: dict[str, Any] | None
    settings: dict[str, Any]
    left_out: tuple[LeftOut, ...]
    notes: tuple[Name, ...] = ()
    runs: tuple[_Line, ...]


@dataclass(frozen=True)
class ResultsFile:
    """A results file of any kind; `name` is its name without the folder."""

    name: str
    kind: str
    content: Mapping[str, Any]
    figure: Path | None = None  # the SVG file of the same name, if there is one


@dataclass(frozen=True)
class Saved:
    """What saving changed."""

    added: int
    present: int  # runs that the file had before
    total: int  # runs in the file now, including starts
    left_out: Sequence[LeftOut]


def read_place(place: str | Path) -> RunSet:
    """Return the runs of a folder or a results file."""
    if not Path(place).exists():
        raise RunError(f"{place}: no such folder or results file; name what holds runs")
    if Path(place).is_dir():
        return read_folder(place)
    return replace(runs_of(read_results_file(place)), name=str(place))


def read_results_file(path: str | Path) -> ResultsFile:
    """Return a results file of any kind."""
    content = read_json(path, REMEDY)
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
        raise RunError(
            f"{path}: must be a results file (a JSON object that names its kind), found something "
            "else; 'auber report DIR --save FILE' makes one"
        )
    figure = Path(path).with_suffix(".svg")
    found = figure if figure.is_file() else None
    return ResultsFile(Path(path).name, content["kind"], content, found)


def runs_of(file: ResultsFile) -> RunSet:
    """Return the runs of a results file; at least one must be of a method."""
    if file.kind != KIND:
        raise RunError(
            f"{file.name}: must hold runs, found results of kind '{file.kind}'; leave it out"
        )
    content = parse(_Content, dict(file.content), file.name, REMEDY)
    if all(line.is_start for line in content.runs):
        raise RunError(
            f"{file.name}: no finished run in it, found {len(content.runs)} fine-tuned starts; "
            "save a folder with finished runs"
        )
    studies: dict[str, Study] = {}
    if content.study is not None:
        studies["."] = make_study(content.study, where=f"{file.name}: study")
    records = tuple(_from_line(line, content.settings) for line in content.runs)
    return RunSet(file.name, records, content.left_out, studies, content.notes)


def save_results(
    place: str | Path, path: str | Path, model: str | None = None, notes: Sequence[str] = ()
) -> Saved:
    """Add the runs of a folder or file to a results file; `model` renames their one model."""
    path = Path(path)
    for note in notes:
        if not note.strip() or not note.strip().isprintable():
            raise ConfigError(
                f"--note must be a sentence of printable text on one line, found {note!r:.40}"
            )
    source = _renamed(read_place(place), model)
    others = [where for where in source.studies if where != "."]
    if others:
        raise RunError(
            f"{place}: a results file is of one study, found those in {', '.join(others)} below "
            "it; save them one by one"
        )
    study = source.studies.get(".")
    common: Mapping[str, Any] = source.records[0].config
    before = RunSet(str(path), (), (), {})
    if path.exists():
        before = read_place(path)
        study = _join(path, before.studies.get("."), place, study)
        common = read_results_file(path).content["settings"]
    records = {_identity(record): record for record in before.records}
    for record in source.records:
        other = records.setdefault(_identity(record), record)
        # A start that was tuned again took another time; with the same weights it is the same.
        same = other.model_copy(update={"folder": record.folder}) == record
        if not record.is_start and not same:
            one, two = (
                f"dev {100 * each.dev:.2f}, {each.removed} heads removed, {each.seconds:.1f} s"
                for each in (other, record)
            )
            raise RunError(
                f"{path}: {other.folder} and {place}: {record.folder}: two different results of "
                f"{record} ({one} and {two}); a results file keeps one of each, save the other "
                "elsewhere"
            )
    finished = {record.folder for record in records.values()}
    left_out = {run.folder: run for run in (*before.left_out, *source.left_out)}
    all_notes = list(dict.fromkeys((*before.notes, *source.notes, *map(str.strip, notes))))
    content = {
        "format": FORMAT,
        "kind": KIND,
        "study": None if study is None else tomllib.loads(study.to_toml()),
        "settings": dict(common),
        "left_out": [left_out[name].to_json() for name in sorted(left_out) if name not in finished],
        **({"notes": all_notes} if all_notes else {}),
        "runs": [_to_line(records[key], common) for key in sorted(records)],
    }
    text = ",\n".join(f"{json.dumps(key)}: {_to_text(key, part)}" for key, part in content.items())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, f"{{\n{text}\n}}\n", follow=True)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error}); choose another --save") from error
    added = len(records) - len(before.records)
    return Saved(added, len(source.records) - added, len(records), source.left_out)


def _identity(record: RunRecord) -> tuple[Any, ...]:
    """Return what distinguishes and sorts runs: by block, the start first.

    Starts with different weights are different runs: other runs began with them.
    """
    model, protocol, task, method, seed, draw = record.key
    start = record.start if record.is_start else ""
    return (model, protocol, task, seed, not record.is_start, method, draw, start)


def _from_line(line: _Line, common: Mapping[str, Any]) -> RunRecord:
    shared = {key: value for key, value in common.items() if key not in line.lacking}
    values = {name: getattr(line, name) for name in RunRecord.model_fields}
    return RunRecord.model_construct(**{**values, "config": {**shared, **line.settings}})


def _to_line(record: RunRecord, common: Mapping[str, Any]) -> dict[str, Any]:
    line = record.to_json()
    config = line.pop("config")
    own = {k: v for k, v in config.items() if k not in common or common[k] != v}
    return {**line, "settings": own, "lacking": [key for key in common if key not in config]}


def _renamed(source: RunSet, model: str | None) -> RunSet:
    if model is None:
        return source
    names = sorted({record.model for record in source.records})
    if len(names) > 1:
        raise RunError(
            f"{source.name}: --model-name renames one model, found {', '.join(names)}; save their "
            "runs from folders of their own"
        )
    return replace(
        source,
        records=tuple(record.renamed(model) for record in source.records),
        studies={place: study.change(model=model) for place, study in source.studies.items()},
    )


def _join(path: Path, old: Study | None, place: str | Path, new: Study | None) -> Study | None:
    """Return both studies as one."""
    if (old is None) != (new is None):
        kept, found = ("no study", "a study") if old is None else ("a study", "no study")
        raise RunError(
            f"{path}: holds runs of {kept}, {place} those of {found}; save them into another file"
        )
    if old is None or new is None:
        return None
    changed = study_differences(old, new)
    if changed:
        raise RunError(
            f"{path}: holds another study than {place}: {', '.join(changed)}; save it into another "
            "file, and a model under the same --model-name"
        )
    return joined_studies(old, new)


def _to_text(key: str, part: Any) -> str:
    """Write one line for each run, so that differences between versions can be read."""
    if key not in ("left_out", "notes", "runs") or not part:
        return json.dumps(part, ensure_ascii=False)
    lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in part)
    return f"[\n{lines}\n]"
