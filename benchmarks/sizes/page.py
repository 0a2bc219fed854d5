"""The generated part of docs/results.md: the headline, the figures and the table of answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import pandas

from auber.export.speed import Speed
from auber.metrics.statistics import summary
from auber.report.figures import UNPRUNED, Point, draw_sizes
from benchmarks.common import describe_origin, markdown
from benchmarks.sizes.answers import answer, differences, format_estimate, pool
from benchmarks.sizes.plan import CONTROL, Plan, Question
from benchmarks.sizes.record import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = {
    "sizes-work.svg": "Score against multiply-adds",
    "sizes-latency.svg": "Score against measured latency",
}
_RUNTIME = ("onnxruntime", 1, 128)  # of the latency: one row of so many tokens
_LATENCY = "latency of one row of 128 tokens, % (onnxruntime, CPU)"
_UNMEASURED = (
    "**Not measured yet.** The plan below was fixed before the first run. What has not been "
    "measured is empty.\n"
)


def render(models: Sequence[Model], speeds: Mapping[str, Speed], plan: Plan) -> str:
    """Return the generated part as Markdown."""
    lines = [_headline(models, plan)]
    lines += [f"![{title}]({name})" for name, title in FIGURES.items()]
    rows = [each._asdict() for each in answer(models, plan)]
    table = pandas.DataFrame(rows).rename(
        columns={"words": "answer", "interval": "points (95 % interval)", "pairs": "pairs"}
    )
    lines += ["", markdown(table)]
    if models:
        lines += ["### Measurements", "", *_origins(models), ""]
    lines += [f"- `results/sizes/{name}`: `{speed.command}`" for name, speed in speeds.items()]
    return "\n".join(lines) + "\n"


def _headline(models: Sequence[Model], plan: Plan) -> str:
    """Return what each size costs."""
    arm = plan.questions[0].arm
    sizes = next(each.sizes for each in plan.arms if each.name == arm)
    asked = Question(name="", text="", arm=arm, against=(), seeds=tuple(_main_seeds(plan)))
    parts, tasks = [], set()
    for keep in sizes:
        by_task = differences(models, asked, keep, CONTROL, plan)
        if estimate := pool(by_task):
            parts.append(f"{format_estimate(estimate)} at {100 * keep:g} %")
            tasks.add(sum(len(values) > 1 for values in by_task.values()))
    if not parts:
        return _UNMEASURED
    return (
        f"**{plan.model} pruned by `{arm}`, change of the dev score from the unpruned model with "
        f"the same tuning, in points (95 % interval): {', '.join(parts)} of the multiply-adds** "
        f"(tasks: {', '.join(map(str, sorted(tasks)))} of {len(plan.tasks)}).\n"
    )


def _main_seeds(plan: Plan) -> set[int]:
    """Return the seeds of the arms that all tasks have."""
    return {seed for arm in plan.arms if not arm.tasks for seed in arm.seeds}


def _origins(models: Sequence[Model]) -> list[str]:
    """Return where the models are from; each names its command in the file."""
    found: dict[str, int] = defaultdict(int)
    for model in models:
        origin = f"{model.provenance['device']}, {describe_origin(model.provenance)}"
        found[origin] += 1
    return [
        f"- `results/studies/sizes.json`: {count} models, each with its command; {origin}"
        for origin, count in sorted(found.items())
    ]


def draw(models: Sequence[Model], speeds: Mapping[str, Speed], plan: Plan) -> dict[str, Figure]:
    """Return the figures by their file's name, with a panel for each task."""
    whole = [model.multiply_adds for model in models if model.arm == CONTROL]
    work = {
        (model.shape, form): 100 * model.multiply_adds / whole[0]
        for model in models
        for form in ("float32", "int8")
        if whole
    }
    axes = ("multiply-adds left, %", _LATENCY)
    return {
        name: draw_sizes(_panels(models, plan, places), axis)
        for name, axis, places in zip(FIGURES, axes, (work, find_latency(speeds)), strict=True)
    }


def find_latency(speeds: Mapping[str, Speed]) -> dict[tuple[str, str], float]:
    """Return latencies in % of the unpruned float32 model of the same file, by shape and form."""
    found = {}
    for speed in speeds.values():
        timings = {
            run.name: timing
            for run in speed.runs
            for timing in run.timings
            if (timing.runtime, timing.batch, timing.length) == _RUNTIME
        }
        if CONTROL not in timings:
            continue
        whole = timings[CONTROL].unpruned.milliseconds
        for name, timing in timings.items():
            for variant in timing.variants:
                form = {"pruned": "float32", "pruned int8": "int8"}.get(variant.name)
                if form is not None:
                    found[name, form] = 100 * variant.times.milliseconds / whole
    return found


def _panels(
    models: Sequence[Model], plan: Plan, places: Mapping[tuple[str, str], float]
) -> dict[str, dict[str, list[Point]]]:
    """Return the lines of each task; int8 graphs have lines of their own."""
    lines: dict[str, dict[tuple[str, str], dict[float, dict[int, list[float]]]]]
    lines = {task: {} for task in plan.tasks}
    seeds = _main_seeds(plan)
    for model in models:
        if model.seed not in seeds or not plan.is_drawn(model.arm):
            continue
        name = UNPRUNED if model.arm == CONTROL else model.arm
        for form, score in (("float32", model.dev), ("int8", model.int8)):
            if score is not None and (model.shape, form) in places:
                line = lines[model.task].setdefault((name, form), {})
                point = line.setdefault(places[model.shape, form], defaultdict(list))
                point[model.seed].append(score)
    return {
        task if of_task else f"{task}: not measured": {
            name if form == "float32" else f"{name}, {form}": [
                _point(place, line[place]) for place in sorted(line)
            ]
            for (name, form), line in of_task.items()
        }
        for task, of_task in lines.items()
    }


def _point(place: float, by_seed: Mapping[int, Sequence[float]]) -> Point:
    found = summary([fmean(values) for values in by_seed.values()])
    return Point(place, found.mean, found.low, found.high)
