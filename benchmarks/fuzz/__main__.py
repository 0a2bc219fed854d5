"""Give many hostile inputs to all readers, and count the outcomes.

An input with a finding is printed with its traceback and kept in a folder; the exit code is then
1. With --atheris one reader is fuzzed by coverage (`pip install atheris`), and the remaining
words go to atheris.

Example: python -m benchmarks.fuzz --inputs 10000 --reader plan --reader ledger
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from benchmarks.common import make_parser, run_program

if TYPE_CHECKING:
    from benchmarks.fuzz.trial import Reader

MEMORY = 12 * 2**30  # bytes of addresses; a reader that wants more because a file says so is found


def main(words: Sequence[str] | None = None) -> None:
    """Fuzz, print the counts, and exit with 1 if something was found."""
    words = sys.argv[1:] if words is None else words
    with _watching_coverage() if "--atheris" in words else nullcontext():
        from benchmarks.fuzz.readers import READERS
    parser = make_parser("fuzz", __doc__)
    add = parser.add_argument
    add("--inputs", type=int, default=100_000, help="over all readers")
    add("--reader", choices=sorted(READERS), action="append", help="this one; may be repeated")
    add("--seconds", type=float, default=900.0, help="at most, over all readers")
    add("--seed", type=int, default=0)
    add("--out", type=Path, help="a .json file for the counts")
    add("--kept", type=Path, default=Path(".cache/fuzz"), help="a folder for inputs with findings")
    add("--atheris", nargs=argparse.REMAINDER, help="fuzz the one --reader by coverage")
    arguments = parser.parse_args(words)
    _be_quiet()
    names = arguments.reader or list(READERS)
    if arguments.atheris is not None:
        fuzz_by_coverage(names[0], arguments.atheris, arguments.kept)
        return
    counts: dict[str, Counter[str]] = {}
    began, shares = time.monotonic(), sum(READERS[name].share for name in names)
    for place, name in enumerate(names):
        wanted = max(1, round(arguments.inputs * READERS[name].share / shares))
        left = arguments.seconds - (time.monotonic() - began)
        seconds = left / (len(names) - place) * 2
        random = Random(f"{arguments.seed} {name}")
        counts[name] = fuzz(READERS[name], wanted, seconds, random, arguments.kept)
        print(f"{name}: {dict(counts[name])}", flush=True)
    total = sum(counts.values(), Counter[str]())
    findings = total.total() - total["taken"] - total["refused"]
    found = {"inputs": total.total(), "findings": findings, "verdicts": total, "readers": counts}
    print(f"{total.total()} inputs in {time.monotonic() - began:.0f} s: {dict(total)}")
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if findings:
        sys.exit(1)


def fuzz(reader: Reader, inputs: int, seconds: float, random: Random, kept: Path) -> Counter[str]:
    """Give a reader its inputs, and return the number of each verdict."""
    from benchmarks.fuzz.trial import FORMS, Trial

    counts: Counter[str] = Counter()
    seen: set[str] = set()
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="auber-fuzz-") as folder:
        trial = Trial(reader, Path(folder) / "trial")
        for number in range(inputs):
            if time.monotonic() > ends:
                break
            target, data = trial.draw(random)
            if number < len(FORMS):
                data = FORMS[number].encode()
                outcome = trial.run_form(target, FORMS[number])
            else:
                outcome = trial.run(target, data)
            counts[outcome.verdict] += 1
            if outcome.is_finding:
                places = [line for line in outcome.details.splitlines() if "/auber/" in line]
                signature = f"{outcome.verdict} {[outcome.details[-200:], *places][-1].strip()}"
                if signature not in seen:  # once for each place in the sources
                    seen.add(signature)
                    path = keep(kept, reader.name, target, data)
                    print(f"\n{reader.name}: {outcome.verdict}, {path}\n{outcome.details}")
    return counts


def keep(folder: Path, name: str, target: str, data: bytes) -> Path:
    """Store an input that found something, and return where."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(data).hexdigest()[:8]
    path = folder / f"{name}--{target.replace('/', '+')}--{digest}"
    path.write_bytes(data)
    return path


def fuzz_by_coverage(name: str, words: Sequence[str], kept: Path) -> None:
    """Fuzz the first target of a reader with atheris, until it finds something or its limits."""
    import atheris

    from benchmarks.fuzz.readers import READERS
    from benchmarks.fuzz.trial import Trial

    with tempfile.TemporaryDirectory(prefix="auber-fuzz-") as folder:
        trial = Trial(READERS[name], Path(folder) / "trial")
        target, corpus = trial.reader.targets[0], Path(folder) / "corpus"
        corpus.mkdir()
        (corpus / "example").write_bytes(trial.examples[target])

        def test(data: bytes) -> None:
            outcome = trial.run(target, data)
            if outcome.is_finding:
                print(f"{outcome.details}\nkept as {keep(kept, name, target, data)}", flush=True)
                os._exit(1)  # libFuzzer would end like a crashed process

        atheris.Setup(["fuzz", *words, str(corpus)], test)
        atheris.Fuzz()


def _watching_coverage() -> AbstractContextManager[None]:
    """Instrument the package's modules, which must be imported inside the context."""
    import atheris

    instrumented: AbstractContextManager[None] = atheris.instrument_imports(include=["auber"])
    return instrumented


def _be_quiet() -> None:
    """Silence the libraries on hostile files, and bound the memory."""
    import resource

    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    run_program(main)
