"""Experiment trackers, through the classes of `accelerate.tracking`.

TensorBoard and MLflow are tried by the tests; the others that accelerate knows are opened the way `Accelerator` opens them.
What a tracker keeps on disk goes into the run's own folder, `RUN/track/`: TensorBoard's events into `tensorboard/`, MLflow's
store into `mlflow.db`, unless MLflow has been told an address (`MLFLOW_TRACKING_URI`, or `mlflow.set_tracking_uri`). A run
that goes on after a stop goes on as the same MLflow run. Telemetry of the packages is off unless the environment says other.

A tracker must not hold up a search or end it: numbers are handed over without waiting for the disk, and a tracker that
fails in the middle of a run hears no more of it, with one warning. One that cannot be opened is an error before any work.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from auber.config import Value
from auber.errors import ConfigError, RunError, unknown_name

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

logger = logging.getLogger(__name__)

PROJECT = "auber"  # the project, or experiment, that runs are collected under


@dataclass(frozen=True)
class TrackerEntry:
    """One tracker of the table."""

    package: str  # what must be importable
    install: str  # what pip is told


TRACKERS: dict[str, TrackerEntry] = {
    "tensorboard": TrackerEntry("tensorboard", "'auber[track]'"),
    "mlflow": TrackerEntry("mlflow", "'auber[track]'"),
    "wandb": TrackerEntry("wandb", "wandb"),
    "aim": TrackerEntry("aim", "aim"),
    "clearml": TrackerEntry("clearml", "clearml"),
    "comet_ml": TrackerEntry("comet_ml", "comet_ml"),
    "dvclive": TrackerEntry("dvclive", "dvclive"),
    "swanlab": TrackerEntry("swanlab", "swanlab"),
    "trackio": TrackerEntry("trackio", "trackio"),
}
# The others take steps of one count for all numbers, and drop what comes with a lower one.
_KEEP_STEPS = ("tensorboard", "mlflow")
_PRIVACY = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}


def check_trackers(names: Sequence[str]) -> tuple[str, ...]:
    """The trackers of these names, each once; `ConfigError` unless all are known and installed."""
    if isinstance(names, str):
        raise ConfigError(f"track must be a list of trackers, found {names!r}; write [{names!r}]")
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(unknown_name("tracker", name, TRACKERS))
        if importlib.util.find_spec(TRACKERS[name].package) is None:
            raise ConfigError(
                f"tracker {name}: the package {TRACKERS[name].package} must be installed, and is not; "
                f"pip install {TRACKERS[name].install}"
            )
    return tuple(dict.fromkeys(names))


@contextmanager
def open_tracker(
    name: str, folder: Path, run_name: str, settings: Mapping[str, Value]
) -> Iterator[TrackerListener]:
    """A listener that hands numbers to a tracker, open inside the context; files go into `folder`.

    The tracker gets the settings once a run. That it has them is marked in the folder: a run may go on after a stop, with a
    tracker that could not be opened before or that is new to it.
    """
    for variable, value in _PRIVACY.items():
        os.environ.setdefault(variable, value)
    with ExitStack() as stack:
        try:
            folder.mkdir(exist_ok=True)
            _make_accelerate_ready()
            opened = stack.enter_context(_OPENERS.get(name, _open_other)(name, folder, run_name))
            has_settings = folder / f"{name}-has-settings"
            if not has_settings.exists():
                opened.tracker.store_init_configuration(dict(settings))
                has_settings.touch()
        except Exception as error:  # each tracker has errors of its own
            line = (str(error).splitlines() or [""])[0]
            raise RunError(
                f"tracker {name}: cannot be opened ({type(error).__name__}: {line}); put that right or leave out --track {name}, and go on with --resume"
            ) from error
        yield TrackerListener(name, opened.log)


@dataclass(frozen=True)
class _Opened:
    """A tracker that has started."""

    tracker: GeneralTracker
    log: Callable[[dict[str, float], int], None]


class TrackerListener:
    """Hands the numbers of a run to one tracker."""

    def __init__(self, name: str, log: Callable[[dict[str, float], int], None]) -> None:
        self._name = name
        self._log: Callable[[dict[str, float], int], None] | None = log
        self._count = 0

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Hand them over."""
        if self._log is None or not numbers:
            return
        values = dict(numbers)
        if self._name not in _KEEP_STEPS:
            prefix = next(iter(values)).rpartition("/")[0]
            values[f"{prefix}/step"] = step
            step, self._count = self._count, self._count + 1
        try:
            _make_accelerate_ready()
            self._log(values, step)
        except Exception as error:  # the search is worth more than its curves
            logger.warning(
                "tracker %s: hears no more of this run (%s: %s)",
                self._name,
                type(error).__name__,
                error,
            )
            self._log = None


