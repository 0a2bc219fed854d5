"""Every reader of files that a stranger may have written, with valid examples of them.

Folders of runs and models are those of the tests (`tests/fixtures`, `tests/golden`); where a
command reads a file, the reader is the command itself.
"""

from __future__ import annotations

import contextlib
import io
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import torch
from safetensors import safe_open

import auber
from auber.data.encoding import EncodedRows
from auber.models import checkpoint
from auber.models.plan import PruningPlan
from auber.models.sentence_files import read_modules, write_modules
from auber.run import answers
from auber.run.ledger import Ledger
from auber.study.plan import read_study
from auber.system.files import digest_file, is_refusal
from auber.system.locks import FolderLock, drop_foreign_lock, read_holder
from auber.system.records import read
from benchmarks import tiny
from benchmarks.common import ROOT
from benchmarks.fidelity.record import read_entries
from benchmarks.fuzz.trial import Content, Reader
from benchmarks.regret.tables import read_tables
from benchmarks.scorer.record import Bench
from benchmarks.sizes.plan import read_plan
from benchmarks.sizes.record import read_models

FIRST_EDITION = ROOT / "tests" / "fixtures" / "first-edition"
_FINISHED, _INTERRUPTED = FIRST_EDITION / "finished", FIRST_EDITION / "interrupted"
_SIZES = ROOT / "tests" / "fixtures" / "sizes"  # a run of several sizes, without labels
_MODEL, _RESULTS = tiny.GOLDEN / "model", ROOT / "results"

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
_MODULES: dict[str, Content] = {
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


def _read_config(folder: Path) -> None:
    config = auber.make_config("paper", task="rte", file=folder / "settings.toml")
    again = folder / "again.toml"
    again.write_text(config.to_toml(), encoding="utf-8")
    assert auber.make_config(file=again).flat() == config.flat()


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


def _rows_reader(name: str, suffix: str, content: Content, **options: Any) -> Reader:
    """Return a reader of training rows in a file of this kind."""
    train, dev = f"train{suffix}", f"dev{suffix}"

    def read_rows(folder: Path) -> None:
        auber.make_task(folder / train, folder / dev, **options).content_hash  # noqa: B018

    dialect = "bytes" if isinstance(content, bytes) else None
    return Reader(name, {train: content, dev: content}, read_rows, (train,), dialect=dialect)


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


def _take_lock(folder: Path) -> None:
    str(read_holder(folder))
    FolderLock(folder).release()
    drop_foreign_lock(folder)


def _resume(run: str) -> Callable[[Path], None]:
    return lambda folder: run_command(
        *("prune", "--model", folder / "encoder", "--train", folder / "train.csv"),
        *("--dev", folder / "dev.csv", "--name", "words", "--config", folder / "settings.toml"),
        *("--preset", "paper", "--out", folder / run, "--resume", "--allow-upgrade", "--quiet"),
    )


def _resume_sizes(folder: Path) -> None:
    run_command(
        *("prune", "--model", folder / "model", "--texts", folder / "texts.csv", "--config"),
        *(folder / "settings.toml", "--method", "exchange", "--keep", "0.7,0.4", "--out"),
        *(folder / "interrupted", "--resume", "--allow-upgrade", "--quiet"),
    )


def _read_answers(folder: Path) -> None:
    """Read stored answers whose digest a stranger has written as well."""
    path = folder / "answers.safetensors"
    encoded = {
        split: EncodedRows([[1, 2]] * count, None, torch.zeros(count), pad_token_id=0)
        for split, count in (("train", 104), ("dev", 26))
    }
    digest = digest_file(path) if path.is_file() else None
    answers._read(path, digest, encoded, 2)


def _texts_reader(name: str, suffix: str, content: str, **options: Any) -> Reader:
    """Return a reader of texts without labels in a file of this kind."""
    file = f"texts{suffix}"

    def read_texts(folder: Path) -> None:
        auber.make_texts(folder / file, **options)

    return Reader(name, {file: content}, read_texts)


def _report(*names: str) -> Callable[[Path], None]:
    return lambda folder: run_command(
        "report", *(folder / name for name in names), "--out", folder / "report"
    )


def _watch(name: str) -> Callable[[Path], None]:
    return lambda folder: run_command("watch", folder / name, "--once")


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


def _inside(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


def _make_shards() -> dict[str, Content]:
    """Return the golden model with an index of its weights."""
    shard = "model-00001-of-00001.safetensors"
    with safe_open(_MODEL / "model.safetensors", "pt") as file:
        index = {"metadata": {}, "weight_map": dict.fromkeys(file.keys(), shard)}
    names = ("config.json", "tokenizer.json", "tokenizer_config.json")
    return {
        **{f"model/{name}": _MODEL / name for name in names},
        f"model/{shard}": _MODEL / "model.safetensors",
        "model/model.safetensors.index.json": json.dumps(index),
    }


def _words_run(name: str, run: Path) -> dict[str, Content]:
    """Return a run with the model, the rows and the settings that it needs."""
    return {
        name: run,
        "encoder": _MODEL,
        "train.csv": tiny.GOLDEN / "train.csv",
        "dev.csv": tiny.GOLDEN / "dev.csv",
        "settings.toml": run / "config.toml",
    }


_SIZES_RESULT = json.dumps(
    {
        "format": 1,
        "kind": "sizes",
        "models": [
            {
                "task": "rte",
                "seed": seed,
                "start": "ab12",
                "arm": "default",
                "keep": 0.5,
                "dev": 80.5,
                "train": 90.0,
                "loss": 0.5,
                "int8": None,
                "heads": [12, 11],
                "neurons": [3072, 1000],
                "multiply_adds": 10**9,
                "parameters": 10**8,
                "seconds": 12.5,
                "command": "python -m benchmarks.sizes",
                "provenance": {"commit": {"id": "ab12", "dirty": False}},
            }
            for seed in (0, 1)
        ],
    }
)
# The lock of a process that has ended.
_LOCK = {"process": 2**31 - 1, "started": 1.5, "host": platform.node(), "since": 2.5}
_GLUE_FILES: dict[str, Content] = {
    f"{name}/{split}.tsv": text for name, text in _GLUE.items() for split in ("train", "dev")
}
# The finished run in a study, beside one that failed.
_STUDY: dict[str, Content] = {
    "words/seen/seed-0/auber": _FINISHED,
    "words/seen/seed-0/random.failed.json": '{"error": "RunError: no room", "skipped": false}',
    "study.toml": (
        'model = "encoder"\nmethods = ["auber", "random"]\nseeds = [0]\nprotocols = ["seen"]\n'
        'preset = "paper"\n[tasks.words]\ntrain = "train.csv"\ndev = "dev.csv"\n'
    ),
}
_STUDY_FILES = (
    "study.toml",
    *_inside("words/seen/seed-0", "auber/result.json", "random.failed.json"),
)
_WATCHED = ("run.json", "progress.json", "events.jsonl", "scores.jsonl", "plan.json", "config.toml")
_RESUMED = ("run.json", "scores.jsonl", "stages/first.json", "stages/layer-00.json")
_BENCH, _SPEED = "h200-base-rte.json", "cpu-default.json"
_PLAN = '{"0": [3, 5], "11": [0]}'
_PLAN_OF_BOTH = '{"heads": {"0": [3, 5], "11": [0]}, "neurons": {"0": "0-63,70", "2": "5"}}'
_SETTINGS = tiny.make_settings().to_toml()
_SIZE_SETTINGS = auber.make_config(
    "default", settings={"size.tolerance": 1.0, "size.units": "neurons", "teacher.outputs": 0.5}
).to_toml()
_RESUMED_SIZES = (
    *("run.json", "settled.json", "stages/answers.json", "stages/answers.safetensors"),
    *("stages/plan-0.7.json", "stages/first.json"),
)
# One text in every group has commas and quotes.
_TEXTS_TABLE = pandas.DataFrame(
    {
        "query": [f"{_TEXTS[row % 4]} {row // 10}" for row in range(120)],
        "passage": [f"passage {row}" for row in range(120)],
        "of": [f"group {row // 10}" for row in range(120)],
    }
)
_TEXT_COLUMNS: dict[str, Any] = {"text": ("query", "passage"), "group": "of"}
_ENCODER: dict[str, Content] = {
    "model": _MODEL,
    **{f"model/{name}": content for name, content in _MODULES.items()},
}

_READERS = (
    Reader("settings", {"settings.toml": _SETTINGS}, _read_config),
    Reader("study", {"study.toml": STUDY}, _read_study),
    Reader("plan", {"plan.json": _PLAN}, lambda folder: PruningPlan.read(folder / "plan.json")),
    Reader(
        "plan-both",
        {"plan.json": _PLAN_OF_BOTH},
        lambda folder: PruningPlan.read(folder / "plan.json"),
    ),
    Reader("settings-sizes", {"settings.toml": _SIZE_SETTINGS}, _read_config),
    _texts_reader("texts-csv", ".csv", _TEXTS_TABLE.to_csv(index=False), **_TEXT_COLUMNS),
    _texts_reader(
        "texts-jsonl",
        ".jsonl",
        _TEXTS_TABLE.to_json(orient="records", lines=True),
        **_TEXT_COLUMNS,
    ),
    Reader(
        "answers",
        {"answers.safetensors": _SIZES / "interrupted" / "stages" / "answers.safetensors"},
        _read_answers,
        dialect="bytes",
    ),
    Reader(
        "fidelity",
        {"f.json": _RESULTS / "fidelity" / "reranker.json"},
        lambda folder: read_entries(folder / "f.json"),
        share=0.5,
    ),
    Reader("sizes", {"sizes.json": _SIZES_RESULT}, lambda f: read_models(f / "sizes.json")),
    Reader(
        "sizes-plan",
        {"sizes.toml": ROOT / "studies" / "sizes.toml"},
        lambda folder: read_plan(folder / "sizes.toml"),
        share=0.5,
    ),
    Reader("lock", {".lock": json.dumps(_LOCK)}, _take_lock, dialect="json"),
    Reader("ledger", {"ledger.jsonl": _FINISHED / "scores.jsonl"}, _read_ledger),
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
    Reader("glue", _GLUE_FILES, _read_glue),
    Reader(
        "tables",
        {"tables.json": _RESULTS / "regret" / "tables.json"},
        lambda folder: read_tables([folder / "tables.json"]),
        share=0.1,
    ),
    Reader("scorer", {_BENCH: _RESULTS / "bench" / _BENCH}, lambda f: read(Bench, f / _BENCH, "")),
    Reader(
        "resume",
        _words_run("interrupted", _INTERRUPTED),
        _resume("interrupted"),
        _inside("interrupted", *_RESUMED),
        share=0.01,
    ),
    Reader(
        "resume-sizes",
        {
            "interrupted": _SIZES / "interrupted",
            "interrupted/settled.json": _SIZES / "finished" / "settled.json",
            "model": FIRST_EDITION / "model",
            "texts.csv": _SIZES / "texts.csv",
            "settings.toml": _SIZES / "interrupted" / "config.toml",
        },
        _resume_sizes,
        _inside("interrupted", *_RESUMED_SIZES),
        share=0.01,
    ),
    Reader(
        "watch-sizes",
        {"finished": _SIZES / "finished"},
        _watch("finished"),
        _inside("finished", "result.json", "plan.json", "events.jsonl"),
        share=0.3,
    ),
    Reader(
        "report-sizes",
        {"finished": _SIZES / "finished"},
        _report("finished"),
        _inside("finished", "result.json", "stages/plan-0.4.json", "stages/last-0.4.json"),
        share=0.1,
    ),
    Reader(
        "complete",
        _words_run("finished", _FINISHED),
        _resume("finished"),
        _inside("finished", "result.json", "run.json"),
        share=0.1,
    ),
    Reader(
        "watch",
        {"interrupted": _INTERRUPTED},
        _watch("interrupted"),
        _inside("interrupted", *_WATCHED),
        share=0.5,
    ),
    Reader(
        "watch-ended",
        {"finished": _FINISHED},
        _watch("finished"),
        _inside("finished", "result.json", "plan.json"),
        share=0.5,
    ),
    Reader("watch-study", _STUDY, _watch(""), _STUDY_FILES, share=0.5),
    Reader(
        "report",
        {"finished": _FINISHED},
        _report("finished"),
        _inside("finished", "result.json", "stages/layer-00.json"),
        share=0.2,
    ),
    Reader("report-study", _STUDY, _report(""), _STUDY_FILES, share=0.2),
    Reader(
        "report-results",
        {"results.json": FIRST_EDITION / "results.json"},
        _report("results.json"),
        share=0.2,
    ),
    Reader(
        "report-speed",
        {"finished": _FINISHED, _SPEED: _RESULTS / "speed" / _SPEED},
        _report("finished", _SPEED),
        (_SPEED,),
        share=0.1,
    ),
    Reader("model", {"model": FIRST_EDITION / "model"}, _load, ("model/config.json",), share=0.15),
    Reader(
        "weights",
        {"model": FIRST_EDITION / "model"},
        _load,
        ("model/model.safetensors",),
        dialect="bytes",
        share=0.15,
    ),
    Reader(
        "start",
        {"model": _MODEL},
        _load_start,
        _inside("model", "config.json", "model.safetensors"),
        share=0.1,
    ),
    Reader(
        "shards", _make_shards(), _load_start, ("model/model.safetensors.index.json",), share=0.1
    ),
    Reader(
        "tokenizer",
        {"model": _MODEL},
        lambda folder: auber.load_tokenizer(folder / "model"),
        _inside("model", "tokenizer.json", "tokenizer_config.json"),
        share=0.1,
    ),
    Reader("modules", _MODULES, _read_modules, share=0.2),
    Reader("encoder", _ENCODER, _load, _inside("model", *_MODULES, "config.json"), share=0.1),
    Reader(
        "import",
        {"bert": ROOT / "tests" / "fixtures" / "v4" / "bert"},
        lambda folder: run_command("import", folder / "bert", "--out", folder / "new"),
        ("bert/config.json",),
        share=0.1,
    ),
)
READERS: dict[str, Reader] = {reader.name: reader for reader in _READERS}
