"""Pinned runs: every method under every preset on a tiny model, two seeds, one CPU thread.

`python -m tests.golden.runs` records them; the committed file was recorded at commit 4f10306. The
last bits of weights and smooth scores depend on the processor: on another one than the recorded
(`machine`) they are left out of the comparison.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from auber.models.plan import PruningPlan, heads_to_json

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
MODEL = HERE / "model"
PRESETS = ("paper", "reference", "default")
SEEDS = (0, 1)
SEARCHES = (
    "auber",
    "auber-query",
    "auber-key",
    "auber-l2",
    "auber-reverse",
    "greedy",
    "exhaustive",
)
RANKINGS = ("random", "confidence", "michel", "voita")
CONTROLS = ("original", "original+tuning")
SIZES = {
    "threads": 1,
    "device": "cpu",
    "max_length": 16,
    "first.require_learned": False,  # two epochs are not enough
    "first.epochs": 2,
    "first.learning_rate": 3e-3,
    "layer.epochs": 1,
    "layer.learning_rate": 1e-3,
    "last.epochs": 2,
    "last.learning_rate": 1e-3,
    "agent.episodes": 8,
    "agent.hidden_size": 16,
    "agent.learning_starts": 8,
    "agent.batch_size": 8,
    "voita.epochs": 1,
    "voita.trials": 3,
}


def names() -> list[str]:
    """Return the name of every pinned run."""
    methods = (*SEARCHES, *RANKINGS, *CONTROLS)
    return [f"{p}/{m}/{s}" for p, m, s in itertools.product(PRESETS, methods, SEEDS)]


@functools.cache
def machine() -> str:
    """Return a digest of a short training with torch alone: equal where the last bits are equal."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(MODEL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(8):
        tokens = torch.randint(5, model.config.vocab_size, (32, 4 + step))
        model(input_ids=tokens, labels=tokens[:, 0] % 2).loss.backward()
        optimizer.step()
    digest = hashlib.sha256(torch.__version__.encode())
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def words(name: str, out: Path) -> list[str]:
    """Return the command line of a pinned run."""
    preset, method, seed = name.split("/")
    command = ["prune", "--model", MODEL, "--train", HERE / "train.csv", "--dev", HERE / "dev.csv"]
    command += ["--preset", preset, "--method", method, "--seed", seed, "--out", out, "--quiet"]
    for key, value in SIZES.items():
        command += ["--set", f"{key}={value}"]
    if method in RANKINGS:
        command += ["--heads", "3"]
    return [str(word) for word in command]


def describe(out: Path) -> dict[str, Any]:
    """Return what is pinned of a finished run."""
    result = json.loads((out / "result.json").read_text())
    scores = out / "scores.jsonl"
    lines = scores.read_text().splitlines() if scores.exists() else []
    known = [json.loads(line) for line in lines]
    asked = [[line["layer"], line["removed"], line["score"]] for line in known]
    return {
        "plan": heads_to_json(PruningPlan.read(out / "plan.json").heads),
        "dev": result["dev"]["score"],
        "train": result["train"]["score"],
        "rewards": len(asked),
        "scores": hashlib.sha256(json.dumps(asked).encode()).hexdigest(),
        "weights": hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest(),
    }


def comparable(run: dict[str, Any], pinned_on: str) -> dict[str, Any]:
    """Return what must be equal on this machine."""
    if machine() == pinned_on:
        return run
    return {key: value for key, value in run.items() if key not in ("weights", "scores")}


def record() -> None:
    """Write the results file."""
    from auber.cli import main

    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, name in enumerate(names()):
            sys.argv = ["auber", *words(name, Path(scratch) / str(number))]
            try:
                main()
            except SystemExit as stop:
                if stop.code:
                    raise
            found[name] = describe(Path(scratch) / str(number))
    RESULTS.write_text(json.dumps({"machine": machine(), "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    record()
