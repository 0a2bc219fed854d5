"""The page's part on repeating a study, with the paper's model where it fits: the command, and what it should take.

A study of a model of another size is repeated with its own: what suits the one need not suit the other.

The time of a whole study is that of its runs, each taken for as long as the recorded ones of its method on its task. For
other GPUs it is scaled: seconds of the agent, which computes on the CPU, stay; all others grow with the ratio of the makers'
figures for dense bfloat16 products. That is arithmetic and no measurement, and the page says so.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from auber.report import published
from auber.report.folders import Source
from auber.report.markdown import escape, render_row
from auber.report.record import RunRecord
from auber.report.results_file import ResultsFile, runs_of
from auber.study import Study
from auber.study.estimate import Clock
from auber.system.progress import describe_seconds

# Dense bfloat16 products in TFLOP/s, as their makers give them (of an H100 the SXM form).
GPUS = {
    "H200": 989,
    "H100": 989,
    "L40S": 362,
    "A100": 312,
    "RTX 4090": 165,
    "A10": 125,
    "L4": 121,
    "RTX 3090": 71,
}
_LAYERS, _HEADS = 12, 12  # of the paper's model

_INTRODUCTION = f"""\
## How to repeat it

Where the hub can be reached, one command does it: the same study file, with {published.MODEL} where the recorded model has its size,
else with the study's own. It fetches the model and GLUE, can be stopped and started again, and `auber report` of its folder makes
the same tables. Where a note above says that runs shared a device, their seconds are longer than alone, and the estimate is as well.
"""


def render_repeating(files: Sequence[ResultsFile]) -> str:
    """For each file of a study the command and the estimate."""
    sources = [runs_of(file) for file in files]
    parts = [_study(source, study) for source in sources for study in source.studies.values()]
    return "\n".join([_INTRODUCTION, *parts])


def _study(source: Source, study: Study) -> str:
    device, records = _most_used(source.records)
    sizes = {(record.layers, record.heads) for record in records}
    swapped = sizes == {(_LAYERS, _HEADS)}
    lines = [f"From {escape(source.name)}:", "", f"    {_command(source, swapped)}", ""]
    if swapped:
        words = "The tokenizer is another, so that rows are a little longer or shorter."
    else:
        found = ", ".join(f"{layers} layers of {heads} heads" for layers, heads in sorted(sizes))
        words = f"With the study's own model: it has {found}, and its settings were chosen for it."
    if study.own:
        words += f" The rows of {', '.join(study.own)} are not fetched: the study's file names their files."
    return (
        "\n".join([*lines, *_estimate(device, records, study, words), "", _memory(source.records)])
        + "\n"
    )


def _command(source: Source, swapped: bool) -> str:
    """The study's command, for the paper's model or its own; the file is the one the recorded commands name."""
    named = Counter(
        file
        for record in source.records
        if (file := _study_file(record.origin.command)) is not None
    )
    file = min(named, key=lambda name: (-named[name], name)) if named else "STUDY.TOML"
    model = ["--model", published.MODEL] if swapped else []
    return shlex.join(["auber", "study", file, *model, "--out", f"runs/{Path(file).stem}"])


def _study_file(command: str | None) -> str | None:
    words = shlex.split(command or "")[1:3]
    return words[1] if len(words) == 2 and words[0] == "study" else None


def _estimate(device: str, records: Sequence[RunRecord], study: Study, words: str) -> list[str]:
    agent, rest = Clock(), Clock()
    for record in records:
        method = None if record.is_start else record.method
        on_cpu = record.times.get("agent", 0.0)
        agent.add(record.task, method, on_cpu)
        rest.add(record.task, method, record.seconds - on_cpu)
    runs = [(block, run) for block in study.blocks() for run in study.runs(block)]
    cpu, gpu = agent.estimate(runs), rest.estimate(runs)
    lines = [
        f"Estimated from the {len(records)} runs and starts on {escape(device)}, a run taken for the mean of its method on its task "
        f"(else on any task): {cpu.open - cpu.unknown} of {cpu.open} runs, one after the other. {words}"
    ]
    if cpu.unknown:
        lines[0] += f" {cpu.unknown} runs are of a method that is not recorded and are not in it."
    rate = _rate(device)
    if rate is None:
        return [
            *lines,
            "",
            f"On {escape(device)}: {describe_seconds(cpu.seconds + gpu.seconds)}. Other devices are not estimated from it.",
        ]
    lines[0] += (
        " Other GPUs: the agent's seconds as they are, all others by the ratio of the makers' dense bfloat16 rates. Nothing was "
        "measured there; tuning steps are bound by launches on a large GPU, so a smaller one loses less than that."
    )
    lines += ["", render_row(["GPU", "TFLOP/s", "time"]), "| --- | --: | --: |"]
    for name, other in GPUS.items():
        note = " (recorded here)" if name == _name(device) else ""
        lines.append(
            render_row(
                [
                    name + note,
                    str(other),
                    describe_seconds(cpu.seconds + gpu.seconds * rate / other),
                ]
            )
        )
    return lines


def _most_used(records: Sequence[RunRecord]) -> tuple[str, list[RunRecord]]:
    """The device most runs were made on, and those runs: times of different devices are not mixed."""
    counts = Counter(record.origin.device for record in records)
    device = min(counts, key=lambda name: (-counts[name], name))
    return device, [record for record in records if record.origin.device == device]


def _name(device: str) -> str | None:
    return next((name for name in GPUS if re.search(rf"\b{name}\b", device)), None)


def _rate(device: str) -> int | None:
    name = _name(device)
    return None if name is None else GPUS[name]


def _memory(records: Sequence[RunRecord]) -> str:
    peaks = [record.peak_gpu_bytes for record in records if record.peak_gpu_bytes is not None]
    if not peaks:
        return "GPU memory: not recorded."
    return f"GPU memory: the largest of {len(peaks)} recorded runs held {max(peaks) / 2**30:.1f} GiB at its peak."