def _make_accelerate_ready() -> None:
    """The trackers ask accelerate which process they are in; it must know, and a tuning may have put its state away."""
    from accelerate import PartialState

    PartialState()


@contextmanager
def _open_tensorboard(name: str, folder: Path, run_name: str) -> Iterator[_Opened]:
    from accelerate.tracking import TensorBoardTracker

    tracker = TensorBoardTracker(name, folder)
    tracker.start()
    # `log` of the class would wait until the numbers are on disk; the writer brings them there by itself.
    writer = tracker.tracker

    def log(values: dict[str, float], step: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, global_step=step)

    try:
        yield _Opened(tracker, log)
    finally:
        with _only_warned(name):
            tracker.finish()


@contextmanager
def _open_mlflow(name: str, folder: Path, run_name: str) -> Iterator[_Opened]:
    import mlflow
    from accelerate.tracking import MLflowTracker

    for source in (
        "mlflow",
        "alembic",
    ):  # how it makes its tables is of no interest to who prunes heads
        logging.getLogger(source).setLevel(logging.WARNING)
    own_store = not mlflow.is_tracking_uri_set()
    if own_store:
        mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').resolve()}")
    record = folder / "mlflow-run.txt"
    tracker = MLflowTracker(
        PROJECT,
        logging_dir=(folder / "mlflow-artifacts").resolve().as_uri() if own_store else None,
        run_name=run_name,
        run_id=record.read_text(encoding="utf-8").strip() if record.is_file() else None,
        nested_run=mlflow.active_run() is not None,
    )
    status = "FAILED"
    try:
        tracker.start()
        record.write_text(f"{tracker.tracker.info.run_id}\n", encoding="utf-8")
        yield _Opened(
            tracker, lambda values, step: tracker.log(values, step=step, synchronous=False)
        )
        status = "FINISHED"
    finally:
        with _only_warned(name):
            mlflow.flush_async_logging()
            mlflow.end_run(status)
        if own_store:
            mlflow.set_tracking_uri(None)


@contextmanager
def _open_wandb(name: str, folder: Path, run_name: str) -> Iterator[_Opened]:
    from accelerate.tracking import WandBTracker

    yield from _started(name, WandBTracker(PROJECT, name=run_name, dir=str(folder)))


@contextmanager
def _open_other(name: str, folder: Path, run_name: str) -> Iterator[_Opened]:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    tracker_class = LOGGER_TYPE_TO_CLASS[name]
    place = (str(folder),) if tracker_class.requires_logging_directory else ()
    yield from _started(name, tracker_class(f"{PROJECT} {run_name}", *place))


def _started(name: str, tracker: GeneralTracker) -> Iterator[_Opened]:
    tracker.start()
    try:
        yield _Opened(tracker, lambda values, step: tracker.log(values, step=step))
    finally:
        with _only_warned(name):
            tracker.finish()


@contextmanager
def _only_warned(name: str) -> Iterator[None]:
    """A tracker that cannot be closed takes nothing with it: the result is there."""
    try:
        yield
    except Exception as error:
        logger.warning(
            "tracker %s: could not be closed (%s: %s)", name, type(error).__name__, error
        )


_OPENERS = {"tensorboard": _open_tensorboard, "mlflow": _open_mlflow, "wandb": _open_wandb}
