"""What the pages' code must be before any of it is run: parsed as meant, marked with reasons, callable as written."""

from __future__ import annotations

import re

import pytest
import typer

from auber.cli import app
from tests.docs.blocks import GENERATED, ROOT, Block, blocks_of, pages, parse
from tests.docs.standins import NAMES

BLOCKS = [block for page in pages() for block in blocks_of(page)]
RECORDS = [block for name in GENERATED for block in blocks_of(ROOT / "docs" / name)]

PAGE = """# A page

Words.

    make test          # another program
    auber tasks        # a comment
    RAY_ADDRESS=x:1 auber study a.toml \\
        --out runs/a

<!-- not run: needs the hub -->

```python
import auber
```

<!-- stand-ins: DIR, model -->
```bash
$ auber models
```

```toml
auber = 1
```

Text, and a list:

- an item
    auber tasks is a word of its second line
"""


def test_a_page_is_parsed():
    console, python, fenced = parse("page.md", PAGE)
    assert (console.where, console.language, console.not_run) == ("page.md:5", "console", None)
    assert console.commands() == [["tasks"], ["study", "a.toml", "--out", "runs/a"]]
    assert (python.where, python.language, python.not_run) == ("page.md:13", "python", "needs the hub")
    assert python.code == "import auber\n"
    assert (fenced.commands(), fenced.stand_ins, fenced.not_run) == ([["models"]], ("DIR", "model"), None)


def test_every_mark_is_one_that_is_understood():
    for page in pages():
        for comment in re.findall(r"<!--.*?-->", page.read_text(), flags=re.DOTALL):
            # the other two enclose what a test writes into a page
            assert re.match(r"<!-- (not run: |stand-ins: |figures: |end of figures )", comment), (
                f"{page.name}: {comment}"
            )
        marks = re.findall(r"^<!-- (?:not run|stand-ins): ", page.read_text(), flags=re.MULTILINE)
        held = sum((block.not_run is not None) + bool(block.stand_ins) for block in blocks_of(page))
        assert len(marks) == held, f"{page.name}: a mark must stand right above a block of Python or of auber commands"


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.not_run is not None], ids=lambda block: block.where
)
def test_what_is_not_run_has_a_reason(block: Block):
    assert re.match(r"(needs|takes|shows|prints) \w+", block.not_run), "say what it needs, takes or shows"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.stand_ins], ids=lambda block: block.where)
def test_stand_ins_are_known_and_used(block: Block):
    assert set(block.stand_ins) <= NAMES
    for name in block.stand_ins:
        assert name in block.code, f"{name} is not in the block"


def test_most_blocks_are_run():
    run = [block for block in BLOCKS if block.not_run is None]
    assert len(run) / len(BLOCKS) >= 0.9, f"{len(run)} of {len(BLOCKS)} blocks are run"


@pytest.mark.parametrize("block", [*BLOCKS, *RECORDS], ids=lambda block: block.where)
def test_what_is_written_can_be_called(block: Block):
    """Also where it is not run: Python compiles, commands and their options are there."""
    if block.language == "python":
        compile(block.code, block.where, "exec")
        return
    group = typer.main.get_command(app)
    for name, *arguments in block.commands():
        if name.startswith("-"):
            continue
        assert name in group.commands, f"auber {name} is no command"
        command = group.commands[name]
        context = command.context_class(command, info_name=name)
        command.make_parser(context).parse_args(list(arguments))  # raises on an option that is not there
