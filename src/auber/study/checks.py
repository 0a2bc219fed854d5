"""What can be said against the open runs of a study before any of them is begun: their model, tasks and settings.

A name, a folder or a setting that is wrong is the user's mistake, and no failure of a run. The model's shape is enough for
that: no weights are read.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from auber.config import Config
from auber.data.task import TaskData
from auber.data.task_types import get_task_type
from auber.errors import ConfigError
from auber.models import checkpoint
from auber.models.source import read_config
from auber.models.surgery import remove_heads
from auber.run.request import make_ask, make_job
from auber.run.starts import Start, check_origin
from auber.search.registry import get_method
from auber.study.estimate import model_size
from auber.study.folder import StudyFolder
from auber.study.plan import EMBEDDED, START, Block, Selection, Study, StudyRun

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def check_runs(study: Study, folder: StudyFolder, selection: Selection, *, elsewhere: bool) -> None:
    """Raise what is wrong with the open runs of a part of a study; `elsewhere`: other machines compute them, with other devices."""
    kinds: dict[
        tuple[str, str, str | None], tuple[Block, StudyRun]
    ] = {}  # runs that differ by seed or draw have the same to be said
    for block in selection.blocks:
        for run in folder.pending(study, block, selection.runs(study, block)):
            kinds.setdefault((block.task, block.protocol, run.method), (block, run))
    if not kinds:
        return
    num_layers, _ = model_size(study)
    tasks: dict[str, TaskData] = {}
    for block, run in kinds.values():
        if block.task not in tasks:
            try:
                study.config(block, run).search.layers_of(num_layers)
            except ConfigError as error:
                raise ConfigError(f"task {block.task}: {error}") from error
            tasks[block.task] = study.load_task(block.task)
    models = {task.kind: _outline(study, task) for task in tasks.values()}
    for block, run in kinds.values():
        task = tasks[block.task]
        config = study.config(block, run).replace({"threads": 0})  # whoever computes pins them
        try:
            _check(
                run,
                config.replace({"device": "auto"}) if elsewhere else config,
                task,
                *models[task.kind],
            )
        except ConfigError as error:
            raise ConfigError(f"{block.task} {block.protocol} {run.name}: {error}") from error


def _check(
    run: StudyRun,
    config: Config,
    task: TaskData,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Raise what `prune`, or for the start `finetune`, would say."""
    method = get_method(run.method or "original")
    ranks = method.removes_heads and not method.decides_number
    ask = make_ask(
        task, method, config, heads=0 if ranks else None
    )  # how many it is told, auber decides
    job = make_job(ask, Start(model, tokenizer, "", tuned=run.name != START), None, None)
    check_origin(job, is_given=method.uses_fold_models(config.protocol))


def _outline(study: Study, task: TaskData) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model without its weights, and its tokenizer."""
    if study.model == EMBEDDED:
        from auber.data.generated import build_model, build_tokenizer

        return build_model(task.num_labels, 0), build_tokenizer()
    import torch
    import transformers

    config, plan = read_config(study.model)
    auto_class = getattr(transformers, get_task_type(task.kind).auto_class)
    with torch.device("meta"):
        model = auto_class.from_config(copy.deepcopy(config), trust_remote_code=False)
    remove_heads(model, plan, allow_empty_layers=True)
    return model, checkpoint.load_tokenizer(study.model)
