"""Malicious model folders."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from auber.models import checkpoint
from tests.small import small_start

_CODE = "from pathlib import Path; Path({marker!r}).write_text('executed')\n"


class RunsWhenLoaded:
    """An object that writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.write_text, (self.marker, "executed")


def change_json(path: Path, **changes: object) -> None:
    """Replace entries of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def save_whole(folder: Path) -> Path:
    """Save a tiny classifier with its tokenizer."""
    checkpoint.save(*small_start(), folder)
    return folder


def save_with_code(folder: Path, marker: Path) -> Path:
    """Save a folder that points to its own code in every way that transformers knows."""
    save_whole(folder)
    (folder / "evil.py").write_text(_CODE.format(marker=str(marker)))
    names = {
        "AutoConfig": "evil.EvilConfig",
        "AutoModel": "evil.EvilModel",
        "AutoModelForSequenceClassification": "evil.EvilClassifier",
        "AutoTokenizer": ["evil.EvilTokenizer", "evil.EvilTokenizer"],
    }
    kernel = {"_attn_implementation": "somebody/kernel", "attn_implementation": "somebody/kernel"}
    pipelines = {"evil": {"impl": "evil.EvilModel", "pt": ["EvilModel"]}}
    change_json(folder / "config.json", auto_map=names, custom_pipelines=pipelines, **kernel)
    change_json(folder / "tokenizer_config.json", auto_map=names)
    return folder


def write_pickle(path: Path, marker: Path) -> None:
    """Write a file of torch.save that runs code when it is loaded."""
    torch.save({"weights": torch.ones(2), "passenger": RunsWhenLoaded(marker)}, path)
