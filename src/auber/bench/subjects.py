"""What is measured: a classifier and the reward rows of a task, made on the spot or loaded.

A model made here has random weights, larger than a new BERT's so that attention is not flat, and a classifier balanced so
that both answers occur: masks then change predictions, and differences between ways of computing can be seen. Generated
rows are texts of made-up words, one token each, so that a whole run can be started on them as on any task.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from auber.bench.catalogue import PADDED_LENGTH, ROWS, SIZES, Request, RowShape, Size
from auber.config import Config
from auber.data.encoding import EncodedRows, encode_rows
from auber.data.splits import make_splits
from auber.data.task import Rows, TaskData
from auber.errors import ConfigError
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.run import files as run_files
from auber.system import seeds
from auber.training.devices import Hardware
from auber.training.evaluation import predict

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_BALANCING_ROWS = 32
_SECOND_TEXT = 0.17  # its share of a pair's words, as in RTE


@dataclass(frozen=True)
class Subject:
    """A model on the device in float32, and rows as its search would see them."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: TaskData
    rows: EncodedRows  # the reward set of layer 0
    config: Config
    hardware: Hardware

    @property
    def encoder(self) -> Encoder:
        """The adapter around the model."""
        return encoder_of(self.model)


def make_subject(
    request: Request, config: Config, hardware: Hardware, task: TaskData | None = None
) -> Subject:
    """The subject of a request; `task` replaces the generated rows."""
    if request.model is None:
        return make_sized_subject(
            SIZES[request.size], ROWS[request.rows], request.count, config, hardware
        )
    is_run = run_files.is_run(request.model)
    start = checkpoint.load_classifier(
        Path(request.model) / "model" if is_run else request.model,
        num_labels=2 if task is None else task.num_labels,
        label_names=None if task is None else task.label_names,
        is_regression=task is not None and task.is_regression,
        seed=config.seed,
        device=hardware.device,
    )
    tokenizer = start.tokenizer
    if task is None:
        tokenizer = make_tokenizer(start.model.config)
        task = make_rows_task(ROWS[request.rows], request.count, config.seed, tokenizer)
    return _put_together(
        Path(request.model).resolve().name, start.model, tokenizer, task, config, hardware
    )


def make_sized_subject(
    size: Size, shape: RowShape, count: int | None, config: Config, hardware: Hardware
) -> Subject:
    """A model made on the spot with rows of a shape."""
    model = make_model(size, config.seed).to(hardware.device)
    tokenizer = make_tokenizer(model.config)
    task = make_rows_task(shape, count, config.seed, tokenizer)
    subject = _put_together(
        f"BERT {size.name}, random weights", model, tokenizer, task, config, hardware
    )
    _balance(model, subject.rows.select(range(min(_BALANCING_ROWS, len(subject.rows)))))
    return subject


def make_model(size: Size, seed: int) -> PreTrainedModel:
    """A BERT classifier in eval mode whose weights depend on the size and the seed alone."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=size.vocab_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        max_position_embeddings=max(512, PADDED_LENGTH),
        initializer_range=1.2 / size.hidden_size**0.5,
        num_labels=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seeds.derive(seed, "bench model"))
        return BertForSequenceClassification(config).eval()


def make_tokenizer(config: Any) -> PreTrainedTokenizerBase:
    """A tokenizer whose words, w5 and so on, are one token each: for any model, whatever its vocabulary means."""
    from transformers import BertTokenizerFast

    others = [number for number in range(config.vocab_size) if number != config.pad_token_id]
    special = dict(zip(_SPECIAL_TOKENS, [config.pad_token_id, *others], strict=False))
    words = {f"w{number}": number for number in others[len(_SPECIAL_TOKENS) - 1 :]}
    options = (
        {}
        if getattr(config, "type_vocab_size", 0) > 1
        else {"model_input_names": ["input_ids", "attention_mask"]}
    )
    return BertTokenizerFast(vocab={**special, **words}, model_max_length=PADDED_LENGTH, **options)


def make_rows_task(
    shape: RowShape, count: int | None, seed: int, tokenizer: PreTrainedTokenizerBase
) -> TaskData:
    """A task whose reward set, two thirds of train, has `count` rows of a shape; labels are half and half, at random."""
    count = count or shape.count
    random = seeds.generator(seed, f"bench rows/{shape.name}")
    words = np.array(sorted(set(tokenizer.get_vocab()) - set(_SPECIAL_TOKENS)))
    return TaskData(
        name=f"{shape.name}-like",
        train=_make_rows(shape, count * 3 // 2, words, random),
        dev=_make_rows(shape, max(8, count // 6), words, random),
        label_names=("no", "yes"),
        metric=shape.metric,
    )


def _make_rows(shape: RowShape, count: int, words: Any, random: np.random.Generator) -> Rows:
    specials = 3 if shape.is_pair else 2  # [CLS] and a [SEP] after each text
    lengths = random.permutation(shape.lengths(count))
    texts = [random.choice(words, length - specials) for length in lengths]  # nosec B311 # made-up rows, no secret
    cuts = [max(1, round(_SECOND_TEXT * len(text))) if shape.is_pair else 0 for text in texts]
    first = tuple(" ".join(text[cut:]) for text, cut in zip(texts, cuts, strict=True))
    second = tuple(" ".join(text[:cut]) for text, cut in zip(texts, cuts, strict=True))
    labels = random.permutation(np.arange(count) % 2)
    return Rows(first, second if shape.is_pair else None, tuple(labels.tolist()))


def _put_together(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: TaskData,
    config: Config,
    hardware: Hardware,
) -> Subject:
    encoder = encoder_of(model)
    most = encoder.most_tokens
    # However short the rows are: the plain way pads them to max_length.
    if most is not None and config.max_length > most:
        raise ConfigError(
            f"max_length must be at most {most}, the positions {name} has, found {config.max_length}; "
            f"add --set max_length={most}"
        )
    train = encode_rows(tokenizer, task.train, config.max_length, task.is_regression)
    splits = make_splits(task.train.labels, config, encoder.num_layers, task.is_regression)
    return Subject(
        name, model, tokenizer, task, train.select(splits.layers[0].reward), config, hardware
    )


def _balance(model: Any, rows: EncodedRows) -> None:
    """Move the classifier's bias so that half of these rows get each answer, and none stands so near that rounding decides."""
    logits = predict(model, rows)  # (rows, 2)
    ahead = (logits[:, 1] - logits[:, 0]).sort().values  # (rows,)
    middle = len(ahead) // 2
    with torch.no_grad():
        model.classifier.bias[1] -= ahead[middle - 1 : middle + 1].mean()
