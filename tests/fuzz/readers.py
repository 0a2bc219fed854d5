"""Every reader of files that a stranger may have written: how to lay out a valid example, and how it is read.

`prepare` writes valid files into an empty folder; the `targets` among them are what gets spoilt. A reader must take the example
as it is, or a trial of it would show nothing. All may raise `AuberError` and nothing else.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console

from auber.bench.record import read_bench
from auber.cli.screen import describe_result
from auber.cli.status import RunReader
from auber.cli.study_status import StudyReader
from auber.cli.watch import draw, find_place
from auber.config import make_config
from auber.data import make_task
from auber.data.glue import FORMATS, read_glue
from auber.export.subjects import read_subjects
from auber.models import checkpoint
from auber.models.legacy import import_model
from auber.models.plan import PruningPlan
from auber.regret.tables import read_tables, write_tables
from auber.report.folders import read_folder
from auber.report.html import make_page
from auber.report.record import read_result
from auber.report.results_file import read_results, read_results_file, save_results
from auber.report.speeds import speed_tables
from auber.run import files as run_files
from auber.run import folder as runs
from auber.run.accounts import describe_cost
from auber.run.budget import best_plan
from auber.run.ledger import Ledger
from auber.run.pipeline import check_result
from auber.run.records import check_stage
from auber.run.starts import load_start
from auber.study.folder import StudyFolder
from auber.study.plan import read_study
from auber.system.locks import FolderLock, drop_foreign_lock, read_holder
from tests.bench.records import make_bench
from tests.cli.run_folder import NOW, RESULT, RunFolder
from tests.regret.made import make_run as make_tables
from tests.report.html.made import write_ranked, write_searched
from tests.report.results import make_result, write_plan, write_run
from tests.small import small_config, small_start, small_task

Place = Callable[[Path], None]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4"


@dataclass(frozen=True)
class Reader:
    """One reader and its example."""

    name: str
    targets: tuple[str, ...]
    prepare: Place
    read: Callable[[Path], object]
    dialect: str | None = None  # None: by what the target's name ends in
    writes: bool = False  # whether reading changes the folder
    share: float = 1.0  # of a drill's inputs, next to the others'; less where an input takes long

    def dialect_of(self, target: str) -> str:
        """How the target is taken apart."""
        return self.dialect or {
            ".json": "json",
            ".jsonl": "jsonl",
            ".toml": "toml",
            "": "json",
        }.get(Path(target).suffix, "rows")


# --- single files -----------------------------------------------------------------------------------------------------


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _file(name: str, text: Callable[[], str]) -> Place:
    return lambda folder: _write(folder, {name: text()})


_STUDY = """model = "bert-base-cased"
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
_LEDGER = "".join(
    json.dumps({"key": "abc/f32", "layer": layer, "removed": [0, layer], "score": 0.5 + layer / 7})
    + "\n"
    for layer in range(1, 4)
)


def _read_config(folder: Path) -> None:
    config = make_config("paper", task="rte", file=folder / "settings.toml")
    again = folder / "again.toml"
    again.write_text(config.to_toml(), encoding="utf-8")
    assert make_config(file=again) == config


def _read_study(folder: Path) -> None:
    study = read_study(folder / "study.toml")
    again = folder / "again.toml"
    again.write_text(study.to_toml(), encoding="utf-8")
    assert read_study(again).blocks() == study.blocks()
    for block in study.blocks():
        assert (folder / block.path).resolve().is_relative_to(folder.resolve())


def _read_ledger(folder: Path) -> None:
    ledger = Ledger(folder / "scores.jsonl")
    ledger.add("another", 0, {(): 0.25})
    ledger.close()
    assert len(Ledger(folder / "scores.jsonl")) == len(ledger)


# --- rows -------------------------------------------------------------------------------------------------------------

_SENTENCES = [
    ("the cat sits", "yes"),
    ('a, b and "c"', "no"),
    ("dogs bark\tloud", "yes"),
    ("ünï cödé", "no"),
]


def _separated(separator: str) -> str:
    quoted = [[f'"{word.replace(chr(34), chr(34) * 2)}"' for word in row] for row in _SENTENCES]
    return "".join(separator.join(row) + "\n" for row in [["text", "label"], *quoted])


