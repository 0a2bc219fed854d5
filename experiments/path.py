"""One search, plans of several sizes out of the masks it has seen, and whether cross-validation foretells the best.

A size is reached by the price of a head: each layer's mask is the best where a removed head is worth so much, and the price is the
lowest that removes as many. Each plan is carried out on the pretrained weights and judged on development rows, beside nothing
removed and rankings at as many heads. Cross-validation is of the plan itself: as many models as there are folds are tuned without
the plan's heads, each on all rows but its fold, and score what they never saw. It costs no rewards, and unlike the rewards it knows
what a tuning makes of a plan.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from auber.encoders import encoder_of
from auber.evaluation import predict
from auber.plan import PruningPlan
from auber.surgery import remove_heads
from experiments.command import parser
from experiments.masked import Mask
from experiments.record import Record
from experiments.search import Variant, Walk, carried_out, finish, ranked, tune_along
from experiments.subject import Subject, make_folds, make_subject, measures


def plan_at(price: float, scores: Mapping[int, Mapping[Mask, float]]) -> PruningPlan:
    """Of each layer the mask that is best where a removed head is worth so many points; of equals the smaller."""
    plan = {}
    for layer, of_masks in scores.items():
        worths = [(100 * score + price * len(mask), -len(mask), mask) for mask, score in of_masks.items()]
        plan[layer] = max(worths)[2]
    return PruningPlan(plan)


def plan_of_size(num_heads: int, scores: Mapping[int, Mapping[Mask, float]]) -> tuple[PruningPlan, float]:
    """The plan of the lowest price that removes at least so many heads, and that price; all there are where they are fewer."""
    low, high = -100.0, 100.0  # points
    for _ in range(40):  # to well below a millionth of a point
        price = (low + high) / 2
        low, high = (low, price) if plan_at(price, scores).num_removed >= num_heads else (price, high)
    return plan_at(high, scores), high


def out_of_fold(subject: Subject, models: Sequence[Any], folds: np.ndarray) -> list[float]:
    """All measures of all rows, each scored by the model of its fold; in points."""
    parts = [np.flatnonzero(folds == fold) for fold in range(len(models))]
    logits = torch.cat(
        [predict(model, subject.rows.select(rows.tolist())) for model, rows in zip(models, parts, strict=True)]
    )
    labels = subject.rows.labels[np.concatenate(parts)].to(logits.device)
    return measures(logits, labels, subject.task.metric)


def validated(subject: Subject, plan: PruningPlan, folds: np.ndarray) -> list[float]:
    """A plan's measures out of fold, by models that were tuned without its heads."""
    models = []
    for fold in range(folds.max() + 1):
        model = subject.start()
        remove_heads(model, plan)
        subject.tune(model, np.flatnonzero(folds != fold), subject.config.first, "first")
        models.append(model)
    return out_of_fold(subject, models, folds)


def main() -> None:
    """The command line."""
    options = parser(__doc__)
    options.add_argument("--heads", default="24,48,72", help="how many the plans remove, or just above")
    options.add_argument("--price", type=float, default=0.02, help="points for a head, which the search plays for")
    options.add_argument("--ripe", action="store_true", help="give the scouts all tunings, not the first alone")
    options.add_argument("--unvalidated", action="store_true", help="without cross-validation of the plans")
    options.add_argument("--independent", action="store_true", help="decide every layer with the others whole")
    options.add_argument("--rankings", default="", help="competitors at each plan's number of heads, such as michel")
    arguments = options.parse_args()
    subject = make_subject(
        arguments.model, arguments.task, arguments.data, arguments.settings, arguments.develop, "default"
    )
    folds = make_folds(len(subject.rows), arguments.folds, subject.config.seed)
    variant = Variant(
        crossed=True,
        measure="calibrated",
        bonus=arguments.price,
        frozen=True,
        independent=arguments.independent,
        rewound=True,
    )
    command = f"{arguments.said} --heads {arguments.heads} --price {arguments.price:g}"
    command += " --independent" * arguments.independent
    command += " --ripe" * arguments.ripe + " --unvalidated" * arguments.unvalidated
    command += f" --rankings {arguments.rankings}" if arguments.rankings else ""
    record = Record(arguments.out, "path", command, subject)
    start = subject.first_tuned(range(len(subject.rows)))
    grow = subject.all_tuned if arguments.ripe else subject.first_tuned
    scouts = [grow(np.flatnonzero(folds != fold)) for fold in range(arguments.folds)]
    started = time.perf_counter()
    control = copy.deepcopy(start)
    tune_along(subject, control)
    record.keep(
        "original+tuning", {**finish(subject, control), "out_of_fold": out_of_fold(subject, scouts, folds)}, started
    )

    started = time.perf_counter()
    walk = Walk(subject, variant, copy.deepcopy(start), copy.deepcopy(scouts), folds)
    walk.decide_all()
    record.content["search"] = {
        "rewards": walk.rewards,
        "removed": encoder_of(walk.model).removed.to_json(),
        "seconds": round(time.perf_counter() - started, 1),
    }
    del walk.model, walk.scouts
    for size in map(int, arguments.heads.split(",")):
        started, (plan, price) = time.perf_counter(), plan_of_size(size, walk.scores)
        found = finish(subject, carried_out(subject, variant, None, plan))
        found["price"] = round(price, 6)
        if not arguments.unvalidated:
            found["out_of_fold"] = validated(subject, plan, folds)
        record.keep(f"{size} heads", found, started)
        for ranking in filter(None, arguments.rankings.split(",")):
            started = time.perf_counter()
            other = ranked(subject, variant, start, ranking, plan.num_removed)
            record.keep(f"{ranking} like {size} heads", other, started)


if __name__ == "__main__":
    main()
