"""The tables of what the experiments' files say: means over (task, seed) pairs with their 95 % t intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from auber.metrics.statistics import summary

Rows = list[list[str]]

CONTROL = "original+tuning"
WHOLE = "with all its parts"


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval, signed; nothing where there are no values."""
    if not values:
        return ""
    found = summary(values)
    if found.low is None or found.high is None:
        return f"{found.mean:+.2f}"
    return f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


def agents_table(results: Sequence[dict[str, Any]], preset: str) -> tuple[list[str], Rows]:
    """The regrets of a preset's agent as `auber regret` replays it, by what was set, beside that without a setting; a row for each model."""
    columns = [
        "model", "settings", "layers", "after 50 rewards", "after 100", "after 300", "after 300, against none", "roll-out", "rewards"
    ]  # fmt: skip
    plain = next(
        result["presets"][preset] for result in results if "--set" not in result["command"]
    )
    at_hand: dict[str, list[dict[str, float]]] = {}
    rows = []
    for result in sorted(results, key=lambda result: "--set" in result["command"]):
        changed = [
            f"{key}={value}"
            for key, value in result["presets"][preset].items()
            if value != plain[key]
        ]
        for model in dict.fromkeys(panel["model"] for panel in result["panels"]):
            layers = [
                {
                    name: layer["searches"][preset][name]["mean"]
                    for name in ("50", "100", "300", "rollout", "rewards")
                }
                for panel in result["panels"]
                if panel["model"] == model
                for layer in panel["layers"]
            ]
            before = at_hand.setdefault(model, layers)
            against = [
                mine["300"] - other["300"] for mine, other in zip(layers, before, strict=True)
            ]
            mean = {name: fmean(layer[name] for layer in layers) for name in layers[0]}
            rows.append(
                [
                    model,
                    ", ".join(changed) or "none",
                    str(len(layers)),
                    *(f"{mean[name]:.2f}" for name in ("50", "100", "300")),
                    interval(against) if changed else "",
                    f"{mean['rollout']:.2f}",
                    f"{mean['rewards']:.0f}",
                ]
            )
    return columns, sorted(rows, key=lambda row: row[0], reverse=True)


def search_table(
    results: Sequence[dict[str, Any]], against: str = CONTROL
) -> tuple[list[str], Rows]:
    """Each variant on the development rows against one of them, where both are."""
    columns = [
        "variant", "pairs", f"develop metric against {against}", f"develop log-likelihood against {against}",
        f"train minus develop against {against}", "heads removed", "rewards", "seconds",
    ]  # fmt: skip
    names = list(dict.fromkeys(name for result in results for name in result["runs"]))
    rows = []
    for name in names:
        both = [
            result["runs"]
            for result in results
            if name in result["runs"] and against in result["runs"]
        ]
        if name == against or not both:
            continue
        mine, others = [runs[name] for runs in both], [runs[against] for runs in both]
        rows.append(
            [
                name,
                str(len(both)),
                interval(
                    [a["develop"][0] - b["develop"][0] for a, b in zip(mine, others, strict=True)]
                ),
                interval(
                    [a["develop"][2] - b["develop"][2] for a, b in zip(mine, others, strict=True)]
                ),
                interval([_gap(a) - _gap(b) for a, b in zip(mine, others, strict=True)]),
                f"{fmean(run['num_removed'] for run in mine):.0f}",
                f"{fmean(run['rewards'] for run in mine):.0f}"
                if all("rewards" in run for run in mine)
                else "",
                f"{fmean(run['seconds'] for run in mine):.0f}",
            ]
        )
    return columns, rows


def path_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """Plans of several sizes against nothing removed, on develop and out of fold, and what a choice out of fold would have given."""
    columns = [
        "plan", "pairs", f"develop metric against {CONTROL}", f"develop calibrated log-likelihood against {CONTROL}", f"out-of-fold metric against {CONTROL}",
        f"out-of-fold calibrated log-likelihood against {CONTROL}", f"train minus develop against {CONTROL}", "heads removed",
    ]  # fmt: skip
    plans = list(
        dict.fromkeys(
            name
            for result in results
            for name in result["runs"]
            if name.endswith(" heads") and " like " not in name
        )
    )
    rows = [
        _path_row(name, [(result["runs"], name) for result in results if name in result["runs"]])
        for name in plans
    ]
    for what, place in (("metric", 0), ("calibrated log-likelihood", 3)):
        chosen = []
        for result in results:
            candidates = [name for name, run in result["runs"].items() if "out_of_fold" in run]
            if len(candidates) < 2:
                continue
            best = max(
                candidates,
                key=lambda name: (result["runs"][name]["out_of_fold"][place], name == CONTROL),
            )
            chosen.append((result["runs"], best))
        rows += [_path_row(f"the best by {what} out of fold", chosen)] if chosen else []
    return columns, rows