def _jsonl() -> str:
    return "".join(
        json.dumps({"text": text, "label": label, "n": 1.5}) + "\n" for text, label in _SENTENCES
    )


def _regression() -> str:
    return "".join(
        json.dumps({"text": text, "label": 0.25 * row}) + "\n"
        for row, (text, _) in enumerate(_SENTENCES)
    )


def _conll() -> str:
    return "-DOCSTART- O\n\nEU NNP B-ORG\nrejects VBZ O\nGerman JJ B-MISC\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n"


def _squad() -> str:
    answers = [{"text": "Denver", "answer_start": 12}, {"text": "won", "answer_start": 8}]
    questions = [{"id": "1", "question": "Who?", "answers": answers}]
    paragraphs = [{"context": "In 2016 won Denver the game.", "qas": questions}]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


def _parquet(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {
        "text": [text for text, _ in _SENTENCES],
        "label": [label for _, label in _SENTENCES],
    }
    parquet.write_table(pyarrow.table(columns), folder / "train.parquet")
    shutil.copy(folder / "train.parquet", folder / "dev.parquet")


def _both(suffix: str, text: Callable[[], str]) -> Place:
    return lambda folder: _write(folder, {f"train{suffix}": text(), f"dev{suffix}": text()})


def _read_rows(suffix: str, folder: Path, **options: str) -> None:
    make_task(folder / f"train{suffix}", folder / f"dev{suffix}", **options).content_hash  # noqa: B018


def _glue(folder: Path) -> None:
    mrpc = 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tA "b\tA b\n0\t3\t4\tC d\tE f\n'
    rte = "index\tsentence1\tsentence2\tlabel\n0\tA b\tC\tentailment\n1\tD\tE f\tnot_entailment\n"
    cola = "gj04\t1\t\tA b c.\ngj04\t0\t*\tD e.\n"
    for name, text in (("mrpc", mrpc), ("rte", rte), ("cola", cola)):
        _write(folder, {f"{FORMATS[name].folder}/{split}.tsv": text for split in ("train", "dev")})


def _read_glue(folder: Path) -> None:
    for name in ("mrpc", "rte", "cola"):
        read_glue(name, folder)


# --- folders of runs --------------------------------------------------------------------------------------------------


def _study_folder(folder: Path) -> None:
    write_plan(folder, ["mrpc"], ["auber", "original"], [0])
    write_run(folder, "mrpc/seen/seed-0/auber", make_result("mrpc", "auber", 0, 0.85))
    _write(
        folder,
        {
            "mrpc/seen/seed-0/original.failed.json": json.dumps(
                {
                    "task": "mrpc",
                    "protocol": "seen",
                    "seed": 0,
                    "run": "original",
                    "error": "RunError: no room",
                    "skipped": False,
                }
            )
        },
    )


def _read_study_folder(folder: Path) -> None:
    study = read_study(folder / "study.toml")
    place = StudyFolder(folder)
    place.check(study)
    for block in study.blocks()[:20]:
        for run in study.runs(block)[:20]:
            place.state(block, run)
            place.result(block, run)
    read_folder(folder)


_IDENTITY = {"kind": "prune", "model": "made-up", "heads": None}
_STAGES = {
    "first": {
        "digest": "abc",
        "seconds": 4.5,
        "tuning": {"steps": 8, "seconds": 4.0},
        "peak_gpu_bytes": 7,
    },
    "timing": {"timing": {"percent_a_head": 0.5}, "seconds": 1.0},
    "prior": {"plan": {"0": [1]}, "seconds": 1.0, "gate_steps": 7},
    "layer-0": {
        "removed": [1],
        "sizes": [{"removed": [1], "score": 0.5, "gain": 0.25}],
        "search": {
            "rewards_asked": 9,
            "rewards_computed": 5,
            "reward_seconds": 2.0,
            "seconds": 3.0,
        },
        "seconds": 3.25,
    },
}


def _unfinished(folder: Path) -> None:
    run = runs.Run(folder / "run", _IDENTITY, small_config(), versions={"auber": "1"})
    run.ledger.add("key", 0, {(1,): 0.5})
    for name, info in _STAGES.items():
        run.finish_stage(name, info)
    run.close()


def _resume(folder: Path) -> None:
    """All that a run which goes on reads of its stages, and what it makes of it."""
    run = runs.Run(
        folder / "run",
        _IDENTITY,
        small_config(),
        resume=True,
        versions={"auber": "2"},
        allow_upgrade=True,
    )
    try:
        names = list(
            takewhile(run.stage, _STAGES)
        )  # behind a stage that is missing all are done again
        done = {name: run.stage(name) or {} for name in names}
        for name in done:
            check_stage(name, run.read_stage(name))
        run.load_weights(names, SimpleNamespace(device="cpu"))
        describe_cost(done, 0.5)
        if "layer-0" in done:
            PruningPlan({0: run.read_stage("layer-0").get("removed", list)})
            sizes = done["layer-0"].get("sizes", [{"removed": [], "gain": 0.0}])
            best_plan(
                1,
                {
                    0: {
                        len(each["removed"]): (tuple(each["removed"]), each["gain"])
                        for each in sizes
                    }
                },
            )
    finally:
        run.close()


def _finished(folder: Path) -> None:
    result = make_result(
        "agreement", "original", 0, 0.6, kind="finetune", data=small_task().content_hash
    )
    checkpoint.save(*small_start(), folder / "run" / "model")
    _write(
        folder,
        {
            "run/run.json": json.dumps(_IDENTITY),
            "run/result.json": json.dumps({**result, "gap": 0.35}),
        },
    )


def _begin_from(folder: Path) -> None:
    """A finished run as a start."""
    settings = make_config("paper", otherwise=run_files.read_row_settings(folder / "run"))
    load_start(folder / "run", None, small_task(), settings)


def _hand_back(folder: Path) -> None:
    """A finished run that is asked for again."""
    result = run_files.read_result(folder / "run")
    check_result(run_files.RunFile(folder / "run" / run_files.RESULT, result))
    describe_result(result)


def _exhaustive(folder: Path) -> None:
    (made,) = [make_tables(layers=(0,), num_heads=3)]
    table = made.layers[0]
    search = {
        "heads": table.heads,
        "reward_rows": 4,
        "states": table.states,
        "scores": table.scores,
    }
    result = {
        "method": "exhaustive",
        "model": "m",
        "task": "t",
        "metric": "accuracy",
        "protocol": "seen",
        "seed": 0,
    }
    result |= {"command": None, "provenance": {}}
    files = {"run.json": {}, "result.json": result, "stages/layer-0.json": {"search": search}}
    _write(folder, {f"run/{name}": json.dumps(data) for name, data in files.items()})


def _measured(folder: Path) -> None:
    from tests.export.models import make_run

    make_run(folder / "run")


# --- files of results -------------------------------------------------------------------------------------------------


def _kept_runs(folder: Path) -> None:
    _study_folder(folder / "runs")
    save_results(folder / "runs", folder / "kept.json", notes=["a note"])
    shutil.rmtree(folder / "runs")


def _tables(folder: Path) -> None:
    write_tables(folder / "tables.json", [make_tables(layers=(0, 1), num_heads=3)])


# --- what is looked at from outside -----------------------------------------------------------------------------------


def _watched(folder: Path) -> None:
    run = RunFolder(folder / "run")
    run.search_layer_1()
    run.event("said", text="a word")
    run.event("dev_evaluation", score=0.5, rows=4)
    run.event("stopped", error="RunError: no room")
    run.event("resumed", process=1)
    run.event(
        "numbers",
        step=3,
        values={"layer-01/tuning/loss": 0.5, "layer-01/tuning/steps_per_second": 9.0},
    )


def _watch_run(folder: Path) -> None:
    """Read twice, as `auber watch` does, and print the status, also as JSON."""
    reader, console = RunReader(folder / "run", clock=lambda: NOW), Console(width=60, quiet=True)
    for _ in range(2):
        status = reader.read()
        console.print(draw(status, console))
    json.dumps(status.to_json())


def _ended(folder: Path) -> None:
    _watched(folder)
    _write(folder, {"run/result.json": json.dumps(RESULT)})


def _watched_study(folder: Path) -> None:
    _study_folder(folder)
    block = folder / "mrpc" / "seen" / "seed-0"
    run = RunFolder(block / "original")
    run.start()
    (block / "original.failed.json").unlink()
    holder = {"process": 1, "started": 1.0, "host": platform.node(), "since": 2.0}
    _write(folder, {"mrpc/seen/seed-0/.claim": json.dumps(holder)})


def _watch_study(folder: Path) -> None:
    assert find_place(folder) == folder
    status, console = StudyReader(folder, clock=lambda: NOW).read(), Console(width=60, quiet=True)
    console.print(draw(status, console))
    json.dumps(status.to_json())


def _runs_side_by_side(folder: Path) -> None:
    write_searched(folder)
    write_ranked(folder)


def _speeds() -> str:
    times = {
        "milliseconds": 4.0,
        "low_quartile": 3.0,
        "high_quartile": 5.0,
        "rows_per_second": 250.0,
    }
    pair = {
        "runtime": "torch", "device": "cpu", "precision": "float32", "batch": 1, "length": 16, "rounds": 9, "unpruned": times,
        "pruned": times, "ratio": {"median": 1.0, "low": 0.9, "high": 1.1}, "verdict": "as fast",
    }  # fmt: skip
    amount = {"unpruned": 100, "pruned": 80}
    run = {
        "name": "run", "family": "bert", "heads_removed": 3, "heads": 12, "plan": {"0": [1]}, "parameters": amount,
        "multiply_adds": amount, "pairs": [pair],
    }  # fmt: skip
    record = {
        "format": 1,
        "kind": "speed",
        "command": "auber speed run",
        "runs": [run],
        "left_out": ["onnx: not installed"],
    }
    provenance = {"versions": {"torch": "2.13.0"}, "device": "cpu", "threads": 1, "commit": None}
    return json.dumps({**record, "seconds": 3.5, "provenance": provenance})


def _take_lock(folder: Path) -> None:
    holder = read_holder(folder)
    str(holder)
    FolderLock(folder).release()
    drop_foreign_lock(folder)


def _lock() -> str:
    """That of a process that is gone."""
    return json.dumps({"process": 2**31 - 1, "started": 1.5, "host": platform.node(), "since": 2.5})


# --- models -----------------------------------------------------------------------------------------------------------


def _model(folder: Path) -> None:
    from auber.models.surgery import remove_heads

    model, tokenizer = small_start()
    checkpoint.save(model, tokenizer, folder / "whole")
    remove_heads(model, PruningPlan({0: [1]}))
    checkpoint.save(model, tokenizer, folder / "pruned")
    (folder / "sharded").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / "whole" / name, folder / "sharded" / name)
    shutil.copy(
        folder / "whole" / checkpoint.WEIGHTS,
        folder / "sharded" / "model-00001-of-00001.safetensors",
    )
    index = {
        "metadata": {},
        "weight_map": dict.fromkeys(model.state_dict(), "model-00001-of-00001.safetensors"),
    }
    _write(folder, {"sharded/model.safetensors.index.json": json.dumps(index)})


