"""The code of the pages is parsed as intended, and names only commands and options that exist."""

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

    make test          # another program
    auber doctor       # a comment
    RAY_ADDRESS=x:1 auber study a.toml \\
        --out runs/a
    ray exec cluster.yaml 'X=1 auber report runs/a'

```python
import auber
```

<!-- stand-ins: DIR, model -->
```bash
$ auber doctor
```

<!-- not run -->

    srun auber doctor
    auber doctor

```toml
auber = 1
```

- an item
    auber doctor is text of its second line
"""


def test_a_page_is_parsed():
    console, python, fenced, job = parse("page.md", PAGE)
    assert (console.where, console.language, console.stand_ins) == ("page.md:3", "console", ())
    assert console.commands() == [
        ["doctor"],
        ["study", "a.toml", "--out", "runs/a"],
        ["report", "runs/a"],
    ]
    assert (python.where, python.code) == ("page.md:10", "import auber\n")
    assert (fenced.commands(), fenced.stand_ins) == ([["doctor"]], ("DIR", "model"))
    assert [block.is_run for block in (console, python, fenced, job)] == [True, True, True, False]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_comment_is_a_mark_above_a_block(page):
    comments = re.findall(r"<!--.*?-->", page.read_text(), flags=re.DOTALL)
    marks = [each for each in comments if re.match("<!-- (stand-ins: |not run -->)", each)]
    others = [each for each in comments if each not in marks]
    assert all(re.match(r"<!-- (figures: |end of figures )", each) for each in others)
    assert len(marks) == sum(bool(block.stand_ins) or not block.is_run for block in blocks_of(page))


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if each.stand_ins], ids=lambda b: b.where
)
def test_stand_ins_are_known_and_used(block: Block):
    assert set(block.stand_ins) <= NAMES
    assert [name for name in block.stand_ins if name not in block.code] == []


@pytest.mark.parametrize("block", [*BLOCKS, *RECORDS], ids=lambda block: block.where)
def test_code_compiles_and_commands_exist(block: Block):
    if block.language == "python":
        compile(block.code, block.where, "exec")
        return
    for name, *arguments in block.commands():
        if name.startswith("-"):
            continue
        command = typer.main.get_command(app).commands[name]
        context = command.context_class(command, info_name=name)
        command.make_parser(context).parse_args(list(arguments))  # raises for an unknown option
