"""What the experiments' command lines have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from auber.files import write_json


def write(out: Path, result: dict[str, Any]) -> None:
    """Write the result and say where it is."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, result)
    print(json.dumps({"out": str(out), "runs": list(result["runs"])}))
