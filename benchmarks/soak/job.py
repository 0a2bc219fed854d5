"""The jobs that drills break: a tiny encoder is pruned, exported and reported.

`HeadsJob` removes heads by games, layer by layer. `SizesJob` makes models of several sizes for
texts without labels: the unpruned model answers them, exchanges search for the plans, and each
model learns from the unpruned one.

Their processes run `auber` command lines, forked from a server with all imports.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import FrameType
from typing import Any

from auber.config import Config, make_config
from benchmarks import tiny

_SLOW_DISK = 0.02  # seconds
_PATIENCE = 120.0  # seconds
_EXPORT = "dense/model.safetensors"
_TABLES = ("tables/table2.csv", "tables/overfitting.csv")
# Keys of a result, and of a model in it, that do not depend on how long anything took.
_SAME_MODEL = ("dev", "train", "gap", "plan", "heads", "neurons", "model_sha256", "agreement")
_SAME = (*_SAME_MODEL, "kind", "tuned_layers", "start", "config", "data", "chosen", "answered")
_SAME_COSTS = ("rewards_asked", "rewards_computed", "tuning_steps")


# What commands and runs import.
_IMPORTS = [
    "auber.api",
    "auber.cli",
    "auber.export.dense",
    "auber.report",
    "auber.search.players.dqn",
    "auber.search.rankings.exchange",
    "auber.training.trainer",
    "benchmarks.soak.job",
    "safetensors.torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
]


def make_starter() -> ForkServerContext:
    """Return what forks processes from a server with all imports, on one thread and offline."""
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTS)
    return context


@dataclass(frozen=True)
class Child:
    """A process that runs command lines one after the other, as if typed."""

    process: ForkServerProcess
    log: Path
    started: float = field(default_factory=time.monotonic)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; none is sent if the process has ended."""
        if self.process.is_alive():
            assert self.process.pid is not None
            os.kill(self.process.pid, number)

    def wait(self) -> int:
        """Return the exit code, or minus the signal that killed the process."""
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode

    @property
    def output(self) -> str:
        """What it wrote to stdout and stderr."""
        return self.log.read_text(encoding="utf-8")


def start_commands(
    commands: Sequence[Sequence[str]],
    log: Path,
    *,
    largest_file: int | None = None,
    slow_disk: float = 0.0,
) -> Child:
    """Start commands that print into a log.

    `largest_file` bounds the bytes of each file they write. `slow_disk` seconds are added to each
    wait for the disk: signals then hit the writing of files as often as on old disks.
    """
    arguments = (commands, str(log), largest_file, slow_disk)
    process = make_starter().Process(target=_run, args=arguments, daemon=True)
    process.start()
    return Child(process, log)


def _run(
    commands: Sequence[Sequence[str]], log: str, largest_file: int | None, slow_disk: float
) -> None:
    import resource

    import torch

    from auber.cli import main

    torch.set_num_threads(1)
    # Only a running command can be stopped: on a busy machine a signal may come before its handler
    # is there, or after it has gone, when this process is still about to end.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, _interrupt_command)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    if slow_disk:
        sync = os.fsync

        def sync_slowly(descriptor: int) -> None:
            time.sleep(slow_disk)
            sync(descriptor)

        os.fsync = sync_slowly  # type: ignore[assignment]
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    for command in commands:
        sys.argv = ["auber", *command]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise


