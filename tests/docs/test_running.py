"""Every block of every page runs, in the order of the page, in a folder of its own.

Commands run in this process: to start Python and torch for each of them would take most of the time. Those of a block that
needs several machines are run by a shell. A search that is not told how long to go on goes on for fewer episodes than a
reader's would, though for enough to learn.
"""

from __future__ import annotations

import functools
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
from tests.docs import machines
from tests.docs.blocks import ROOT, Block, blocks_of, pages, parse
from tests.docs.standins import Scene, check_shared, fill_shared, put_studies, seeds_for

# A Trainer with its defaults, as readers have it, says on a machine without a GPU that it has none.
pytestmark = [
    pytest.mark.docs,
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]

# The page that takes longest first, and those that take long last: several processes then come to their ends together.
_LONGEST = "studies.md"
WITH_CODE = sorted(
    (page for page in reversed(pages()) if blocks_of(page)), key=lambda page: page.name != _LONGEST
)

_EPISODES = (
    60  # of 150; the first update is made after 128 actions, which small layers have taken by then
)
_CROSSFIT = {"reward.folds": 2, "voita.epochs": 1}  # of 5 scouts and 3 passes for the gates

_READ_ONCE = ("RAY_AUTH_", "RAY_ENABLE_", "RAY_USAGE_")  # what auber.system.cluster sets for Ray


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a checkout has beside the code."""
    for name in ("docs", "results", "studies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


@pytest.fixture(autouse=True)
def _shorter_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, preset in PRESETS.items():
        by_protocol = {
            protocol: settings | _CROSSFIT for protocol, settings in preset.per_protocol.items()
        }
        settings = {**preset.settings, "agent.episodes": _EPISODES}
        monkeypatch.setitem(
            PRESETS, name, replace(preset, settings=settings, per_protocol=by_protocol)
        )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    run(blocks_of(page), folder, monkeypatch)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("    auber report nowhere\n", "page.md:1: auber report nowhere"),
        ("    ray exec cluster.yaml 'auber report nowhere'\n", "page.md:1: auber report nowhere"),
        ("<!-- stand-ins: ray -->\n\n    ray no-such-command\n    auber --version\n", "page.md:3: .* ended with 2"),
        ("<!-- stand-ins: #SBATCH -->\n\n    #!/bin/bash\n    #SBATCH --array=0-2\n    auber --version; exit $SLURM_ARRAY_TASK_ID\n", "page.md:3: .* ended with 2"),
        ("```python\nassert False, 'not so'\n```\n", "not so"),
    ],
    ids=["a command", "a command given to a program", "a program", "a job", "Python"],
)  # fmt: skip
def test_what_cannot_be_run_fails(
    text: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(AssertionError, match=message):
        run(parse("page.md", text), folder, monkeypatch)


def run(blocks: Iterable[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks of a page, each with what the ones before it left."""
    with ExitStack() as stack:
        scene = Scene(folder, monkeypatch, stack)
        for block in blocks:
            for name in block.stand_ins:
                scene.make(name)
            if machines.is_for_machines(block):
                put_studies(block, folder)
                machines.run(
                    block,
                    folder,
                    fill_shared,
                    functools.partial(check_shared, seeds=seeds_for(block)),
                )
            elif block.language == "python":
                exec(compile(_placed(block), block.where, "exec"), scene.names)
            else:
                for words in block.commands():
                    assert _exit_code(words, monkeypatch) == 0, (
                        f"{block.where}: auber {' '.join(words)}"
                    )


def _placed(block: Block) -> str:
    """The code with as many empty lines before it that a traceback names the line of the page."""
    return "\n" * (block.line - 1) + block.code


def _exit_code(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int | str:
    monkeypatch.setattr(
        sys, "argv", ["auber", *(part for word in words for part in _expanded(word))]
    )
    kept, threads = (
        dict(os.environ),
        torch.get_num_threads(),
    )  # what a process of its own would take with it
    try:
        main()
    except SystemExit as stop:
        return stop.code or 0
    finally:
        # Ray, once imported, goes by what it has read: a second cluster of this process needs the same token.
        of_ray = {name: value for name, value in os.environ.items() if name.startswith(_READ_ONCE)}
        os.environ.clear()
        os.environ.update(kept | of_ray)
        torch.set_num_threads(threads)
    return 0


def _expanded(word: str) -> list[str]:
    """What a shell makes of a pattern: the files, or the word itself where there are none."""
    return (sorted(map(str, Path().glob(word))) if "*" in word else []) or [word]
