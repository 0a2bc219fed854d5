"""Save and load model folders, and load the classifier that a run starts from.

A folder holds `model.safetensors`, the tokenizer's files and `config.json`, which records the
removed units (see `encoders/base.py`). `load` builds the transformers class that the config names,
slices it and fills it strictly: every tensor must be there and fit. Plain transformers folders load
as well, and so do folders of transformers 4 that record `pruned_heads`. No pickle is read and no
code from a folder or the Hub is run (`source.py`). The modeling file that `save` puts beside a
pruned model is for users without this package (`remote_code/`). A sentence encoder is saved with
its modules (`sentence_files.py`).
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import math
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from auber.data.task_types import TASK_TYPES, TaskType, get_task_type, task_type_of_config
from auber.data.user_rows import TO_PREDICT, USUAL_CLASSES, are_numbers
from auber.errors import CheckpointError, ModelError
from auber.models.encoders import REMOVED_HEADS, encoder_of
from auber.models.plan import PruningPlan
from auber.models.pooling import Modules, Pooling, attach_modules, modules_of
from auber.models.remote_code import MODELING_FILE, auto_map, needs_code
from auber.models.sentence_files import MODULES, read_modules, write_modules
from auber.models.source import (
    WEIGHTS,
    HubName,
    check_weights,
    one_line,
    read_config,
    read_folder_config,
    report_damage,
    weight_files,
)
from auber.models.surgery import remove
from auber.system import seeds
from auber.system.hub import reading_hub

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_EMBEDDINGS = TASK_TYPES["embeddings"]

# Patterns of tensors that may be missing. The hidden states of an encoder do not read its pooler.
_NOTHING, _POOLER = "(?!)", r"pooler\."

# transformers before 4.31 stored these; the model creates them itself.
_OLD_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

_NEW_NUMBERS = 10_000_000  # that a model may have besides twice those of its weights: a new head


class Classifier(NamedTuple):
    """A classifier in float32 with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    is_trained: bool
    classes: tuple[str, ...] | None = None  # names of a trained classifier's outputs


# Save


def save(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, folder: str | Path
) -> None:
    """Write a model folder as a whole or not at all; an existing model folder is replaced."""
    from safetensors.torch import save_file

    encoder_of(model)  # a supported encoder whose layers agree with its config
    config = copy.deepcopy(model.config)
    # The modeling file derives its classes from those of transformers and gives them the same name.
    if not any(
        isinstance(model, cls) and type(model).__name__ == cls.__name__ for cls in _classes(config)
    ):
        endings = ", ".join(f"...{each.ending}" for each in TASK_TYPES.values())
        raise ModelError(f"One of {endings} can be saved, found {type(model).__name__}")
    config.architectures = [type(model).__name__]
    config.dtype = model.dtype
    if hasattr(config, "auto_map"):  # code beside another folder
        del config.auto_map
    if not getattr(config, REMOVED_HEADS, True):
        delattr(config, REMOVED_HEADS)
    if needs_code(config):
        config.auto_map = auto_map(config)
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    with replacing(Path(folder)) as fresh:
        config.save_pretrained(fresh)
        if needs_code(config):
            shutil.copyfile(MODELING_FILE, fresh / MODELING_FILE.name)
        save_file(tensors, fresh / WEIGHTS, metadata={"format": "pt"})
        if tokenizer is not None:
            tokenizer.save_pretrained(fresh)
        if (modules := modules_of(model)) is not None:
            write_modules(modules, fresh, config.hidden_size)


def require_free(folder: Path) -> None:
    """Raise `CheckpointError` unless a path is new or an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(
            f"{folder}: must be a new or an empty folder; choose another folder for --out"
        )


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield a new empty folder, which replaces `folder` if the block succeeds.

    It lies in a private temporary folder beside it, so that no reader sees it half written and a
    rename completes it.
    """
    from safetensors import SafetensorError

    folder = folder.resolve()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: exists and is not a model folder; choose another folder")
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder}: exists and is not a folder; choose another name")
    scratch = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        fresh, old = scratch / "new", scratch / "old"
        fresh.mkdir()  # with the user's default permissions, inside the private folder
        yield fresh
        for path in fresh.rglob("*"):
            if path.is_file():
                with path.open("r+b") as file:
                    os.fsync(file.fileno())
        if folder.exists():
            folder.rename(old)
        try:
            fresh.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder}: cannot be written ({one_line(error)}); choose another folder"
        ) from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch)


# Load


