"""What is measured: an architecture and the heads a run removed from it, built twice with the same random weights.

How long a model takes does not depend on its weights, so none are read: runs whose weights were deleted are measured as well as
any other, all on equal terms. The architecture is that of the run's model folder, or of `--model` where that is gone; the
classifier is one of the run's kind of task. A model folder whose config names no classifier is measured under one for texts.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from auber.data.task_types import TASK_TYPES, TaskType, task_type_of_class
from auber.errors import ConfigError, PlanError, RunError
from auber.export.speed.kept import KEYS, is_results_file, kept_results
from auber.export.speed.request import USUAL_LENGTH
from auber.metrics.task_metrics import METRICS
from auber.models.encoders import encoder_of
from auber.models.plan import PruningPlan
from auber.models.source import read_config
from auber.models.surgery import remove_heads
from auber.run import files as run_files
from auber.system import seeds
from auber.system.filters import parse_only

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Subject:
    """An architecture, and the heads to take from it."""

    name: str
    kind: TaskType  # of task, which decides the classifier
    config: PreTrainedConfig  # of the unpruned model
    plan: PruningPlan

    def build(self) -> tuple[PreTrainedModel, PreTrainedModel]:
        """The unpruned and the pruned classifier in eval mode."""
        import transformers

        auto_class = getattr(transformers, self.kind.auto_class)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seeds.derive(0, "speed model"))
            unpruned = auto_class.from_config(
                copy.deepcopy(self.config), dtype=torch.float32, trust_remote_code=False
            )
        pruned = copy.deepcopy(unpruned)
        remove_heads(pruned, self.plan, allow_empty_layers=True)
        return unpruned.eval(), pruned.eval()


def read_subjects(
    names: tuple[str, ...], model: str | None, only: tuple[str, ...] = ()
) -> list[Subject]:
    """The subjects of runs, model folders, result files and results files of which `only` picks runs.

    `model` is the architecture of those that have none.
    """
    wanted = parse_only(only, KEYS)
    sources = [source for name in names for source in _sources(Path(name), wanted)]
    if only and not any(source.is_kept for source in sources):
        raise ConfigError(
            "--only picks runs of a results file, and none of these is one; leave it out"
        )
    found = [_subject(source, model) for source in sources]
    if model is not None and not any(used for _, used in found):
        raise ConfigError(
            "--model is for runs whose model is gone, all of these have theirs; leave it out"
        )
    return _told_apart(
        [subject for subject, _ in found], [source.place.resolve() for source in sources]
    )


def choose_length(unpruned: PreTrainedModel, subject: Subject, asked: int | None) -> int:
    """The tokens of a row: those asked for, else the usual number; `ConfigError` where the model has no positions for so many."""
    longest = encoder_of(unpruned).num_positions
    if asked is None:
        return min(USUAL_LENGTH, longest)
    if asked > longest:
        raise ConfigError(
            f"--length must be at most {longest}, the positions of {subject.name}, found {asked}"
        )
    return asked


@dataclass(frozen=True)
class _Source:
    """Where a subject's plan and architecture are read from."""

    path: Path  # as it was given
    place: Path  # what tells it from others
    result: dict[str, Any] | None  # None: a model folder
    folder: Path  # its model, which may be gone
    is_kept: bool = False  # a line of a results file


def _sources(path: Path, wanted: Mapping[str, set[str]]) -> list[_Source]:
    """What a name stands for: one subject, or the wanted runs of a results file."""
    if run_files.is_run(path):
        return [_Source(path, path, _checked(run_files.read_result(path), path), path / "model")]
    if path.is_file() or (path / run_files.RESULT).is_file():
        file = path if path.is_file() else path / run_files.RESULT
        content = run_files.read_json(file)
        if is_results_file(content):
            results = [_checked(result, path) for result in kept_results(path, content, wanted)]
            return [
                _Source(
                    path, path / str(result.get("folder")), result, path / "model", is_kept=True
                )
                for result in results
            ]
        return [_Source(path, path, _checked(content, file), file.parent / "model")]
    if not path.is_dir():
        raise RunError(
            f"{path}: a run's folder, its result.json, a results file or a model folder is needed, found nothing"
        )
    return [_Source(path, path, None, path)]


