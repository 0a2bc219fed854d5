"""Where a model comes from: its configuration and the files of its weights, checked as if a stranger had written them.

A source is a folder or a hub name; `name@revision` names a commit, branch or tag of the hub. Nothing in a source is run or
unpickled: keys of a `config.json` by which transformers would look for code or for other files are left out, weights are
safetensors by their content and not only by their name, and the shards of an index lie beside it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from auber.errors import CheckpointError, ModelError, PlanError
from auber.models.encoders import REMOVED_HEADS, family_of
from auber.models.plan import PruningPlan
from auber.system.hub import reading_hub, why_no_name

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

WEIGHTS = "model.safetensors"
SHARDS = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
_PICKLE_START = re.compile(
    rb"\x80[\x02-\x05]|PK\x03\x04"
)  # a pickle of protocol 2 or later, or torch's archive of them
_REMEDY = f"convert it to {WEIGHTS}: in the transformers that wrote it, model.save_pretrained(..., safe_serialization=True)"
# Where transformers would look for code (beside the model, on the hub, in a hub's kernel) or for another file of weights.
# It saves none of them but auto_map, which the folders of this package have for those who ask for its modeling file.
_POINTERS = (
    "auto_map",
    "custom_pipelines",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "experts_implementation",
    "_experts_implementation",
    "_experts_implementation_internal",
    "transformers_weights",
)


class HubName(NamedTuple):
    """A model of the hub."""

    name: str
    revision: str = "main"  # the branch of its newest commit

    @classmethod
    def of(cls, source: str) -> HubName:
        """`name` or `name@revision`; a folder, whatever its name, is itself."""
        name, _, revision = (source, "", "") if Path(source).is_dir() else source.partition("@")
        return cls(name, revision) if revision else cls(name)


def read_config(source: str | Path) -> tuple[PreTrainedConfig, PruningPlan]:
    """The config of a folder or hub name, and the heads it says are gone; all that is wrong is a `CheckpointError`."""
    if Path(source).is_dir():
        return read_folder_config(Path(source))
    return _make_config(_fetch(HubName.of(str(source)), str(source)), f"'{source}'")


def read_folder_config(folder: Path) -> tuple[PreTrainedConfig, PruningPlan]:
    """The same, of a folder."""
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder}: a model folder is needed, found {'a file' if folder.exists() else 'nothing'}"
        )
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder}: has no config.json; give the folder a model was saved in")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: cannot be read as JSON ({one_line(error)}); save the model again"
        ) from error
    if not isinstance(data, dict):
        raise CheckpointError(
            f"{path}: must be a JSON object, found {type(data).__name__}; save the model again"
        )
    return _make_config(data, str(path))


def check_weights(source: str | Path, config: PreTrainedConfig) -> None:
    """Raise `CheckpointError` unless the weights are safetensors that can be those of the config."""
    folder = Path(source)
    if not folder.is_dir():
        _check_hub_files(HubName.of(str(source)), str(source))
        return
    if (folder / _ADAPTER).is_file():
        raise CheckpointError(_adapter_found(str(folder)))
    count = sum(_count_tensors(path) for path in weight_files(folder))
    # Before it is built: a number from a damaged file could ask for millions of layers.
    if config.num_hidden_layers > count:
        raise CheckpointError(
            f"{folder}: its config.json has {config.num_hidden_layers} layers, its weights hold {count} tensors in all; "
            "save the model again"
        )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder: the one, or the shards of its index."""
    if (folder / WEIGHTS).is_file():
        paths = [folder / WEIGHTS]
    elif (folder / SHARDS).is_file():
        paths = [folder / name for name in _shard_names(folder / SHARDS)]
    else:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
        if pickles:
            raise CheckpointError(
                f"{folder}: its weights are a pickle ({pickles[0]}), which can run code and is never loaded; {_REMEDY}"
            )
        raise CheckpointError(f"{folder}: has no {WEIGHTS}; give the folder a model was saved in")
    for path in paths:
        _require_no_pickle(path)
    return paths


