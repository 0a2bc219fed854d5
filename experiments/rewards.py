"""Which reward finds masks that generalise? Many masks of some layers, scored in every way a search could score them.

Train is cut into development rows, which no model here is tuned on, and the rest. The model is tuned on the rest, and so are
`folds` scouts, each on all of the rest but its fold. A mask is then scored on

    seen        the model, on rows it was tuned on (the paper's reward)
    crossed     the scouts, each on its own fold, so that every row is scored by a scout that never saw it
    develop     the model, on the development rows: what a reward should foretell

each by the task's metric, by the metric of probabilities in the place of decisions (`soft`), by the mean log-likelihood and by the
lower bound of its gain (`bound`). Seen
and crossed rows come in two parts, two thirds to choose a mask by and one third to confirm the choice. For the best mask of each
reward the model is also pruned, tuned as after a layer, and scored on the development rows.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np

from auber import seeds
from auber.encoders import encoder_of
from auber.plan import PruningPlan
from auber.surgery import remove_heads
from experiments.command import parser, write
from experiments.masked import Mask, MaskedRows, Parts
from experiments.record import describe
from experiments.subject import MEASURES, Subject, make_folds, make_subject

REWARDS = (*MEASURES, "bound")
SETS = ("seen", "seen_confirm", "crossed", "crossed_confirm", "develop")
CONFIRM = 1 / 3  # share of the rows kept to confirm a choice


def draw_masks(num_heads: int, count: int, rng: np.random.Generator) -> list[Mask]:
    """No head, each head alone, and random sets of all sizes that leave a head; all different."""
    masks: dict[Mask, None] = dict.fromkeys([(), *((head,) for head in range(num_heads))])
    while len(masks) < min(count, 2**num_heads - 1):
        size = int(rng.integers(2, num_heads))
        masks[tuple(sorted(rng.choice(num_heads, size, replace=False).tolist()))] = None
    return list(masks)


def score_layer(subject: Subject, layer: int, sets: dict[str, Parts], count: int) -> dict[str, Any]:
    """Many masks of a layer, in points on every set by every measure."""
    rng = seeds.generator(subject.config.seed, "experiment/masks", layer)
    model = sets["develop"][0][0]
    masks = draw_masks(len(encoder_of(model).present(layer)), count, rng)
    scores = []
    for name in SETS:
        masked = MaskedRows(sets[name], layer, subject.task.metric, subject.hardware)
        scores.append(100 * masked.scores(REWARDS, masks))
    table = np.stack(scores, axis=1)  # (masks, sets, measures)
    return {
        "layer": layer,
        "masks": [list(mask) for mask in masks],
        "scores": np.round(table, 4).tolist(),
        "tuned": _after_tuning(subject, layer, model, masks, table, rng),
    }


def _after_tuning(
    subject: Subject, layer: int, model: Any, masks: list[Mask], table: np.ndarray, rng: np.random.Generator
) -> dict[str, Any]:
    """Development scores after pruning and tuning: of no mask, of the best by each reward, of a random one as large."""
    chosen: dict[str, Mask] = {"none": ()}
    for name in ("seen", "crossed"):
        for index, measure in enumerate(REWARDS):
            best = masks[int(table[:, SETS.index(name), index].argmax())]
            alike = [mask for mask in masks if len(mask) == len(best)]
            chosen[f"{name} {measure}"] = best
            chosen[f"random like {name} {measure}"] = alike[int(rng.integers(len(alike)))]
    mini_train = subject.splits.layers[layer].mini_train
    known: dict[Mask, list[float]] = {}
    for mask in chosen.values():
        if mask not in known:
            pruned = copy.deepcopy(model)
            if mask:
                remove_heads(pruned, PruningPlan({layer: mask}))
            subject.tune(pruned, mini_train, subject.config.layer, "layer", layer)
            known[mask] = subject.scores(pruned, subject.develop)
    return {name: {"removed": list(mask), "develop": known[mask]} for name, mask in chosen.items()}


def main() -> None:
    """The command line."""
    options = parser(__doc__)
    options.add_argument("--layers", default="1,4,7,10")
    options.add_argument("--masks", type=int, default=300, help="masks a layer")
    arguments = options.parse_args()
    started = time.perf_counter()
    subject = make_subject(
        arguments.model, arguments.task, arguments.data, arguments.settings, arguments.develop, "paper"
    )
    rows, folds = subject.rows, make_folds(len(subject.rows), arguments.folds, subject.config.seed)
    confirms = seeds.generator(subject.config.seed, "experiment/confirm").random(len(rows)) < CONFIRM
    model = subject.first_tuned(range(len(rows)))
    scouts = [subject.first_tuned(np.flatnonzero(folds != fold)) for fold in range(arguments.folds)]

    def part(chosen: np.ndarray) -> Any:
        return rows.select(tuple(np.flatnonzero(chosen).tolist()))

    sets: dict[str, Parts] = {"develop": [(model, subject.develop)]}
    for name, here in (("", ~confirms), ("_confirm", confirms)):
        sets["seen" + name] = [(model, part(here))]
        sets["crossed" + name] = [(scout, part(here & (folds == fold))) for fold, scout in enumerate(scouts)]
    result = {
        **describe("rewards", f"{arguments.said} --layers {arguments.layers} --masks {arguments.masks}", subject),
        "sets": list(SETS),
        "measures": list(REWARDS),
        "unpruned": subject.scores(model, subject.develop),
        "layers": [score_layer(subject, int(layer), sets, arguments.masks) for layer in arguments.layers.split(",")],
        "seconds": round(time.perf_counter() - started, 1),
    }
    write(arguments.out, result)


if __name__ == "__main__":
    main()
