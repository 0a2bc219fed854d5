"""Model folders: save, load, and the model a run starts from.

A folder holds `model.safetensors`, `config.json` with the removed heads under `auber_removed_heads`, and the
tokenizer's files. `load` builds the ordinary transformers class from the config, slices it, and fills it strictly: every
tensor must be there and fit. Plain transformers folders load as well, and so do folders of transformers 4 that record
`pruned_heads`. Nothing is ever read from a pickle, and no code from a folder or hub is run (`sources.py`): the modeling
file that `save` puts beside a pruned model is for those who have transformers alone (`remote/`).
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from auber.data.task_types import TASK_TYPES, TaskType, get_task_type, task_type_of_class
from auber.errors import AuberError, CheckpointError, ModelError
from auber.models.encoders import REMOVED_HEADS, encoder_of
from auber.models.plan import PruningPlan
from auber.models.remote_code import MODELING_FILE, auto_map
from auber.models.source import (
    WEIGHTS,
    HubName,
    check_weights,
    one_line,
    read_config,
    read_folder_config,
    weight_files,
)
from auber.models.surgery import remove_heads
from auber.system import seeds
from auber.system.hub import reading_hub

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_OLD_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


class Start(NamedTuple):
    """What a run starts from."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    has_trained_classifier: bool
    classes: tuple[str, ...] | None = (
        None  # the names that a trained classifier had for its outputs
    )


def save(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, folder: str | Path
) -> None:
    """Write a model folder: all of it, or nothing. A model folder that is there already is replaced."""
    from safetensors.torch import save_file

    removed = encoder_of(model).removed
    config = copy.deepcopy(model.config)
    # the modeling file of a pruned folder names its classes as transformers does and derives them from those
    if not any(
        isinstance(model, cls) and type(model).__name__ == cls.__name__ for cls in _classes(config)
    ):
        endings = ", ".join(f"...{kind.ending}" for kind in TASK_TYPES.values())
        raise ModelError(
            f"A bare encoder or one of {endings} can be saved, found {type(model).__name__}"
        )
    config.architectures = [type(model).__name__]
    config.dtype = model.dtype
    _forget_code(config)
    if removed:
        config.auto_map = auto_map(config)
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    with _replacing(Path(folder)) as fresh:
        config.save_pretrained(fresh)
        if removed:
            shutil.copyfile(MODELING_FILE, fresh / MODELING_FILE.name)
        save_file(tensors, fresh / WEIGHTS, metadata={"format": "pt"})
        if tokenizer is not None:
            tokenizer.save_pretrained(fresh)


def load(
    folder: str | Path,
    *,
    device: str | torch.device | None = None,
    attn_implementation: str | None = None,
) -> PreTrainedModel:
    """The model of a folder, or of a finished run, in eval mode, as the transformers class its config names."""
    folder = model_folder(Path(folder))
    config, plan = read_folder_config(folder)
    check_weights(folder, config)
    if plan:
        model = _load_pruned(folder, config, plan, attn_implementation)
    else:
        model, missing = _load_plain(
            str(folder), config, _class_of(config, folder), attn_implementation, dtype="auto"
        )
        if missing:
            raise CheckpointError(
                f"{folder}: the weights lack {_some(missing)}; save the model again"
            )
    if device is not None:
        model.to(device)
    return model.eval()


