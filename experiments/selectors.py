"""Who chooses best: at one number of heads and with one treatment, the plans of rankings and of searches that correct them.

Rankings are those of the tuned start. A search asks scouts with all tunings, each for the rows it never saw, by the calibrated
log-likelihood, and goes through the layers in turn:

    corrected        the gates' plan (voita), beside it for the layers to come; a head that is put back or taken besides has to gain
                     one standard error of what removing a single head gains
    searched         nothing removed, by one standard error; it removes what it says, whatever the number

Plans are carried out on the pretrained weights or, with `-unwound`, on the tuned start. Where several numbers are given, each
selector has one after the other, and they stand in its name.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from auber.plan import PruningPlan
from auber.surgery import remove_heads
from experiments.command import parser
from experiments.path import out_of_fold
from experiments.record import Record
from experiments.search import Variant, Walk, carried_out, finish, ranking_of, tune_along
from experiments.subject import Subject, make_folds, make_subject
from experiments.summary import CONTROL

REWOUND = Variant(crossed=True, measure="calibrated", frozen=True, rewound=True)
CORRECTIONS = {"corrected": "voita", "searched": None}  # whose plan a search begins with
UNWOUND = "-unwound"


@dataclass
class Contest:
    """The selectors' common start, and where their scores go."""

    subject: Subject
    start: Any  # after the first tuning
    folds: np.ndarray  # (rows,)
    record: Record
    plans: dict[tuple[str, int], PruningPlan] = field(default_factory=dict)
    scouts: list[Any] = field(default_factory=list)  # with all tunings, by fold

    def control(self) -> None:
        """Nothing removed."""
        started, model = time.perf_counter(), copy.deepcopy(self.start)
        tune_along(self.subject, model)
        self.record.keep(CONTROL, finish(self.subject, model), started)

    def carry_out(self, name: str, num_heads: int, title: str) -> None:
        """A selector's plan, rewound or not."""
        started, plan = time.perf_counter(), self.plan(name.removesuffix(UNWOUND), num_heads)
        variant, model = replace(REWOUND, rewound=not name.endswith(UNWOUND)), copy.deepcopy(self.start)
        if name.endswith(UNWOUND):
            remove_heads(model, plan)
        without = {} if variant.rewound else {"untuned": self.subject.scores(model, self.subject.develop)}
        model = carried_out(self.subject, variant, model, plan)
        self.record.keep(title, {**finish(self.subject, model), **without}, started)

    def plan(self, name: str, num_heads: int) -> PruningPlan:
        """A selector's plan of about so many heads, made once."""
        if (name, num_heads) not in self.plans:
            self.plans[name, num_heads] = (
                self._corrected(name, num_heads)
                if name in CORRECTIONS
                else ranking_of(self.subject, self.start, name, num_heads)
            )
        return self.plans[name, num_heads]

    def _corrected(self, name: str, num_heads: int) -> PruningPlan:
        """The plan of one of `CORRECTIONS`."""
        prior = CORRECTIONS[name]
        given = PruningPlan() if prior is None else self.plan(prior, num_heads)
        scouts = self._all_scouts()
        started, variant = time.perf_counter(), replace(REWOUND, caution=1.0)
        walk = Walk(self.subject, variant, copy.deepcopy(self.start), scouts, self.folds, context=given)
        walk.decide_all()
        assert walk.context is not None
        changed = [len({*walk.context.removed(layer)} ^ {*given.removed(layer)}) for layer in walk.bonuses]
        self.record.content[f"{name} {num_heads} search"] = {
            "rewards": walk.rewards,
            "seconds": round(time.perf_counter() - started, 1),
            "changed": sum(changed),
            "prices": {layer: round(bonus, 6) for layer, bonus in walk.bonuses.items()},
        }
        return walk.context

    def _all_scouts(self) -> list[Any]:
        """A scout with all tunings for each fold, made once."""
        if not self.scouts:
            started = time.perf_counter()
            folds = range(self.folds.max() + 1)
            self.scouts = [self.subject.all_tuned(np.flatnonzero(self.folds != fold)) for fold in folds]
            self.record.content["scouts"] = {
                "out_of_fold": out_of_fold(self.subject, self.scouts, self.folds),
                "seconds": round(time.perf_counter() - started, 1),
            }
        return self.scouts


def main() -> None:
    """The command line."""
    options = parser(__doc__)
    options.add_argument("--heads", default="48", help="how many the plans remove, or begin with; several after commas")
    options.add_argument(
        "--selectors",
        default=f"voita{UNWOUND},corrected{UNWOUND}",
        help=f"rankings and {', '.join(CORRECTIONS)}, each also with {UNWOUND}",
    )
    arguments = options.parse_args()
    subject = make_subject(
        arguments.model, arguments.task, arguments.data, arguments.settings, arguments.develop, "default"
    )
    folds = make_folds(len(subject.rows), arguments.folds, subject.config.seed)
    command = f"{arguments.said} --heads {arguments.heads} --selectors {arguments.selectors}"
    record = Record(arguments.out, "selectors", command, subject)
    contest = Contest(subject, subject.first_tuned(range(len(subject.rows))), folds, record)
    contest.control()
    sizes = [int(size) for size in arguments.heads.split(",")]
    for size in sizes:
        for name in arguments.selectors.split(","):
            contest.carry_out(name, size, name if len(sizes) == 1 else f"{name}, {size}")


if __name__ == "__main__":
    main()
