"""What the stages of a run recorded about its layers. Runs from a results file have no stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from auber.errors import RunError
from auber.models.plan import MOST_NEURONS, PruningPlan
from auber.report.records import REMEDY, RunRecord, read_run
from auber.report.results_file import read_place
from auber.report.runs import RunSet
from auber.run.files import RESULT
from auber.run.stage_record import SearchRecord, StageRecord
from auber.search.stages import BUDGET, PLAN, is_layer_stage, layer_of, size_stage, tuning_stage
from auber.system.records import read

Head = tuple[int, int]  # layer and head


@dataclass(frozen=True)
class Layer:
    """One layer of a run; scores are the metric on the reward set, None without a search."""

    index: int
    removed: tuple[int, ...]
    seconds: float
    tuning_steps: int
    search: SearchRecord | None
    start_score: float | None  # score of what the search started from
    chosen_score: float | None  # score of the heads that were removed
    present: tuple[int, ...]  # heads before the search

    @property
    def is_worse(self) -> bool:
        """Whether the choice scored below what the search started from."""
        return self.gain is not None and self.gain < -1e-10

    @property
    def missed(self) -> float | None:
        """How far the choice is below the best mask that was scored."""
        if self.search is None or self.search.best_score is None or self.chosen_score is None:
            return None
        return self.search.best_score - self.chosen_score

    @property
    def gain(self) -> float | None:
        """How far the choice is above what the search started from, in points."""
        if self.chosen_score is None or self.start_score is None:
            return None
        return 100 * (self.chosen_score - self.start_score)

    @property
    def masks_scored(self) -> int:
        """The number of different masks that the search scored."""
        return self.search.rewards_computed if self.search else 0

    @property
    def gains(self) -> list[tuple[int, float]]:
        """(masks scored, best gain so far in points) at each improvement."""
        if self.search is None or self.start_score is None:
            return []
        return [(count, 100 * (score - self.start_score)) for count, score in self.search.curve]


@dataclass(frozen=True)
class Run:
    """One finished run with its layers in the order they were decided."""

    label: str
    record: RunRecord
    layers: tuple[Layer, ...] = ()
    ranking: str = ""  # the name of the scores that a ranking method sorted the heads by
    scores: Mapping[Head, float] = field(default_factory=dict)
    size_was_given: bool = False  # the layers shared a given number of heads at the end

    @property
    def searched(self) -> list[tuple[Layer, SearchRecord]]:
        """The layers that were searched."""
        return [(layer, layer.search) for layer in self.layers if layer.search is not None]

    @cached_property
    def states(self) -> dict[Head, float]:
        """The state that the agent sees first, empty if the method has none."""
        return {
            (layer.index, head): number
            for layer, search in self.searched
            for head, number in zip(layer.present, search.state, strict=False)
        }

    @cached_property
    def values(self) -> dict[Head, float]:
        """The Q-values in points of removing a head first."""
        return {
            (layer.index, head): number
            for layer, search in self.searched
            for head, number in zip(layer.present, search.q_values, strict=False)
        }

    @property
    def has_prior(self) -> bool:
        """Whether the searches started from a plan instead of the unpruned layers."""
        return any(search.given for _, search in self.searched)


def read_runs(folders: Sequence[str | Path]) -> tuple[Run, ...]:
    """Return finished runs, each from its own folder, in the order given."""
    found = []
    for folder, label in zip(map(Path, folders), _labels(folders), strict=True):
        if not (folder / RESULT).is_file():
            raise RunError(f"{folder}: the run is not finished; continue it with --resume")
        found.append(_read(folder, label, read_run(folder / RESULT, label)))
    return tuple(found)


def read_sources(places: Sequence[str | Path]) -> tuple[tuple[RunSet, ...], tuple[Run, ...]]:
    """Return the content of folders and results files, and their runs without the starts."""
    sources = tuple(map(read_place, places))
    runs = [
        _read(Path(place) / record.folder if Path(place).is_dir() else None, record.folder, record)
        for place, source in zip(places, sources, strict=True)
        for record in source.runs
    ]
    return sources, tuple(sorted(runs, key=lambda run: run.record.key))


def _labels(folders: Sequence[str | Path]) -> list[str]:
    """Return the shortest ends of the paths that differ."""
    parts = [Path(folder).resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise RunError(
        "the runs to compare must be different folders, found one of them twice; name each once"
    )


def _read(folder: Path | None, label: str, record: RunRecord) -> Run:
    # The fine-tuned model may have lost all heads of a layer.
    record.plan.check(record.layers, record.heads, MOST_NEURONS, allow_empty_layers=True)
    if folder is None:
        return Run(label, record)
    paths = {path.stem: path for path in sorted((folder / "stages").glob("*.json"))}
    stages = {name: read(StageRecord, path, REMEDY) for name, path in paths.items()}
    budget = None
    if BUDGET in stages:
        budget = stages[BUDGET].plan
        if budget is None:
            raise RunError(
                f"{paths[BUDGET]}: lacks 'plan'; it is damaged or of another version: {REMEDY}"
            )
    layers = [
        _layer(paths[name], stages, record, budget) for name in stages if is_layer_stage(name)
    ]
    is_reversed = record.config.get("search.order") == "reverse"
    layers.sort(key=lambda layer: layer.index, reverse=is_reversed)
    plan = PLAN if record.chosen is None else size_stage(PLAN, record.chosen.keep)
    name, ranking = (stages[plan].ranking if plan in stages else None) or ("", {})
    scores = {(int(i), int(j)): score for i, of in ranking.items() for j, score in of.items()}
    return Run(label, record, tuple(layers), name, scores, budget is not None)


def _layer(
    path: Path, stages: Mapping[str, StageRecord], record: RunRecord, budget: PruningPlan | None
) -> Layer:
    index, stage = layer_of(path.stem), stages[path.stem]
    if index is None or index >= record.layers:
        raise RunError(
            f"{path}: must be named layer-NN for a layer below {record.layers}; remove it"
        )
    own = stage.removed if isinstance(stage.removed, tuple) else ()
    removed = own if budget is None else budget.heads.get(index, ())
    # If all layers are decided before the tuning, that is a later stage of its own.
    later = stages.get(tuning_stage(index))
    tuning = (later or stage).tuning
    # Without a record of it: heads in the final plan that this stage did not remove were gone.
    gone = {*record.plan.heads.get(index, ())} - {*removed}
    search = stage.search
    present = (search and search.present) or tuple(
        head for head in range(record.heads) if head not in gone
    )
    for numbers in (search.state, search.q_values[:-1]) if search else ():
        if numbers and len(numbers) != len(present):
            raise RunError(
                f"{path}: must have a number for each of the layer's {len(present)} heads, found "
                f"{len(numbers)}; it is damaged, {REMEDY}"
            )
    return Layer(
        index,
        removed,
        stage.seconds + (later.seconds if later else 0.0),
        tuning.steps if tuning else 0,
        search,
        stage.scores.given,
        stage.scores.of(removed),
        present,
    )
