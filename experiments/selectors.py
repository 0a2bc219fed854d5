"""Who chooses best: at one number of heads and with one treatment, the plans of rankings and of searches.

The competitors rank the heads of the tuned start. The searches ask scouts with all tunings, each for the rows it never saw, and
score by the calibrated log-likelihood:

    seen        the layers in turn as `search` does, but asked is the control itself, all its tunings done, for rows it was tuned on
    alone       each layer with the others whole
    search      the layers in turn; a removed head has to gain one standard error of what removing a single head gains
    bound       the same, by the lower end of a mask's gain: its mean over the rows less one standard error
    hardened    the layers in turn, by scouts that were tuned with heads missing at random

The plan of the gates can be corrected by the scouts, in each layer in turn beside the plan for the others: a head that is put back
or taken besides has to gain one standard error of what a single head gains, or half of one. Nothing removed can be corrected too:

    corrected, corrected-half    the gates' plan
    searched                     nothing removed, by one standard error

Two more ask the start, for rows it was tuned on, and take one head after the other out of each layer, always the one that costs least:

    faithful    by how far what the model says is from what it said with all heads
    cautious    by the mean of what a mask gains over the rows, less three standard errors

Out of the masks that were scored comes the plan of the size whose gains add up to most. All plans are carried out on the
pretrained weights; with `-unwound` those of the gates, corrected or not, and of the last two on the tuned start. `bound`, and what is named
`own size`, removes what the search says, whatever the number.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from auber.encoders import encoder_of
from auber.pipeline.budget import best_by_size, best_plan
from auber.plan import PruningPlan
from experiments.command import parser
from experiments.masked import Mask, MaskedRows
from experiments.path import out_of_fold
from experiments.record import Record
from experiments.search import Variant, Walk, carried_out, finish, ranking_of, tune_along
from experiments.subject import Subject, make_folds, make_subject
from experiments.summary import CONTROL

REWOUND = Variant(crossed=True, measure="calibrated", frozen=True, rewound=True)
CAUTIOUS = replace(REWOUND, caution=1.0)
SEARCHES = {
    "seen": replace(CAUTIOUS, crossed=False),
    "alone": replace(REWOUND, independent=True),
    "search": CAUTIOUS,
    "bound": replace(REWOUND, measure="calibrated-bound"),
    "hardened": CAUTIOUS,
}
CORRECTIONS = {  # which plan, by how many standard errors
    "corrected": ("voita", 1.0),
    "corrected-half": ("voita", 0.5),
    "searched": (None, 1.0),
}
ELIMINATIONS = {"faithful": "faithful", "cautious": "calibrated-bound-3"}  # by what a mask is measured
OWN_SIZE_TOO = ("seen", "search")
MISSING = 0.6  # of its heads, at most, while a hardened scout is tuned
UNWOUND = "-unwound"


@dataclass
class Contest:
    """The selectors' common start and number of heads, and where their scores go."""

    subject: Subject
    start: Any  # after the first tuning
    folds: np.ndarray  # (rows,)
    num_heads: int
    record: Record
    rankings: dict[str, PruningPlan] = field(default_factory=dict)
    tuned: Any = None  # the control
    scouts: list[Any] = field(default_factory=list)  # with all tunings, by fold

    def ranking(self, name: str) -> PruningPlan:
        """The plan of a competitor, an elimination or a correction, made once."""
        if name not in self.rankings:
            if name in CORRECTIONS:
                self.rankings[name] = self._corrected(name)
            elif name in ELIMINATIONS:
                self.rankings[name] = self._eliminated(name)
            else:
                self.rankings[name] = ranking_of(self.subject, self.start, name, self.num_heads)
        return self.rankings[name]

    def _corrected(self, name: str) -> PruningPlan:
        """The plan of one of `CORRECTIONS`."""
        prior, errors = CORRECTIONS[name]
        plan = PruningPlan() if prior is None else self.ranking(prior)
        started, variant = time.perf_counter(), replace(REWOUND, caution=errors)
        model, scouts = copy.deepcopy(self.start), copy.deepcopy(self.scouts)
        walk = Walk(self.subject, variant, model, scouts, self.folds, context=plan)
        walk.decide_all()
        self.record.content[f"{name} search"] = {
            "rewards": walk.rewards,
            "seconds": round(time.perf_counter() - started, 1),
            "prices": {layer: round(bonus, 6) for layer, bonus in walk.bonuses.items()},
        }
        assert walk.context is not None
        return walk.context

    def _eliminated(self, name: str) -> PruningPlan:
        """The plan of one of `ELIMINATIONS`."""
        subject, sizes = self.subject, {}
        for layer, split in enumerate(subject.splits.layers):
            parts = [(self.start, subject.rows.select(split.reward))]
            masked = MaskedRows(
                parts, layer, subject.task.metric, subject.hardware, tenants=8
            )  # other pairs run beside
            measure = partial(masked.scores, [ELIMINATIONS[name]])
            sizes[layer] = best_by_size(eliminate(measure, encoder_of(self.start).present(layer)))
        return best_plan(self.num_heads, sizes)[0]

    def control(self) -> None:
        """Nothing removed."""
        started, self.tuned = time.perf_counter(), copy.deepcopy(self.start)
        tune_along(self.subject, self.tuned)
        self.record.keep(CONTROL, finish(self.subject, self.tuned), started)

    def rank(self, name: str) -> None:
        """A competitor, an elimination or a correction, rewound or not."""
        started, plan = time.perf_counter(), self.ranking(name.removesuffix(UNWOUND))
        variant = replace(REWOUND, rewound=not name.endswith(UNWOUND))
        model = carried_out(self.subject, variant, copy.deepcopy(self.start), plan)
        self.record.keep(name, finish(self.subject, model), started)

    def make_scouts(self, name: str = "scouts", missing: float = 0.0) -> list[Any]:
        """A scout with all tunings for each fold."""
        started = time.perf_counter()
        folds = range(self.folds.max() + 1)
        scouts = [self.subject.all_tuned(np.flatnonzero(self.folds != fold), missing) for fold in folds]
        self.record.content[name] = {
            "out_of_fold": out_of_fold(self.subject, scouts, self.folds),
            "seconds": round(time.perf_counter() - started, 1),
        }
        return scouts

    def search(self, name: str, scouts: list[Any]) -> None:
        """One of `SEARCHES`."""
        started, variant = time.perf_counter(), SEARCHES[name]
        model = self.start if variant.crossed else self.tuned
        walk = Walk(self.subject, variant, copy.deepcopy(model), copy.deepcopy(scouts), self.folds)
        walk.decide_all()
        own = encoder_of(walk.model).removed
        searched = {
            "rewards": walk.rewards,
            "search_seconds": round(time.perf_counter() - started, 1),
            "own_size": own.num_removed,
            "own_prices": {layer: round(bonus, 6) for layer, bonus in walk.bonuses.items()},
        }
        for title, plan in self._plans(name, walk.scores, own).items():
            found = finish(self.subject, carried_out(self.subject, variant, None, plan))
            self.record.keep(title, {**found, **searched}, started)
            started = time.perf_counter()

    def _plans(self, name: str, scores: dict[int, dict[Mask, float]], own: PruningPlan) -> dict[str, PruningPlan]:
        """The plans of a search, by what they are called: at the number of heads, at its own, or both."""
        if name == "bound":
            return {name: own}
        sized, _ = best_plan(self.num_heads, {layer: best_by_size(of_layer) for layer, of_layer in scores.items()})
        return {name: sized, **({f"{name}, own size": own} if name in OWN_SIZE_TOO else {})}


