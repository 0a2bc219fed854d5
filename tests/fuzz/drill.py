"""The long drill: many hostile inputs over all readers, counted.

    python -m tests.fuzz.drill --inputs 100000 [--reader NAME] [--seconds N] [--seed S] [--out figures.json]

Each reader gets its share of the inputs. What is found is printed with its traceback and kept in a folder, to become a file of
`tests/fuzz/found`. The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.readers import READERS
from tests.fuzz.trial import FORMS, Outcome, Trial

MEMORY = 12 * 2**30  # of addresses; a reader that wants more because a file says so is found out


def drill(name: str, inputs: int, seconds: float, random: Random, kept: Path) -> dict[str, int]:
    """Hand one reader its inputs; the number of each verdict."""
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="auber-fuzz-") as folder:
        trial = Trial(READERS[name], Path(folder) / "trial")
        for number in range(inputs):
            if time.monotonic() > ends:
                break
            if number < len(FORMS):
                target, data = READERS[name].targets[0], FORMS[number].encode()
                outcome = trial.run_form(target, FORMS[number])
            else:
                target, data = trial.draw(random)
                outcome = trial.run(target, data)
            counts[outcome.verdict] += 1
            if (outcome.is_finding or outcome.verdict == "untidy") and _signature(
                outcome
            ) not in seen:
                seen.add(_signature(outcome))
                _report(name, target, data, outcome, kept)
    return dict(counts)


def _signature(outcome: Outcome) -> str:
    """The same for the same flaw: the place in the sources it was raised at."""
    places = [line.strip() for line in outcome.details.splitlines() if "/src/auber/" in line]
    return f"{outcome.verdict} {places[-1] if places else outcome.details[-200:]}"


def _report(name: str, target: str, data: bytes, outcome: Outcome, kept: Path) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(data).hexdigest()[:8]
    path = kept / f"{name.replace(' ', '-')}--{target.replace('/', '+')}--{digest}"
    path.write_bytes(data)
    print(
        f"\n=== {name}: {outcome.verdict} with {target} = {data[:200]!r}\n{outcome.details}\n    kept as {path}",
        flush=True,
    )


def main() -> None:
    """Run the drill."""
    parser = argparse.ArgumentParser(
        description="Hand hostile inputs to every reader and count what comes of them."
    )
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument(
        "--reader", choices=sorted(READERS), action="append", help="this one alone; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=900.0, help="at most, over all readers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument(
        "--kept",
        type=Path,
        default=Path(".cache/fuzz"),
        help="a folder for inputs that found something",
    )
    options = parser.parse_args()
    _be_quiet()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    names = options.reader or list(READERS)
    shares = sum(READERS[name].share for name in names)
    figures: dict[str, dict[str, int]] = {}
    began = time.monotonic()
    for place, name in enumerate(names):
        wanted = round(options.inputs * READERS[name].share / shares)
        left = options.seconds - (time.monotonic() - began)
        started = time.monotonic()
        figures[name] = drill(
            name,
            wanted,
            left / (len(names) - place) * 2,
            Random(f"{options.seed} {name}"),
            options.kept,
        )
        print(f"{name}: {figures[name]}, {time.monotonic() - started:.1f} s", flush=True)
    total: Counter[str] = Counter()
    for counts in figures.values():
        total.update(counts)
    findings = sum(total[verdict] for verdict in ("crash", "timeout", "escape"))
    summary = {
        "inputs": total.total(), "findings": findings, "seconds": round(time.monotonic() - began, 1),
        "seed": options.seed, "verdicts": dict(sorted(total.items())), "readers": figures,
    }  # fmt: skip
    print(f"{summary['inputs']} inputs in {summary['seconds']} s: {summary['verdicts']}")
    if options.out:
        options.out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    sys.exit(1 if findings else 0)


def _be_quiet() -> None:
    """Nothing of what the libraries would say about hostile files, and no bytecode written in passing."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()


if __name__ == "__main__":
    main()