def one_line(error: BaseException) -> str:
    """The first line of an exception, or its name where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def _make_config(data: dict[str, Any], where: str) -> tuple[PreTrainedConfig, PruningPlan]:
    from transformers import CONFIG_MAPPING

    model_type = data.get("model_type")
    try:
        family_of(model_type)
    except ModelError as error:
        raise CheckpointError(f"{where}: {error}") from error
    if data.get("quantization_config") is not None:
        raise CheckpointError(
            f"{where}: the model is quantised (quantization_config), and heads of quantised weights cannot be removed; "
            "give the model it was made from"
        )
    # transformers 4 recorded the heads it had pruned under its own name, counted the same way
    removed = data.pop("pruned_heads", None) or {}
    removed = data.pop(REMOVED_HEADS, None) or removed
    for key in _POINTERS:
        data.pop(key, None)
    try:
        config = CONFIG_MAPPING[model_type].from_dict(data)
        num_layers, num_heads = int(config.num_hidden_layers), int(config.num_attention_heads)
        architectures = config.architectures or []
        if not isinstance(architectures, list) or not all(
            isinstance(name, str) for name in architectures
        ):
            raise TypeError("architectures must be a list of names")
    except Exception as error:  # transformers validates with many kinds of errors
        raise CheckpointError(
            f"{where}: is no valid {model_type} configuration ({one_line(error)})"
        ) from error
    try:
        plan = PruningPlan.from_json(removed, where=REMOVED_HEADS)
        plan.check(num_layers, num_heads, allow_empty_layers=True)
    except PlanError as error:
        raise CheckpointError(f"{where}: records heads that cannot be removed: {error}") from error
    return config, plan


def _fetch(hub: HubName, source: str) -> dict[str, Any]:
    """The content of the config.json of a hub name. Only read: whoever wants its code has to ask transformers."""
    from transformers import PreTrainedConfig

    if why_no_name(hub.name) is not None:  # a path, so the hub's rules for names would be no help
        raise CheckpointError(
            f"{source}: there is no such folder; give the one a model was saved in, or a name on the hub (NAME or OWNER/NAME)"
        )
    try:
        with reading_hub(hub.name):
            data, _ = PreTrainedConfig.get_config_dict(hub.name, revision=hub.revision)
    except Exception as error:  # no network, no such name, no such revision
        raise CheckpointError(
            f"'{source}' is no folder and cannot be read from the hub ({one_line(error)}); give a local folder or check the name"
        ) from error
    return dict(data)


def _check_hub_files(hub: HubName, source: str) -> None:
    """What `check_weights` can say of a hub name before its weights are there."""
    from transformers.utils.hub import cached_file

    found = {}
    for file in (SHARDS, _ADAPTER):
        try:
            with reading_hub(hub.name):
                found[file] = cached_file(
                    hub.name,
                    file,
                    revision=hub.revision,
                    _raise_exceptions_for_missing_entries=False,
                    _raise_exceptions_for_connection_errors=False,
                )
        except (
            Exception
        ) as error:  # the hub's, its transport's and the file system's have no common base
            raise CheckpointError(
                f"'{source}': cannot be read from the hub ({one_line(error)})"
            ) from error
    if found[_ADAPTER] is not None:
        raise CheckpointError(_adapter_found(source))
    if found[SHARDS] is not None:
        _shard_names(Path(found[SHARDS]))


def _adapter_found(source: str) -> str:
    return (
        f"{source}: has an adapter beside its weights ({_ADAPTER}), which would be left out; "
        "merge it into the model (merge_and_unload) and save that"
    )


def _shard_names(index: Path) -> list[str]:
    """The files an index names: safetensors, beside it."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{index}: is damaged ({one_line(error)}); save or download the model again"
        ) from error
    if not names:
        raise CheckpointError(
            f"{index}: names no file of weights; save or download the model again"
        )
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(
            r"[\w-][\w.-]*\.safetensors", name, re.ASCII
        ):
            raise CheckpointError(
                f"{index}: must name safetensors files beside it, found {name!r:.60}; save or download the model again"
            )
    return names


def _require_no_pickle(path: Path) -> None:
    """Raise `CheckpointError` for a pickle that goes by a safetensors name."""
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise CheckpointError(
            f"{path}: is damaged ({one_line(error)}); save or download the model again"
        ) from error
    # after eight bytes of length the header of safetensors begins
    if _PICKLE_START.match(start) and start[8:] != b"{":
        raise CheckpointError(
            f"{path}: is a pickle by another name, which can run code and is never loaded; {_REMEDY}"
        )


def _count_tensors(path: Path) -> int:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return len(file.keys())
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"{path}: is damaged ({one_line(error)}); save or download the model again"
        ) from error