def model_folder(folder: Path) -> Path:
    """Where the model lies: a run's is in a folder of its own."""
    inner = folder / "model"
    return (
        inner
        if not (folder / "config.json").exists() and (inner / "config.json").is_file()
        else folder
    )


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, a finished run or a hub name (`name@revision` for a certain one)."""
    from transformers import AutoTokenizer

    name, revision = HubName.of(
        str(model_folder(Path(source)) if Path(source).is_dir() else source)
    )
    try:
        with reading_hub(name):
            tokenizer = AutoTokenizer.from_pretrained(
                name, revision=revision, trust_remote_code=False
            )
    except Exception as error:  # whatever damaged files make transformers raise
        raise CheckpointError(
            f"{source}: its tokenizer cannot be loaded ({one_line(error)}); save one into the folder"
        ) from error
    # without files transformers makes a tokenizer that knows nothing but its special tokens
    if len(tokenizer) <= len(set(tokenizer.all_special_tokens)):
        raise CheckpointError(
            f"{source}: has no tokenizer files; save the tokenizer into the folder"
        )
    return tokenizer


def load_start(
    source: str | Path,
    *,
    num_labels: int,
    label_names: Sequence[str] | None = None,
    is_regression: bool = False,
    kind: str = "sequence",
    seed: int = 0,
    device: str | torch.device | None = None,
) -> Start:
    """The float32 classifier a run starts from, out of a folder or hub name (`name@revision` for a certain one).

    Where the checkpoint has no trained classifier, one is drawn from `seed`; a trained one must be for the task's `kind` and
    have its labels.
    """
    config, plan = read_config(source)
    if plan and not Path(source).is_dir():
        raise CheckpointError(
            f"'{source}' is a pruned model; download it and give the local folder"
        )
    trained = _has_classifier(source, config, get_task_type(kind))
    names = list(label_names) if label_names is not None else None
    if trained:
        check_labels(str(source), config, num_labels, names)
    tokenizer = load_tokenizer(source)
    check_vocabulary(str(source), config, tokenizer)
    if not plan:
        check_weights(source, config)
        config = _with_labels(config, num_labels, names)
        model = _load_classifier(source, config, get_task_type(kind), trained, seed)
    elif trained:
        model = load(source).float()
    else:
        raise CheckpointError(
            f"{source}: is a pruned encoder without a classifier; start from one with a classifier"
        )
    name_answers(model, names, is_regression=is_regression, kind=kind)
    if device is not None:
        model.to(device)
    return Start(model.eval(), tokenizer, trained, classes_of(config) if trained else None)


def name_answers(
    model: PreTrainedModel, names: Sequence[str] | None, *, is_regression: bool, kind: str
) -> None:
    """Write into a classifier's config what its outputs mean, so that its folder says so."""
    if kind == "sequence":
        model.config.problem_type = "regression" if is_regression else "single_label_classification"
    if names is not None:
        model.config.id2label = dict(enumerate(names))
        model.config.label2id = {name: index for index, name in enumerate(names)}


def _has_classifier(source: str | Path, config: PreTrainedConfig, wanted: TaskType) -> bool:
    """Whether a checkpoint has a trained classifier; `CheckpointError` where it is one for another kind of task."""
    architecture = str(config.architectures[0]) if config.architectures else None
    found = task_type_of_class(architecture)
    if found not in (None, wanted):
        # Their tensors may have the same names and fit, and would be taken for what they are not.
        raise CheckpointError(
            f"{source}: its classifier is one for {found.name} ({architecture}), the task is of kind {wanted.name} "
            f"(...{wanted.ending}); start from a model of that kind, or from the encoder without a classifier"
        )
    return found is not None


