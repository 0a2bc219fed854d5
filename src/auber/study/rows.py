"""Which rows a study is of, where they are rows of your own: their name says nothing of what stands in their files.

The digest of a task's rows goes into the study's record when the task is asked for first, and every later call that computes
with them is compared with it. Who only looks at a study reads no rows.
"""

from __future__ import annotations

from dataclasses import replace

from auber.study.folder import RECORD, StudyFolder
from auber.study.plan import Selection, Study, read_study


def know_rows(study: Study, folder: StudyFolder, selection: Selection) -> Study:
    """The study with the digests of the rows of its own that a call computes with, or that its record does not know yet."""
    if not study.own:
        return study
    record = folder.path / RECORD
    recorded = read_study(record).own if record.is_file() else {}
    wanted = {name for name in study.own if name not in recorded or recorded[name].rows is None}
    wanted |= {block.task for block in selection.blocks if folder.pending(study, block, selection.runs(study, block))}
    known = {
        name: replace(own, rows=study.load_task(name).content_hash) if name in wanted else own
        for name, own in study.own.items()
    }
    return replace(study, own=known)
