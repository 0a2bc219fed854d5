"""The code of the pages compiles and names only commands and options that exist."""

from __future__ import annotations

import pytest
import typer

from auber.cli import app
from tests.docs.blocks import GENERATED, ROOT, Block, blocks_of, pages

BLOCKS = [block for page in pages() for block in blocks_of(page)]
RECORDS = [block for name in GENERATED for block in blocks_of(ROOT / "docs" / name)]


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