def load(
    folder: str | Path,
    *,
    device: str | torch.device | None = None,
    attn_implementation: str | None = None,
) -> PreTrainedModel:
    """Return the model of a folder or finished run, in eval mode."""
    folder = model_folder(Path(folder))
    config, plan = read_folder_config(folder)
    check_weights(folder, config)
    named = (config.architectures or [None])[0]
    classes = {cls.__name__: cls for cls in _classes(config)}
    modules = read_modules(folder) if _is_encoder(config) else None
    if modules is not None:  # sentence-transformers loads the encoder of any architecture
        named = _EMBEDDINGS.model_class(config).__name__
    if named not in classes:
        raise CheckpointError(
            f"{folder}: its architecture must be {' or '.join(classes)}, found {named}"
        )
    options = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
    if plan:
        model = _load_pruned(folder, config, plan, classes[named], options)
    else:
        may_lack = _NOTHING if modules is None else _POOLER
        remedy = "save the model again"
        with _drawing(0, "unused weights"):
            model = _load_plain(folder, config, classes[named], may_lack, remedy, "auto", **options)
    attach_modules(model, modules)
    if device is not None:
        model.to(device)
    return model.eval()


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a folder, finished run or Hub name (`name@revision`)."""
    from transformers import AutoTokenizer

    place = model_folder(Path(source)) if Path(source).is_dir() else source
    name, revision = HubName.of(str(place))
    with (
        report_damage(f"{source}: its tokenizer cannot be loaded", "save one into the folder"),
        reading_hub(name),
    ):
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
    # Without files, transformers returns a tokenizer that only knows its special tokens.
    if len(tokenizer) <= len(set(tokenizer.all_special_tokens)):
        raise CheckpointError(
            f"{source}: has no tokenizer files; save the tokenizer into the folder"
        )
    return tokenizer


def model_folder(folder: Path) -> Path:
    """Return where the model lies: in a folder of its own if `folder` is a run's."""
    inner = folder / "model"
    is_run = not (folder / "config.json").exists() and (inner / "config.json").is_file()
    return inner if is_run else folder


def weights_digest(model: PreTrainedModel) -> str:
    """Return a digest of the tensors of a model and of the units they belong to."""
    state = sorted(model.state_dict().items())
    # Hashing releases the interpreter lock: a few threads keep up with the copies from a GPU.
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        tensors = list(pool.map(lambda item: _digest_tensor(*item), state))
    described = json.dumps([encoder_of(model).removed.identity(), tensors])
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def _digest_tensor(name: str, tensor: Tensor) -> list[Any]:
    flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    digest = hashlib.sha256(flat.numpy().data).hexdigest()
    return [name, str(tensor.dtype), list(tensor.shape), digest]


def _classes(config: PreTrainedConfig) -> tuple[type[PreTrainedModel], ...]:
    """Return the classes of a config: those of all task types."""
    return tuple(each.model_class(config) for each in TASK_TYPES.values())


def _load_pruned(
    folder: Path,
    config: PreTrainedConfig,
    plan: PruningPlan,
    cls: type[PreTrainedModel],
    options: dict[str, str],
) -> PreTrainedModel:
    """Build, slice and fill a model; transformers cannot, because it builds all layers alike."""
    from transformers.initialization import no_init_weights

    tensors = _read_tensors(folder)
    # First on the meta device, which has no memory: a hostile config could ask for all of it. What
    # is built there lacks the buffers that are in no file.
    for device in ("meta", "cpu"):
        with (
            torch.device(device),
            no_init_weights(),
            report_damage(f"{folder}: cannot be loaded"),
        ):
            model = cls._from_config(copy.deepcopy(config), **options)
        remove(model, plan, allow_empty_layers=True)
        try:
            model.load_state_dict(tensors, assign=True)  # assigned, not copied, to keep each dtype
        except RuntimeError as error:  # with all problems, from its second line on
            problems = " ".join(str(error).split("\n\t", 1)[-1].split())
            raise CheckpointError(
                f"{folder}: the weights do not fit the recorded units ({problems:.300}); restore "
                "config.json or save the model again"
            ) from error
    return model


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        with report_damage(f"{path}: is damaged"):
            # Cloned: the file that the tensors are mapped from may change or disappear.
            tensors |= {name: tensor.clone() for name, tensor in load_file(path).items()}
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(_OLD_BUFFERS)}