def _path_row(title: str, chosen: Sequence[tuple[dict[str, Any], str]]) -> list[str]:
    pairs = [(runs[name], runs[CONTROL]) for runs, name in chosen]
    return [
        title,
        str(len(pairs)),
        *(
            interval([mine[rows][place] - control[rows][place] for mine, control in pairs])
            if all(rows in mine for mine, _ in pairs)
            else ""
            for rows in ("develop", "out_of_fold")
            for place in (0, 3)
        ),
        interval([_gap(mine) - _gap(control) for mine, control in pairs]),
        f"{fmean(mine['num_removed'] for mine, _ in pairs):.0f}",
    ]


def scouts_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """How much scouts know of rows they never saw, beside what the tuned model knows of the development rows."""
    columns = [
        "task", "seed", "scouts", "tunings", "out-of-fold metric", "out-of-fold calibrated log-likelihood",
        f"{CONTROL}: develop metric", f"{CONTROL}: develop calibrated log-likelihood",
    ]  # fmt: skip
    rows = []
    for result in sorted(
        results, key=lambda each: (each["task"], each["seed"], "--ripe" in each["command"])
    ):
        control, words = result["runs"][CONTROL], result["command"].split()
        numbers = [control[rows][place] for rows in ("out_of_fold", "develop") for place in (0, 3)]
        folds, tunings = (
            words[words.index("--folds") + 1],
            "all" if "--ripe" in words else "the first",
        )
        rows.append(
            [
                result["task"],
                str(result["seed"]),
                folds,
                tunings,
                *(f"{number:.2f}" for number in numbers),
            ],
        )
    return columns, rows


def selectors_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """Each selector on the development rows against nothing removed, and against the gates with the same treatment.

    What was made several times of one (task, seed) pair counts once, by its mean.
    """
    columns = [
        "selector", "pairs", "runs", f"develop metric against {CONTROL}", f"develop calibrated log-likelihood against {CONTROL}",
        "develop metric against the gates", "develop calibrated log-likelihood against the gates",
        f"train minus develop against {CONTROL}", "heads removed", "rewards", "seconds",
    ]  # fmt: skip
    rows = []
    results = [{**result, "runs": _sized(result)} for result in results]
    for name in dict.fromkeys(
        name for result in results for name in result["runs"] if name != CONTROL
    ):
        having = [result for result in results if name in result["runs"]]
        mine = [result["runs"][name] for result in having]
        control = [(result, CONTROL) for result in having]
        gates = [(result, _gates_beside(name, result)) for result in having]
        gates = [
            (result, beside)
            for result, beside in gates
            if beside in result["runs"] and beside != name
        ]
        cells = [
            interval(_by_pair(both, name, partial(_develop, at)))
            for both in (control, gates)
            for at in (0, 3)
        ]
        gaps = interval(_by_pair(control, name, _gap))
        pairs = len({_pair(result) for result in having})
        heads, seconds = (
            f"{fmean(run[key] for run in mine):.0f}" for key in ("num_removed", "seconds")
        )
        rewards = (
            f"{fmean(run['rewards'] for run in mine):.0f}"
            if all("rewards" in run for run in mine)
            else ""
        )
        rows.append([name, str(pairs), str(len(mine)), *cells, gaps, heads, rewards, seconds])
    return columns, sorted(rows, key=_by_size)


def asked_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """A search that asks scouts against the same one that asks the tuned model of rows it was tuned on, where one run has both."""
    columns = ["models", "plan", "pairs", "ahead in", "develop metric, scouts against seen"]
    rows = []
    results = [{**result, "runs": _sized(result)} for result in results]
    models = list(dict.fromkeys(result["model"] for result in results))
    for some in ([[model] for model in models] + [models]) if len(models) > 1 else [models]:
        for plan, own_size in (("of the given size", False), ("of its own size", True)):
            differences = []
            for result in (result for result in results if result["model"] in some):
                for name, run in result["runs"].items():
                    selector, _, size = name.partition(", ")
                    other = result["runs"].get(f"seen, {size}")
                    if (
                        selector == "search"
                        and (size == "own size") == own_size
                        and other is not None
                    ):
                        differences.append(_develop(0, run) - _develop(0, other))
            if differences:
                ahead = sum(difference > 0 for difference in differences)
                rows.append(
                    [
                        " and ".join(some),
                        plan,
                        str(len(differences)),
                        str(ahead),
                        interval(differences),
                    ]
                )
    return columns, rows


