"""Runs as the page sees them: a record, its plan and, where the run's folder is there, what each stage left.

A run out of a results file has no stages and is shown by its record alone. Whatever is missing from a stage is not shown;
whatever is there and of another type is an error that names its file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auber.errors import RunError
from auber.export.charts import MOST_HEADS
from auber.models.plan import PruningPlan
from auber.report.folders import Source, read_folder
from auber.report.record import RunRecord, read_result
from auber.report.results_file import read_results
from auber.run.fields import Fields
from auber.run.files import RESULT, read_json
from auber.run.files import read_result as require_result
from auber.run.search_scores import read_scores
from auber.search.stages import BUDGET, PLAN, is_layer_stage, layer_of, tuning_stage

# What ranking methods call the numbers they rank heads by, in their record.
_RANKINGS = ("importance", "confidence", "gates")


@dataclass(frozen=True)
class Search:
    """How a layer was searched; scores are the metric on the reward set."""

    seconds: float
    rewards_asked: int
    rewards_computed: int
    begun: float | None  # of what it began from: the unpruned layer, or what a plan leaves of it
    chosen: float | None  # of the heads that were removed; None where the record does not say
    best: float | None  # of the mask seen that is worth most, the cost of its changes taken off
    best_mask: tuple[int, ...]
    curve: tuple[
        tuple[int, float], ...
    ]  # (different masks scored, best score so far) at each improvement
    state: Mapping[int, float]  # by head; empty where the method has none
    values: Mapping[int, float]  # of removing a head first, by head, in points; likewise
    stop_value: float | None
    given: tuple[int, ...]  # the heads that the plan it began from removes
    change_cost: float  # points that a head had to gain by which it departs from that plan
    updates: (
        int | None
    )  # that the agent made; None where there is no agent, and where an earlier version did not count

    @property
    def missed(self) -> float | None:
        """How far what was chosen is below the best mask seen; None where either is not recorded."""
        return None if self.best is None or self.chosen is None else self.best - self.chosen


@dataclass(frozen=True)
class Stage:
    """One layer on its way through a run."""

    layer: int
    removed: tuple[int, ...]
    seconds: float
    search: Search | None
    tuning_seconds: float
    tuning_steps: int


@dataclass(frozen=True)
class Ranking:
    """The numbers a ranking method ordered all heads by."""

    name: str
    scores: Mapping[int, Mapping[int, float]]  # by layer, then by head


@dataclass(frozen=True)
class RunView:
    """One finished run."""

    label: str  # what tells it from the runs beside it
    record: RunRecord
    plan: PruningPlan
    stages: tuple[Stage, ...] = ()  # in the order they were gone through
    ranking: Ranking | None = None
    size_was_given: bool = False  # how many heads a search removes; what goes of a layer is then not what it found best

    @property
    def searched(self) -> tuple[tuple[int, Search], ...]:
        """The layers that a method searched, in order."""
        return tuple(
            (stage.layer, stage.search) for stage in self.stages if stage.search is not None
        )

    @property
    def has_prior(self) -> bool:
        """Whether its searches began from a plan that removes heads, and not from the unpruned layers."""
        return any(search.given for _, search in self.searched)

    @property
    def removed_before(self) -> int:
        """Heads that the start had lost already."""
        return (
            self.record.removed - sum(len(stage.removed) for stage in self.stages)
            if self.searched
            else 0
        )


@dataclass(frozen=True)
class StudyView:
    """Many runs, and where they come from."""

    sources: tuple[Source, ...]
    runs: tuple[RunView, ...] = field(repr=False)


def read_runs(folders: Sequence[str | Path]) -> tuple[RunView, ...]:
    """Finished runs, each from its own folder, in the order given."""
    for folder in folders:
        require_result(folder)  # says what to do about a run that is not finished
    names = _labels([Path(folder) for folder in folders])
    return tuple(
        read_run(Path(folder), name, read_result(Path(folder) / RESULT, name))
        for folder, name in zip(folders, names, strict=True)
    )


def read_study(places: Sequence[str | Path]) -> StudyView:
    """The runs below folders and in results files, starts left out."""
    sources, runs = [], []
    for place in map(Path, places):
        source = read_folder(place) if place.is_dir() else read_results(place)
        sources.append(source)
        for record in source.records:
            if not record.is_start:
                folder = place / record.folder if place.is_dir() else None
                runs.append(read_run(folder, record.folder, record))
    runs.sort(key=lambda run: run.record.key)
    return StudyView(tuple(sources), tuple(runs))


def read_run(folder: Path | None, label: str, record: RunRecord) -> RunView:
    """A run with what its stages left; without a folder by its record alone."""
    if not 0 < record.layers * record.heads <= MOST_HEADS:
        raise RunError(
            f"{label}: a model must have from 1 to {MOST_HEADS} heads, found {record.layers} layers of {record.heads}; "
            "it is damaged, make the run again"
        )
    plan = PruningPlan.from_json(dict(record.plan), where=f"{label}: plan")
    plan.check(
        record.layers, record.heads, allow_empty_layers=True
    )  # a start may have lost all heads of a layer
    if folder is None:
        return RunView(label, record, plan)
    stages = {path.stem: path for path in sorted((folder / "stages").glob("*.json"))}
    budget = _budget(stages[BUDGET]) if BUDGET in stages else None
    found = [
        _stage(path, plan, record, budget) for name, path in stages.items() if is_layer_stage(name)
    ]
    found.sort(
        key=lambda stage: stage.layer, reverse=record.config.get("search.order") == "reverse"
    )
    ranking = _ranking(stages[PLAN]) if PLAN in stages else None
    return RunView(label, record, plan, tuple(found), ranking, budget is not None)


def _labels(folders: Sequence[Path]) -> list[str]:
    """The least that tells the folders apart: their last names, with as many above them as are needed."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise RunError(
        "the runs to compare must be different folders, found one of them twice; name each once"
    )


