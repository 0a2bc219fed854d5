"""The table of tasks in `auber.data`."""

from __future__ import annotations

import pytest

from auber.data import load_task
from auber.data.generated import make_agreement
from auber.errors import TaskError


def test_the_generated_task_takes_the_seed():
    assert load_task("agreement", seed=2) == make_agreement(seed=2)


def test_wrong_names_and_folders_are_refused(tmp_path):
    known = "Known: agreement, cola, mrpc, rte, wnli"
    with pytest.raises(TaskError, match=rf"^Unknown task 'mprc'. Did you mean 'mrpc'\? {known}$"):
        load_task("mprc")
    with pytest.raises(
        TaskError, match=r"^task: a name or a TaskData is needed, found list; auber"
    ):
        load_task([])
    message = f"^agreement: its rows are generated, found the data folder {tmp_path}; leave --data"
    with pytest.raises(TaskError, match=message):
        load_task("agreement", data=tmp_path)
