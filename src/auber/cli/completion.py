"""What the shell offers behind an option: `auber --install-completion` switches it on.

Each function takes what has been typed of a value and returns (value, help) pairs. They run at every press of the key, so
they read tables that are there without torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from auber.config import PRESETS, settings

Offer = list[tuple[str, str]]


def tasks(incomplete: str) -> Offer:
    """Tasks of --task."""
    from auber.data import TASKS

    return _beginning(incomplete, ((name, task.doc) for name, task in TASKS.items()))


def methods(incomplete: str) -> Offer:
    """Methods of --method."""
    from auber.search.registry import METHODS

    return _beginning(incomplete, ((name, method.doc) for name, method in METHODS.items()))


def presets(incomplete: str) -> Offer:
    """Presets of --preset."""
    return _beginning(incomplete, ((name, preset.doc) for name, preset in PRESETS.items()))


def assignments(incomplete: str) -> Offer:
    """Settings of --set: the key first, then the values of those that have a choice."""
    key, equals, _ = incomplete.partition("=")
    if not equals:
        return _beginning(incomplete, ((f"{info.key}=", info.doc) for info in settings()))
    found = [info for info in settings() if info.key == key]
    values = [
        value
        for info in found
        for value in info.choices or (("true", "false") if info.kind is bool else ())
    ]
    return _beginning(incomplete, ((f"{key}={value}", "") for value in values))


def protocols(incomplete: str) -> Offer:
    """Protocols of --protocol."""
    (info,) = [info for info in settings() if info.key == "protocol"]
    return _beginning(incomplete, ((value, "") for value in info.choices or ()))


def targets(incomplete: str) -> Offer:
    """Forms of --to."""
    from auber.export import TARGETS

    return _beginning(incomplete, ((name, target.doc) for name, target in TARGETS.items()))


def trackers(incomplete: str) -> Offer:
    """Trackers of --track."""
    from auber.run.trackers import TRACKERS

    return _beginning(incomplete, ((name, "") for name in TRACKERS))


def _beginning(incomplete: str, offered: Iterable[tuple[str, str]]) -> Offer:
    return [(value, words) for value, words in offered if value.startswith(incomplete)]
