"""Results files: the finished runs of a study as one small JSON file, to be kept where the runs' folders are not.

    format, kind   what the file is; `kind` is `runs` here, and other commands keep results of other kinds
    study          the study file's content, null for runs of no study
    settings       every setting of one run; the others tell only what differs
    left_out       the runs without a result, and why
    notes          sentences that a reader of the numbers should know; only where there are any
    runs           a line for each finished run and each fine-tuned start: scores, plan, costs, command, commit, device

A file grows by saving further folders, or other such files, of the same study into it. What is there stays as it is, byte for byte: a run that is
there already with another result is an error, and a run that is in the file alone stays.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from auber.errors import ConfigError, RunError
from auber.report.folders import LeftOut, Source, read_folder
from auber.report.record import RunRecord, record_from_json, record_to_json
from auber.run.fields import Fields
from auber.run.files import read_json
from auber.study import Study, make_study
from auber.study.folder import joined_studies, study_differences
from auber.system.files import write_text

FORMAT = 1
KIND = "runs"


@dataclass(frozen=True)
class ResultsFile:
    """A file of results of some kind; `name` is the file's own, without its folder."""

    name: str
    kind: str
    content: Mapping[str, Any]
    figure: Path | None = None  # the drawing that lies beside it under the same name


@dataclass(frozen=True)
class Saved:
    """What saving a folder or a file did."""

    path: Path
    added: int
    present: int  # runs that were in the file already
    total: int  # runs in the file now, starts included
    left_out: tuple[LeftOut, ...]


def read_results_file(path: str | Path) -> ResultsFile:
    """A results file of any kind."""
    content = read_json(Path(path))
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
        raise RunError(
            f"{path}: must be a results file (a JSON object that names its kind), found something else; "
            "'auber report DIR --save FILE' makes one"
        )
    figure = Path(path).with_suffix(".svg")
    return ResultsFile(
        Path(path).name, content["kind"], content, figure if figure.is_file() else None
    )


def read_place(place: str | Path) -> Source:
    """The runs of a folder or of a results file."""
    if not Path(place).exists():
        raise RunError(f"{place}: no such folder or results file; give what holds runs")
    return read_folder(place) if Path(place).is_dir() else read_results(place)


def read_results(path: str | Path) -> Source:
    """The runs of a results file."""
    return replace(runs_of(read_results_file(path)), name=str(path))


def runs_of(file: ResultsFile) -> Source:
    """The runs of a results file that is read already; at least one must be of a method."""
    if file.kind != KIND:
        raise RunError(
            f"{file.name}: must hold runs, found results of kind '{file.kind}'; leave it out"
        )
    if file.content.get("format") != FORMAT:
        raise RunError(
            f"{file.name}: format {FORMAT} can be read, found {file.content.get('format')!r}; save the results again"
        )
    read = Fields(file.name, file.content)
    common = read.get("settings", dict)
    study = read.get("study", dict, optional=True)
    left_out = [Fields(f"{file.name}: left_out", run) for run in read.get("left_out", list)]
    records = tuple(
        record_from_json(run, common, f"{file.name}: runs") for run in read.get("runs", list)
    )
    if all(record.is_start for record in records):  # as of a folder, one run of a method is needed
        raise RunError(
            f"{file.name}: no finished run in it, found {len(records)} fine-tuned starts; save a folder with finished runs"
        )
    return Source(
        file.name,
        records,
        tuple(LeftOut(run.get("folder", str), run.get("reason", str)) for run in left_out),
        {} if study is None else {".": make_study(study, where=f"{file.name}: study")},
        read.items("notes", str),
    )