def _budget(path: Path) -> PruningPlan:
    """What goes of each layer, where that was decided when all had been searched."""
    return PruningPlan.from_json(
        Fields(str(path), read_json(path)).get("plan", dict), where=f"{path}: plan"
    )


def _stage(path: Path, plan: PruningPlan, record: RunRecord, budget: PruningPlan | None) -> Stage:
    layer = layer_of(path.stem)
    if layer is None or layer >= record.layers:
        raise RunError(
            f"{path}: must be named layer-NN for a layer below {record.layers}; remove it"
        )
    read = Fields(str(path), read_json(path))
    removed = read.items("removed", int) if budget is None else budget.removed(layer)
    # Where all layers are decided before any is tuned after, that is a stage of its own, at another time.
    later = path.with_name(f"{tuning_stage(layer)}.json")
    tuned = Fields(str(later), read_json(later)) if later.is_file() else read
    return Stage(
        layer,
        removed,
        read.get("seconds", float) + (0.0 if tuned is read else tuned.get("seconds", float)),
        None if read.find("search", dict) is None else _search(read, layer, removed, plan, record),
        tuned.find("tuning.seconds", float) or 0.0,
        tuned.find("tuning.steps", int) or 0,
    )


def _search(
    read: Fields, layer: int, removed: tuple[int, ...], plan: PruningPlan, record: RunRecord
) -> Search:
    # Where a stage does not say it: what the plan has of this layer beyond the stage's own heads was gone before the search began.
    present = list(read.items("search.present", int)) or [
        head for head in range(record.heads) if head in removed or head not in plan.removed(layer)
    ]
    values = read.items("search.q_values", float)
    scores = read_scores(read)
    return Search(
        seconds=read.get("search.seconds", float),
        rewards_asked=read.get("search.rewards_asked", int),
        rewards_computed=read.get("search.rewards_computed", int),
        begun=scores.given,
        chosen=scores.of(removed),
        best=read.find("search.best_score", float),
        best_mask=read.items("search.best", int),
        curve=tuple(_point(read, entry) for entry in read.items("search.curve", list)),
        state=_by_head(read, present, read.items("search.state", float)),
        values=_by_head(read, present, values[:-1]),  # the last is that of stopping
        stop_value=values[-1] if values else None,
        given=read.items("search.given", int),
        change_cost=read.find("search.change_cost", float) or 0.0,
        updates=read.find("search.updates", int),
    )


def _by_head(read: Fields, present: Sequence[int], numbers: Sequence[float]) -> dict[int, float]:
    if numbers and len(numbers) != len(present):
        raise RunError(
            f"{read.where}: must have a number for each of the layer's {len(present)} heads, found {len(numbers)}; "
            "it is damaged, make the run again"
        )
    return dict(zip(present, numbers, strict=bool(numbers)))


def _point(read: Fields, entry: list[Any]) -> tuple[int, float]:
    count, score = entry if len(entry) == 2 else (None, None)
    point = Fields(f"{read.where}: curve", {"count": count, "score": score})
    return point.get("count", int), point.get("score", float)


def _ranking(path: Path) -> Ranking | None:
    read = Fields(str(path), read_json(path))
    for name in _RANKINGS:
        layers = read.find(name, dict)
        if layers is not None:
            return Ranking(
                name, {_index(path, layer): _scores(path, heads) for layer, heads in layers.items()}
            )
    return None


def _scores(path: Path, heads: Any) -> dict[int, float]:
    if not isinstance(heads, dict):
        raise RunError(
            f"{path}: scores must be an object of head: number, found {type(heads).__name__}; make the run again"
        )
    return {
        _index(path, head): Fields(str(path), {"score": score}).get("score", float)
        for head, score in heads.items()
    }


def _index(path: Path, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_HEADS))):
        raise RunError(
            f"{path}: layers and heads must be whole numbers from 0, found {text!r:.40}; make the run again"
        )
    return int(text)
