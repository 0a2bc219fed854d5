"""Whole searches, one variant beside the other, from one fine-tuned start, judged on development rows.

A variant changes the `default` preset's search: which rows reward (seen, or crossed: out of fold, by scouts that are pruned and
tuned along), what is measured on them, what a removed head is worth, whether all layers are decided before the first tuning, and
whether the plan is then carried out on the pretrained weights. Every model that is scored has had the same tunings: the first,
one a layer, the last. So have the controls: nothing removed, and the rankings at the number of heads a variant removed, on the
weights the variant's plan was carried out on.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auber.encoders import encoder_of
from auber.methods import get_method
from auber.methods.base import RankingWork
from auber.plan import PruningPlan
from auber.progress import Silent
from auber.search.agent import play_layer
from auber.search.game import PruningGame
from auber.search.state import head_norms, head_state
from auber.surgery import remove_heads
from experiments.command import parser
from experiments.masked import Mask, MaskedRows, Parts
from experiments.record import Record
from experiments.subject import Subject, make_folds, make_subject


@dataclass(frozen=True)
class Variant:
    """What differs from the `default` preset."""

    crossed: bool = False
    measure: str = "metric"
    bonus: float = 0.0  # points for each removed head
    caution: float = (
        0.0  # less so many standard errors of what a single head's removal gains; of a context, for each correction
    )
    frozen: bool = False  # nobody is tuned before all layers are decided
    independent: bool = False  # and every layer is decided with the others whole
    rewound: bool = False  # the plan is carried out on the pretrained weights, which then get all tunings


VARIANTS = {
    "default": Variant(),
    "crossed-calibrated-rewound": Variant(crossed=True, measure="calibrated", frozen=True, rewound=True),
    "crossed-calibrated-2-rewound": Variant(crossed=True, measure="calibrated", bonus=0.02, frozen=True, rewound=True),
    "crossed-calibrated-5-rewound": Variant(crossed=True, measure="calibrated", bonus=0.05, frozen=True, rewound=True),
    "crossed-calibrated-20-rewound": Variant(crossed=True, measure="calibrated", bonus=0.2, frozen=True, rewound=True),
}


@dataclass
class Walk:
    """A variant on its way through the layers: the model, its scouts, and what was found."""

    subject: Subject
    variant: Variant
    model: Any
    scouts: list[Any]
    folds: np.ndarray  # (rows,)
    rewards: int = 0
    chosen: dict[int, Mask] = field(default_factory=dict)  # by layer
    scores: dict[int, dict[Mask, float]] = field(default_factory=dict)  # of all masks that were asked for, by layer
    bonuses: dict[int, float] = field(default_factory=dict)  # points for each removed head, by layer
    context: PruningPlan | None = None  # a plan for all layers, which is corrected in each beside the others

    def go(self) -> None:
        """Decide all layers, and have all tunings but the last, in between or afterwards."""
        self.decide_all()
        if self.variant.frozen or self.variant.rewound:
            self.model = carried_out(self.subject, self.variant, self.model, encoder_of(self.model).removed)

    def decide_all(self) -> None:
        """Decide all layers, tuned in between unless the variant is frozen, and remove what goes from the model."""
        for layer in range(encoder_of(self.model).num_layers):
            self._decide(layer)
            if not self.variant.frozen:
                self._tune_all(layer)
        if self.variant.independent or self.context is not None:
            remove_heads(self.model, PruningPlan(self.chosen))

    def parts(self, rows: tuple[int, ...], layer: int) -> Parts:
        """Who scores which of these rows while a layer is decided."""
        if not self.variant.crossed:
            return [(self.model, self.subject.rows.select(rows))]
        chosen = np.array(rows)
        return [
            (scout, self.subject.rows.select(tuple(chosen[self.folds[chosen] == fold].tolist())))
            for fold, scout in enumerate(self._scouts_beside(layer))
        ]

    def _scouts_beside(self, layer: int) -> list[Any]:
        """The scouts, where there is a context without its heads in the other layers."""
        if self.context is None:
            return self.scouts
        scouts = copy.deepcopy(self.scouts)
        others = {other: heads for other, heads in self.context.items() if other != layer}
        for scout in scouts:
            remove_heads(scout, PruningPlan(others))
        return scouts

    def _decide(self, layer: int) -> None:
        """Search one layer and remove what is better gone, from the scouts too."""
        if len(encoder_of(self.model).present(layer)) < 2:
            return
        split = self.subject.splits.layers[layer]
        chosen, scores = self._play(layer, split.reward)
        self.scores[layer] = scores
        self.chosen[layer] = chosen
        if self.context is not None:
            self.context = PruningPlan({**self.context, layer: chosen})
        elif chosen and not self.variant.independent:
            for model in (self.model, *self.scouts):
                remove_heads(model, PruningPlan({layer: chosen}))

    def _tune_all(self, layer: int) -> None:
        """The tuning after a layer, for the scouts without the rows they score."""
        subject, split = self.subject, self.subject.splits.layers[layer]
        subject.tune(self.model, split.mini_train, subject.config.layer, "layer", layer)
        for fold, scout in enumerate(self.scouts):
            others = [row for row in split.mini_train if self.folds[row] != fold]
            subject.tune(scout, others, subject.config.layer, "layer", layer)

    def _play(self, layer: int, rows: tuple[int, ...]) -> tuple[Mask, dict[Mask, float]]:
        """The heads that the agent would remove, and the score of every set of heads it has asked for."""
        config = self.subject.config
        masked = MaskedRows(self.parts(rows, layer), layer, self.subject.task.metric, self.subject.hardware)
        encoder = encoder_of(self.model)
        heads = encoder.present(layer)
        given = self.context.removed(layer) if self.context is not None else ()
        weight = getattr(encoder.parts(layer), config.search.matrix).weight.detach().float().cpu()
        state = head_state(head_norms(weight, len(heads), config.search.norm))

        def named(positions: Mask) -> Mask:  # the game counts those that are there, from 0
            return tuple(heads[position] for position in positions)

        def score(positions: Mask) -> float:
            return masked.score(self.variant.measure, named(positions))

        bonus = self.variant.bonus
        if self.variant.caution:
            bonus -= 100 * self.variant.caution * masked.noise_of_a_head(heads)
        self.bonuses[layer] = bonus
        game = PruningGame(
            state.numpy(),
            score,
            scale=config.reward.scale,
            stop_reward=config.reward.stop,
            head_reward=bonus,
            given=tuple(heads.index(head) for head in given),
        )
        device = self.subject.hardware.device
        outcome = play_layer(game, config.agent, seed=config.seed, layer=layer, device=device)
        self.rewards += outcome.rewards_computed
        return named(outcome.removed), {named(mask): value for mask, value in game.scores.items()}


def carried_out(subject: Subject, variant: Variant, model: Any, plan: PruningPlan) -> Any:
    """A model with a plan's heads removed, on the variant's weights, after all tunings but the last."""
    if variant.rewound:
        model = subject.start()
        remove_heads(model, plan)
        subject.tune(model, range(len(subject.rows)), subject.config.first, "first")
    elif encoder_of(model).removed != plan:
        remove_heads(model, plan)
    tune_along(subject, model)
    return model


def finish(subject: Subject, model: Any) -> dict[str, Any]:
    """The last tuning, then the scores."""
    subject.tune(model, subject.splits.last_train, subject.config.last, "last")
    return {
        "develop": subject.scores(model, subject.develop),
        "train": subject.scores(model, subject.rows),
        "removed": encoder_of(model).removed.to_json(),
        "num_removed": encoder_of(model).removed.num_removed,
    }


def tune_along(subject: Subject, model: Any) -> None:
    """The tunings after the layers, for who decides nothing between them."""
    for layer in range(encoder_of(model).num_layers):
        subject.tune(model, subject.splits.layers[layer].mini_train, subject.config.layer, "layer", layer)


def ranking_of(subject: Subject, start: Any, name: str, num_heads: int) -> PruningPlan:
    """The plan of a competitor at a number of heads."""
    model = copy.deepcopy(start)
    work = RankingWork(model, encoder_of(model), num_heads, subject.rows, subject.hardware, subject.config, Silent())
    choose = get_method(name).choose_plan
    assert choose is not None, f"{name} is no ranking"
    return choose(work).plan


def ranked(subject: Subject, variant: Variant, start: Any, name: str, num_heads: int) -> dict[str, Any]:
    """A competitor at a number of heads."""
    plan = ranking_of(subject, start, name, num_heads)
    return finish(subject, carried_out(subject, variant, copy.deepcopy(start), plan))


def main() -> None:
    """The command line."""
    options = parser(__doc__)
    options.add_argument("--variants", default=",".join(VARIANTS), help=f"of {', '.join(VARIANTS)}")
    options.add_argument("--rankings", default="", help="competitors at each variant's number of heads, such as michel")
    arguments = options.parse_args()
    subject = make_subject(
        arguments.model, arguments.task, arguments.data, arguments.settings, arguments.develop, "default"
    )
    folds = make_folds(len(subject.rows), arguments.folds, subject.config.seed)
    names = arguments.variants.split(",")
    command = f"{arguments.said} --variants {arguments.variants}"
    command += f" --rankings {arguments.rankings}" if arguments.rankings else ""
    record = Record(arguments.out, "search", command, subject)
    start = subject.first_tuned(range(len(subject.rows)))
    scouts = []
    if any(VARIANTS[name].crossed for name in names):
        scouts = [subject.first_tuned(np.flatnonzero(folds != fold)) for fold in range(arguments.folds)]
    record.content["start"] = {
        "develop": subject.scores(start, subject.develop),
        "train": subject.scores(start, subject.rows),
    }
    started = time.perf_counter()
    control = copy.deepcopy(start)
    tune_along(subject, control)
    record.keep("original+tuning", finish(subject, control), started)
    for name in names:
        variant, started = VARIANTS[name], time.perf_counter()
        mine = copy.deepcopy(scouts) if variant.crossed else []
        walk = Walk(subject, variant, copy.deepcopy(start), mine, folds)
        walk.go()
        found = finish(subject, walk.model)
        record.keep(name, {**found, "rewards": walk.rewards}, started)
        for ranking in filter(None, arguments.rankings.split(",")):
            started = time.perf_counter()
            record.keep(
                f"{ranking} like {name}", ranked(subject, variant, start, ranking, found["num_removed"]), started
            )


if __name__ == "__main__":
    main()
