"""Kept files: JSON with each list of numbers on one line, written whole or not at all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from auber.errors import RunError
from auber.system.files import write_text

# Never a part of a text, in which JSON has no line end as it is.
_NUMBERS = re.compile(r"\[\n\s*([-+.\deE]+(?:,\s+[-+.\deE]+)*)\s+\]")


def compact_json(data: Any) -> str:
    """JSON that is small and whose changes can be read line by line; no number is changed."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    return _NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text) + "\n"


def write_kept(path: Path, text: str) -> None:
    """Write a file; `RunError` where that cannot be done."""
    try:
        write_text(path, text, follow=True)
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written ({error.strerror}); choose another file"
        ) from error