def eliminate(measure: Callable[[list[Mask]], np.ndarray], heads: Sequence[int]) -> dict[Mask, float]:
    """The scores of all masks that were looked at while one head after the other goes, always the one whose loss scores best.

    `measure` gives (masks, 1) scores. One head at least stays.
    """
    scores: dict[Mask, float] = {(): float(measure([()])[0, 0])}
    removed: Mask = ()
    while len(removed) < len(heads) - 1:
        masks = [tuple(sorted((*removed, head))) for head in heads if head not in removed]
        scores.update(zip(masks, measure(masks)[:, 0].tolist(), strict=True))
        removed = max(masks, key=lambda mask: scores[mask])
    return scores


def main() -> None:
    """The command line."""
    options = parser(__doc__)
    options.add_argument("--heads", type=int, default=48, help="how many the plans remove")
    options.add_argument(
        "--selectors",
        default=f"michel,voita,voita{UNWOUND},seen,alone,search,bound,corrected,corrected-unwound,hardened",
        help="hardened comes last",
    )
    arguments = options.parse_args()
    subject = make_subject(
        arguments.model, arguments.task, arguments.data, arguments.settings, arguments.develop, "default"
    )
    folds = make_folds(len(subject.rows), arguments.folds, subject.config.seed)
    command = f"{arguments.said} --heads {arguments.heads} --selectors {arguments.selectors}"
    record = Record(arguments.out, "selectors", command, subject)
    start = subject.first_tuned(range(len(subject.rows)))
    contest = Contest(subject, start, folds, arguments.heads, record)
    contest.control()
    names = arguments.selectors.split(",")
    for name in names:
        if _asks_scouts(name) and name != "hardened" and not contest.scouts:
            contest.scouts = contest.make_scouts()
        if name == "hardened":
            contest.scouts = contest.make_scouts("hardened scouts", MISSING)
        if name in SEARCHES:
            contest.search(name, contest.scouts if _asks_scouts(name) else [])
        else:
            contest.rank(name)


def _asks_scouts(name: str) -> bool:
    return name.removesuffix(UNWOUND) in CORRECTIONS or (name in SEARCHES and SEARCHES[name].crossed)


if __name__ == "__main__":
    main()
