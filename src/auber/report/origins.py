"""Where numbers come from: commands, commits, devices and versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from auber.report.record import Origin, RunRecord


def by_origin(records: Iterable[RunRecord]) -> list[tuple[tuple[str, str, str], list[RunRecord]]]:
    """The records by command, commit and device, in the order of the words."""
    groups: dict[tuple[str, str, str], list[RunRecord]] = defaultdict(list)
    for record in records:
        origin = record.origin
        groups[
            origin.command or "started from Python", commit_words(origin), device_words(origin)
        ].append(record)
    return sorted(groups.items())


def commit_words(origin: Origin) -> str:
    """The commit as one looks it up."""
    if origin.commit is None:
        return "none recorded"
    changed = origin.commit.endswith("+")
    return origin.commit.removesuffix("+")[:12] + (" with changes" if changed else "")


def device_words(origin: Origin) -> str:
    """Device, precision and threads."""
    return f"{origin.device}, {origin.precision}, {origin.threads} CPU thread{'s' * (origin.threads != 1)}"


def versions_of(records: Iterable[RunRecord]) -> list[str]:
    """The packages' versions, each set of them once."""
    found = {tuple(record.origin.versions.items()) for record in records}
    return [
        ", ".join(f"{name} {version}" for name, version in versions) for versions in sorted(found)
    ]
