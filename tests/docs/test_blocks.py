"""What the pages' code must be before any of it is run: parsed as meant, marked as understood, callable as written."""

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
    ray exec cluster.yaml 'X=1 auber report runs/a'

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
    assert (console.where, console.language, console.stand_ins) == ("page.md:5", "console", ())
    assert console.commands() == [
        ["tasks"],
        ["study", "a.toml", "--out", "runs/a"],
        ["report", "runs/a"],
    ]
    assert (python.where, python.language, python.stand_ins) == ("page.md:12", "python", ())
    assert python.code == "import auber\n"
    assert (fenced.commands(), fenced.stand_ins) == ([["models"]], ("DIR", "model"))


def test_every_mark_is_one_that_is_understood():
    for page in pages():
        text = page.read_text()
        assert not_understood(text) == [], page.name
        marks = re.findall(r"^<!-- stand-ins: ", text, flags=re.MULTILINE)
        held = sum(bool(block.stand_ins) for block in blocks_of(page))
        assert len(marks) == held, (
            f"{page.name}: a mark must stand right above a block of Python or of auber commands"
        )


def not_understood(text: str) -> list[str]:
    """The comments of a page that are no marks; two enclose what a test writes into a page."""
    comments = re.findall(r"<!--.*?-->", text, flags=re.DOTALL)
    return [
        each
        for each in comments
        if not re.match(r"<!-- (stand-ins: |figures: |end of figures )", each)
    ]


def test_no_mark_leaves_a_block_out():
    (block,) = parse(
        "page.md", "<!-- not run: needs a cluster -->\n\n    auber study a.toml --out runs/a\n"
    )
    assert block.commands() == [["study", "a.toml", "--out", "runs/a"]]
    assert not_understood("<!-- not run: needs a cluster -->") == [
        "<!-- not run: needs a cluster -->"
    ]


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.stand_ins], ids=lambda block: block.where
)
def test_stand_ins_are_known_and_used(block: Block):
    assert set(block.stand_ins) <= NAMES
    for name in block.stand_ins:
        assert name in block.code, f"{name} is not in the block"


@pytest.mark.parametrize("block", [*BLOCKS, *RECORDS], ids=lambda block: block.where)
def test_what_is_written_can_be_called(block: Block):
    """Also what is a record and not run: Python compiles, commands and their options are there."""
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
        command.make_parser(context).parse_args(
            list(arguments)
        )  # raises on an option that is not there
