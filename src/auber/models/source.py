"""Read and check a model's configuration and weight files, from a folder or the Hub.

Nothing in a source is trusted. No code is run and no pickle is loaded: keys of a `config.json` that
point at code or at other files are dropped, weights must be safetensors by content and not only by
name, and the shards of an index must lie beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from auber.errors import AuberError, CheckpointError, ModelError, PlanError, show_value
from auber.models.encoders import (
    INTERMEDIATE_SIZES,
    REMOVED_HEADS,
    REMOVED_NEURONS,
    family_of,
)
from auber.models.plan import PruningPlan
from auber.system.hub import reading_hub, why_no_name
from auber.system.records import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

LEGACY_REMOVED_HEADS = "pruned_heads"  # the key of transformers 4, with the same numbering
WEIGHTS = "model.safetensors"
SHARDS = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
_SHARD_NAME = re.compile(r"[\w-][\w.-]*\.safetensors", re.ASCII)
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
# The first bytes of a pickle of protocol 2 or later, and of the archive of them that torch writes.
_PICKLE_START = re.compile(rb"\x80[\x02-\x05]|PK\x03\x04")
_CONVERT = (
    f"convert it to {WEIGHTS}: in the transformers that wrote it, "
    "model.save_pretrained(..., safe_serialization=True)"
)
# The keys of sizes, in all families. A configuration of transformers makes a name for each label,
# so they are checked before anything is made.
_SIZE_KEY = re.compile(r"(\w+_)?(size|dim|layers?|heads|embeddings|labels|buckets|positions)")
_LARGEST_SIZE = 2**20
# Where transformers would look for code (beside the model, on the Hub, in a kernel of the Hub) or
# for another weight file. Folders of this package have `auto_map`, for users without the package.
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
    """The name of a model on the Hub, and a commit, branch or tag."""

    name: str
    revision: str = "main"

    @classmethod
    def of(cls, source: str) -> HubName:
        """Parse `name` or `name@revision`; the path of a folder is returned as the name."""
        name, _, revision = (source, "", "") if Path(source).is_dir() else source.partition("@")
        return cls(name, revision) if revision else cls(name)


def read_config(source: str | Path) -> tuple[PreTrainedConfig, PruningPlan]:
    """Return the configuration of a folder or Hub name, and the units it records as removed."""
    if Path(source).is_dir():
        return read_folder_config(Path(source))
    hub = HubName.of(str(source))
    if why_no_name(hub.name) is not None:  # a path: the Hub's rules for names would not help
        raise CheckpointError(
            f"{source}: there is no such folder; give the one a model was saved in, or a name on "
            "the hub (NAME or OWNER/NAME)"
        )
    from transformers import PreTrainedConfig

    where = f"'{source}'"
    with (
        report_damage(
            f"{where} is no folder and cannot be read from the hub",
            "give a local folder or check the name",
        ),
        reading_hub(hub.name),
    ):
        data, _ = PreTrainedConfig.get_config_dict(hub.name, revision=hub.revision)
    return _make_config(dict(data), where)


def read_folder_config(folder: Path) -> tuple[PreTrainedConfig, PruningPlan]:
    """Return the configuration in a folder, and the units it records as removed."""
    return _make_config(read_config_json(folder), str(folder / "config.json"))


def read_config_json(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's `config.json`."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise CheckpointError(f"{folder}: a model folder is needed, found {found}")
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder}: has no config.json; give the folder a model was saved in")
    data = read_json(path, "save the model again", error=CheckpointError)
    if not isinstance(data, dict):
        raise CheckpointError(
            f"{path}: must be a JSON object, found {type(data).__name__}; save the model again"
        )
    return data


def check_weights(source: str | Path, config: PreTrainedConfig) -> None:
    """Raise `CheckpointError` unless the weights are safetensors that can belong to the config."""
    from safetensors import safe_open

    folder = Path(source)
    if not folder.is_dir():
        _check_hub_files(HubName.of(str(source)), str(source))
        return
    if (folder / _ADAPTER).is_file():
        raise _adapter_error(folder)
    count = 0
    for path in weight_files(folder):
        with report_damage(f"{path}: is damaged"), safe_open(path, framework="pt") as file:
            count += len(file.keys())
    # Checked before building the model: a damaged config could ask for millions of layers.
    if config.num_hidden_layers > count:
        raise CheckpointError(
            f"{folder}: its config.json has {config.num_hidden_layers} layers, its weights hold "
            f"{count} tensors in all; save the model again"
        )


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder: a single one, or the shards of its index."""
    if (folder / WEIGHTS).is_file():
        paths = [folder / WEIGHTS]
    elif (folder / SHARDS).is_file():
        paths = [folder / name for name in _shard_names(folder / SHARDS)]
    else:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
        if pickles:
            raise CheckpointError(
                f"{folder}: its weights are a pickle ({pickles[0]}), which can run code and is "
                f"never loaded; {_CONVERT}"
            )
        raise CheckpointError(f"{folder}: has no {WEIGHTS}; give the folder a model was saved in")
    for path in paths:
        with report_damage(f"{path}: is damaged"), path.open("rb") as file:
            start = file.read(9)
        # The header of a safetensors file begins after eight bytes of length.
        if _PICKLE_START.match(start) and start[8:] != b"{":
            raise CheckpointError(
                f"{path}: is a pickle by another name, which can run code and is never loaded; "
                f"{_CONVERT}"
            )
    return paths


