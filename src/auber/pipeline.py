"""One run from a start model to a result: first tuning, decisions with tuning between, last tuning, the scores.

The run is a row of stages (`first`, then `plan` or the layers, then `last`). A finished stage is never done again: a run that
was killed walks over what is done, loads the newest weights and goes on. Each stage draws from generators of its own,
so where it was cut leaves no trace in the numbers.

Every method walks the same way, so that all get the same tuning: a ranking method removes its heads first and then goes
through the tunings of `tuned_layers` (those of the run it is matched with), a control likewise with no head removed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from auber import provenance
from auber.checkpoint import weights_digest
from auber.config import Config, FirstTuning, LastTuning, LayerTuning
from auber.devices import Hardware
from auber.encoders import encoder_of
from auber.errors import ModelError, RunError
from auber.evaluation import Scores, evaluate_rows
from auber.methods.base import LayerWork, Method, RankingWork
from auber.metrics import get_metric
from auber.plan import PruningPlan
from auber.progress import Progress
from auber.runs import Run
from auber.scoring import Workers, make_scorer, open_workers
from auber.seeds import derive
from auber.splits import Splits, make_splits
from auber.surgery import remove_heads
from auber.tasks.base import TaskData
from auber.tasks.encoding import EncodedRows, encode_split
from auber.tuning import TuningReport, require_finite_weights, tune

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What to do, decided in full before anything is computed."""

    task: TaskData
    model_name: str
    config: Config
    hardware: Hardware
    method: Method
    num_removed: int | None  # for ranking methods
    tuned_layers: tuple[int, ...] | None  # the layers tuned after, where another run prescribes them
    first_tuning: bool  # whether the start model still needs it
    expected_start: str | None = None  # the fine-tuned weights another run started from, where they must be the same
    command: str | None = None  # the command line that asked for it

    def layers(self, num_layers: int) -> list[int]:
        """The layers gone through, in order: those of `search.layers`, or all where the method chooses among all.

        `ConfigError` where the model, which has so many, lacks one of them.
        """
        search, method = self.config.search, self.method
        chooses_among_all = method.choose_layer is None and method.removes_heads
        layers = list(range(num_layers)) if chooses_among_all else search.layers_of(num_layers)
        return layers if search.order == "forward" else layers[::-1]


