from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from auber.data import TASKS, load_task
from auber.data.generated import make_agreement
from auber.errors import TaskError


def test_names_are_sorted_and_described() -> None:
    assert list(TASKS) == ["agreement", "cola", "mrpc", "rte", "wnli"]
    assert all(name == entry.name and entry.doc for name, entry in TASKS.items())


def test_the_generated_task_takes_the_seed() -> None:
    assert load_task("agreement", seed=2) == make_agreement(seed=2)


def test_a_folder_is_read_and_otherwise_the_hub_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "CoLA").mkdir()
    for split, sentence in (("train", "They"), ("dev", "We")):
        (tmp_path / "CoLA" / f"{split}.tsv").write_text(
            f"a\t1\t\t{sentence} sleep.\na\t0\t*\t{sentence} sleeps."
        )
    assert load_task("cola", data=tmp_path).dev.first == ("We sleep.", "We sleeps.")
    assert load_task("cola", data=str(tmp_path)) == load_task("cola", data=tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TaskError, match="cola: reading the hub"):
        load_task("cola")


def test_an_unknown_task_names_its_neighbour() -> None:
    message = (
        r"^Unknown task 'mprc'\. Did you mean 'mrpc'\? Known: agreement, cola, mrpc, rte, wnli$"
    )
    with pytest.raises(TaskError, match=message):
        load_task("mprc")


def test_a_folder_for_generated_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TaskError,
        match=r"agreement: its rows are generated, found the data folder .*; leave --data out",
    ):
        load_task("agreement", data=tmp_path)


def test_naming_the_tasks_imports_nothing_heavy() -> None:
    code = (
        "import sys, auber.data as t; sorted(t.TASKS);"
        "print([m for m in ('torch', 'transformers', 'datasets', 'pyarrow') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
