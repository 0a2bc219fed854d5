"""The target `hub`: a folder to share, with its model card and the code that loads it.

The folder is checked as its readers will load it, with the modeling file. `push` uploads it with
huggingface_hub, which finds the token that `hf auth login` has stored or HF_TOKEN holds; this
package neither asks for the token nor stores or prints it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auber.errors import CheckpointError, ConfigError
from auber.export.pages import write_card
from auber.export.source import Source
from auber.models import checkpoint
from auber.system.hub import why_no_name

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from auber.export import Exported

CARD = "README.md"
_UNPUSHED = "path/to/this/folder"  # where readers find the model until it is pushed
_LONGEST_REASON = 300  # characters
_TOKEN = re.compile(r"hf_\w+|(?<=Bearer )\S+")


def write(source: Source, folder: Path) -> None:
    """Write the files."""
    if not source.encoder.removed:
        raise ConfigError(
            f"{source.name}: --to hub is for pruned models, nothing is removed from this one; "
            "push its folder as it is"
        )
    checkpoint.save(source.model, source.tokenizer, folder)
    (folder / CARD).write_text(write_card(source, _UNPUSHED), encoding="utf-8")


def load(source: Source, folder: Path) -> PreTrainedModel:
    """Load the folder with the package's copy of its modeling file, and run no code of it."""
    import torch

    from auber.models.remote_code import modeling_auber

    cls = getattr(modeling_auber, type(source.model).__name__)
    model: PreTrainedModel = cls.from_pretrained(folder, dtype=torch.float32)
    return model


def check_name(name: str) -> None:
    """Raise `ConfigError` unless the Hub accepts the name for a model."""
    reason = why_no_name(name)
    if reason is not None:
        raise ConfigError(f"--push must be NAME or OWNER/NAME, found {name!r} ({reason})")


def push(exported: Exported, name: str, *, api: Any = None) -> str:
    """Upload the folder as the model `name`, private if it is new, and return its address.

    `api` replaces the `HfApi`.
    """
    from huggingface_hub import HfApi

    check_name(name)
    api = api or HfApi(library_name="auber")
    try:
        # The name with its owner, which readers have to write.
        full_name = str(api.create_repo(name, private=True, exist_ok=True).repo_id)
        (exported.place / CARD).write_text(write_card(exported.source, full_name), encoding="utf-8")
        commit = api.upload_folder(
            repo_id=full_name,
            folder_path=exported.place,
            commit_message=f"{exported.source.name}, pruned by auber",
        )
    except Exception as error:  # of the network, the Hub and the disk
        # The Hub's own words may be on later lines of the message.
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = _TOKEN.sub("hf_...", reason)[:_LONGEST_REASON]
        raise CheckpointError(
            f"{name}: cannot be pushed ({reason}); log in with 'hf auth login' and try again, "
            f"the folder stays in {exported.place}"
        ) from None  # the cause may show the request with its token
    return str(commit.repo_url)
