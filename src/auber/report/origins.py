"""The page's part on where its numbers come from: the commands, commits, devices and versions, and the time each block took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from auber.report.folders import Source
from auber.report.markdown import escape, render_row
from auber.report.record import Origin, RunRecord
from auber.report.results_file import ResultsFile, runs_of

_INTRODUCTION = """\
## Where the numbers come from

Every number above is computed from the lines of these files: one line a run, with its scores, plan, settings that differ, costs,
command, commit and versions. Seconds are those of the run's own work; starting Python and reading the model are not in them.
`GLUE` in a command stands for the folder of the data.
"""


def render_origins(files: Sequence[ResultsFile]) -> str:
    """For each file its commands and its blocks."""
    return "\n".join([_INTRODUCTION, *(_file(runs_of(file)) for file in files)])


def _file(source: Source) -> str:
    lines = [f"### {escape(source.name)}", ""]
    if source.notes:
        lines += [*(f"- Note: {escape(note)}" for note in source.notes), ""]
    lines += [
        render_row(["command", "commit", "device", "runs", "seconds"]),
        "| --- | --- | --- | --: | --: |",
    ]
    lines += [_command(origin, records) for origin, records in by_origin(source.records)]
    lines += ["", *(f"- {escape(words)}" for words in versions_of(source.records)), ""]
    lines += [render_row(["task", "protocol", "seed", "runs", "seconds", "of them the start"])]
    lines += ["| --- | --- | --: | --: | --: | --: |", *_blocks(source.records), ""]
    total = sum(record.seconds for record in source.records)
    lines.append(f"{len(source.records)} runs and starts, {total:.0f} s in all.")
    return "\n".join(lines) + "\n"


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


def _command(place: tuple[str, str, str], records: Sequence[RunRecord]) -> str:
    seconds = sum(record.seconds for record in records)
    return render_row([*map(escape, place), str(len(records)), f"{seconds:.0f}"])


def versions_of(records: Iterable[RunRecord]) -> list[str]:
    """The packages' versions, each set of them once."""
    found = {tuple(record.origin.versions.items()) for record in records}
    return [
        ", ".join(f"{name} {version}" for name, version in versions) for versions in sorted(found)
    ]


def _blocks(records: Iterable[RunRecord]) -> Iterable[str]:
    blocks: dict[tuple[str, str, int], list[RunRecord]] = defaultdict(list)
    for record in records:
        blocks[record.task, record.protocol, record.seed].append(record)
    for (task, protocol, seed), found in sorted(blocks.items()):
        start = sum(record.seconds for record in found if record.is_start)
        runs = sum(not record.is_start for record in found)
        total = sum(record.seconds for record in found)
        yield render_row(
            [escape(task), escape(protocol), str(seed), str(runs), f"{total:.0f}", f"{start:.0f}"]
        )