def tuning_of(result: dict[str, Any]) -> str:
    """What a result's command has changed of the tunings."""
    words = result["command"].split()
    given = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    return ", ".join(item for item in given if item.startswith(("first.", "layer.", "last.")))


def tunings_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """What each way to tune does for the unpruned model and for every selector, beside the usual one, where a pair has both.

    They are other runs of the same (task, seed) pair; what was made several times of one counts once, by its mean.
    """
    columns = ["tuning", "model", "pairs", "better in", "develop metric against the usual", "train minus develop against the usual"]  # fmt: skip
    found: dict[tuple[str, str], dict[tuple[str, int], list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for result in results:
        for name, run in _sized(result).items():
            found[tuning_of(result), name][_pair(result)].append(run)
    rows = []
    for (tuning, name), of_pairs in found.items():
        usual = found.get(("", name), {})
        both = [(runs, usual[pair]) for pair, runs in of_pairs.items() if pair in usual]
        if tuning and both:
            numbers = (partial(_develop, 0), _gap)
            gains, gaps = (
                [fmean(map(number, mine)) - fmean(map(number, others)) for mine, others in both]
                for number in numbers
            )
            better = sum(gain > 0 for gain in gains)
            rows.append(
                [tuning, name, str(len(both)), str(better), interval(gains), interval(gaps)]
            )
    return columns, rows


def _sized(result: dict[str, Any]) -> dict[str, Any]:
    """The runs with the number of heads in their names, which the program leaves out where it had but one for all."""
    size = _size_for_all(result)

    def title(name: str) -> str:
        own = name == CONTROL or name == "bound" or ", " in name  # a number, or "own size"
        return name if own or size is None else f"{name}, {size}"

    return {title(name): run for name, run in result["runs"].items()}


def _size_for_all(result: dict[str, Any]) -> str | None:
    words = result["command"].split()
    sizes = words[words.index("--heads") + 1]
    return None if "," in sizes else str(sizes)


def _by_size(row: list[str]) -> tuple[int, bool]:
    """The gates first among those of a size; last who decides the size itself."""
    selector, _, size = row[0].partition(", ")
    return int(size) if size.isdigit() else 10_000, not selector.startswith("voita")


def _gates_beside(name: str, result: dict[str, Any]) -> str:
    """The gates with a selector's treatment, at the number of heads that stands in its name or was for all of the result."""
    selector, _, size = name.partition(", ")
    gates = "voita-unwound" if selector.endswith(("-unwound", "-mended")) else "voita"
    return f"{gates}, {size if size.isdigit() else _size_for_all(result)}"


def _by_pair(
    both: Sequence[tuple[dict[str, Any], str]], name: str, number: Callable[[dict[str, Any]], float]
) -> list[float]:
    """The difference of a number to another run of the same result, one for each (task, seed) pair."""
    found = defaultdict(list)
    for result, against in both:
        runs = result["runs"]
        found[_pair(result)].append(number(runs[name]) - number(runs[against]))
    return [fmean(differences) for differences in found.values()]


def _develop(at: int, run: dict[str, Any]) -> float:
    return float(run["develop"][at])


def _changed(result: dict[str, Any]) -> str:
    """The preset of a result's runs, and the settings that were given."""
    return ", ".join(f"{key}={value}" for key, value in result["changed"].items())


def _pair(result: dict[str, Any]) -> tuple[str, int]:
    return result["task"], result["seed"]


def develop_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """Each method of whole runs against nothing removed, under every set of changed settings; several runs of a pair count once."""
    columns = [
        "settings", "method", "pairs", "runs", f"develop metric against {CONTROL}", f"train minus develop against {CONTROL}", "heads removed", "rewards",
    ]  # fmt: skip
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        for name in result["runs"] if CONTROL in result["runs"] else ():
            if name != CONTROL:
                found[_changed(result), name].append(result)
    rows = []
    for (changed, name), having in found.items():
        control, mine = (
            [(result, CONTROL) for result in having],
            [result["runs"][name] for result in having],
        )
        cells = [
            interval(_by_pair(control, name, number)) for number in (partial(_develop, 0), _gap)
        ]
        heads = f"{fmean(run['num_removed'] for run in mine):.0f}"
        rewards = f"{fmean(run['cost']['rewards_computed'] for run in mine):.0f}"
        pairs = len({_pair(result) for result in having})
        rows.append([changed, name, str(pairs), str(len(having)), *cells, heads, rewards])
    return columns, rows


def parts_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """A search without one of its parts against the whole one, and both against nothing removed; several runs of a pair count once."""
    columns = [
        "settings", "search", "pairs", "ahead in", f"develop metric against {WHOLE}", f"develop log-likelihood against {WHOLE}",
        f"develop metric against {CONTROL}", "heads removed", "rewards",
    ]  # fmt: skip
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        for name in result["runs"]:
            if name != CONTROL:
                found[_changed(result), name].append(result)
    rows = []
    for (changed, name), having in found.items():
        mine = [result["runs"][name] for result in having]
        beside = [] if name == WHOLE else [(result, WHOLE) for result in having]
        judged = [(result, CONTROL) for result in having if CONTROL in result["runs"]]
        metric = _by_pair(beside, name, partial(_develop, 0))
        rows.append(
            [
                changed,
                name,
                str(len({_pair(result) for result in having})),
                str(sum(difference > 0 for difference in metric)) if beside else "",
                interval(metric),
                interval(_by_pair(beside, name, lambda run: -100 * run["loss"])),
                interval(_by_pair(judged, name, partial(_develop, 0))),
                f"{fmean(run['num_removed'] for run in mine):.0f}",
                f"{fmean(run['cost']['rewards_computed'] for run in mine):.0f}",
            ]
        )
    return columns, rows


def rankings_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """Each variant against the competitors that removed as many heads and had the same treatment."""
    columns = [
        "variant", "against", "pairs", "ahead in", "develop metric", "develop log-likelihood", "heads removed"
    ]  # fmt: skip
    found: dict[tuple[str, str], list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for result in results:
        for name, run in result["runs"].items():
            ranking, like, variant = name.partition(" like ")
            if like:
                found[variant, ranking].append((result["runs"][variant], run))
    rows = []
    for (variant, ranking), pairs in found.items():
        metric = [mine["develop"][0] - other["develop"][0] for mine, other in pairs]
        rows.append(
            [
                variant,
                ranking,
                str(len(pairs)),
                str(sum(difference > 0 for difference in metric)),
                interval(metric),
                interval([mine["develop"][2] - other["develop"][2] for mine, other in pairs]),
                f"{fmean(mine['num_removed'] for mine, _ in pairs):.0f}",
            ]
        )
    return columns, rows


def cost_table(results: Sequence[dict[str, Any]]) -> tuple[list[str], Rows]:
    """The seconds of whole runs by where they went, and how many times those of the first preset they are."""
    columns = [
        "model", "task", "preset", "protocol", "seconds", "times the first's", "gates", "scouts", "rewards", "agent", "tuning", "rewards computed",
        "heads removed",
    ]  # fmt: skip
    rows = []
    for result in results:
        first = next(iter(result["runs"].values()))
        for name, run in result["runs"].items():
            spent = run["cost"]["seconds"]
            parts = [
                spent.get("choosing", 0.0),
                spent.get("scouts", 0.0),
                spent["rewards"],
                spent["agent"],
                spent["first"] + spent.get("rewind", 0.0) + spent["layer_tuning"] + spent["last"],
            ]
            rows.append(
                [
                    result["model"],
                    result["task"],
                    name,
                    run["protocol"],
                    f"{run['seconds']:.0f}",
                    f"{run['seconds'] / first['seconds']:.2f}",
                    *(f"{part:.0f}" for part in parts),
                    str(run["cost"]["rewards_computed"]),
                    str(run["num_removed"]),
                ]
            )
    return columns, rows


def _gap(run: dict[str, Any]) -> float:
    return float(run["train"][0] - run["develop"][0])


def markdown(columns: Sequence[str], rows: Rows) -> str:
    """A table."""
    lines = [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join(['---'] + ['--:'] * (len(columns) - 1))} |",
    ]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])