def _load_classifier(
    source: str | Path, config: PreTrainedConfig, kind: TaskType, trained: bool, seed: int
) -> PreTrainedModel:
    """An unpruned classifier in float32; what an untrained one lacks beside the encoder is drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        # the CPU's generator alone: torch.manual_seed would also seed every GPU, which fork_rng does not restore
        torch.default_generator.manual_seed(seeds.derive(seed, "classifier"))
        cls = kind.model_class(config)
        model, missing = _load_plain(str(source), config, cls, None, dtype=torch.float32)
    lacking = missing if trained else [name for name in missing if _is_of_encoder(name, model)]
    if lacking:
        raise CheckpointError(
            f"{source}: the weights lack {_some(lacking)}; use a complete checkpoint"
        )
    return model


def _is_of_encoder(name: str, model: PreTrainedModel) -> bool:
    """Whether a tensor of a classifier is one that every checkpoint of its encoder has; a pooler may be left out."""
    prefix = f"{model.base_model_prefix}."
    return name.startswith(prefix) and not name.startswith(f"{prefix}pooler.")


def weights_digest(model: PreTrainedModel) -> str:
    """A digest of everything that tells two models of one architecture apart: tensors, and which heads they belong to."""
    state = sorted(model.state_dict().items())
    # Hashing lets go of the interpreter, so a few threads together keep up with the copies from a GPU.
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        tensors = list(pool.map(lambda item: _tensor_digest(*item), state))
    described = json.dumps([encoder_of(model).removed.to_json(), tensors])
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def _tensor_digest(name: str, tensor: torch.Tensor) -> list[Any]:
    flat = tensor.detach().cpu().contiguous().flatten()
    return [
        name,
        str(tensor.dtype),
        list(tensor.shape),
        hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest(),
    ]


# Reading


def _forget_code(config: PreTrainedConfig) -> None:
    """Drop the pointer to code beside a checkpoint, which is never run and does not follow the model to its next folder."""
    if hasattr(config, "auto_map"):
        del config.auto_map


def _classes(config: PreTrainedConfig) -> tuple[type[PreTrainedModel], ...]:
    """The bare class and the classifiers of a config."""
    from transformers import MODEL_MAPPING

    return MODEL_MAPPING[type(config)], *(kind.model_class(config) for kind in TASK_TYPES.values())


def _class_of(config: PreTrainedConfig, folder: Path) -> type[PreTrainedModel]:
    """The class that `architectures` names."""
    classes = {cls.__name__: cls for cls in _classes(config)}
    named = (config.architectures or [None])[0]
    if named not in classes:
        raise CheckpointError(
            f"{folder}: its architecture must be {' or '.join(classes)}, found {named}"
        )
    return classes[named]


def _load_pruned(
    folder: Path, config: PreTrainedConfig, plan: PruningPlan, attn_implementation: str | None
) -> PreTrainedModel:
    """Build, slice, fill: transformers cannot do it, because it builds every layer alike."""
    import transformers
    from transformers.initialization import no_init_weights

    cls = _class_of(config, folder)
    kind = task_type_of_class(cls.__name__)
    auto = getattr(transformers, "AutoModel" if kind is None else kind.auto_class)
    tensors = _read_tensors(folder)
    options = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
    # a build on the meta device would lose the buffers that are not in the file; an empty build has them
    with no_init_weights(), _refusing(folder):
        model = auto.from_config(config, trust_remote_code=False, **options)
    remove_heads(model, plan, allow_empty_layers=True)
    expected = model.state_dict()
    if lacking := expected.keys() - tensors.keys():
        raise CheckpointError(f"{folder}: the weights lack {_some(lacking)}; save the model again")
    if unknown := tensors.keys() - expected.keys():
        raise CheckpointError(
            f"{folder}: the weights hold {_some(unknown)}, which a {cls.__name__} has not"
        )
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{folder}: the weights do not fit the recorded heads: {name} must be {tuple(expected[name].shape)}, "
                f"found {tuple(tensor.shape)}; restore {REMOVED_HEADS} in config.json or save the model again"
            )
    model.load_state_dict(tensors, assign=True)  # assigned, not copied, to keep the dtype of each
    return model


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, from one file or from shards."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        try:
            # cloned, so that the model outlives whatever happens to the file the tensors are mapped from
            tensors |= {name: tensor.clone() for name, tensor in load_file(path).items()}
        except (KeyError, OSError, SafetensorError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path}: is damaged ({one_line(error)}); save or download the model again"
            ) from error
    # transformers before 4.31 kept these in the file; the model makes them itself
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(_OLD_BUFFERS)}


def _load_plain(
    source: str,
    config: PreTrainedConfig,
    cls: type[PreTrainedModel],
    attn_implementation: str | None,
    dtype: torch.dtype | str,
) -> tuple[PreTrainedModel, list[str]]:
    """An unpruned model through transformers, which knows the older names of tensors; and the tensors it lacks."""
    options = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
    name, revision = HubName.of(source)
    with _no_load_report(), _refusing(source), reading_hub(name):
        model, report = cls.from_pretrained(
            name,
            revision=revision,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    return model, sorted(report["missing_keys"])


@contextmanager
def _refusing(source: str | Path) -> Iterator[None]:
    """Turn what transformers, torch and safetensors raise about a checkpoint into one line."""
    try:
        yield
    except AuberError:
        raise
    except Exception as error:  # whatever damaged files make them raise
        raise CheckpointError(f"{source}: cannot be loaded ({one_line(error)})") from error


@contextmanager
def _no_load_report() -> Iterator[None]:
    """Keep transformers from reporting tensors that are new or left over: the caller judges them itself."""
    logger = logging.getLogger("transformers.modeling_utils")

    def is_other(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


# Labels


def check_labels(
    source: str, config: PreTrainedConfig, num_labels: int, names: list[str] | None
) -> None:
    """Raise `CheckpointError` unless a trained classifier's labels are the task's, in its order; `source` names the model."""
    if config.num_labels != num_labels:
        raise CheckpointError(
            f"{source}: its trained classifier has {config.num_labels} labels, the task has {num_labels}; "
            "choose the task it was trained on, or, to train one, the encoder without a classifier"
        )
    found = [str(config.id2label.get(index)) for index in range(num_labels)]
    if names is not None and found != names and sorted(found) == sorted(names):
        raise CheckpointError(
            f"{source}: its classifier orders the labels {', '.join(found)}, the task {', '.join(names)}; give the task that order "
            f"(--labels {','.join(found)})"
        )


def classes_of(config: PreTrainedConfig) -> tuple[str, ...] | None:
    """The names of a classifier's outputs; None where they are but numbered."""
    names = tuple(str(config.id2label.get(index)) for index in range(config.num_labels))
    return None if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names


