"""Which rows a study is of, where they are rows of your own: their name says nothing of what stands in their files.

The digest of a task's rows goes into the study's record when the task is asked for first, and every later call is compared with
it: a study that is complete for other rows is not complete for these. Rows that nothing is left to be computed with may be gone
by then. Who only looks at a study reads no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from auber.data.task import describe_duplicates
from auber.study.folder import RECORD, StudyFolder
from auber.study.plan import Selection, Study, read_study


def know_rows(
    study: Study, folder: StudyFolder, selection: Selection, say: Callable[[str], None]
) -> Study:
    """The study with the digests of the rows of its own that a call computes with, that its record does not know yet, or that are there.

    What is doubtful about those to compute with is said once, whoever does.
    """
    if not study.own:
        return study
    record = folder.path / RECORD
    recorded = read_study(record).own if record.is_file() else {}
    wanted = {name for name in study.own if name not in recorded or recorded[name].rows is None}
    wanted |= {
        block.task
        for block in selection.blocks
        if folder.pending(study, block, selection.runs(study, block))
    }
    known = dict(study.own)
    for name, own in study.own.items():
        if name in wanted or own.is_there:
            task = study.load_task(name)
            for doubt in describe_duplicates(task) if name in wanted else ():
                say(f"{name}: {doubt}")
            known[name] = replace(own, rows=task.content_hash)
    return replace(study, own=known)
