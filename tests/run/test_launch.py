"""Several processes: `torchrun` shares the tuning, and one process writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from auber.run.files import read_identity, read_result

SCRIPT = """
import sys, torch
torch.set_num_threads(1)
import auber
from auber.models.checkpoint import weights_digest
from tests import small
model, tokenizer = small.small_start()
settings = {"reward__folds": 2, "reward__measure": "smooth"}
settings |= {"search__prior": "voita", "voita__epochs": 1, "voita__trials": 2}
settings = settings if sys.argv[2] == "crossfit" else {}
settings |= {"first__when": "always", "agent__episodes": 3, "protocol": sys.argv[2]}
config = small.small_config(**settings)
pruned = auber.prune(model, tokenizer, task=small.small_task(), config=config, out=sys.argv[1])
print(f"digest {weights_digest(pruned.model)};")
"""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["seen", "crossfit"])
def test_torchrun(tmp_path, protocol):
    root = Path(__file__).parents[2]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *torchrun, script, tmp_path / "run", protocol],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Two processes may write to one line.
    digests = re.findall(r"digest ([0-9a-f]+);", done.stdout)
    assert len(digests) == 2, done.stdout + done.stderr
    assert len(set(digests)) == 1
    result = read_result(tmp_path / "run")
    assert result["dev"]["rows"] == 24
    assert result["provenance"]["processes"] == read_identity(tmp_path / "run").processes == 2
    events = [
        json.loads(line)["event"]
        for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    ]
    assert events.count("dev_evaluation") == 1, "one process writes"
