"""Every reader of files that a stranger may have written, with valid examples of them.

Folders of runs and models are those of the tests (`tests/fixtures`, `tests/golden`); where a
command reads a file, the reader is the command itself.
"""

from __future__ import annotations

import contextlib
import io
import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas

import auber
from auber.models import checkpoint
from auber.models.plan import PruningPlan
from auber.models.sentence_files import read_modules, write_modules
from auber.run.ledger import Ledger
from auber.study.plan import read_study
from auber.system.files import is_refusal
from auber.system.locks import FolderLock, drop_foreign_lock, read_holder
from auber.system.records import read
from benchmarks import tiny
from benchmarks.common import ROOT
from benchmarks.fuzz.trial import Reader
from benchmarks.regret.tables import read_tables
from benchmarks.scorer.record import Bench

Place = Callable[[Path], object]
FIRST_EDITION = ROOT / "tests" / "fixtures" / "first-edition"

STUDY = """model = "bert-base-cased"
methods = ["auber", "random", "original"]
seeds = [0, 1]
protocols = ["seen", "heldout"]
preset = "paper"
draws = 2
data = "glue"
keep_weights = false

[settings]
agent.episodes = 50
search.layers = "2,6"

[tasks.mrpc]
first.epochs = 2

[tasks.rte]

[tasks.films]
train = "a.csv"
dev = "b.csv"
text = ["q1", "q2"]
labels = "no,yes"
last.epochs = 1

[tasks.books]
rows = "9f86d081"
"""
_TEXTS = ["the cat sits", 'a, b and "c"', "dogs bark\tloud", "ünï cödé"]
_CONLL = "-DOCSTART- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n"
_MODULES = {
    "modules.json": """[
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
]""",
    "1_Pooling/config.json": '{"embedding_dimension": 8, "pooling_mode": "cls"}',
    "sentence_bert_config.json": '{"max_seq_length": 256, "do_lower_case": false}',
}
_GLUE = {
    "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tA b\tA b\n0\t3\t4\tC d\tE f\n",
    "RTE": "index\tsentence1\tsentence2\tlabel\n0\tA b\tC\tentailment\n1\tD\tE f\tnot_entailment\n",
    "CoLA": "gj04\t1\t\tA b c.\ngj04\t0\t*\tD e.\n",
}


def run_command(*words: object) -> None:
    """Run an auber command in this process; errors of the user are raised."""
    from auber.cli import app

    silence = io.StringIO()
    with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        try:
            app([str(word) for word in words], standalone_mode=False)
        except OSError as error:
            if is_refusal(error):  # which `auber` prints in one line
                raise auber.AuberError(str(error)) from error
            raise


