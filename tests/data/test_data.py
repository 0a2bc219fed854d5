"""The table of tasks in `auber.data`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from auber.data import TASKS, load_task
from auber.data.generated import make_agreement
from auber.errors import TaskError


def test_the_generated_task_takes_the_seed():
    assert load_task("agreement", seed=2) == make_agreement(seed=2)


def test_glue_is_read_from_a_folder_or_the_hub(tmp_path, monkeypatch):
    (tmp_path / "CoLA").mkdir()
    for split, word in (("train", "They"), ("dev", "We")):
        lines = f"a\t1\t\t{word} sleep.\na\t0\t*\t{word} sleeps."
        (tmp_path / "CoLA" / f"{split}.tsv").write_text(lines)
    task = load_task("cola", data=tmp_path)
    assert (task.dev.first, task.metric) == (("We sleep.", "We sleeps."), TASKS["cola"].metric)
    assert load_task("cola", data=str(tmp_path)) == task
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TaskError, match="cola: reading the hub"):
        load_task("cola")


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


def test_listing_the_tasks_imports_nothing_heavy():
    code = (
        "import sys, auber.data as data; sorted(data.TASKS);"
        "heavy = 'torch', 'transformers', 'datasets', 'pyarrow', 'pandas', 'numpy';"
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
