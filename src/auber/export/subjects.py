"""The models of a measurement: an architecture, and the units that a run removed from it.

Latency does not depend on weights, so none are read: both models get the same random weights, and a
run can be measured after its weights were deleted. The architecture is that of the run's model
folder, or of `--model` if the folder was deleted. The classifier has the run's task type; a model
folder without a classifier is measured with one for texts.
"""

from __future__ import annotations

import copy
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import AfterValidator, AliasChoices, AliasPath, Field

from auber.config.values import parse_only
from auber.data.task_types import TASK_TYPES, TaskType, task_type_of_config
from auber.errors import ConfigError, PlanError, RunError
from auber.export.speed import USUAL_LENGTH
from auber.metrics.task_metrics import METRICS
from auber.models.checkpoint import model_folder
from auber.models.encoders import encoder_of, family_of
from auber.models.plan import PruningPlan
from auber.models.source import read_config
from auber.models.surgery import remove
from auber.run import files as run_files
from auber.run.records import Plan
from auber.system import seeds
from auber.system.records import Count, Name, Record, Whole, parse, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_KEYS = ("task", "method", "seed", "protocol")  # that pick runs of a results file
_REMEDY = "give the result.json of a run, or a results file"


@dataclass(frozen=True)
class Subject:
    """An architecture, and the units to remove from it."""

    name: str
    task_type: TaskType  # decides the classifier
    config: PreTrainedConfig  # of the unpruned model
    plan: PruningPlan

    def build(self) -> tuple[PreTrainedModel, PreTrainedModel]:
        """Return the unpruned and the pruned classifier in eval mode."""
        import transformers

        auto_class = getattr(transformers, self.task_type.auto_class)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seeds.derive(0, "speed model"))
            unpruned = auto_class.from_config(
                copy.deepcopy(self.config), dtype=torch.float32, trust_remote_code=False
            )
        pruned = copy.deepcopy(unpruned)
        remove(pruned, self.plan, allow_empty_layers=True)
        return unpruned.eval(), pruned.eval()


def read_subjects(
    names: Sequence[str], model: str | None, only: Sequence[str] = ()
) -> list[Subject]:
    """Return the subjects of runs, model folders, result files and results files.

    `model` is the architecture of those without one; `only` picks runs of results files.
    """
    wanted = parse_only(only, _KEYS)
    sources = [source for name in names for source in _read_sources(Path(name), wanted)]
    if only and not any(source.stored for source in sources):
        raise ConfigError(
            "--only picks runs of a results file, and none of these is one; leave it out"
        )
    if model is not None and all(source.model for source in sources):
        raise ConfigError(
            "--model is for runs whose model is gone, all of these have theirs; leave it out"
        )
    places = [(source.path / (source.stored or "")).resolve() for source in sources]
    names = _distinguish(
        [(source.name, place) for source, place in zip(sources, places, strict=True)]
    )
    return [_make_subject(name, source, model) for name, source in zip(names, sources, strict=True)]


def choose_length(unpruned: PreTrainedModel, subject: Subject, requested: int | None) -> int:
    """Return the number of tokens per row: as requested, else the usual number."""
    longest = encoder_of(unpruned).num_positions
    if requested is None:
        return min(USUAL_LENGTH, longest)
    if requested > longest:
        raise ConfigError(
            f"--length must be at most {longest}, the positions of {subject.name}, "
            f"found {requested}"
        )
    return requested


def _require_metric(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"must be one of {', '.join(sorted(METRICS))}")
    return name


class _Result(Record, extra="ignore"):
    """What a measurement reads from a run's result, or from its line in a results file."""

    kind: Name = "prune"
    task: Name
    metric: Annotated[str, AfterValidator(_require_metric)]
    method: Name
    seed: Whole
    model: Name
    labels: Count
    layers: Count = Field(validation_alias=AliasChoices(AliasPath("heads", "layers"), "layers"))
    heads: Count = Field(validation_alias=AliasChoices(AliasPath("heads", "per_layer"), "heads"))
    plan: Plan

    @property
    def name(self) -> str:
        """The name of the run in the tables."""
        method = "start" if self.kind == "finetune" else self.method
        return f"{self.task} {method} seed {self.seed}"


@dataclass(frozen=True)
class _Source:
    """Where a subject's plan and architecture are read from."""

    path: Path  # as given by the user
    model: Path | None  # the model folder; None if it is gone
    result: _Result | None = None  # None: a model folder
    stored: str | None = None  # the folder of a run in a results file

    @property
    def name(self) -> str:
        return _name_folder(self.path.resolve()) if self.result is None else self.result.name