def _interrupt_command(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C as Python does, while a command handles SIGTERM."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.default_int_handler(number, frame)


class Job(ABC):
    """A job done once in `folder`; `outcome` is its result.

    It takes `seconds`, of which pruning takes `pruning_seconds`. Every second kill waits for one of
    the phases `aims`, in turns.
    """

    aims: tuple[str, ...] = ()

    def __init__(self, folder: Path, *, is_quick: bool) -> None:
        self.folder = folder.resolve()
        self._slow_disk = 0.0 if is_quick else _SLOW_DISK
        self._numbers = itertools.count()
        tiny.save_model(folder / "tiny")
        settings = self._write_inputs(is_quick)
        (folder / "settings.toml").write_text(settings.to_toml(), encoding="utf-8")
        outcomes = []
        for _ in range(2):  # the first one warms everything up
            self.unbroken = self.new_folder()
            child = self.start(self.commands(self.unbroken))
            assert child.wait() == 0, child.output
            outcomes.append(outcome_of(self.unbroken))
            self.seconds = time.monotonic() - child.started
        assert outcomes[0] == outcomes[1], "two unbroken jobs differ"
        self.outcome = outcomes[0]
        result = json.loads((run_of(self.unbroken) / "result.json").read_text(encoding="utf-8"))
        self.pruning_seconds = float(result["cost"]["seconds"]["total"])

    @abstractmethod
    def _write_inputs(self, is_quick: bool) -> Config:
        """Write the rows, and return the settings."""

    @abstractmethod
    def _subject(self) -> list[object]:
        """Return the words of the command that name model, rows and sizes."""

    @abstractmethod
    def is_begun(self, out: Path) -> bool:
        """Return whether a run has a stage to resume from."""

    @abstractmethod
    def is_searching(self, out: Path) -> bool:
        """Return whether a run is deciding what to remove."""

    @abstractmethod
    def has_weights(self, out: Path) -> bool:
        """Return whether a run has stored weights that it made."""

    def prune(self, out: Path, *more: str) -> list[str]:
        """Return the command that prunes, or resumes."""
        words = [
            *("prune", *self._subject(), "--text", "text"),
            *("--config", self.folder / "settings.toml", "--out", run_of(out)),
            *("--resume", "--quiet", *more),
        ]
        return [str(word) for word in words]

    def commands(self, out: Path) -> list[list[str]]:
        """Return the whole job: prune, export unless that is done, report."""
        dense = ["export", str(run_of(out)), "--to", "dense", "--out", str(out / "dense")]
        report = ["report", str(out / "runs"), "--out", str(out / "tables")]
        exports = [] if (out / "dense").exists() else [[*dense, "--quiet"]]
        return [self.prune(out), *exports, report]

    def new_folder(self) -> Path:
        """Return a new folder for the job."""
        out = self.folder / f"job-{next(self._numbers)}"
        out.mkdir()
        return out

    def start(self, commands: list[list[str]], largest_file: int | None = None) -> Child:
        """Start some commands."""
        log = self.folder / f"child-{next(self._numbers)}.txt"
        return start_commands(commands, log, largest_file=largest_file, slow_disk=self._slow_disk)

    def start_until(self, moment: Callable[[Path], bool], out: Path) -> Child:
        """Start pruning and return at a moment that the folder shows."""
        child = self.start([self.prune(out)])
        deadline = time.monotonic() + _PATIENCE
        while not moment(out):
            assert time.monotonic() < deadline, "the moment did not come"
            time.sleep(0.002)
        return child

    def kill_when(self, moment: Callable[[Path], bool], out: Path) -> None:
        """Start pruning and kill it at a moment."""
        child = self.start_until(moment, out)
        child.send(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, child.output

    def fail(self, out: Path, largest_file: int | None = None) -> str:
        """Prune, which must end with exit code 2; return its one line."""
        child = self.start([self.prune(out)], largest_file)
        assert child.wait() == 2, child.output
        return one_line(child)

    def finish(
        self, out: Path, *more: str, whole: bool = False, except_for: tuple[str, ...] = ()
    ) -> None:
        """Resume pruning, or the `whole` job, and compare the outcome with the unbroken one."""
        commands = [self.prune(out, *more), *(self.commands(out)[1:] if whole else ())]
        child = self.start(commands)
        assert child.wait() == 0, child.output
        found = outcome_of(out)
        assert not whole or found.keys() == self.outcome.keys()
        different = {key for key in found if found[key] != self.outcome[key]} - set(except_for)
        assert not different, f"{out}: {sorted(different)} differ from the unbroken job's"


class HeadsJob(Job):
    """Heads are removed by games, after a fine-tuning, with a tuning after each layer."""

    def _write_inputs(self, is_quick: bool) -> Config:
        tiny.write_rows(self.folder, 60 if is_quick else 90)
        longer = {"agent__episodes": 60, "first__epochs": 8, "layer__epochs": 3, "last__epochs": 4}
        # The network values stopping so little that heads are removed.
        return tiny.make_settings(agent__stop_value=-1000.0, **({} if is_quick else longer))

    def _subject(self) -> list[object]:
        rows = ("--train", self.folder / "train.csv", "--dev", self.folder / "dev.csv")
        return ["--model", self.folder / "tiny", *rows, "--preset", "paper"]

    def is_begun(self, out: Path) -> bool:
        """Return whether a run is fine-tuned."""
        return (run_of(out) / "stages" / "first.json").exists()

    def is_searching(self, out: Path) -> bool:
        """Return whether some scores are in the ledger."""
        scores = run_of(out) / "scores.jsonl"
        return scores.exists() and scores.read_bytes().count(b"\n") >= 3

    def has_weights(self, out: Path) -> bool:
        """Return whether the first layer is done."""
        return (run_of(out) / "stages" / "layer-00.json").exists()


class SizesJob(Job):
    """Models of three sizes, for texts that the unpruned model answers."""

    aims = ("answering", "search", "tuning", "between stages")
    _SIZES = ("0.7", "0.4", "0.25")  # the search is for those below one half

    def _write_inputs(self, is_quick: bool) -> Config:
        tiny.write_rows(self.folder, 90)
        dev = (self.folder / "dev.csv").read_text(encoding="utf-8").partition("\n")[2]
        texts = (self.folder / "train.csv").read_text(encoding="utf-8") + dev
        (self.folder / "texts.csv").write_text(texts, encoding="utf-8")
        tuned = self.folder / "tuned"
        words = ["finetune", "--model", self.folder / "tiny", "--train", self.folder / "train.csv"]
        words += ["--dev", self.folder / "dev.csv", "--text", "text", "--preset", "paper"]
        for key, value in tiny.SETTINGS.items():
            words += ["--set", f"{key}={str(value).lower()}"]
        child = self.start([[str(word) for word in (*words, "--out", tuned, "--quiet")]])
        assert child.wait() == 0, child.output
        settings = {
            "threads": 1,
            "device": "cpu",
            "max_length": 24,
            "last.epochs": 1 if is_quick else 4,
            "last.learning_rate": 1e-3,
            "search.rewards": 20 if is_quick else 60,
            "search.minutes": 0.0,  # the number of plans does not depend on the time they take
            "search.rows": 60,
            "teacher.hidden": 1.0,
        }
        return make_config("default", settings=settings)

    def _subject(self) -> list[object]:
        model, texts = self.folder / "tuned" / "model", self.folder / "texts.csv"
        sizes = ("--keep", ",".join(self._SIZES), "--method", "exchange")
        return ["--model", model, "--texts", texts, *sizes]

    def is_begun(self, out: Path) -> bool:
        """Return whether the unpruned model's answers are stored."""
        return (run_of(out) / "stages" / "answers.json").exists()

    def is_searching(self, out: Path) -> bool:
        """Return whether exchanges are scored."""
        return phase_of(out) == "search"

    def has_weights(self, out: Path) -> bool:
        """Return whether the first size is tuned."""
        return (run_of(out) / "stages" / f"last-{self._SIZES[0]}.json").exists()


def run_of(out: Path) -> Path:
    """Return the run's folder in that of a job."""
    return out / "runs" / "run"


def one_line(child: Child) -> str:
    """Return the output of a process, which must be one line of auber's."""
    output = child.output
    assert output.startswith("auber: "), output
    assert output.count("\n") == 1, output
    return output.rstrip()


def outcome_of(out: Path) -> dict[str, Any]:
    """Return what must not depend on how often a job was broken."""
    run = run_of(out)
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {key: result.get(key) for key in _SAME}
    found["sizes"] = [
        {key: size.get(key) for key in _SAME_MODEL} for size in result.get("sizes", ())
    ]
    found["cost"] = {key: result["cost"][key] for key in _SAME_COSTS}
    found["plan.json"] = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    ledger = run / "scores.jsonl"
    if ledger.exists():
        found["scores"] = sorted(ledger.read_text(encoding="utf-8").splitlines())
    for model in (run / "model", *sorted(run.glob("models/*"))):
        found[f"weights of {model.name}"] = _digest(model / "model.safetensors")
    scratch = (*run.glob(".*"), *(run / "stages").glob(".*"))
    found["scratch files"] = sorted(path.name for path in scratch)
    for name in (_EXPORT, *_TABLES):
        if (out / name).exists():
            found[name] = _digest(out / name)
    return found


def phase_of(out: Path) -> str:
    """Return what a job is doing, as its folders show it."""
    run = run_of(out)
    if (run / "result.json").is_file():
        return "reporting" if (out / "dense").exists() else "exporting"
    if not (run / "run.json").is_file():
        return "starting"
    if any(run.glob(".model.*")) or any((run / "stages").glob(".*")):
        return "saving"
    try:
        stage = json.loads((run / "progress.json").read_text(encoding="utf-8"))["stage"] or {}
    except (OSError, ValueError):
        return "starting"
    name = stage.get("name", "")
    if name == "first tuning":
        return "fine-tuning"
    if name.startswith("answers"):
        return "answering"
    for phase in ("tuning", "evaluating"):
        if phase in name:
            return phase
    return "search" if name else "between stages"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
