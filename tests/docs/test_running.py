"""Every block of every page runs, in the order of the page, in a folder of its own; what is not run says why.

Commands run in this process: to start Python and torch for each of them would take most of the time.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from auber.cli import main
from tests.docs import standins
from tests.docs.blocks import ROOT, Block, blocks_of, pages

# A Trainer with its defaults, as readers have it, says on a machine without a GPU that it has none.
pytestmark = [pytest.mark.docs, pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")]

WITH_CODE = [page for page in pages() if any(block.not_run is None for block in blocks_of(page))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a checkout has beside the code."""
    for name in ("docs", "results", "studies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    names: dict[str, Any] = {"__name__": "__main__"}
    made: set[str] = set()
    for block in blocks_of(page):
        if block.not_run is not None:
            continue
        for name in block.stand_ins:
            if name not in made:
                standins.make(name, folder, names, monkeypatch)
                made.add(name)
        if block.language == "python":
            exec(compile(_placed(block), block.where, "exec"), names)
        else:
            for words in block.commands():
                assert _exit_code(words, monkeypatch) == 0, f"{block.where}: auber {' '.join(words)}"


def _placed(block: Block) -> str:
    """The code with as many empty lines before it that a traceback names the line of the page."""
    return "\n" * (block.line - 1) + block.code


def _exit_code(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int | str:
    monkeypatch.setattr(sys, "argv", ["auber", *(part for word in words for part in _expanded(word))])
    kept, threads = dict(os.environ), torch.get_num_threads()  # what a process of its own would take with it
    try:
        main()
    except SystemExit as stop:
        return stop.code or 0
    finally:
        os.environ.clear()
        os.environ.update(kept)
        torch.set_num_threads(threads)
    return 0


def _expanded(word: str) -> list[str]:
    """What a shell makes of a pattern: the files, or the word itself where there are none."""
    return (sorted(map(str, Path().glob(word))) if "*" in word else []) or [word]
