"""The target `hub`: a folder to share, with its model card and the code that loads it; and pushing it.

The folder is checked as the reader will load it, by the modeling file. `push` hands it to huggingface_hub, which finds the
token that `hf auth login` has stored or HF_TOKEN holds; this package neither asks for it nor keeps or prints it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from auber.errors import CheckpointError, ConfigError
from auber.export.base import Exported, write_checked
from auber.export.card import PICTURE, draw_heads, write_card
from auber.export.rows import Compute
from auber.export.source import Source
from auber.models import checkpoint
from auber.system.hub import why_no_name
from auber.system.progress import Progress

CARD = "README.md"
_UNPUSHED = "path/to/this/folder"  # a reader's place for it, as long as the hub has none
_LONGEST_REASON = 300  # characters
_TOKEN = re.compile(r"hf_\w+|(?<=Bearer )\S+")


def export(source: Source, place: Path, progress: Progress) -> Exported:
    """Write the folder."""
    if not source.encoder.removed:
        raise ConfigError(
            f"{source.name}: --to hub is for pruned models, this one has all its heads; push its folder as it is"
        )
    progress.plan(2)
    return write_checked("hub", source, place, _write, _compute, progress)


def check_name(name: str) -> None:
    """Raise `ConfigError` unless the hub would take it as a model's name."""
    reason = why_no_name(name)
    if reason is not None:
        raise ConfigError(f"--push must be NAME or OWNER/NAME, found {name!r} ({reason})")


def push(exported: Exported, name: str, *, api: Any = None) -> str:
    """Upload the folder as the model `name`, new ones private, and say where it is. `api` stands in for an `HfApi`."""
    from huggingface_hub import HfApi

    check_name(name)
    api = api or HfApi(library_name="auber")
    try:
        full_name = str(
            api.create_repo(name, private=True, exist_ok=True).repo_id
        )  # with the owner
        # only now is it known what its readers have to write
        (exported.place / CARD).write_text(write_card(exported.source, full_name), encoding="utf-8")
        commit = api.upload_folder(
            repo_id=full_name,
            folder_path=exported.place,
            commit_message=f"{exported.source.name}, pruned by auber",
        )
    except Exception as error:  # whatever the network and the hub answer with
        # The hub's own words may stand in the lines below the first: all of them on one, and not endless.
        reason = _TOKEN.sub("hf_...", " ".join(str(error).split()) or type(error).__name__)[
            :_LONGEST_REASON
        ]
        raise CheckpointError(
            f"{name}: cannot be pushed ({reason}); log in with 'hf auth login' and try again, the folder stays in {exported.place}"
        ) from None  # the cause may show the request with its token
    return str(commit.repo_url)


def _write(source: Source, folder: Path) -> None:
    checkpoint.save(source.model, source.tokenizer, folder)
    (folder / PICTURE).write_text(draw_heads(source.encoder), encoding="utf-8")
    (folder / CARD).write_text(write_card(source, _UNPUSHED), encoding="utf-8")


def _compute(source: Source, folder: Path) -> Compute:
    """The folder as the modeling file in it loads it; the file is the package's own, so no code of the folder is run."""
    import torch

    from auber.models.remote_code import modeling_auber

    cls = getattr(modeling_auber, type(source.model).__name__)
    model = cls.from_pretrained(folder, dtype=torch.float32)
    return lambda batch: model(**batch)
