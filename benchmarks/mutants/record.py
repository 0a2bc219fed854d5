"""The mutants of a draw, each with what its tests found."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import Any, Literal

import pandas

from auber.system.records import Count, Name, Number, Record

Verdict = Literal["killed", "survived", "timeout"]


class Mutant(Record):
    """One mistake in a line, and the first test that failed.

    `rank` identifies it in the draw, and `reason` says why a survivor may live.
    """

    file: Name
    line: Count
    kind: Name
    source: Name
    change: Name
    rank: Name
    verdict: Verdict
    seconds: Number
    by: Name | None = None
    reason: Name | None = None


class Mutants(Record):
    """All mutants, the digests of the modules that they were made of, and the seconds of tests."""

    command: str
    provenance: dict[str, Any]
    seed: Count
    modules: dict[str, Name]
    tests: dict[str, Number]
    mutants: list[Mutant]


def count_mutants(found: Mutants) -> pandas.DataFrame:
    """Return the number of mutants and the share of killed ones by package."""
    drawn, killed = Counter[str](), Counter[str]()
    for mutant in found.mutants:
        for name in (PurePath(mutant.file).parts[2], "all"):
            drawn[name] += 1
            killed[name] += mutant.verdict != "survived"
    return pandas.DataFrame(
        [
            {
                "package": name,
                "mutants": drawn[name],
                "killed": killed[name],
                "percent": f"{100 * killed[name] / drawn[name]:.1f}",
            }
            for name in sorted(drawn, key=lambda name: (name == "all", name))
        ]
    )


def list_survivors(found: Mutants) -> pandas.DataFrame:
    """Return the survivors, each with the reason why no test can or need fail."""
    return pandas.DataFrame(
        [
            {
                "place": f"{mutant.file.removeprefix('src/auber/')}:{mutant.line}",
                "line": f"`{mutant.source}`".replace("|", "\\|"),
                "change": f"`{mutant.change}`".replace("|", "\\|"),
                "reason": mutant.reason or "none yet",
            }
            for mutant in found.mutants
            if mutant.verdict == "survived"
        ],
        columns=["place", "line", "change", "reason"],
    )
