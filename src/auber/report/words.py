"""Phrases that several parts of a report share."""

from __future__ import annotations

import re

from auber.report.records import Origin, RunRecord


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def slug(*parts: str) -> str:
    """Return a name for a file or an anchor that has only small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")[:60] or "unnamed"


def method_of(record: RunRecord) -> str:
    """Return the name of a run's method."""
    return "Fine-tuned start" if record.is_start else record.method


def commit_of(origin: Origin) -> str:
    """Return the short commit."""
    if origin.commit is None:
        return "none recorded"
    return origin.commit[:12] + (" with changes" if origin.commit.endswith("+") else "")


def device_of(origin: Origin) -> str:
    """Return device, precision and threads."""
    return f"{origin.device}, {origin.precision}, {count(origin.threads, 'CPU thread')}"


def versions_of(origin: Origin) -> str:
    """Return the versions of the packages."""
    return ", ".join(f"{name} {version}" for name, version in origin.versions.items())
