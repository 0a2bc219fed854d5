"""Which weights a study is of: a model's name says it of a hub's revision at best, and a folder may be filled anew.

The digest of the encoder goes into the study's record at the first call that computes with the model, and every later one that
does is compared with it. Who only looks at a study reads no weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from auber.errors import ConfigError, RunError
from auber.models import checkpoint
from auber.run import files as run_files
from auber.study.folder import RECORD, StudyFolder
from auber.study.plan import EMBEDDED, START, Block, Selection, Study, read_study

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def know_weights(study: Study, folder: StudyFolder, selection: Selection) -> Study:
    """The study with the digest of its encoder, where a call computes with the model; `ConfigError` where the file says another."""
    block = _first_to_read_the_model(study, folder, selection)
    if study.model == EMBEDDED or block is None:
        return study
    found = checkpoint.weights_digest(
        _load(study, block, seed=0).base_model
    )  # a pooler that it lacks is drawn
    if study.weights not in (None, found):
        raise ConfigError(
            f"study: weights must be those of the model, found {study.weights} and in '{study.model_name}' {found}; give the model "
            "that was meant, or leave weights out"
        )
    known = replace(study, weights=found)
    return known if _began_with_them(known, folder) else replace(study, weights=None)


def _first_to_read_the_model(
    study: Study, folder: StudyFolder, selection: Selection
) -> Block | None:
    """The first block with something to do that begins with the study's model, or makes scouts of it."""
    for block in selection.blocks:
        for run in folder.pending(study, block, selection.runs(study, block)):
            if not run.from_start or study.needs_origin(block, run):
                return block
    return None


def _began_with_them(study: Study, folder: StudyFolder) -> bool:
    """Whether the digest can be written down: not into an older record without one whose runs may have begun with other weights."""
    record = folder.path / RECORD
    recorded = read_study(record) if record.is_file() else study
    if recorded.weights is not None:
        return True  # they are compared
    for block in recorded.blocks():
        start = folder.run_path(block, START)
        if run_files.is_run(start):
            try:
                began = run_files.read_record(start).get("weights")
            except RunError:
                return False  # damage, which is told when the run is reached
            return began == checkpoint.weights_digest(_load(study, block, block.seed))
    return True


def _load(study: Study, block: Block, seed: int) -> PreTrainedModel:
    """The model as the first tuning of a block gets it, with what it lacks drawn from a seed."""
    task = study.load_task(block.task, block.seed)
    return checkpoint.load_classifier(
        study.model,
        num_labels=task.num_labels,
        label_names=task.label_names,
        is_regression=task.is_regression,
        kind=task.kind,
        seed=seed,
    ).model