def _texts(files: dict[str, str]) -> Place:
    """Return what writes text files."""

    def write(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    return write


def _copies(*sources: Path) -> Place:
    """Return what copies files and folders."""

    def copy(folder: Path) -> None:
        for source in sources:
            if source.is_dir():
                shutil.copytree(source, folder / source.name)
            else:
                shutil.copy(source, folder / source.name)

    return copy


def _read_config(folder: Path) -> None:
    config = auber.make_config("paper", task="rte", file=folder / "settings.toml")
    again = folder / "again.toml"
    again.write_text(config.to_toml(), encoding="utf-8")
    assert auber.make_config(file=again) == config


def _read_study(folder: Path) -> None:
    study = read_study(folder / "study.toml")
    again = folder / "again.toml"
    again.write_text(study.to_toml(), encoding="utf-8")
    assert read_study(again).blocks() == study.blocks()
    for block in study.blocks():
        assert (folder / block.path).resolve().is_relative_to(folder.resolve())


def _read_ledger(folder: Path) -> None:
    ledger = Ledger(folder / "ledger.jsonl")
    ledger.add("another", 0, {(): 0.25})
    ledger.close()
    assert len(Ledger(folder / "ledger.jsonl")) == len(ledger)


def _rows_reader(name: str, suffix: str, text: str | bytes, **options: Any) -> Reader:
    """Return a reader of training rows in a file of this kind."""

    def prepare(folder: Path) -> None:
        for split in ("train", "dev"):
            data = text.encode() if isinstance(text, str) else text
            (folder / f"{split}{suffix}").write_bytes(data)

    def read_rows(folder: Path) -> None:
        files = (folder / f"train{suffix}", folder / f"dev{suffix}")
        auber.make_task(*files, **options).content_hash  # noqa: B018

    dialect = "bytes" if isinstance(text, bytes) else None
    return Reader(name, (f"train{suffix}",), prepare, read_rows, dialect=dialect)


def _table(*labels: object) -> pandas.DataFrame:
    return pandas.DataFrame({"text": _TEXTS, "label": labels or ["yes", "no", "yes", "no"]})


def _squad() -> str:
    answers = [{"text": "Denver", "answer_start": 12}, {"text": "won", "answer_start": 8}]
    questions = [{"id": "1", "question": "Who?", "answers": answers}]
    paragraphs = [{"context": "In 2016 won Denver the game.", "qas": questions}]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


def _read_glue(folder: Path) -> None:
    for name in ("mrpc", "rte", "cola"):
        auber.load_task(name, data=folder).content_hash  # noqa: B018


def _prune_words(folder: Path, run: str) -> list[object]:
    return [
        *("prune", "--model", folder / "encoder", "--train", folder / "train.csv"),
        *("--dev", folder / "dev.csv", "--name", "words", "--config", folder / "settings.toml"),
        *("--preset", "paper", "--out", folder / run, "--resume", "--allow-upgrade", "--quiet"),
    ]


def _run_with_rows(run: str) -> Place:
    def copy(folder: Path) -> None:
        shutil.copytree(tiny.GOLDEN / "model", folder / "encoder")
        _copies(tiny.GOLDEN / "train.csv", tiny.GOLDEN / "dev.csv", FIRST_EDITION / run)(folder)
        shutil.copy(folder / run / "config.toml", folder / "settings.toml")

    return copy


def _study_folder(folder: Path) -> None:
    """Put the finished run into a study, beside one that failed."""
    run = folder / "words" / "seen" / "seed-0" / "auber"
    shutil.copytree(FIRST_EDITION / "finished", run)
    failed = {"error": "RunError: no room", "skipped": False}
    run.with_name("random.failed.json").write_text(json.dumps(failed), encoding="utf-8")
    (folder / "study.toml").write_text(
        'model = "encoder"\nmethods = ["auber", "random"]\nseeds = [0]\nprotocols = ["seen"]\n'
        'preset = "paper"\n[tasks.words]\ntrain = "train.csv"\ndev = "dev.csv"\n',
        encoding="utf-8",
    )


def _copy_shards(folder: Path) -> None:
    """Write the golden model with an index of its weights."""
    _copies(tiny.GOLDEN / "model")(folder)
    weights, shard = folder / "model" / "model.safetensors", "model-00001-of-00001.safetensors"
    from safetensors import safe_open

    with safe_open(weights, "pt") as file:
        index = {"metadata": {}, "weight_map": dict.fromkeys(file.keys(), shard)}
    weights.rename(weights.with_name(shard))
    (folder / "model" / "model.safetensors.index.json").write_text(json.dumps(index))


def _take_lock(folder: Path) -> None:
    str(read_holder(folder))
    FolderLock(folder).release()
    drop_foreign_lock(folder)


# The lock of a process that has ended.
_LOCK = {"process": 2**31 - 1, "started": 1.5, "host": platform.node(), "since": 2.5}


def _report(*names: str) -> Place:
    return lambda folder: run_command(
        "report", *(folder / name for name in names), "--out", folder / "report"
    )


def _watch(name: str) -> Place:
    return lambda folder: run_command("watch", folder / name, "--once")


def _one_file(name: str, text: str, read_it: Place, **options: Any) -> Reader:
    return Reader(Path(name).stem.strip("."), (name,), _texts({name: text}), read_it, **options)


_AUBER_RESULT = "words/seen/seed-0/auber/result.json"
_STUDY_FILES = ("study.toml", _AUBER_RESULT, "words/seen/seed-0/random.failed.json")
_WATCHED = ("run.json", "progress.json", "events.jsonl", "scores.jsonl", "plan.json", "config.toml")
_RESUMED = ("run.json", "scores.jsonl", "stages/first.json", "stages/layer-00.json")
_RESULTS = ROOT / "results"


def _inside(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


def _from_fixture(name: str, *targets: str, read: Place, share: float) -> Reader:
    """Return a reader of files of the first edition; the first target names the fixture."""
    fixture = FIRST_EDITION / Path(targets[0]).parts[0]
    return Reader(name, targets, _copies(fixture), read, share=share)


def _golden_model(name: str, *targets: str, read: Place, prepare: Place | None = None) -> Reader:
    prepare = prepare or _copies(tiny.GOLDEN / "model")
    return Reader(name, _inside("model", *targets), prepare, read, share=0.1)


def _load(folder: Path) -> None:
    auber.load(folder / "model")


def _load_start(folder: Path) -> None:
    checkpoint.load_classifier(folder / "model", num_labels=2)


def _read_modules(folder: Path) -> None:
    modules = read_modules(folder)
    if modules is None:  # there is no such file
        return
    (folder / "again").mkdir()
    write_modules(modules, folder / "again", 8)
    assert read_modules(folder / "again") == modules


def _resume(run: str) -> Place:
    return lambda folder: run_command(*_prune_words(folder, run))


def _report_beside(kind: str, name: str) -> Reader:
    """Return a reader of a results file that is reported beside a run."""
    prepare = _copies(FIRST_EDITION / "finished", _RESULTS / kind / name)
    return Reader(f"report-{kind}", (name,), prepare, _report("finished", name), share=0.1)


_GLUE_FILES = {
    f"{name}/{split}.tsv": text for name, text in _GLUE.items() for split in ("train", "dev")
}
_READERS = (
    _one_file("settings.toml", tiny.make_settings().to_toml(), _read_config),
    _one_file("study.toml", STUDY, _read_study),
    _one_file("plan.json", '{"0": [3, 5], "11": [0]}', lambda f: PruningPlan.read(f / "plan.json")),
    _one_file(".lock", json.dumps(_LOCK), _take_lock, dialect="json"),
    _one_file(
        "ledger.jsonl", (FIRST_EDITION / "finished" / "scores.jsonl").read_text(), _read_ledger
    ),
    _rows_reader("csv", ".csv", _table().to_csv(index=False)),
    _rows_reader("tsv", ".tsv", _table().to_csv(index=False, sep="\t")),
    _rows_reader("jsonl", ".jsonl", _table().to_json(orient="records", lines=True)),
    _rows_reader(
        "regression",
        ".jsonl",
        _table(0.0, 0.25, 0.5, 0.75).to_json(orient="records", lines=True),
        metric="pearson",
    ),
    _rows_reader("parquet", ".parquet", _table().to_parquet()),
    _rows_reader("conll", ".conll", _CONLL, kind="tokens"),
    _rows_reader("squad", ".json", _squad(), kind="spans"),
    Reader("glue", tuple(_GLUE_FILES), _texts(_GLUE_FILES), _read_glue),
    Reader(
        "tables",
        ("tables.json",),
        _copies(_RESULTS / "regret" / "tables.json"),
        lambda f: read_tables([f / "tables.json"]),
        share=0.1,
    ),
    Reader(
        "scorer",
        ("h200-base-rte.json",),
        _copies(_RESULTS / "bench" / "h200-base-rte.json"),
        lambda f: read(Bench, f / "h200-base-rte.json", ""),
    ),
    Reader(
        "resume",
        _inside("interrupted", *_RESUMED),
        _run_with_rows("interrupted"),
        _resume("interrupted"),
        share=0.01,
    ),
    Reader(
        "complete",
        _inside("finished", "result.json", "run.json"),
        _run_with_rows("finished"),
        _resume("finished"),
        share=0.1,
    ),
    _from_fixture(
        "watch", *_inside("interrupted", *_WATCHED), read=_watch("interrupted"), share=0.5
    ),
    _from_fixture(
        "watch-ended",
        *_inside("finished", "result.json", "plan.json"),
        read=_watch("finished"),
        share=0.5,
    ),
    Reader("watch-study", _STUDY_FILES, _study_folder, _watch(""), share=0.5),
    _from_fixture(
        "report",
        *_inside("finished", "result.json", "stages/layer-00.json"),
        read=_report("finished"),
        share=0.2,
    ),
    Reader("report-study", _STUDY_FILES, _study_folder, _report(""), share=0.2),
    _from_fixture("report-results", "results.json", read=_report("results.json"), share=0.2),
    _report_beside("speed", "cpu-default.json"),
    _from_fixture("model", "model/config.json", read=_load, share=0.15),
    Reader(
        "weights",
        ("model/model.safetensors",),
        _copies(FIRST_EDITION / "model"),
        _load,
        dialect="bytes",
        share=0.15,
    ),
    _golden_model("start", "config.json", "model.safetensors", read=_load_start),
    _golden_model("shards", "model.safetensors.index.json", read=_load_start, prepare=_copy_shards),
    _golden_model(
        "tokenizer",
        "tokenizer.json",
        "tokenizer_config.json",
        read=lambda f: auber.load_tokenizer(f / "model"),
    ),
    Reader("modules", tuple(_MODULES), _texts(_MODULES), _read_modules, share=0.2),
    Reader(
        "import",
        ("bert/config.json",),
        _copies(ROOT / "tests" / "fixtures" / "v4" / "bert"),
        lambda f: run_command("import", f / "bert", "--out", f / "new"),
        share=0.1,
    ),
)
READERS: dict[str, Reader] = {reader.name: reader for reader in _READERS}
