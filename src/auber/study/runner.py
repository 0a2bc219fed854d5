"""Execute the missing runs of a study, in this process, in several or on Ray.

All pending runs are checked before any of them begins, because a wrong name, folder or setting is
an error of the user and not a failed run. The checks need the shape of the model and no weights.
The digests of rows and weights go into the study's record, and every later call that computes is
compared with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from auber.data.task import TaskData, describe_duplicates
from auber.data.task_types import get_task_type
from auber.errors import ConfigError
from auber.models import checkpoint
from auber.models.source import read_config
from auber.models.surgery import remove
from auber.run.trackers import check_trackers
from auber.run.validation import check_pruning
from auber.search.registry import get_method
from auber.study.block import BlockJob
from auber.study.engines import Engine, run_local, run_processes
from auber.study.folder import Listener, Outcome, StudyFolder
from auber.study.plan import GENERATED, START, PlacedRun, Study, select_runs
from auber.study.ray_engine import run_ray
from auber.system.locks import HeldError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def run_study(
    study: Study,
    folder: StudyFolder,
    listener: Listener,
    *,
    runs: Sequence[PlacedRun] | None = None,
    engine: Engine | None = None,
    track: Sequence[str] = (),
    allow_upgrade: bool = False,
    command: str | None = None,
) -> list[Outcome]:
    """Execute those of the runs (default: all) that are missing; return all their outcomes.

    `track` names experiment trackers. Runs that other versions of the packages began are resumed
    only with `allow_upgrade`.
    """
    trackers = check_trackers(track)
    engine = engine or Engine()
    runs = select_runs(study) if runs is None else runs
    folder.check(study)
    pending = folder.pending(study, runs)
    tasks = check_runs(study, pending, engine.name)
    study = _identify_rows(study, folder, tasks, listener.say)
    study = _identify_weights(study, pending, tasks)
    del tasks  # rows may be large, and each block reads its own
    folder.open(study)
    for block in dict.fromkeys(block for block, _ in runs):
        # If another process works on the block, it takes care of failures and weights.
        with suppress(HeldError), folder.claim(block):
            for _, run in (placed for placed in runs if placed[0] == block):
                folder.clear_failure(block, run)
            if not study.keep_weights:
                folder.delete_weights(block)
    pending = folder.pending(study, runs)
    resolved = study.resolve()
    jobs = [
        BlockJob(
            study=resolved,
            folder=StudyFolder(folder.path.resolve()),
            block=block,
            names=tuple(run.name for other, run in pending if other == block),
            command=command,
            track=trackers,
            allow_upgrade=allow_upgrade,
        )
        for block in dict.fromkeys(block for block, _ in pending)
    ]
    engines = {"local": run_local, "processes": run_processes, "ray": run_ray}
    if jobs:
        engines[engine.name](jobs, listener, engine)
    return [folder.outcome(block, run) for block, run in runs]


def check_runs(study: Study, pending: Sequence[PlacedRun], engine: str) -> dict[str, TaskData]:
    """Return the tasks of the runs; raise an error for a run that cannot be done.

    On Ray, a node may have another device.
    """
    # Runs that differ only in seed or draw have the same problems.
    distinct = {(block.task, block.protocol, run.method): (block, run) for block, run in pending}
    tasks = {name: study.load_task(name) for name in dict.fromkeys(b.task for b, _ in pending)}
    models = {task.kind: _outline(study, task) for task in tasks.values()}
    for block, run in distinct.values():
        task, method = tasks[block.task], get_method(run.method or "original")
        ranks = run.is_matched and method.removes_heads  # its number comes from `auber`
        config = study.config(block, run)
        if engine != "local" and config.threads == 0:
            raise ConfigError(
                f"engine {engine}: threads must be set, so that a result does not depend on where "
                "it is computed, found 0; write threads = 1 under [settings]"
            )
        # The threads of this process must not change here.
        config = config.replace({"threads": 0, **({"device": "auto"} if engine == "ray" else {})})
        try:
            check_pruning(
                *models[task.kind],
                task=task,
                method=method.name,
                heads=0 if ranks else None,
                config=config,
                has_classifier=run.name != START,
            )
        except ConfigError as error:
            raise ConfigError(f"{block.task} {block.protocol} {run.name}: {error}") from error
    return tasks


def _outline(study: Study, task: TaskData) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model without its weights, and its tokenizer."""
    if study.model == GENERATED:
        from auber.data.generated import build_model, build_tokenizer

        return build_model(task.num_labels, 0), build_tokenizer()
    import torch
    import transformers

    config, plan = read_config(study.model)
    auto_class = getattr(transformers, get_task_type(task.kind).auto_class)
    with torch.device("meta"):
        model = auto_class.from_config(copy.deepcopy(config), trust_remote_code=False)
    remove(model, plan, allow_empty_layers=True)
    return model, checkpoint.load_tokenizer(study.model)


def _identify_rows(
    study: Study, folder: StudyFolder, tasks: Mapping[str, TaskData], say: Callable[[str], None]
) -> Study:
    """Return the study with the digests of its own rows.

    Beside those of `tasks`, which the call computes with, rows are read if the record lacks their
    digest, or if the files exist and can be compared. Duplicate rows are reported in the first two
    cases.
    """
    recorded = folder.recorded()
    known = recorded.own if recorded else {}
    wanted = {name for name in study.own if name not in known or known[name].rows is None}
    wanted |= {*tasks}
    for name, own in study.own.items():
        if name in wanted or own.has_files:
            task = tasks[name] if name in tasks else study.load_task(name)
            for doubt in describe_duplicates(task) if name in wanted else ():
                say(f"{name}: {doubt}")
            study = study.change_task(name, rows=task.content_hash)
    return study


def _identify_weights(
    study: Study, pending: Sequence[PlacedRun], tasks: Mapping[str, TaskData]
) -> Study:
    """Return the study with the digest of its encoder, if the call computes with the model.

    Raise `ConfigError` if the study file names another digest.
    """
    readers = [b for b, run in pending if not run.from_start or study.needs_origin(b, run)]
    if study.model == GENERATED or not readers:
        return study
    task = tasks[readers[0].task]
    model = checkpoint.load_classifier(
        study.model,
        num_labels=task.num_labels,
        label_names=task.label_names,
        is_regression=task.is_regression,
        kind=task.kind,
        seed=0,
    ).model
    # Of the encoder alone: what the model lacks, such as a classifier, is drawn at random.
    found = checkpoint.weights_digest(model.base_model)
    if study.weights not in (None, found):
        raise ConfigError(
            f"study: weights must be the digest of the model, found {study.weights}, and "
            f"'{study.model_name}' has {found}; give the model that was meant or remove weights"
        )
    return study.change(weights=found)