def _read_sources(path: Path, wanted: Mapping[str, set[str]]) -> list[_Source]:
    """Return the run or model folder at a path, or the wanted runs of a results file."""
    file = path if path.is_file() else path / run_files.RESULT
    if run_files.is_run(path):
        content: Any = run_files.read_result(path)
    elif file.is_file():
        content = read_json(file, _REMEDY)
    elif path.is_dir():
        return [_Source(path, path)]
    else:
        raise RunError(
            f"{path}: a run's folder, its result.json, a results file or a model folder is "
            "needed, found nothing"
        )
    if isinstance(content, dict) and content.get("kind") == "runs":
        return [
            _Source(path, None, _parse_result(line, path), str(line.get("folder")))
            for line in _pick_lines(path, content.get("runs"), wanted)
        ]
    model = file.parent / "model"
    is_there = (model / "config.json").is_file()
    return [_Source(path, model if is_there else None, _parse_result(content, file))]


def _pick_lines(path: Path, lines: Any, wanted: Mapping[str, set[str]]) -> list[dict[str, Any]]:
    """Return the wanted runs of a results file that `auber report --save` wrote.

    Runs that removed nothing are only included if their method is named.
    """
    lines = lines if isinstance(lines, list) else []
    lines = [line for line in lines if isinstance(line, dict) and line.get("kind") == "prune"]
    if "method" not in wanted:
        plans = [line.get("plan") for line in lines]
        removes = [isinstance(plan, dict) and any(plan.values()) for plan in plans]
        lines = list(compress(lines, removes))
    if not lines:
        raise RunError(
            f"{path}: holds no run that removed units; give one that does, or name its runs with "
            "--only method=..."
        )
    found = [
        line
        for line in lines
        if all(str(line.get(key)) in values for key, values in wanted.items())
    ]
    if not found:
        available = "; ".join(
            f"{key}: {', '.join(sorted({str(line.get(key)) for line in lines}))}" for key in _KEYS
        )
        raise RunError(f"{path}: none of its runs is wanted; it has {available}")
    return found


def _parse_result(data: Any, path: Path) -> _Result:
    return parse(_Result, data, str(path), _REMEDY)


def _name_folder(folder: Path) -> str:
    """Return the name of a model folder; a run's is named after its run."""
    if folder.name != "model":
        return folder.name
    run = folder.parent
    if run_files.is_run(run) and (run / run_files.RESULT).is_file():
        return _parse_result(run_files.read_result(run), run).name
    return run.name


def _distinguish(named: Sequence[tuple[str, Path]]) -> list[str]:
    """Append to equal names the parts of their paths that differ."""
    sharing: dict[str, set[Path]] = defaultdict(set)
    for name, place in named:
        sharing[name].add(place)
    return [
        f"{name} ({place.relative_to(os.path.commonpath([p.parent for p in sharing[name]]))})"
        if len(sharing[name]) > 1
        else name
        for name, place in named
    ]


def _make_subject(name: str, source: _Source, model: str | None) -> Subject:
    if source.model is not None:
        config, plan = read_config(model_folder(source.model))
        return Subject(name, task_type_of_config(config) or TASK_TYPES["sequence"], config, plan)
    path, result = source.path, source.result
    assert result is not None, "a model folder has its model"
    if model is None:
        raise RunError(
            f"{path}: its model is gone; name the architecture with --model FOLDER_OR_NAME "
            f"(it began with '{result.model}')"
        )
    config, removed = read_config(model_folder(Path(model)) if Path(model).is_dir() else model)
    if removed:
        raise ConfigError(f"--model must be an unpruned model, {model} is pruned; give its origin")
    config.num_labels = result.labels
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    if (result.layers, result.heads) != (layers, heads):
        raise ConfigError(
            f"{path}: its plan is for {result.layers} layers of {result.heads} heads, --model "
            f"{model} has {layers} of {heads}; give the model it was pruned from"
        )
    neurons = getattr(config, family_of(config.model_type).intermediate_key)
    try:
        result.plan.check(layers, heads, neurons, allow_empty_layers=True)
    except PlanError as error:
        raise RunError(f"{path}: {error}") from error
    return Subject(name, TASK_TYPES[METRICS[result.metric].kind], config, result.plan)