def _load_plain(
    source: str | Path,
    config: PreTrainedConfig,
    cls: type[PreTrainedModel],
    may_lack: str,
    remedy: str,
    dtype: torch.dtype | str,
    **options: str,
) -> PreTrainedModel:
    """Load an unpruned model through transformers; draw what it `may_lack` (a pattern)."""
    name, revision = HubName.of(str(source))
    if Path(source).is_dir():
        _require_weights_for(Path(source), config, cls)
    with _no_load_report(), report_damage(f"{source}: cannot be loaded"), reading_hub(name):
        model, report = cls.from_pretrained(
            name,
            revision=revision,
            config=config,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # for an error of our own
            dtype=dtype,
            **options,
        )
    if unfit := sorted(name for name, *_ in report["mismatched_keys"]):
        raise CheckpointError(
            f"{source}: {_some(unfit)} must have the shapes that config.json records, found "
            "others; if transformers 4 pruned heads, restore pruned_heads in config.json and run "
            "'auber import', otherwise save or download the model again"
        )
    if missing := [name for name in report["missing_keys"] if not re.match(may_lack, name)]:
        raise CheckpointError(f"{source}: the weights lack {_some(missing)}; {remedy}")
    return model


def _require_weights_for(
    folder: Path, config: PreTrainedConfig, cls: type[PreTrainedModel]
) -> None:
    """Raise `CheckpointError` if a config asks for far more numbers than the weights hold.

    Transformers would draw the others, in memory that a hostile config decides.
    """
    from safetensors import safe_open
    from transformers.initialization import no_init_weights

    held = 0
    for path in weight_files(folder):
        with report_damage(f"{path}: is damaged"), safe_open(path, framework="pt") as file:
            held += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    with torch.device("meta"), no_init_weights(), report_damage(f"{folder}: cannot be loaded"):
        asked = cls._from_config(copy.deepcopy(config)).num_parameters()
    if asked > 2 * held + _NEW_NUMBERS:
        raise CheckpointError(
            f"{folder}: its config.json describes {asked} numbers, its weights hold {held}; save "
            "or download the model again"
        )


@contextmanager
def _drawing(seed: int, purpose: str) -> Iterator[None]:
    """Draw weights that a checkpoint lacks from a seed of their own."""
    with torch.random.fork_rng(devices=[]):
        # The CPU's generator alone: torch.manual_seed also seeds GPUs, which fork_rng leaves so.
        torch.default_generator.manual_seed(seeds.derive(seed, purpose))
        yield