def save_results(
    place: str | Path, path: str | Path, model: str | None = None, notes: Sequence[str] = ()
) -> Saved:
    """Keep the runs of a folder or another file in a results file, beside those in it; `model` renames the one model.

    `notes` are kept once each, after those that are there.
    """
    path = Path(path)
    source = _renamed(read_place(place), model)
    if source.studies.keys() - {"."}:
        places = ", ".join(place for place in source.studies if place != ".")
        raise RunError(
            f"{place}: a results file is of one study, found those in {places} below it; save them one by one"
        )
    study = source.studies.get(".")
    common: Mapping[str, Any] = source.records[0].config
    records: dict[object, RunRecord] = {}
    left_out: dict[str, LeftOut] = {}
    known_notes: tuple[str, ...] = ()
    if path.exists():
        kept = read_results(path)
        known_notes = kept.notes
        study = _joined(path, kept.studies.get("."), place, study)
        common = read_results_file(path).content["settings"]
        records = {_identity(record): record for record in kept.records}
        left_out = {run.folder: run for run in kept.left_out}
    before = len(records)
    for record in source.records:
        other = records.setdefault(_identity(record), record)
        # A start that was made again took other seconds; with the same weights it is the same start.
        if not record.is_start and replace(other, folder=record.folder) != record:
            raise RunError(
                f"{path}: {other.folder} and {place}: {record.folder}: two different results of {record.words} "
                f"({_result(other)} and {_result(record)}); a results file keeps one of each, save the other elsewhere"
            )
    left_out |= {run.folder: run for run in source.left_out}
    finished = {record.folder for record in records.values()}
    open_runs = [left_out[name] for name in sorted(left_out) if name not in finished]
    ordered = sorted(records.values(), key=_order)
    all_notes = list(dict.fromkeys((*known_notes, *source.notes, *map(_checked_note, notes))))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, _to_text(study, common, open_runs, all_notes, ordered), follow=True)
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error}); choose another --save") from error
    added = len(records) - before
    return Saved(path, added, len(source.records) - added, len(records), source.left_out)


def _checked_note(note: str) -> str:
    """A sentence on one line, for a page that others read."""
    words = note.strip()
    if not words or not words.isprintable():
        raise ConfigError(
            f"--note must be a sentence of printable text on one line, found {note!r:.40}"
        )
    return words


def _renamed(source: Source, model: str | None) -> Source:
    """The source with its one model under another name."""
    if model is None:
        return source
    names = sorted({record.model for record in source.records})
    if len(names) > 1:
        raise RunError(
            f"{source.name}: --model-name renames one model, found {', '.join(names)}; save their runs from folders of their own"
        )
    return replace(
        source,
        records=tuple(record.named(model) for record in source.records),
        studies={place: study.change(model=model) for place, study in source.studies.items()},
    )


def _joined(path: Path, old: Study | None, place: str | Path, new: Study | None) -> Study | None:
    """Both studies as one."""
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
            f"{path}: holds another study than {place}: {', '.join(changed)}; save it into another file, "
            "and a model under the same --model-name"
        )
    return joined_studies(old, new)


def _identity(record: RunRecord) -> tuple[object, ...]:
    """What makes two records the same run. A start made again with other weights is another one: other runs began with it."""
    return (record.is_start, *record.key, record.start if record.is_start else None)


def _order(record: RunRecord) -> tuple[object, ...]:
    """Block by block, the start first."""
    return (
        record.model,
        record.protocol,
        record.task,
        record.seed,
        not record.is_start,
        record.method,
        record.draw,
        record.start,
    )


def _result(record: RunRecord) -> str:
    return f"dev {100 * record.dev:.2f}, {record.removed} heads removed, {record.seconds:.1f} s"


def _to_text(
    study: Study | None,
    common: Mapping[str, Any],
    left_out: Sequence[LeftOut],
    notes: Sequence[str],
    records: Iterable[RunRecord],
) -> str:
    """The file: a line for each run, so that a difference between two versions can be read."""
    entries = {
        "format": _line(FORMAT),
        "kind": _line(KIND),
        "study": _line(None if study is None else tomllib.loads(study.to_toml())),
        "settings": _line(dict(common)),
        "left_out": _lines([asdict(run) for run in left_out]),
        **({"notes": _lines(notes)} if notes else {}),
        "runs": _lines([record_to_json(record, common) for record in records]),
    }
    return "{\n" + ",\n".join(f"{_line(key)}: {text}" for key, text in entries.items()) + "\n}\n"


def _lines(items: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(map(_line, items)) + "\n]" if items else "[]"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
