"""Every block of every page runs, in the order of the page, in a folder of its own.

Commands run in this process, because starting Python and importing torch for each would take most
of the time. Searches are shortened.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from auber.cli import main
from auber.config import PRESETS
from tests.docs.blocks import ROOT, Block, blocks_of, pages
from tests.docs.standins import Scene

# The Trainer warns on a machine without a GPU.
pytestmark = [
    pytest.mark.docs,
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]

_SLOWEST = "studies.md"  # runs first, so that parallel processes finish together
WITH_CODE = sorted(
    (page for page in reversed(pages()) if blocks_of(page)), key=lambda page: page.name != _SLOWEST
)
_EPISODES = 60  # of 150: enough for the first update, which needs 128 actions
_CROSSFIT = {"reward.folds": 2, "voita.epochs": 1}  # of 5 and 3
# Without trials of the rate; and a tuning of seconds teaches nothing.
_FIRST = {"first.learning_rate": 2e-5, "first.require_learned": False}
_READ_ONCE = ("RAY_AUTH_", "RAY_ENABLE_", "RAY_USAGE_")  # Ray reads them at its import only


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files of a checkout that pages mention."""
    for name in ("docs", "results", "studies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


@pytest.fixture(autouse=True)
def _shorter_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, preset in PRESETS.items():
        by_protocol = {key: values | _CROSSFIT for key, values in preset.per_protocol.items()}
        settings = {**preset.settings, "agent.episodes": _EPISODES, **_FIRST}
        shorter = replace(preset, settings=settings, per_protocol=by_protocol)
        monkeypatch.setitem(PRESETS, name, shorter)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    run(blocks_of(page), folder, monkeypatch)


def run(blocks: Iterable[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a page, each with what the previous ones left."""
    with ExitStack() as stack:
        scene = Scene(folder, monkeypatch, stack)
        for block in blocks:
            if not block.is_run:
                continue
            for name in block.stand_ins:
                scene.make(name)
            if block.language == "python":
                code = "\n" * (block.line - 1) + block.code  # tracebacks then name the page's line
                exec(compile(code, block.where, "exec"), scene.names)
            else:
                for words in block.commands():
                    code = _exit_code(words, monkeypatch)
                    assert code == 0, f"{block.where}: auber {' '.join(words)}"


def _exit_code(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int | str:
    arguments = [part for word in words for part in _expand(word)]
    monkeypatch.setattr(sys, "argv", ["auber", *arguments])
    environment, threads = dict(os.environ), torch.get_num_threads()
    try:
        main()
    except SystemExit as stop:
        return stop.code or 0
    finally:
        kept = {name: value for name, value in os.environ.items() if name.startswith(_READ_ONCE)}
        os.environ.clear()
        os.environ.update(environment | kept)
        torch.set_num_threads(threads)
    return 0


def _expand(word: str) -> list[str]:
    """Return the files that match a pattern, or the word itself."""
    return (sorted(map(str, Path().glob(word))) if "*" in word else []) or [word]
