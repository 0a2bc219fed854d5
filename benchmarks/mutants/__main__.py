"""Put mistakes into the core, one at a time, and count those that its tests notice.

A seed draws them from all mistakes that `changes` lists. Each is tried in a copy of the tree: the
module's own tests first, then those that name it and those of its package, quick tests only. The
file of results is written after each mutant; with the same file the program goes on, and tries
mutants of changed modules again. A survivor is a test to write, or gets its `reason` by hand.

Example: nice python -m benchmarks.mutants --out results/mutants.json
         nice python -m benchmarks.mutants --out results/mutants.json --survivors --seconds 200
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from auber.config import make_config
from auber.errors import RunError
from auber.run import provenance
from auber.system.files import write_json
from auber.system.records import read
from auber.training.devices import resolve_hardware
from benchmarks.common import command_line, make_parser, run_program, show
from benchmarks.mutants.changes import Change, list_changes
from benchmarks.mutants.record import Mutant, Mutants, Verdict, count_mutants, list_survivors
from benchmarks.mutants.trial import copy_tree, find_tests, import_libraries, run_tests

PACKAGES = ("search", "scoring", "models", "training", "metrics", "run")
NEED_GPU = ("src/auber/scoring/kernels.py",)  # nothing in them runs without
_LONGEST = 80  # characters of a text in the results


def main(words: Sequence[str] | None = None) -> None:
    """Draw mutants and try them."""
    parser = make_parser("mutants", __doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="a .json file; what it holds is kept")
    add("--mutants", type=int, default=300, help="to draw")
    add("--seed", type=int, default=0)
    add("--seconds", type=float, default=45.0, help="of tests of other modules, for a mutant")
    add("--survivors", action="store_true", help="try those again that survived")
    arguments = parser.parse_args(words)
    # Before anything is written, because the file is part of the checkout.
    origin = provenance.describe(resolve_hardware(make_config(settings={"device": "cpu"})))
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    import_libraries()
    with tempfile.TemporaryDirectory(prefix="auber-mutants-") as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        drawn = draw(tree, arguments.mutants, arguments.seed)
        digests = {file: digest(tree / file) for file, _ in drawn}
        known, tests = _read_known(arguments.out, arguments.seed, digests)
        trials = _Trials(tree, tests, arguments.seconds)
        for file, change in drawn:
            old = known.get(change.rank)
            if old and not (arguments.survivors and old.verdict == "survived"):
                continue
            mutant = trials.run(file, change)
            if old and mutant.verdict == "survived":
                mutant = mutant.model_copy(update={"reason": old.reason})
            known[change.rank] = mutant
            place = f"{file}:{change.line}"
            print(f"{len(known)} {mutant.verdict} {place} {mutant.change} {mutant.by}", flush=True)
            found = Mutants(
                command=command_line("mutants"),
                provenance=origin,
                seed=arguments.seed,
                modules=digests,
                tests=dict(sorted(tests.items())),
                mutants=sorted(known.values(), key=lambda each: (each.file, each.line, each.rank)),
            )
            write_json(arguments.out, found.to_json(drop_none=True), follow=True)
    result = read(Mutants, arguments.out, "run it again")
    show(count_mutants(result))
    show(list_survivors(result), "Survivors")


def draw(tree: Path, wanted: int, seed: int) -> list[tuple[str, Change]]:
    """Return mutants with their files, in the order of the draw."""
    found = []
    for package in PACKAGES:
        for path in sorted((tree / "src" / "auber" / package).rglob("*.py")):
            file = path.relative_to(tree).as_posix()
            if file not in NEED_GPU:
                source = path.read_text(encoding="utf-8")
                found += [(file, change) for change in list_changes(source, file, seed)]
    return sorted(found, key=lambda each: each[1].rank)[:wanted]


def digest(path: Path) -> str:
    """Return the digest of a module's text."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _read_known(
    path: Path, seed: int, digests: dict[str, str]
) -> tuple[dict[str, Mutant], dict[str, float]]:
    """Return the mutants of unchanged modules by rank, and the seconds of test files."""
    if not path.exists():
        return {}, {}
    found = read(Mutants, path, "delete it")
    if found.seed != seed:
        raise RunError(f"{path}: --seed was {found.seed}, found {seed}; choose another --out")
    same = {file for file, known in found.modules.items() if digests.get(file) == known}
    return {each.rank: each for each in found.mutants if each.file in same}, dict(found.tests)


class _Trials:
    """Mutants are tried in one copy of the tree; `seconds` of unbroken test files are kept.

    `most` bounds the seconds of the tests of other modules.
    """

    def __init__(self, tree: Path, seconds: dict[str, float], most: float) -> None:
        self.tree, self.seconds, self._most = tree, seconds, most

    def run(self, file: str, change: Change) -> Mutant:
        """Run the tests of a module until one notices the mistake."""
        began = time.monotonic()
        source = (self.tree / file).read_text(encoding="utf-8")
        own, *others = find_tests(self.tree, file)
        verdict: Verdict = "survived"
        by = None
        for groups in ([own], others):
            chosen = self._choose(groups)
            if not chosen:
                continue
            (self.tree / file).write_text(change.apply(source), encoding="utf-8")
            limit = 3 * sum(self.seconds[name] for name in chosen) + 60
            found = run_tests(self.tree, chosen, limit)
            (self.tree / file).write_text(source, encoding="utf-8")
            if found["failed"] or found["is_timeout"]:
                verdict, by = "timeout" if found["is_timeout"] else "killed", found["failed"]
                break
        before, after = (_shorten(text) for text in change.show())
        return Mutant(
            file=file,
            line=change.line,
            kind=change.kind,
            source=_shorten(source.splitlines()[change.line - 1]),
            change=f"{before} -> {after}",
            rank=change.rank,
            verdict=verdict,
            by=by and _shorten(by, 200),
            seconds=round(time.monotonic() - began, 1),
        )

    def _choose(self, groups: Sequence[Sequence[str]]) -> list[str]:
        """Return test files of these groups, in each the quickest first, within the seconds.

        Those of the unbroken tree are timed when needed.
        """
        for name in (name for files in groups for name in files):
            if name not in self.seconds:
                found = run_tests(self.tree, [name], 900)
                if found["failed"] or found["is_timeout"]:
                    output = (self.tree / "output.txt").read_text(encoding="utf-8")
                    raise RunError(
                        f"{name}: must pass before mistakes are made, found {found['failed']}; "
                        f"correct it: {output[-1000:]}"
                    )
                self.seconds[name] = found["seconds"][name]
        chosen: list[str] = []
        total = 0.0
        seconds = self.seconds
        for name in (each for files in groups for each in sorted(files, key=lambda n: seconds[n])):
            total += self.seconds[name]
            if chosen and total > self._most:
                break
            chosen.append(name)
        return chosen


def _shorten(text: str, length: int = _LONGEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 3]}..."


if __name__ == "__main__":
    run_program(main)