def _read_start(name: str, folder: Path) -> None:
    checkpoint.load_classifier(folder / name, num_labels=2)


def _old_model(folder: Path) -> None:
    shutil.copytree(FIXTURES / "bert", folder / "old")


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("config", ("settings.toml",), _file("settings.toml", lambda: make_config("reference").to_toml()), _read_config),
        Reader("study", ("study.toml",), _file("study.toml", lambda: _STUDY), _read_study),
        Reader("plan", ("plan.json",), _file("plan.json", lambda: '{"0": [3, 5], "11": [0]}'), lambda f: PruningPlan.read(f / "plan.json")),
        Reader("ledger", ("scores.jsonl",), _file("scores.jsonl", lambda: _LEDGER), _read_ledger, writes=True),
        Reader("csv", ("train.csv", "dev.csv"), _both(".csv", lambda: _separated(",")), partial(_read_rows, ".csv")),
        Reader("tsv", ("train.tsv", "dev.tsv"), _both(".tsv", lambda: _separated("\t")), partial(_read_rows, ".tsv")),
        Reader("jsonl", ("train.jsonl", "dev.jsonl"), _both(".jsonl", _jsonl), partial(_read_rows, ".jsonl")),
        Reader("regression", ("train.jsonl",), _both(".jsonl", _regression), partial(_read_rows, ".jsonl", metric="pearson")),
        Reader("parquet", ("train.parquet",), _parquet, partial(_read_rows, ".parquet"), dialect="bytes"),
        Reader("conll", ("train.conll",), _both(".conll", _conll), partial(_read_rows, ".conll", kind="tokens")),
        Reader("squad", ("train.json",), _both(".json", _squad), partial(_read_rows, ".json", kind="spans")),
        Reader("glue", tuple(f"{name}/train.tsv" for name in ("MRPC", "RTE", "CoLA")), _glue, _read_glue),
        Reader("result", ("result.json",), _file("result.json", lambda: json.dumps(make_result("rte", "auber", 0, 0.6))), lambda f: read_result(f / "result.json", "run")),
        Reader("study folder", ("study.toml", "mrpc/seen/seed-0/auber/result.json", "mrpc/seen/seed-0/original.failed.json"), _study_folder, _read_study_folder),
        Reader("results file", ("kept.json",), _kept_runs, lambda f: read_results(f / "kept.json")),
        Reader("run", tuple(f"run/{name}" for name in ("run.json", "config.toml", *(f"stages/{name}.json" for name in _STAGES), "scores.jsonl")), _unfinished, _resume, writes=True, share=0.5),
        Reader("start from a run", ("run/result.json", "run/run.json"), _finished, _begin_from, share=0.3),
        Reader("complete run", ("run/result.json",), _finished, _hand_back),
        Reader("exhaustive run", ("run/result.json", "run/stages/layer-0.json"), _exhaustive, lambda f: read_tables([f / "run"])),
        Reader("score tables", ("tables.json",), _tables, lambda f: read_tables([f / "tables.json"])),
        Reader("bench", ("bench.json",), _file("bench.json", lambda: json.dumps(make_bench().to_json())), lambda f: read_bench(f / "bench.json").to_json()),
        Reader("watched run", tuple(f"run/{name}" for name in ("progress.json", "events.jsonl", "run.json", "config.toml", "stages/layer-00.json")), _watched, _watch_run),
        Reader("ended run", ("run/result.json",), _ended, _watch_run),
        Reader("watched study", ("study.toml", *(f"mrpc/seen/seed-0/{name}" for name in ("auber/result.json", "original/events.jsonl", ".claim"))), _watched_study, _watch_study),
        Reader("page of runs", ("auber/result.json", "auber/stages/layer-00.json", "michel/stages/plan.json"), _runs_side_by_side, lambda f: make_page([f / "auber", f / "michel"]), share=0.3),
        Reader("page of a study", ("study.toml", "mrpc/seen/seed-0/auber/result.json"), _study_folder, lambda f: make_page([f]), share=0.3),
        Reader("speeds", ("speed.json",), _file("speed.json", _speeds), lambda f: speed_tables(read_results_file(f / "speed.json"))),
        Reader("lock", (".lock",), _file(".lock", _lock), _take_lock, dialect="json", writes=True),
        Reader("speed", ("run/result.json", "run/model/config.json"), _measured, lambda f: read_subjects((str(f / "run"),), None), share=0.3),
        Reader("pruned model", ("pruned/config.json",), _model, lambda f: checkpoint.load(f / "pruned"), share=0.15),
        Reader("pruned weights", ("pruned/model.safetensors",), _model, lambda f: checkpoint.load(f / "pruned"), dialect="bytes", share=0.15),
        Reader("start", ("whole/config.json", "whole/model.safetensors"), _model, partial(_read_start, "whole"), share=0.1),
        Reader("shards", ("sharded/model.safetensors.index.json",), _model, partial(_read_start, "sharded"), share=0.1),
        Reader("tokenizer", ("whole/tokenizer.json", "whole/tokenizer_config.json"), _model, lambda f: checkpoint.load_tokenizer(f / "whole"), share=0.1),
        Reader("import", ("old/config.json",), _old_model, lambda f: import_model(f / "old", f / "new"), writes=True, share=0.1),
    )
}  # fmt: skip

PURE = tuple(
    name for name, reader in READERS.items() if reader.share == 1.0
)  # quick enough for a fuzzer guided by coverage