def _subject(source: _Source, model: str | None) -> tuple[Subject, bool]:
    """One subject, and whether its architecture is that of `model`."""
    path, result, folder = source.path, source.result, source.folder
    name = _folder_name(path.resolve()) if result is None else _run_name(result)
    if result is None or (folder / "config.json").is_file():
        config, plan = _read_config(str(folder))
        return _fitted(name, _kind_of(config), config, plan, path), False
    if model is None:
        raise RunError(
            f"{path}: its model is gone; name the architecture with --model FOLDER_OR_NAME (it began with '{result['model']}')"
        )
    config, removed = _read_config(model)
    if removed:
        raise ConfigError(
            f"--model must be an unpruned model, {model} lacks {removed.num_removed} heads; give its origin"
        )
    config.num_labels = result["labels"]
    shape = {"layers": config.num_hidden_layers, "per_layer": config.num_attention_heads}
    recorded = {key: result["heads"].get(key) for key in shape}
    if recorded != shape:
        raise ConfigError(
            f"{path}: its plan is for {recorded['layers']} layers of {recorded['per_layer']} heads, --model {model} has "
            f"{shape['layers']} of {shape['per_layer']}; give the model it was pruned from"
        )
    kind = TASK_TYPES[METRICS[result["metric"]].kind]
    return _fitted(
        name, kind, config, PruningPlan.from_json(result["plan"], f"{path}: plan"), path
    ), True


def _run_name(result: dict[str, Any]) -> str:
    """What a run is called in the tables."""
    made = "start" if result.get("kind") == "finetune" else result["method"]
    return f"{result['task']} {made} seed {result['seed']}"


def _folder_name(folder: Path) -> str:
    """What a model folder is called: that of a run after its run, as every run calls it `model`."""
    if folder.name != "model":
        return folder.name
    run = folder.parent
    if run_files.is_run(run) and (run / run_files.RESULT).is_file():
        return _run_name(_checked(run_files.read_result(run), run))
    return run.name


def _told_apart(subjects: list[Subject], places: list[Path]) -> list[Subject]:
    """The subjects, those of one name with so much of their paths behind it that it tells one from another."""
    sharing: dict[str, set[Path]] = defaultdict(set)
    for subject, place in zip(subjects, places, strict=True):
        sharing[subject.name].add(place)
    return [
        replace(subject, name=f"{subject.name} ({_ending(place, sharing[subject.name])})")
        if len(sharing[subject.name]) > 1
        else subject
        for subject, place in zip(subjects, places, strict=True)
    ]


def _ending(place: Path, places: set[Path]) -> str:
    """The fewest last parts of a path in which it differs from the others."""
    for count in range(1, len(place.parts)):
        if sum(other.parts[-count:] == place.parts[-count:] for other in places) == 1:
            return "/".join(place.parts[-count:])
    return str(place)


def _checked(result: Any, path: Path) -> dict[str, Any]:
    needed = {
        "task": str,
        "metric": str,
        "method": str,
        "seed": int,
        "model": str,
        "labels": int,
        "heads": dict,
        "plan": dict,
    }
    fits = isinstance(result, dict) and all(
        isinstance(result.get(key), wanted) for key, wanted in needed.items()
    )
    if not fits or result["metric"] not in METRICS:
        raise RunError(f"{path}: the result.json of a run is needed, found something else")
    found: dict[str, Any] = result
    return found


def _fitted(
    name: str, kind: TaskType, config: PreTrainedConfig, plan: PruningPlan, path: Path
) -> Subject:
    try:
        plan.check(config.num_hidden_layers, config.num_attention_heads, allow_empty_layers=True)
    except PlanError as error:
        raise RunError(f"{path}: {error}") from error
    return Subject(name, kind, config, plan)


def _kind_of(config: PreTrainedConfig) -> TaskType:
    """The kind of task that the class a config names is for."""
    named = str(config.architectures[0]) if config.architectures else None
    return task_type_of_class(named) or TASK_TYPES["sequence"]


def _read_config(source: str) -> tuple[PreTrainedConfig, PruningPlan]:
    """The config of a run, a model folder or a hub name without the heads it says are gone, and those heads."""
    if (Path(source) / "model" / "config.json").is_file():
        source = str(Path(source) / "model")
    return read_config(source)