@contextmanager
def _no_load_report() -> Iterator[None]:
    """Silence the report of transformers on new and unused tensors, which the caller judges."""
    logger = logging.getLogger("transformers.modeling_utils")

    def is_other(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{min(names)}{more}"


# Classifiers


def load_classifier(
    source: str | Path,
    *,
    num_labels: int,
    label_names: Sequence[str] | None = None,
    is_regression: bool = False,
    kind: str = "sequence",
    seed: int = 0,
    device: str | torch.device | None = None,
) -> Classifier:
    """Return the float32 classifier of a folder or Hub name (`name@revision`).

    If the checkpoint has no trained classifier, one is drawn from `seed`. A trained one must be for
    the task's `kind` and have its labels. For embeddings return the encoder with its modules.
    """
    config, plan = read_config(source)
    if plan and not Path(source).is_dir():
        raise CheckpointError(
            f"'{source}' is a pruned model; download it and give the local folder"
        )
    wanted, names = get_task_type(kind), None if label_names is None else list(label_names)
    is_trained, classes = _has_head(source, config, wanted), None
    if is_trained and wanted.label:
        check_labels(str(source), config, num_labels, names)
        classes = classes_of(config)
    modules = None if wanted.label else read_modules(source)
    tokenizer = load_tokenizer(source)
    check_vocabulary(str(source), config, tokenizer)
    if not plan:
        check_weights(source, config)
        if names is not None and len(names) != num_labels:
            raise ModelError(
                f"{num_labels} labels need as many names, found {len(names)}: {', '.join(names)}"
            )
        if wanted.label and config.num_labels != num_labels:
            config.num_labels = num_labels
        model = _load_unpruned(source, config, wanted, is_trained, seed)
    elif is_trained:
        model = load(source).float()
    else:
        raise CheckpointError(
            f"{source}: is a pruned encoder without a classifier; start from one with a classifier"
        )
    name_outputs(model, names, is_regression=is_regression, kind=kind)
    if not wanted.label:
        attach_modules(model, modules)
        require_modules(model, str(source))
    if device is not None:
        model.to(device)
    return Classifier(model.eval(), tokenizer, is_trained, classes)


def require_modules(model: PreTrainedModel, name: str) -> None:
    """Make a live encoder a sentence encoder if it has no modules, and log it."""
    if modules_of(model) is None:
        logger.warning(
            "%s: has no %s: its embeddings are taken as the mean of a text's tokens, normalised",
            name,
            MODULES,
        )
        attach_modules(model, Modules(Pooling(), {}))


def name_outputs(
    model: PreTrainedModel, names: Sequence[str] | None, *, is_regression: bool, kind: str
) -> None:
    """Record the meaning of a classifier's outputs in its config."""
    if kind == "sequence":
        model.config.problem_type = "regression" if is_regression else "single_label_classification"
    if names is not None:
        model.config.id2label = dict(enumerate(names))
        model.config.label2id = {name: index for index, name in enumerate(names)}


def classes_of(config: PreTrainedConfig) -> tuple[str, ...] | None:
    """Return the names of a classifier's outputs; None if they are only numbered."""
    names = tuple(str(config.id2label.get(index)) for index in range(config.num_labels))
    return None if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names


def check_labels(
    source: str, config: PreTrainedConfig, num_labels: int, names: list[str] | None
) -> None:
    """Raise `CheckpointError` unless a trained classifier has the task's labels, in its order."""
    if config.num_labels != num_labels:
        is_doubtful = config.num_labels == 1 or num_labels > USUAL_CLASSES
        advice = f"; {TO_PREDICT}" if is_doubtful and are_numbers(names or ("",)) else ""
        raise CheckpointError(
            f"{source}: its trained classifier has {config.num_labels} "
            f"label{'s' if config.num_labels != 1 else ''}, the task has {num_labels}; choose the "
            f"task it was trained on, or, to train one, the encoder without a classifier{advice}"
        )
    found = [str(config.id2label.get(index)) for index in range(num_labels)]
    if names is not None and found != names and sorted(found) == sorted(names):
        raise CheckpointError(
            f"{source}: its classifier orders the labels {', '.join(found)}, the task "
            f"{', '.join(names)}; give the task that order (--labels {','.join(found)})"
        )


def check_vocabulary(
    source: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raise `CheckpointError` if a tokenizer has tokens that the model does not know."""
    if len(tokenizer) > config.vocab_size:
        raise CheckpointError(
            f"{source}: its tokenizer has {len(tokenizer)} tokens, its model {config.vocab_size}; "
            "use the tokenizer the model was trained with"
        )


def _is_encoder(config: PreTrainedConfig) -> bool:
    """Return whether a checkpoint has no head that this package knows."""
    return task_type_of_config(config) in (None, _EMBEDDINGS)


def _has_head(source: str | Path, config: PreTrainedConfig, wanted: TaskType) -> bool:
    """Return whether a checkpoint has what the task type needs; raise if it has another head."""
    if wanted == _EMBEDDINGS:
        if not _is_encoder(config):
            raise CheckpointError(
                f"{source}: has a head ({', '.join(config.architectures or [])}), and embeddings "
                "need an encoder without one; give the encoder alone, or rows for that head"
            )
        return True
    found = task_type_of_config(config)
    if found not in (None, _EMBEDDINGS, wanted):
        # Its tensors may have the same names and shapes, and would be loaded as if they fitted.
        raise CheckpointError(
            f"{source}: its classifier is one for {found.name} ({config.architectures[0]}), the "
            f"task is of kind {wanted.name} (...{wanted.ending}); start from a model of that kind, "
            "or from the encoder without a classifier"
        )
    return found == wanted


def _load_unpruned(
    source: str | Path, config: PreTrainedConfig, wanted: TaskType, is_trained: bool, seed: int
) -> PreTrainedModel:
    """Load a model in float32; an untrained classifier is drawn from `seed`."""
    cls, remedy = wanted.model_class(config), "use a complete checkpoint"
    may_lack, drawing = _NOTHING, _drawing(seed, "classifier")
    if wanted == _EMBEDDINGS:
        may_lack, drawing = _POOLER, _drawing(0, "unused weights")
    elif not is_trained:  # a bare checkpoint lacks the classifier, and may lack the pooler
        prefix = rf"{cls.base_model_prefix}\."
        may_lack = f"(?!{prefix})|{prefix}{_POOLER}"
    with drawing:
        return _load_plain(source, config, cls, may_lack, remedy, torch.float32)
