"""The code of a page: its `python` blocks, and the console blocks that call `auber`, each with the mark that stands before it.

The mark is an HTML comment on the line above a block (blank lines between them do not count):

    <!-- stand-ins: DIR, GLUE_DIR -->         these names of the block are made by tests/docs/standins.py first

A console block is an indented or fenced one. Its lines that call `auber`, or hand such a call to another program, are
commands; what else the other programs on it do (pip, make) is looked at where the mark names a program, see machines.py.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Written by commands and compared with what these write by other tests; their command lines are records of what was run.
GENERATED = (
    "encoders.md",
    "experiments.md",
    "performance.md",
    "performance-notes.md",
    "results.md",
    "settings.md",
)

_FENCE = re.compile(r"^```(\w*)")
_MARK = re.compile(r"^<!-- stand-ins:(.*)-->$")
_LANGUAGES = {
    "python": "python",
    "": "console",
    "bash": "console",
    "console": "console",
    "sh": "console",
}


@dataclass(frozen=True)
class Block:
    """Code that a reader may copy."""

    page: str
    line: int  # of its first line, counted from 1
    language: str  # python or console
    code: str
    stand_ins: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The place, as an editor understands it."""
        return f"{self.page}:{self.line}"

    def commands(self) -> list[list[str]]:
        """The words of each call of auber, without the `auber`; a backslash joins lines."""
        return [
            words for line in self.code.replace("\\\n", " ").splitlines() for words in _calls(line)
        ]


def pages() -> list[Path]:
    """Every page that is written by hand."""
    docs = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs]


def blocks_of(path: Path) -> list[Block]:
    """The blocks of a page that hold Python or call auber, in order."""
    return list(parse(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")))


def parse(page: str, text: str) -> Iterator[Block]:
    """The blocks of a text; a mark holds for what stands next below it."""
    lines = text.splitlines()
    stand_ins: tuple[str, ...] = ()
    at = 0
    while at < len(lines):
        if mark := _MARK.match(lines[at]):
            stand_ins = tuple(name.strip() for name in mark[1].split(","))
            at += 1
            continue
        if not lines[at].strip():
            at += 1
            continue
        language, first, end, at = _code_at(lines, at)
        code = textwrap.dedent("\n".join(lines[first:end])).rstrip() + "\n"
        block = Block(page, first + 1, language, code, stand_ins)
        if language == "python" or (language == "console" and block.commands()):
            yield block
        stand_ins = ()


def _calls(line: str) -> Iterator[list[str]]:
    """The calls of auber in a line: its own, or one in quotes that another program is given."""
    if "auber" not in line:  # not every indented line is one that a shell would take
        return
    words = shlex.split(line.strip().removeprefix("$ "), comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    if words and words[0] == "auber":
        yield words[1:]
    else:
        for word in words:
            if "auber " in word:
                yield from _calls(word)


def _code_at(lines: list[str], at: int) -> tuple[str, int, int, int]:
    """What begins at a line: its language (empty for prose), its first line, the one behind its last, and where to go on."""
    end = at + 1
    if fence := _FENCE.match(lines[at]):
        while not lines[end].startswith("```"):
            end += 1
        return _LANGUAGES.get(fence[1], ""), at + 1, end, end + 1
    # Indented lines right below a line of text go on with its paragraph.
    if not lines[at].startswith("    ") or (at > 0 and lines[at - 1].strip()):
        return "", at, at, end
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    return "console", at, end, end
