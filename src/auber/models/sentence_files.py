"""Read and write the files that make an encoder a model of sentence-transformers.

`modules.json` lists what follows the encoder: a pooling of its tokens, and possibly a
normalisation. Settings that do not depend on the weights, such as prompts and the length that texts
are cut to, are copied as they are. No module's code is run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from auber.errors import CheckpointError
from auber.models.pooling import Modules, Pooling
from auber.models.source import HubName, report_damage
from auber.system.hub import reading_hub
from auber.system.records import read_json

MODULES = "modules.json"
POOLING = "1_Pooling"
_SETTINGS = ("sentence_bert_config.json", "config_sentence_transformers.json")
_PACKAGE = "sentence_transformers."
_OLD_MODES = "pooling_mode_"  # a key for each pooling, before version 6 and in what is written
_FOLDER = re.compile(r"[\w-]{0,100}")
_REMEDY = "use a model that pools by mean, cls or max, with no further module"


def read_modules(source: str | Path) -> Modules | None:
    """Return the modules beside an encoder, a folder or Hub name; None if it has no such file."""
    path = _find(source, MODULES)
    if path is None:
        return None
    kinds, pooling_folder = [], ""
    with report_damage(f"{source}: its {MODULES} is damaged", "save the model again"):
        for module in _read(path):
            package, _, kind = str(module["type"]).rpartition(".")
            kinds.append(kind if package.startswith(_PACKAGE) else str(module["type"]))
            if kind == "Transformer" and module["path"]:
                raise CheckpointError(
                    f"{source}: its encoder must lie in the folder itself, found it in "
                    f"{module['path']!r:.60}; load it with SentenceTransformer and save it again"
                )
            if kind == "Pooling":
                pooling_folder = str(module["path"])
        if not _FOLDER.fullmatch(pooling_folder):
            raise ValueError(f"path {pooling_folder!r:.60}")
    for kind in kinds:
        if kind not in ("Transformer", "Pooling", "Normalize"):
            raise CheckpointError(f"{source}: its module {kind:.60} is not supported; {_REMEDY}")
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise CheckpointError(
            f"{source}: its {MODULES} must list Transformer, Pooling and possibly Normalize, found "
            f"{', '.join(kinds) or 'nothing'}; {_REMEDY}"
        )
    settings = {}
    for name in _SETTINGS:
        if (path := _find(source, name)) is not None:
            _read(path)  # refuses what is no JSON
            settings[name] = path.read_text(encoding="utf-8")
    return Modules(_read_pooling(source, pooling_folder, len(kinds) == 3), settings)


def write_modules(modules: Modules, folder: Path, dimensions: int) -> None:
    """Write the files beside an encoder of this many dimensions; every version reads them."""
    pooling, settings = modules
    kinds = [("Transformer", ""), ("Pooling", POOLING)]
    if pooling.is_normalized:
        kinds.append(("Normalize", "2_Normalize"))
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_PACKAGE}models.{kind}"}
        for number, (kind, path) in enumerate(kinds)
    ]
    modes = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
    pools = {f"{_OLD_MODES}{key}": mode == pooling.mode for mode, key in modes.items()}
    files = {
        **settings,
        MODULES: json.dumps(listed, indent=2),
        f"{POOLING}/config.json": json.dumps({"word_embedding_dimension": dimensions, **pools}),
    }
    for _, path in kinds:
        (folder / path).mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _read_pooling(source: str | Path, folder: str, is_normalized: bool) -> Pooling:
    path = _find(source, f"{folder}/config.json")
    if path is None:
        raise CheckpointError(f"{source}: has no {folder}/config.json; save the model again")
    with report_damage(f"{path}: is no valid configuration of a pooling", "save the model again"):
        config = dict(_read(path))
        found = config.get("pooling_mode") or [
            key.removeprefix(_OLD_MODES).removesuffix("_tokens").removesuffix("_token")
            for key, is_on in config.items()
            if key.startswith(_OLD_MODES) and is_on
        ]
        names = [found] if isinstance(found, str) else list(found) or ["mean"]
        if not config.get("include_prompt", True):
            names.append("without the prompt")
    for mode in ("mean", "cls", "max"):
        if names == [mode]:
            return Pooling(mode, is_normalized)
    raise CheckpointError(
        f"{source}: pools by {', '.join(map(str, names))!s:.80}, which is not supported; {_REMEDY}"
    )


def _find(source: str | Path, name: str) -> Path | None:
    """Return a file beside an encoder; None if it is not there."""
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    hub = HubName.of(str(source))
    with (
        report_damage(f"'{source}': cannot be read from the hub", "try again later"),
        reading_hub(hub.name),
    ):
        found = cached_file(
            hub.name,
            name,
            revision=hub.revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    return None if found is None else Path(found)


def _read(path: Path) -> Any:
    return read_json(path, "save the model again", error=CheckpointError)