@contextmanager
def report_damage(problem: str, remedy: str = "save or download the model again") -> Iterator[None]:
    """Turn any exception of transformers, torch or safetensors into a one-line error."""
    try:
        yield
    except AuberError:
        raise
    except Exception as error:  # damaged files and the Hub raise errors without a common base
        raise CheckpointError(f"{problem} ({one_line(error)}); {remedy}") from error


def one_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its class name if it has none."""
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def _make_config(data: dict[str, Any], where: str) -> tuple[PreTrainedConfig, PruningPlan]:
    from transformers import CONFIG_MAPPING

    model_type = data.get("model_type")
    try:
        family = family_of(model_type)
    except ModelError as error:
        raise CheckpointError(f"{where}: {error}") from error
    if data.get("quantization_config") is not None:
        raise CheckpointError(
            f"{where}: the model is quantised (quantization_config), and quantised weights cannot "
            "be pruned; give the model it was made from"
        )
    for key, value in data.items():
        if _SIZE_KEY.fullmatch(key) and type(value) is int and value > _LARGEST_SIZE:
            raise CheckpointError(
                f"{where}: {key} must be at most {_LARGEST_SIZE}, found {show_value(value)}; save "
                "or download the model again"
            )
    legacy = data.pop(LEGACY_REMOVED_HEADS, None)
    heads = data.pop(REMOVED_HEADS, None) or legacy or {}
    neurons, sizes = data.pop(REMOVED_NEURONS, None) or {}, data.pop(INTERMEDIATE_SIZES, None)
    for key in _POINTERS:
        data.pop(key, None)
    with report_damage(f"{where}: is no valid {model_type} configuration", "save the model again"):
        config = CONFIG_MAPPING[model_type].from_dict(data)
        num_layers, num_heads = int(config.num_hidden_layers), int(config.num_attention_heads)
        num_neurons = int(getattr(config, family.intermediate_key))
        names = config.architectures or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("architectures must be a list of names")
    try:
        plan = PruningPlan.from_json({"heads": heads, "neurons": neurons}, where="its plan")
        num_neurons = _unpruned_size(plan, num_neurons, num_layers, sizes)
        plan.check(num_layers, num_heads, num_neurons, allow_empty_layers=True)
    except PlanError as error:
        raise CheckpointError(f"{where}: records units that cannot be removed: {error}") from error
    setattr(config, family.intermediate_key, num_neurons)
    return config, plan


def _unpruned_size(plan: PruningPlan, size: int, num_layers: int, sizes: Any) -> int:
    """Return the number of neurons of a layer before pruning; see `models.encoders.base`.

    `sizes` are the recorded numbers of each layer, None if all layers have `size` neurons.
    """
    removed = [len(plan.neurons.get(layer, ())) for layer in range(min(num_layers, 65_536))]
    if sizes is None:
        if len(set(removed)) > 1:
            raise PlanError(
                f"layers lost different numbers of neurons, {min(removed)} to {max(removed)}, and "
                f"{INTERMEDIATE_SIZES} is missing; restore it"
            )
        return size + (removed[0] if removed else 0)
    if sizes != [size - lost for lost in removed]:
        raise PlanError(
            f"{INTERMEDIATE_SIZES} must be the {size} neurons of each layer less those removed, "
            f"found {sizes!s:.60}; restore it"
        )
    return size


def _check_hub_files(hub: HubName, source: str) -> None:
    """Check what can be known about the weights on the Hub before downloading them."""
    from transformers.utils.hub import cached_file

    found = {}
    for file in (SHARDS, _ADAPTER):
        with (
            report_damage(f"'{source}': cannot be read from the hub", "try again later"),
            reading_hub(hub.name),
        ):
            found[file] = cached_file(
                hub.name,
                file,
                revision=hub.revision,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
            )
    if found[_ADAPTER] is not None:
        raise _adapter_error(source)
    if found[SHARDS] is not None:
        _shard_names(Path(found[SHARDS]))


def _adapter_error(source: str | Path) -> CheckpointError:
    return CheckpointError(
        f"{source}: has an adapter beside its weights ({_ADAPTER}), which would be left out; "
        "merge it into the model (merge_and_unload) and save that"
    )


def _shard_names(index: Path) -> list[str]:
    """Return the files that an index names; they must be safetensors beside it."""
    with report_damage(f"{index}: is damaged"):
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    if not names:
        raise CheckpointError(f"{index}: names no weight files; save or download the model again")
    for name in names:
        if not isinstance(name, str) or not _SHARD_NAME.fullmatch(name):
            raise CheckpointError(
                f"{index}: must name safetensors files beside it, found {name!r:.60}; "
                "save or download the model again"
            )
    return names
