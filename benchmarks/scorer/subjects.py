"""What is measured: a classifier and generated rows.

A model made here has random weights, larger than those of a new BERT so that attention is not flat,
and a classifier bias that makes both answers occur: masks then change predictions. Rows are texts
of made-up words, one token each, so that a whole run works on them as on any task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from auber.config import Config
from auber.data.encoding import EncodedRows, encode_split
from auber.data.rows import Rows
from auber.data.splits import make_splits
from auber.data.task import TaskData
from auber.models import checkpoint
from auber.models.encoders import encoder_of
from auber.models.encoders.base import Encoder
from auber.system import seeds
from auber.training.devices import Hardware
from auber.training.evaluation import predict

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LEAST_ROWS = 8  # fewer cannot be split for a search
LONGEST_ROW = 128  # tokens
_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_BALANCING_ROWS = 32
_SHARE_OF_SECOND_TEXT = 0.17  # of a pair's words, as in RTE


@dataclass(frozen=True)
class Size:
    """The sizes of a BERT with random weights."""

    name: str
    num_layers: int
    num_heads: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int = 30522


@dataclass(frozen=True)
class RowShape:
    """Rows with log-normal lengths, as texts have them, cut to a range."""

    name: str
    count: int  # rows of the reward set
    is_pair: bool
    metric: str
    median: float
    sigma: float  # standard deviation of the logarithm of the lengths
    shortest: int
    longest: int

    def lengths(self, count: int) -> list[int]:
        """Return ascending token counts: quantiles, so that totals do not depend on a draw."""
        normal = NormalDist()
        quantiles = (normal.inv_cdf((row + 0.5) / count) for row in range(count))
        lengths = (round(self.median * math.exp(self.sigma * each)) for each in quantiles)
        return [min(max(length, self.shortest), self.longest) for length in lengths]


SIZES = {
    "base": Size("base", 12, 12, 768, 3072),
    "small": Size("small", 6, 12, 384, 1536),
    "tiny": Size("tiny", 2, 4, 32, 64, vocab_size=200),
}
# Counts and totals are those of the paper's reward sets, two thirds of train: RTE has 110 k tokens,
# CoLA 64 k.
ROWS = {
    "rte": RowShape("rte", 1660, True, "accuracy", 60.5, 0.55, 12, LONGEST_ROW),
    "cola": RowShape("cola", 5701, False, "matthews", 10.5, 0.36, 4, 48),
}


@dataclass(frozen=True)
class Subject:
    """A float32 model on the device and the rows that its search would score masks on."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: TaskData
    rows: EncodedRows  # the reward set of layer 0
    config: Config
    hardware: Hardware

    @property
    def encoder(self) -> Encoder:
        """The adapter of the model."""
        return encoder_of(self.model)


def load_subject(
    source: str, shape: RowShape, count: int | None, config: Config, hardware: Hardware
) -> Subject:
    """Return a model from a folder or the hub, with generated rows."""
    loaded = checkpoint.load_classifier(
        source, num_labels=2, seed=config.seed, device=hardware.device
    )
    return _assemble(Path(source).resolve().name, loaded.model, shape, count, config, hardware)


def make_subject(
    size: Size, shape: RowShape, count: int | None, config: Config, hardware: Hardware
) -> Subject:
    """Return a model with random weights and generated rows."""
    model = make_model(size, config.seed).to(hardware.device)
    name = f"BERT {size.name}, random weights"
    subject = _assemble(name, model, shape, count, config, hardware)
    _balance(model, subject.rows.select(range(min(_BALANCING_ROWS, len(subject.rows)))))
    return subject


def make_model(size: Size, seed: int) -> PreTrainedModel:
    """Return a BERT classifier whose weights depend on size and seed alone."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=size.vocab_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        max_position_embeddings=512,
        initializer_range=1.2 / size.hidden_size**0.5,
        num_labels=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seeds.derive(seed, "bench model"))
        return BertForSequenceClassification(config).eval()


def make_tokenizer(config: Any) -> PreTrainedTokenizerBase:
    """Return a tokenizer for any vocabulary size; its words, w5 and so on, are one token each."""
    from transformers import BertTokenizerFast

    others = [number for number in range(config.vocab_size) if number != config.pad_token_id]
    special = dict(zip(_SPECIAL_TOKENS, [config.pad_token_id, *others], strict=False))
    words = {f"w{number}": number for number in others[len(_SPECIAL_TOKENS) - 1 :]}
    options = {}
    if getattr(config, "type_vocab_size", 0) <= 1:
        options["model_input_names"] = ["input_ids", "attention_mask"]
    return BertTokenizerFast(vocab={**special, **words}, model_max_length=LONGEST_ROW, **options)


def _make_rows(shape: RowShape, count: int, words: Any, random: np.random.Generator) -> Rows:
    specials = 3 if shape.is_pair else 2  # [CLS] and a [SEP] after each text
    lengths = random.permutation(shape.lengths(count))
    texts = [random.choice(words, length - specials) for length in lengths]
    share = _SHARE_OF_SECOND_TEXT
    cuts = [max(1, round(share * len(text))) if shape.is_pair else 0 for text in texts]
    first = tuple(" ".join(text[cut:]) for text, cut in zip(texts, cuts, strict=True))
    second = tuple(" ".join(text[:cut]) for text, cut in zip(texts, cuts, strict=True))
    labels = random.permutation(np.arange(count) % 2)
    return Rows(first, second if shape.is_pair else None, tuple(labels.tolist()))


def _assemble(
    name: str,
    model: PreTrainedModel,
    shape: RowShape,
    count: int | None,
    config: Config,
    hardware: Hardware,
) -> Subject:
    """Return the model with a task whose reward set, two thirds of train, has `count` rows."""
    count = count or shape.count
    tokenizer = make_tokenizer(model.config)
    random = seeds.generator(config.seed, f"bench rows/{shape.name}")
    words = np.array(sorted(set(tokenizer.get_vocab()) - set(_SPECIAL_TOKENS)))
    task = TaskData(
        name=f"{shape.name}-like",
        train=_make_rows(shape, count * 3 // 2, words, random),
        dev=_make_rows(shape, max(8, count // 6), words, random),
        label_names=("no", "yes"),
        metric=shape.metric,
    )
    train = encode_split(tokenizer, task, "train", config.max_length)
    splits = make_splits(task.train.labels, config, encoder_of(model).num_layers, False)
    rows = train.select(splits.layers[0].reward)
    return Subject(name, model, tokenizer, task, rows, config, hardware)


def _balance(model: Any, rows: EncodedRows) -> None:
    """Set the bias between the two middle rows: half of them get each answer, none by rounding."""
    logits = predict(model, rows)  # (rows, 2)
    ahead = (logits[:, 1] - logits[:, 0]).sort().values  # (rows,)
    middle = len(ahead) // 2
    with torch.no_grad():
        model.classifier.bias[1] -= ahead[middle - 1 : middle + 1].mean()
