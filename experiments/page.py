"""docs/experiments.md from the experiments' files: what was tried to improve the search, how, and what came of it.

python -m experiments.page results/experiments/*.json --out docs/experiments.md
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from auber.system.files import write_text
from experiments.summary import (
    CONTROL,
    Rows,
    agents_table,
    asked_table,
    cost_table,
    develop_table,
    markdown,
    parts_table,
    path_table,
    rankings_table,
    scouts_table,
    search_table,
    selectors_table,
    tuning_of,
    tunings_table,
)

Results = Sequence[dict[str, Any]]
Tables = Sequence[tuple[str, tuple[list[str], Rows]]]  # titles, columns, rows

INTRODUCTION = """\
# Experiments

What was tried to make the search better than the paper's, each idea alone and beside what it changes. The programs are in
`experiments/`, their results in `results/experiments/`; this page is made from those by

    python -m experiments.page results/experiments/*.json --out docs/experiments.md

and a test compares. No experiment looks at a task's dev rows: a part of train is set apart, no model is tuned on it, and it alone
judges. Dev scores are in [what was found](#what-was-found) alone. Differences are in points, means over (task, seed) pairs with their 95 % t interval; log-likelihood is in hundredths
of a nat. What helps, or is at least no worse, may become the `default` preset; what does not is written down here and goes, also from the
programs: a command below is of the commit beside it. mpnet-base are the weights of sentence-transformers/all-mpnet-base-v2, minilm-l6
those of all-MiniLM-L6-v2: sentence encoders, trained further than the plain pretrained models of these names.
"""

FOUND = """\
## What was found

Six ideas in a row showed no gain beside what they change: *faithful*, *cautious*, *corrected*, *mended*, *redundant*, and *corrected* and mended together, all
but *redundant* over five pairs or more. Tuning faster, which came last, gains as much for the unpruned model. `default` was fixed with what
is below, and then its dev scores were looked at once: mpnet-base, five seeds, beside the rankings at as many heads and the unpruned model, all with
the same tunings ([results](results.md#mpnet-base-protocol-crossfit)). 53 or 54 of 144 heads go, 48 on WNLI; a third of them, 48, is what
the search begins from.

| what was wanted | what was found | |
| --- | --- | --- |
| ahead of random, confidence, michel and voita on CoLA, MRPC and RTE, and over all pairs an interval without 0 | ahead of all on RTE (by 4.3, 2.7, 2.1 and 1.6 points), of all but michel on CoLA (by 7.8, 2.0, 0.0 and 0.6), behind all on MRPC (by 0.4, 0.5, 1.1 and 0.3); over the 15 pairs +3.9 (+1.6 to +6.2), +1.4 (+0.3 to +2.4), +0.3 (-0.9 to +1.6) and +0.6 (-0.5 to +1.8). Shown is the first; the second has a p of 0.051 corrected for the four | in part |
| ahead of the unpruned model in the mean over CoLA, MRPC and RTE | -0.3 (-1.0 to +0.4, 15 pairs): level, and not ahead | no |
| a regret of at most 0.3 points after 300 rewards in a layer of 12 heads | 0.23 on RTE's layers and 0.30 on WNLI's of mpnet-base ([regret](regret.md)) with ten seeds, 0.29 and 0.30 with [twenty](#an-agent-that-learns-sooner), where 40 games end at about 200 rewards (60 at 279, with [0.17](#a-hill-climb-after-the-agents-games) on WNLI's; an agent that [learns sooner](#an-agent-that-learns-sooner) is at 0.17 and 0.22); random masks are at 0.29 and 0.26 after 300 | just |
| train minus dev smaller than the unpruned model's, in the mean and in most pairs | by 1.0 points in the mean, in 12 of 20 pairs; without WNLI by 0.1, in 8 of 15. Not shown to differ (-2.3 to +0.4) | just |
| WNLI not below the unpruned model by more than a standard error | +3.1 points; both are far below the majority class, 25.6 and 22.5 beside 56.3 | yes |
| at most twice the time of `paper` | 1.8 times on RTE, 1.8 times on MRPC ([what it costs](#what-it-costs)); CoLA was not timed | where timed |

So a third of the heads can go without a loss that 15 pairs would show, and on CoLA and RTE it matters which: random ones cost 8.6 and 4.5 points. That the
search chooses better than the gates it begins from or than michel's ranking is not shown, and neither is that a model gains by losing heads. `paper` is
at -1.8 (-3.7 to +0.0, 11 pairs) with half of the heads gone; the two tune at other rates and remove other numbers of heads, so that this is no
comparison of the searches.
"""

LOCAL = """\
## A hill climb after the agent's games

On layers of which every mask was scored, the `default` agent plays some games, and from its best masks one head at a time is
then taken out or put back as long as that gains. Regret is how far the best mask seen is below the layer's best, in points.

What came of it: at the same regret the climb saves about a quarter of the rewards (mpnet-base: 0.32 points after 146 rewards beside
0.30 after 199 without; 0.19 after 231 beside 0.17 after 279), and after 150 games nothing is left to climb. One row of WNLI's reward
set is 0.24 points, so what the climb gains is less than a single row. Not taken.
"""

SOONER = """\
## An agent that learns sooner

On the same recorded layers, the `default` agent with its first update after fewer moves than the 128 it waits for, and with double Q-learning
(`agent.double_q`), played 20 times on each layer. Regret is in points, the mean over the layers, three of RTE and three of WNLI a model; the roll-out is what the networks themselves
would play, which `default` does not take as its plan.

What came of it: of six settings the best is the first update after 32 moves with double Q-learning. The regret after 300 rewards falls on mpnet-base from
0.29 to 0.19 points, -0.10 (-0.14 to -0.05, 6 layers; p 0.015 corrected for the six), and after 100 from 0.54 to 0.36, where random masks are at 0.48. Sooner alone,
after 32 or 64 moves, points the same way and is not shown; double Q-learning alone changes nothing, three times the updates take the gain away again, and
minilm-l6 leaves little to find. The settings were picked on these layers with half of these seeds, so that the interval is rather too good; two more
were begun and not played to the end. One row of the reward set is 0.24 points on WNLI and 0.12 on RTE. Not in `default`, whose dev scores were made without
it, and what a better mask by the rewards is worth on other rows was not asked; `--set agent.learning_starts=32 --set agent.double_q=true` plays so.
"""

SEARCHES = """\
## Whole searches

Variants of the search from one fine-tuned start, all with the same tunings, judged on the rows set apart. The names say what is
done: *crossed*, scouts that never saw a row score it; *calibrated*, by log-likelihood under the best scale and biases; a number, what a
removed head is paid, in hundredths of a point of that; *rewound*, all layers are decided on scouts that are not tuned in between, and the
plan is carried out on the pretrained weights; *taught*, the model that comes out is tuned on targets of which this share is what the
scouts say of rows they never saw. "michel like X" removes as many heads as X by michel's ranking, and is rewound as X is.

What came of it so far, on minilm-l6 (CoLA only for teaching: its searches were cut):

- Crossed, calibrated and rewound, at 0.05 a head, is level with the unpruned model (+0.11 points, -0.99 to +1.21, 6 pairs) with 42 of 72
  heads gone, and ahead of michel's ranking with the same treatment in all 6 pairs (+1.73, +0.57 to +2.90). `paper`
  takes 12 to 16 heads on CoLA, MRPC and RTE and is at -0.8 there ([results](results.md), on dev). It is in the package as `protocol = crossfit` with
  `reward.measure = smooth`, whose points are shares of the labels' entropy: 0.05 hundredths of a nat are `reward.head = 0.07` where two
  classes are about even.
- At 0.2 a head more go (56) and the score falls (-1.30): too much.
- Teaching makes for a far better log-likelihood and no better decisions: -0.58 points (-1.51 to +0.36) at half and -5.22 at 0.8 with all heads
  (8 pairs), -1.00 and -2.60 without those that go at 0.05 (5 pairs). Not taken.
- On mpnet-base one pair is known, MRPC: -1.96 against the unpruned model and +0.55 against michel, with 68 of 144 heads gone. A price that
  suits 72 heads is paid twice as often there. What came of that is caution: a head has to gain, by its standard errors (below).
"""

PATHS = """\
## How many heads, and who foretells it

One search, with scouts as above; out of the masks it has seen, a plan for each of several sizes. Each is carried out on the
pretrained weights. Out of fold: models tuned without the plan's heads, each on all rows but its fold, score what they never saw.
The size of a plan is set by what a head is paid: the lowest pay at which at least so many go.

What came of it so far:

- minilm-l6, 4 pairs: from 12 to 36 of 72 heads can go with no difference shown on develop (-0.43 to -1.24 points, give or take 1.8 to 3.1). Choosing
  the size out of fold gains nothing (-0.97 by the metric, -0.41 by the log-likelihood), and out of fold all sizes look better than nothing removed
  (by 0.6 to 1.4 points in the mean), which develop does not bear out: their heads were chosen by the same rows. Not taken.
- mpnet-base, MRPC, one pair: +0.55, 0.00 and -1.85 points at 24, 48 and 72 heads. The search itself, which pays 0.02 hundredths of a nat for a
  head, takes 79, and 72 are reached at 0.005, next to nothing: the best of some hundred masks of a layer may well be so by luck. At 48 the pay
  is -0.036: what goes has to gain.
- mpnet-base, RTE: scouts after the first tuning alone have learned nothing (49.8 % out of fold, three of them), every mask is as good as any
  other, and a search takes 106 heads for a loss of 10 points. With all tunings they are at 54.9 and 56.1 %, ten of them with the first alone at
  55.4 %, and 48 and 72 heads cost 2.25 points (one pair; three of these runs were cut before their last plan). Scouts of the package have
  all tunings since.
"""

SELECTORS = """\
## Who chooses best

Plans by rankings and by searches, carried out on the pretrained weights or (*unwound*) on the tuned start, with the same tunings. Scouts
have all of them. *alone*: each layer is decided with the others whole, by scouts; *search*: the layers in turn, by scouts, and a removed head
has to gain one standard error of what removing a single head gains; *seen*: the same, asked is the tuned model itself for rows it was tuned
on; *bound*: masks are scored by the lower end of their gain, its mean over the rows less one standard error; *warm*: each layer is decided
beside the gates' plan for the others; *hardened*: by scouts that were tuned with heads missing at random; *faithful* and *cautious*: head by
head out of the start, by how little what it says changes, or by the gain less three standard errors; *corrected*: the gates' plan, layer
by layer, where scouts say that a head put back or taken besides gains one standard error; *redundant*: first goes the head that the others
of its layer foretell best; *mended*: on the tuned start, and what a removed head would say, as far as the others foretell it, goes into
their output projection. The number of heads is in the name; *corrected* begins with it, and *own size* and *bound* are told none. The gates
are voita's, with the same treatment; beside *mended* they are unwound.

What came of it so far:

- On mpnet-base rewards from rows the model was tuned on lead astray: *seen*, with the smooth measure and caution, is at -5.6 points (-10.0 to -1.2, 4
  pairs) with 48 heads gone, and at -5.1 (-12.7 to +2.6, 4 pairs) with the 11 of its own choice. The heads it takes first are those the gates keep (of the 12, 8 and 15 of its own
  choice on RTE they close 1, 0 and 6): what seems to gain most is what matters most.
- No selector is shown to be ahead of the unpruned model. The gates' plan is level with it with a third of mpnet-base's heads gone: -0.1 (-1.4 to
  +1.2, 10 pairs in 24 runs, unwound) and +0.6 (-0.6 to +1.7, 7 pairs); with half of them it is at -0.8 (-2.1 to +0.4, 10 pairs), with two thirds
  at -3.3. After the first six pairs the third stood at +0.7: more pairs, not another method, brought it down. The search by scouts is level with 18 heads
  of its own choice (+0.4, 3 pairs; minilm-l6 -0.4, 2 pairs), and at -1.0 with 48.
- *mended* looked promising and does not hold: +0.8 points against the plain gates at 72 (-2.6 to +4.2, 5 pairs) and +1.0 at 96 (-0.1 to +2.1, 4
  pairs), but -0.3 at 48 (-1.3 to +0.7, 8 pairs), and together with *corrected* nothing is gained at 72. At 72 and 96 the regression was learned layer
  by layer of what was left of the model, at 48 and for *corrected* once, of the unpruned model. Not taken.
- *corrected* is not shown to be ahead of the gates: +0.6 points (-1.2 to +2.4, 5 pairs) at 48, +0.4 (2 pairs) at 72, of which it puts 12 back; in the
  log-likelihood +0.8 and +1.4; and mended, at 72, -0.3 (-1.8 to +1.3, 5 pairs). One standard error is too little: among twelve heads of which none
  gains anything, two exceed it by chance, 23 in twelve layers, and 22 to 30 are what the mended searches changed (10 to 28 the others).
  *redundant*, mended, is below the mended plan of the gates: -0.8 beside +0.1 against the control at 72, -5.6 beside -2.3 at 96 (2 to 5 pairs each). It is gone.
- A search that asks scouts was ahead of *seen* in all five runs that have both, by 2.8 points at the given size (-1.7 to +7.3) and by 5.2 at its own
  (-0.7 to +11.0): a lead, not shown. `default` is built on it, as *corrected-unwound, 48*: scouts, the
  smooth measure, caution, the gates' plan of a third of the heads, on the tuned start. It is not shown to be ahead of the gates alone; tuned as `default` tunes
  (below), two pairs are known: -1.4 (-5.5 to +2.6) against the control, +0.2 (-0.8 to +1.3) against the gates.
- What helps is to tune faster. After the layers the paper tunes at a rate of 2e-6, which `paper` has for the last tuning too. At 1e-5 the unpruned model
  is better in 10 of 10 pairs, by +2.1 points (+1.4 to +2.7), and the gates' plan of a third in 10 of 10, by +2.1 (+1.2 to +3.0): as much with heads as without, so that
  the plan is where it was beside the control, -0.1 (-1.0 to +0.9, 10 pairs), and at -0.6 (-2.9 to +1.8, 5 pairs) with half of the heads gone. It is fitted to the
  training rows: train minus develop grows by 8 points. At 2e-5 both gain again, the unpruned model more (the plan is at -0.7, -2.7 to +1.3, 4
  pairs, none of CoLA). `default` tunes at 1e-5.
- *faithful* (-0.6, 6 pairs) and *cautious* (-0.2, 5 pairs) are not ahead of the gates. Not taken.
- The gates' plan does no better on the pretrained weights than on the tuned start, which saves a tuning: where one run has both, the start
  is ahead in 4 of 6, by 1.2 points in the mean.
- Eighteen of these runs lack their last selectors: seven of the first ones because the GPU they shared ran out of memory (scorers of earlier layers were kept;
  that is put right), the others because their time was up. None was ended by its scores, and two were made again. For lack of memory some tunings ran their
  batches in parts. The same (task, seed) pair comes out differently from run to run on a GPU, RTE's control by up to 2.6 points: a selector is compared within
  its run, and only ways to tune are compared from run to run.
"""


DEVELOP = """\
## Whole runs of the package

The package's own runs with settings changed, from one fine-tuned start, all with the same tunings, judged on the rows set apart.
"""


PARTS = """\
## What the parts are worth

The search of a preset without one of its parts, from the same fine-tuned start and by the same scouts, judged on the rows set apart. Each is tuned after the
layers that lose heads, the unpruned model as the search with all parts.

What came of it, over six or seven pairs: without caution the metric is at -0.56 (-1.65 to +0.53) against the search with all parts, and without caution
and the smooth measure at -1.21 (-2.30 to -0.13), behind it in 5 of 6 pairs; of that the smooth measure is worth +0.77 (-0.67 to +2.21, 4 pairs). Of three
comparisons the least p is 0.035, corrected for the three 0.105: that the two together are of use is a lead, not shown, and so is what each of them adds.
Without the gates' plan to begin from it is at -0.12 (-1.08 to +0.83), which is level, at +6.98 (+0.22 to +13.75) in the log-likelihood, uncorrected, and removes 21 heads in
place of 53: the plan is what makes the model smaller. All parts stay. The search with all of them is at +0.63 (-0.32 to +1.57, 6 pairs) against the unpruned model here.

Three runs (MRPC 0 and 2, RTE 2) were cut when their machine was gone, after their second search, and have no unpruned model; none was ended by its scores.
For want of memory beside other work on the GPU some steps of the scouts of RTE, seed 1, were taken as ordinary ones, with batches in parts; all searches
of that pair asked the same scouts.
"""


COST = """\
## What it costs

Whole runs from the pretrained encoder to the pruned model, one preset after the other on the same machine with nothing else at work on it, after
a short run that does not count. Scouts are part of the search.

What came of it: `default` takes 1.8 times as long as `paper` on RTE and 1.8 times on MRPC; 40 to 51 % of its time goes into tuning the scouts. Rewards by
scouts were made to wait less after RTE was timed and before MRPC was. CoLA was not timed.
"""


def local_table(results: Results) -> tuple[list[str], Rows]:
    """Agent alone and with the climb, a row for each number of games."""
    columns = [
        "model",
        "task",
        "games",
        "regret, agent",
        "rewards",
        "regret, with climb",
        "rewards with climb",
    ]
    rows = [
        [
            row["model"],
            row["task"],
            str(row["episodes"]),
            *(
                cell
                for name in ("agent", "climb")
                for cell in (f"{row[name]['regret']:.2f}", f"{row[name]['rewards']:.0f}")
            ),
        ]
        for result in results
        for row in result["rows"]
    ]
    return columns, rows


def render(results: Results) -> str:
    """The page."""
    parts = [INTRODUCTION, FOUND]
    if found := _of_kind(results, "experiment-local"):
        parts.append(_section(LOCAL, [("", local_table(found))], found))
    if found := _of_kind(results, "auber regret"):
        parts.append(_section(SOONER, [("", agents_table(found, "default"))], found))
    if found := _of_kind(results, "experiment-search"):
        parts.append(_section(SEARCHES, _by_tasks(found, _search_tables), found))
    if found := _of_kind(results, "experiment-path"):
        parts.append(_section(PATHS, _by_tasks(found, _path_tables), found))
    if found := _of_kind(results, "experiment-selectors"):
        asked = ("whom a search asks", asked_table(found))
        parts.append(
            _section(
                SELECTORS,
                [*([asked] if asked[1][1] else []), *_by_tasks(found, _selectors_tables)],
                found,
            )
        )
    if found := _of_kind(results, "experiment-develop"):
        parts.append(
            _section(
                DEVELOP, _by_tasks(found, lambda some: [("methods", develop_table(some))]), found
            )
        )
    if found := _of_kind(results, "experiment-parts"):
        parts.append(
            _section(
                PARTS, _by_tasks(found, lambda some: [("without a part", parts_table(some))]), found
            )
        )
    if found := _of_kind(results, "experiment-cost"):
        parts.append(_section(COST, [("", cost_table(found))], found))
    return "\n".join(parts)


def _search_tables(results: Results) -> Tables:
    against = [(f"against {name}", search_table(results, name)) for name in (CONTROL, "default")]
    return [*against, ("against rankings at as many heads", rankings_table(results))]


def _path_tables(results: Results) -> Tables:
    by_way: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        way = (
            "each layer with the others whole"
            if "--independent" in result["command"]
            else "layers in turn"
        )
        by_way[way + ", scouts with all tunings" * ("--ripe" in result["command"])].append(result)
    tables = [
        table
        for how, part in by_way.items()
        for table in (
            (f"sizes, {how}", path_table(part)),
            (f"sizes, {how}, against rankings at as many heads", rankings_table(part)),
        )
    ]
    return [*tables, ("what the scouts know", scouts_table(results))]


def _selectors_tables(results: Results) -> Tables:
    """A table for each way to tune, since a difference under one says nothing of another."""
    by_tuning: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        by_tuning[tuning_of(result)].append(result)
    selectors = [
        (
            f"selectors, {tuning}" if tuning and len(by_tuning) > 1 else "selectors",
            selectors_table(part),
        )
        for tuning, part in by_tuning.items()
    ]
    return [*selectors, ("what other tunings do", tunings_table(results))]


def _by_tasks(results: Results, tables_of: Callable[[Results], Tables]) -> Tables:
    """These tables, as far as they have rows, for each model and apart for tasks that are not learned."""
    return [
        (f"{model}, {tasks}, {title}", table)
        for model, of_model in _by_model(results)
        for tasks, some in _by_learning(of_model)
        for title, table in tables_of(some)
        if table[1]
    ]


def _section(text: str, tables: Tables, results: Results) -> str:
    lines = [text]
    for title, (columns, rows) in tables:
        lines += [*([f"### {title}", ""] if title else []), markdown(columns, rows), ""]
    lines += [
        "Made by:",
        "",
        *(f"    {result['command']}    # {_origin(result)}" for result in results),
        "",
    ]
    return "\n".join(lines)


def _of_kind(results: Results, kind: str) -> Results:
    return [result for result in results if result["kind"] == kind]


def _origin(result: dict[str, Any]) -> str:
    made = result["provenance"]
    changed = " with changes" if made["commit"]["dirty"] else ""
    return f"commit {made['commit']['id'][:12]}{changed}, {made['device']}"


def _by_model(results: Results) -> list[tuple[str, Results]]:
    models = dict.fromkeys(result["model"] for result in results)
    return [(model, [result for result in results if result["model"] == model]) for model in models]


def _by_learning(results: Results) -> list[tuple[str, Results]]:
    """WNLI apart: what is learned of it does not hold for other rows, and it would outweigh all other tasks."""
    apart = [result for result in results if result["task"] == "wnli"]
    others = [result for result in results if result["task"] != "wnli"]
    return [
        (", ".join(dict.fromkeys(result["task"] for result in part)), part)
        for part in (others, apart)
        if part
    ]


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("files", nargs="+", type=Path)
    options.add_argument("--out", type=Path, required=True)
    arguments = options.parse_args()
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(arguments.files)]
    write_text(arguments.out, render(results))


if __name__ == "__main__":
    main()