def check_vocabulary(
    source: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raise `CheckpointError` where a tokenizer has tokens that a model knows nothing of; `source` names the model."""
    if len(tokenizer) > config.vocab_size:
        raise CheckpointError(
            f"{source}: its tokenizer has {len(tokenizer)} tokens, its model {config.vocab_size}; "
            "use the tokenizer the model was trained with"
        )


def _with_labels(
    config: PreTrainedConfig, num_labels: int, names: list[str] | None
) -> PreTrainedConfig:
    config = copy.deepcopy(config)
    if config.num_labels != num_labels:
        config.num_labels = num_labels
    if names is not None and len(names) != num_labels:
        raise ModelError(
            f"{num_labels} labels need as many names, found {len(names)}: {', '.join(names)}"
        )
    return config


# Writing


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A new empty folder that takes the place of `folder` when the block ends well.

    It lies in a private temporary folder beside it, so that nobody sees it half written and a rename completes it.
    """
    from safetensors import SafetensorError

    folder = folder.resolve()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{folder}: is there and holds something else than a model; choose another folder"
        )
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder}: is there and is not a folder; choose another name")
    scratch = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        fresh, old = scratch / "new", scratch / "old"
        fresh.mkdir()  # with the permissions the user's folders have; the folder around it is private
        yield fresh
        _flush(fresh)
        if folder.exists():
            folder.rename(old)
        try:
            fresh.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: cannot be written ({one_line(error)})") from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch)


def _flush(folder: Path) -> None:
    """Bring a folder's files onto the disk, so that its name never stands for less than its content."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("r+b") as file:
                os.fsync(file.fileno())


# Words


def _some(names: Any) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 1} more" if len(ordered) > 1 else ""
    return f"{ordered[0]}{more}"
