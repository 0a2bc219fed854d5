"""Extract the code of a page: its `python` blocks and the console blocks that call `auber`.

A comment above a block names the large things that it mentions, of which `standins.py` makes small
ones, or that the block needs several machines and is not run:

    <!-- stand-ins: DIR, GLUE_DIR -->
    <!-- not run -->
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Generated pages; their commands document what was run.
GENERATED = ("encoders.md", "paper.md", "performance.md", "results.md", "settings.md")

_FENCE = re.compile(r"^```(\w*)")
_MARK = re.compile(r"^<!-- (?:stand-ins:(.*)|not run )-->$")
_CONSOLE = ("", "bash", "console", "sh")


@dataclass(frozen=True)
class Block:
    """Code that a reader may copy."""

    page: str
    line: int  # number of its first line
    language: str  # python or console
    code: str
    stand_ins: tuple[str, ...] = ()
    is_run: bool = True

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[list[str]]:
        """Return the arguments of each call of auber; a backslash joins lines."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for line in lines for words in _calls(line)]


def pages() -> list[Path]:
    """Return every page that is written by hand."""
    docs = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs]


def blocks_of(path: Path) -> list[Block]:
    """Return the blocks of a page that hold Python or call auber, in order."""
    return list(parse(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")))


def parse(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of a text; a mark applies to the next block."""
    lines = text.splitlines()
    mark, at = None, 0
    while at < len(lines):
        if found := _MARK.match(lines[at]):
            mark = found
            at += 1
        elif not lines[at].strip():
            at += 1
        else:
            language, first, end, at = _code_at(lines, at)
            code = textwrap.dedent("\n".join(lines[first:end])).rstrip() + "\n"
            names = tuple(name.strip() for name in mark[1].split(",")) if mark and mark[1] else ()
            is_run = mark is None or mark[1] is not None
            block = Block(page, first + 1, language, code, names, is_run)
            if language == "python" or (language == "console" and block.commands()):
                yield block
            mark = None


def _calls(line: str) -> Iterator[list[str]]:
    """Yield the calls of auber in a line, also quoted ones that another program is given."""
    if "auber" not in line:
        return
    words = shlex.split(line.strip().removeprefix("$ "), comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        del words[0]
    if words and words[0] == "auber":
        yield words[1:]
        return
    for word in words:
        if "auber " in word:
            yield from _calls(word)


def _code_at(lines: list[str], at: int) -> tuple[str, int, int, int]:
    """Return language ('' for prose), first line, end and next line of what starts at a line."""
    end = at + 1
    if fence := _FENCE.match(lines[at]):
        while not lines[end].startswith("```"):
            end += 1
        language = "console" if fence[1] in _CONSOLE else fence[1]
        return language, at + 1, end, end + 1
    # Indented lines directly below a line of text belong to its paragraph.
    if not lines[at].startswith("    ") or (at > 0 and lines[at - 1].strip()):
        return "", at, at, end
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    return "console", at, end, end
