"""Who chooses best: at one number of heads and with one treatment, the plans of rankings and of searches.

The competitors rank the heads of the tuned start. The searches ask scouts with all tunings, each for the rows it never saw, and
score by the calibrated log-likelihood:

    seen        the layers in turn as `search` does, but asked is the control itself, all its tunings done, for rows it was tuned on
    alone       each layer with the others whole
    search      the layers in turn; a removed head has to gain one standard error of what removing a single head gains
    bound       the same, by the lower end of a mask's gain: its mean over the rows less one standard error
    warm        each layer in turn beside the plan of the gates (voita) for the others, which is kept where nothing is better
    hardened    the layers in turn, by scouts that were tuned with heads missing at random

Two more ask the start, for rows it was tuned on, and take one head after the other out of each layer, always the one that costs least:

    faithful    by how far what the model says is from what it said with all heads
    cautious    by the mean of what a mask gains over the rows, less three standard errors

Out of the masks that were scored comes the plan of the size whose gains add up to most. All plans are carried out on the
pretrained weights; `unwound` does that of the gates as voita is otherwise done, on the tuned start. `bound`, and what is named
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
    "warm": CAUTIOUS,
    "hardened": CAUTIOUS,
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

    def ranking(self, name: str) -> PruningPlan:
        """The plan of a competitor or an elimination, made once."""
        if name not in self.rankings:
            choose = self._eliminated if name in ELIMINATIONS else partial(ranking_of, self.subject, self.start)
            self.rankings[name] = choose(name, self.num_heads)
        return self.rankings[name]

    def _eliminated(self, name: str, num_heads: int) -> PruningPlan:
        """The plan of one of `ELIMINATIONS`."""
        subject, sizes = self.subject, {}
        for layer, split in enumerate(subject.splits.layers):
            parts = [(self.start, subject.rows.select(split.reward))]
            masked = MaskedRows(
                parts, layer, subject.task.metric, subject.hardware, tenants=8
            )  # other pairs run beside
            measure = partial(masked.scores, [ELIMINATIONS[name]])
            sizes[layer] = best_by_size(eliminate(measure, encoder_of(self.start).present(layer)))
        return best_plan(num_heads, sizes)[0]

    def control(self) -> None:
        """Nothing removed."""
        started, self.tuned = time.perf_counter(), copy.deepcopy(self.start)
        tune_along(self.subject, self.tuned)
        self.record.keep(CONTROL, finish(self.subject, self.tuned), started)

    def rank(self, name: str) -> None:
        """A competitor or an elimination, rewound or not."""
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
        if name == "warm":
            walk.context = self.ranking("voita")
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
    scores, removed = {(): float(measure([()])[0, 0])}, ()
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
        default=f"michel,voita,voita{UNWOUND},seen,alone,search,bound,warm,hardened",
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
        if name not in SEARCHES:
            contest.rank(name)
    searches = [name for name in names if name in SEARCHES]
    if "seen" in searches:
        contest.search("seen", [])
        searches.remove("seen")
    scouts = contest.make_scouts() if set(searches) - {"hardened"} else []
    for name in searches:
        if name == "hardened":
            scouts = contest.make_scouts("hardened scouts", MISSING)
        contest.search(name, scouts)


if __name__ == "__main__":
    main()