class Pipeline:
    """Carries a job through its stages in a run's folder."""

    def __init__(
        self, job: Job, run: Run, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, progress: Progress
    ) -> None:
        self.job, self.run, self.tokenizer, self.progress = job, run, tokenizer, progress
        self.model = model.to(job.hardware.device)
        encoder = encoder_of(self.model)
        task, config = job.task, job.config
        self._train = encode_split(tokenizer, task, "train", config.max_length)
        self.splits: Splits = make_splits(task.train.labels, config, encoder.num_layers, not task.has_classes)
        self._done: list[str] = []
        self._behind = False  # whether finished stages were walked over whose weights are not loaded yet
        self._blindness_said = False
        run.write("splits.json", self.splits.to_json())

    def finetune(self) -> None:
        """The first tuning alone."""
        self.progress.plan(2)
        self._announce(["first"])
        self._first_stage(self.splits.first)

    def prune(self) -> None:
        """All stages of the method."""
        method, layers = self.job.method, self.job.layers(encoder_of(self.model).num_layers)
        choices = len(layers) if method.choose_layer is not None else int(method.removes_heads)
        self.progress.plan(1 + choices + (len(layers) + 1 if method.tunes else 0) + 1)
        last = ["last"] * method.tunes
        if method.removes_heads:
            self._say_which_stay(layers)
        self._announce(["first", *(["plan"] if method.choose_layer is None else map(_layer_stage, layers)), *last])
        with open_workers(self.job.config, self.job.hardware) as workers:
            self._first_stage(self.splits.first if method.removes_heads else self.splits.original_first)
            if method.choose_layer is not None:
                for layer in layers:
                    self._stage(_layer_stage(layer), partial(self._search_layer, layer, workers), shown=2)
            else:
                self._stage("plan", self._choose_plan, shown=choices)
                tuned = self._layers_to_tune(layers)
                self.progress.skip(len(layers) - len(tuned) if method.tunes else 0)
                self._announce(["first", "plan", *map(_layer_stage, tuned), *last])
                for layer in tuned:
                    self._stage(_layer_stage(layer), partial(self._tune_only, layer))
        if method.tunes:
            self._stage("last", lambda: {"tuning": self._last_tuning().to_json()})

    def conclude(self, kind: str) -> dict[str, Any]:
        """Evaluate the model, once on dev, and write model and result."""
        self._catch_up()
        started = time.perf_counter()
        task, config = self.job.task, self.job.config
        self.progress.begin("evaluating", 2)
        train = self._evaluate(self._train, "train")
        self.progress.step(1)
        dev_rows = encode_split(self.tokenizer, task, "dev", config.max_length)
        dev = self._evaluate(dev_rows, "dev")
        if (reason := self._blindness(dev_rows)) is not None:
            logger.warning("dev: %s; give more rows", reason)
        self.run.log("dev_evaluation", score=dev.score, rows=dev.rows)
        self.progress.end()
        encoder = encoder_of(self.model)
        plan = encoder.removed
        self.progress.record(
            0,
            {
                "result/dev": dev.score,
                "result/train": train.score,
                "result/gap": train.score - dev.score,
                "result/heads_removed": plan.num_removed,
            },
        )
        result = {
            "format": 1,
            "kind": kind,
            "command": self.job.command,
            "model": self.job.model_name,
            "method": self.job.method.name,
            "task": task.name,
            "labels": task.num_labels,
            "rows": {"train": len(task.train), "dev": len(task.dev)},
            "metric": task.metric,
            "protocol": config.protocol,
            "seed": config.seed,
            "dev": {**dev.to_json(), "majority": task.majority_share},
            "train": train.to_json(),
            "gap": train.score - dev.score,
            "heads": {
                "removed": plan.num_removed,
                "total": encoder.num_layers * encoder.num_heads,
                "layers": encoder.num_layers,
                "per_layer": encoder.num_heads,
            },
            "plan": plan.to_json(),
            "tuned_layers": self._tuned_layers(),
            "start": self._info("first")["digest"],
            "cost": self._cost(time.perf_counter() - started),
            "config": config.flat(),
            "data": task.content_hash,
            "provenance": {**provenance.describe(self.job.hardware), **self._upgrades()},
        }
        return self.run.finish(self.model, self.tokenizer, plan, result)

    # --- stages -----------------------------------------------------------------------------------------------------

    def _stage(self, name: str, work: Callable[[], dict[str, Any]], *, shown: int = 1) -> None:
        """Do a stage unless it is done. `work` changes the model in place and returns what to record.

        The weights are kept where the record shows that they changed: by tuning steps or by removed heads. `shown` is how
        many stages of the progress display it stands for.
        """
        info = self.run.stage(name)
        if info is None:
            self._catch_up()
            started = time.perf_counter()
            self.job.hardware.reset_peak()
            info = work()
            info["seconds"] = round(time.perf_counter() - started, 3)
            if (peak := self.job.hardware.peak_bytes()) is not None:
                info["peak_gpu_bytes"] = peak
            changed = bool(info.get("removed")) or info.get("tuning", {}).get("steps", 0) > 0
            self.run.finish_stage(name, info, self.model if changed else None)
            self.run.write("plan.json", encoder_of(self.model).removed.to_json())
            self.run.log("stage", stage=name, **info)
        else:
            self._behind = True
            self.progress.skip(shown)
        self._done.append(name)

    def _catch_up(self) -> None:
        """Load the weights of the stages that were walked over."""
        if self._behind:
            self.model = self.run.load_weights(self._done, self.model)
            self._behind = False

    def _first_stage(self, rows: tuple[int, ...]) -> None:
        self._stage("first", lambda: self._first_tuning(rows))
        expected, found = self.job.expected_start, self._info("first")["digest"]
        if self.job.method.removes_heads and expected not in (None, found):
            raise RunError(
                "the run to match started from other fine-tuned weights than this one; "
                "give both the same --model, seed and settings, or start both from one 'auber finetune' run"
            )

    def _first_tuning(self, rows: tuple[int, ...]) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if self.job.first_tuning:
            info["tuning"] = self._tune(rows, self.job.config.first, "first tuning", "first").to_json()
        else:
            require_finite_weights(self.model, "start")
            self.progress.skip(1)
        return {**info, "digest": weights_digest(self.model)}

    def _search_layer(self, layer: int, workers: Workers | None) -> dict[str, Any]:
        """Decide one layer by the method, remove its heads, and tune what is left; pass over one that can lose none."""
        config, choose = self.job.config, self.job.method.choose_layer
        assert choose is not None
        encoder = encoder_of(self.model)
        if len(encoder.present(layer)) < 2:
            self.progress.skip(2)
            return {"removed": []}
        reward_rows = self._train.select(self.splits.layers[layer].reward)
        if not self._blindness_said and (reason := self._blindness(reward_rows)) is not None:
            self._blindness_said = True  # once: the other layers' reward sets are no better
            logger.warning(
                "layer %d: reward set: %s and rewards tell no masks apart; raise reward.fraction or reward.max_rows, or give more "
                "rows",
                layer, reason,
            )  # fmt: skip
        scorer = make_scorer(self.model, layer, reward_rows, self.job.task.metric, self.job.hardware, workers)

        reward_seconds = 0.0
        known: dict[tuple[int, ...], float] = {}

        def score_many(masks: Sequence[tuple[int, ...]]) -> list[float]:
            nonlocal reward_seconds
            started = time.perf_counter()
            scores = self.run.ledger.complete(scorer.key, layer, masks, scorer.score_many)
            reward_seconds += time.perf_counter() - started
            known.update(zip(map(tuple, masks), scores, strict=True))
            return scores

        started = time.perf_counter()
        choice = choose(LayerWork(layer, encoder, scorer.present, score_many, config, self.progress))
        info: dict[str, Any] = {
            "removed": list(choice.removed),
            "search": {
                "seconds": round(time.perf_counter() - started, 3),
                "reward_seconds": round(reward_seconds, 3),
                "rewards_asked": choice.rewards_asked,
                "rewards_computed": choice.rewards_computed,
                "reward_rows": len(reward_rows),
                **choice.details,
            },
        }
        self.progress.record(layer, _layer_numbers(info))
        if len(known) > 1 and len(set(known.values())) == 1:
            self.progress.say(
                f"layer {layer}: all {len(known)} masks scored the same ({next(iter(known.values())):.4f}), so the rewards tell no "
                f"head from another; {_as_good_as_any(len(choice.removed))}"
            )
        if choice.removed:
            remove_heads(self.model, PruningPlan({layer: choice.removed}))
            info["tuning"] = self._tune_layer(layer).to_json()
        else:
            self.progress.skip(1)
        return info

    def _choose_plan(self) -> dict[str, Any]:
        """Decide all heads at once by the method, and remove them."""
        choose, config = self.job.method.choose_plan, self.job.config
        assert choose is not None
        work = RankingWork(
            self.model,
            encoder_of(self.model),
            self.job.num_removed or 0,
            self._train.select(self.splits.first),
            self.job.hardware,
            config,
            self.progress,
        )
        try:
            choice = choose(work)
        except torch.OutOfMemoryError as error:
            reason = str(error).partition("\n")[0]
            raise ModelError(
                f"plan: the passes of method '{self.job.method.name}' over the rows do not fit into the memory of "
                f"{self.job.hardware.name} ({reason}); free some of it, or lower max_length"
            ) from error
        remove_heads(self.model, choice.plan)
        return {"removed": choice.plan.to_json(), **choice.details}

    def _tune_only(self, layer: int) -> dict[str, Any]:
        return {"tuning": self._tune_layer(layer).to_json()}

    def _tune_layer(self, layer: int) -> TuningReport:
        rows = self.splits.layers[layer].mini_train
        return self._tune(rows, self.job.config.layer, f"layer {layer}: tuning", "layer", layer)

    def _last_tuning(self) -> TuningReport:
        watch = (self._train.select(self.splits.last_watch), self.job.task.metric)
        return self._tune(self.splits.last_train, self.job.config.last, "last tuning", "last", watch=watch)

    def _tune(
        self,
        rows: tuple[int, ...],
        settings: FirstTuning | LayerTuning | LastTuning,
        stage: str,
        purpose: str,
        layer: int | None = None,
        watch: tuple[EncodedRows, str] | None = None,
    ) -> TuningReport:
        if settings.epochs == 0:
            self.progress.skip(1)
        return tune(
            self.model,
            self._train.select(rows),
            settings,
            seed=derive(self.job.config.seed, f"tuning/{purpose}", layer),
            hardware=self.job.hardware,
            watch=watch,
            stage=stage,
            name=f"{purpose if layer is None else _layer_stage(layer)}/tuning",
            progress=self.progress,
        )

    def _evaluate(self, rows: EncodedRows, split: str) -> Scores:
        """The scores that are reported; a model that computes no finite numbers has none."""
        scores = evaluate_rows(self.model, rows, self.job.task.metric)
        if not math.isfinite(scores.loss):
            raise ModelError(
                f"evaluating: the loss on {split} must be a finite number, found {scores.loss}: the model's weights are finite "
                "but too large to compute with; give lower learning rates, and as that is another run, another --out"
            )
        return scores

    # --- what a person should know ----------------------------------------------------------------------------------

    def _say_which_stay(self, layers: list[int]) -> None:
        """Say which layers can lose nothing, because they have one head."""
        encoder = encoder_of(self.model)
        kept = sorted(layer for layer in layers if len(encoder.present(layer)) < 2)
        if not kept:
            return
        names = f"layer{'s' if len(kept) > 1 else ''} {', '.join(map(str, kept))}"
        if len(kept) == len(layers):
            self.progress.say(
                f"nothing to remove: one head stays in each layer, and {names} had no more to begin with; the model is tuned and "
                "evaluated as it is"
            )
        else:
            self.progress.say(f"{names}: one head stays in each layer, and there are no more: passed over")

    def _blindness(self, rows: EncodedRows) -> str | None:
        """Why every model scores the same on these rows, None where scores can differ."""
        task, metric = self.job.task, get_metric(self.job.task.metric)
        if not metric.is_blind(rows.truth(self.job.hardware.device), task.num_labels):
            return None
        count = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
        return f"{metric.name} needs {metric.needs}, not to be found in {count}, so every model scores 0"

    # --- accounts ---------------------------------------------------------------------------------------------------

    def _announce(self, stages: list[str]) -> None:
        """Write down which stages there will be, for who looks on from outside."""
        encoder = encoder_of(self.model)
        self.run.log("planned", stages=stages, layers=encoder.num_layers, heads_per_layer=encoder.num_heads)

    def _layers_to_tune(self, layers: list[int]) -> list[int]:
        """Which of these a ranking method is tuned for: another run's, else those that lost heads; all for the control."""
        if not self.job.method.tunes:
            return []
        if self.job.tuned_layers is not None:
            return list(self.job.tuned_layers)
        if not self.job.method.removes_heads:
            return layers
        removed = PruningPlan.from_json(self._info("plan")["removed"])
        return [layer for layer in layers if layer in removed]

    def _info(self, stage: str) -> dict[str, Any]:
        info = self.run.stage(stage)
        assert info is not None, f"stage {stage} is done before it is read"
        return info

    def _tuned_layers(self) -> list[int]:
        """The layers after which the model was tuned, in order."""
        return [int(name[6:]) for name in self._done if name.startswith("layer-") and "tuning" in self._info(name)]

    def _upgrades(self) -> dict[str, Any]:
        """The changes of versions on the way, where there were some."""
        return {"upgrades": self.run.upgrades} if self.run.upgrades else {}

    def _cost(self, evaluation_seconds: float) -> dict[str, Any]:
        """What the run took, summed over its stages, so that a run that was cut counts the same."""
        infos = {name: self._info(name) for name in self._done}
        searches = [info["search"] for info in infos.values() if "search" in info]
        tunings = {name: info["tuning"] for name, info in infos.items() if "tuning" in info}
        rewards = sum(search["reward_seconds"] for search in searches)
        seconds = {
            "first": tunings.get("first", {}).get("seconds", 0.0),
            "rewards": round(rewards, 3),
            "agent": round(sum(search["seconds"] for search in searches) - rewards, 3),
            "layer_tuning": round(sum(t["seconds"] for name, t in tunings.items() if name.startswith("layer-")), 3),
            "last": tunings.get("last", {}).get("seconds", 0.0),
            "evaluation": round(evaluation_seconds, 3),
            "total": round(sum(info["seconds"] for info in infos.values()) + evaluation_seconds, 3),
        }
        peaks = [info["peak_gpu_bytes"] for info in infos.values() if "peak_gpu_bytes" in info]
        return {
            "rewards_asked": sum(search["rewards_asked"] for search in searches),
            "rewards_computed": sum(search["rewards_computed"] for search in searches),
            "tuning_steps": sum(tuning["steps"] for tuning in tunings.values()),
            **({"peak_gpu_bytes": max(peaks)} if peaks else {}),
            "seconds": seconds,
        }


def _as_good_as_any(num_removed: int) -> str:
    """What a choice is worth that no reward speaks for."""
    if not num_removed:
        return "none is removed"
    return f"the {'head' if num_removed == 1 else f'{num_removed} heads'} removed could as well be others"


def _layer_stage(layer: int) -> str:
    return f"layer-{layer:02}"


def _layer_numbers(info: dict[str, Any]) -> dict[str, float]:
    """What the record of a searched layer says in numbers."""
    search = info["search"]
    names = ("rewards_asked", "rewards_computed", "seconds", "unpruned_score", "best_score")
    return {
        "layers/removed": len(info["removed"]),
        **{f"layers/{name}": search[name] for name in names if name in search},
    }
