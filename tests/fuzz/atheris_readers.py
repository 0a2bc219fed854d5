"""A reader under atheris, which looks for inputs that reach new lines of it.

    python -m tests.fuzz.atheris_readers READER [-runs=N] [-max_total_time=SECONDS] [CORPUS]

READER is one of the quick ones of `readers.py`, with `-` for blanks. atheris is no dependency: `pip install atheris`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["auber"]):
    from tests.fuzz.readers import PURE, READERS
    from tests.fuzz.trial import Trial


def main() -> None:
    """Fuzz until the runs or the time are over, or something is found."""
    names = {name.replace(" ", "-"): name for name in PURE}
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        sys.exit(f"READER must be one of: {', '.join(names)}")
    reader = READERS[names[sys.argv.pop(1)]]
    with tempfile.TemporaryDirectory(prefix="auber-atheris-") as folder:
        trial = Trial(reader, Path(folder) / "trial")
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, example in enumerate(trial.examples.values()):
            (corpus / str(number)).write_bytes(example)

        def test_one_input(data: bytes) -> None:
            target = reader.targets[0]
            outcome = trial.run(target, data)
            if outcome.is_finding:
                print(outcome.details)
                os._exit(
                    _keep(reader.name, data)
                )  # libFuzzer's own end would be that of a crashed process

        atheris.Setup([*sys.argv, str(corpus)], test_one_input)
        atheris.Fuzz()


def _keep(name: str, data: bytes) -> int:
    path = Path(f"crash-{name.replace(' ', '-')}")
    path.write_bytes(data)
    print(f"kept as {path}", flush=True)
    return 1


if __name__ == "__main__":
    main()
