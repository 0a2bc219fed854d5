"""Experiment trackers, through the classes of `accelerate.tracking`.

TensorBoard and MLflow are tested; the others that accelerate knows are opened as `Accelerator`
opens them. What a tracker stores goes into the run's folder, `RUN/track/`: TensorBoard's events
into `tensorboard/`, MLflow's store into `mlflow.db` unless an address is set (`MLFLOW_TRACKING_URI`
or `mlflow.set_tracking_uri`). A resumed run continues the same MLflow run. Telemetry of the
packages is off unless the environment enables it.

A tracker must not slow down or end a search: numbers are handed over without waiting for the disk,
and a tracker that fails during a run is dropped with a warning. One that cannot be opened is an
error before any work.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from auber.config import Value
from auber.errors import ConfigError, RunError, first_line, unknown_name

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

    Log = Callable[[dict[str, float], int], None]

logger = logging.getLogger(__name__)

PROJECT = "auber"  # the project, or experiment, that runs are collected under


# By the name of their package; the value is the argument of pip install.
TRACKERS = dict.fromkeys(("tensorboard", "mlflow"), "'auber[track]'") | {
    name: name for name in ("wandb", "aim", "clearml", "comet_ml", "dvclive", "swanlab", "trackio")
}
# The others need one ascending step for all numbers, and drop numbers with a lower one.
_KEEP_STEPS = ("tensorboard", "mlflow")
_PRIVACY = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}


def check_trackers(names: Sequence[str]) -> tuple[str, ...]:
    """Return the trackers, each once; raise `ConfigError` unless all are known and installed."""
    if isinstance(names, str):
        raise ConfigError(f"track must be a list of trackers, found {names!r}; write [{names!r}]")
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(unknown_name("tracker", name, TRACKERS))
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"tracker {name}: the package {name} must be installed, and is not; "
                f"pip install {TRACKERS[name]}"
            )
    return tuple(dict.fromkeys(names))


class TrackerListener:
    """Passes the numbers of a run to one tracker."""

    def __init__(self, name: str, log: Log) -> None:
        self._name = name
        self._log: Log | None = log
        self._count = 0

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Pass numbers on, until the tracker fails."""
        if self._log is None or not numbers:
            return
        values = dict(numbers)
        if self._name not in _KEEP_STEPS:
            prefix = next(iter(values)).rpartition("/")[0]
            values[f"{prefix}/step"] = step
            step, self._count = self._count, self._count + 1
        try:
            _initialize_accelerate()
            self._log(values, step)
        except Exception as error:  # each tracker has errors of its own
            _warn(self._name, "dropped for the rest of this run", error)
            self._log = None


@contextmanager
def open_tracker(
    name: str, folder: Path, run_name: str, settings: Mapping[str, Value]
) -> Iterator[TrackerListener]:
    """Yield a listener that passes numbers to a tracker; its files go into `folder`.

    The tracker gets the settings once per run, which a file in the folder marks: a resumed run may
    use a tracker that is new to it.
    """
    for variable, value in _PRIVACY.items():
        os.environ.setdefault(variable, value)
    with ExitStack() as closing:
        try:
            folder.mkdir(exist_ok=True)
            _initialize_accelerate()
            opener = _OPENERS.get(name, _open_other)
            tracker, log = opener(name, folder, run_name, closing)
            has_settings = folder / f"{name}-has-settings"
            if not has_settings.exists():
                tracker.store_init_configuration(dict(settings))
                has_settings.touch()
        except Exception as error:  # each tracker has errors of its own
            raise RunError(
                f"tracker {name}: cannot be opened ({type(error).__name__}: {first_line(error)}); "
                f"correct that or leave out --track {name}, then continue with --resume"
            ) from error
        yield TrackerListener(name, log)


def _initialize_accelerate() -> None:
    """Create the process state that trackers ask for; a tuning may have reset it."""
    from accelerate import PartialState

    PartialState()


def _open_tensorboard(
    name: str, folder: Path, run_name: str, closing: ExitStack
) -> tuple[GeneralTracker, Log]:
    from accelerate.tracking import TensorBoardTracker

    tracker = TensorBoardTracker(name, folder)
    tracker.start()
    closing.callback(_close, name, tracker.finish)

    def log(values: dict[str, float], step: int) -> None:
        # `log` of the class would wait for the disk; the writer does not.
        for key, value in values.items():
            tracker.tracker.add_scalar(key, value, global_step=step)

    return tracker, log


def _open_mlflow(
    name: str, folder: Path, run_name: str, closing: ExitStack
) -> tuple[GeneralTracker, Log]:
    import mlflow
    from accelerate.tracking import MLflowTracker

    for source in ("mlflow", "alembic"):  # they log how they create their tables
        logging.getLogger(source).setLevel(logging.WARNING)
    own_store = not mlflow.is_tracking_uri_set()
    if own_store:
        mlflow.set_tracking_uri(f"sqlite:///{(folder / 'mlflow.db').resolve()}")
        closing.callback(mlflow.set_tracking_uri, None)
    record = folder / "mlflow-run.txt"
    tracker = MLflowTracker(
        PROJECT,
        logging_dir=(folder / "mlflow-artifacts").resolve().as_uri() if own_store else None,
        run_name=run_name,
        run_id=record.read_text(encoding="utf-8").strip() if record.is_file() else None,
        nested_run=mlflow.active_run() is not None,
    )

    def end(error: object) -> None:
        mlflow.flush_async_logging()
        mlflow.end_run("FAILED" if error else "FINISHED")

    closing.push(lambda error, *_: _close(name, end, error))
    tracker.start()
    record.write_text(f"{tracker.tracker.info.run_id}\n", encoding="utf-8")
    return tracker, lambda values, step: tracker.log(values, step=step, synchronous=False)


def _open_other(
    name: str, folder: Path, run_name: str, closing: ExitStack
) -> tuple[GeneralTracker, Log]:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, WandBTracker

    if name == "wandb":
        tracker = WandBTracker(PROJECT, name=run_name, dir=str(folder))
    else:
        tracker_class = LOGGER_TYPE_TO_CLASS[name]
        place = (str(folder),) if tracker_class.requires_logging_directory else ()
        tracker = tracker_class(f"{PROJECT} {run_name}", *place)
    tracker.start()
    closing.callback(_close, name, tracker.finish)
    return tracker, lambda values, step: tracker.log(values, step=step)


def _close(name: str, close: Callable[..., object], *arguments: object) -> None:
    """Close a tracker; an error is only a warning, because the result is there."""
    try:
        close(*arguments)
    except Exception as error:
        _warn(name, "could not be closed", error)


def _warn(name: str, event: str, error: Exception) -> None:
    logger.warning("tracker %s: %s (%s: %s)", name, event, type(error).__name__, error)


_OPENERS = {"tensorboard": _open_tensorboard, "mlflow": _open_mlflow}
