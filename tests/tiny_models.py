"""Tiny random models of every encoder family, and random padded batches for them."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import torch
from torch import Tensor

from auber.data.task_types import TASK_TYPES

LAYERS, HEADS, NEURONS, HIDDEN, VOCABULARY, MAX_LENGTH = 3, 4, 48, 32, 100, 24
MODEL_TYPES = (
    "bert", "camembert", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta",
    "xlm-roberta",
)  # fmt: skip
ATTENTIONS = ("sdpa", "eager")
# Every (model type, attention implementation) that transformers offers.
VARIANTS = [
    (kind, attention)
    for kind in MODEL_TYPES
    for attention in ATTENTIONS
    if attention != "sdpa" or kind not in ("deberta-v2", "mpnet")
]

# What the published models of a family have, such as relative positions and local windows.
FAMILY_CONFIGS: dict[str, dict[str, Any]] = {
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_buckets": 4,
        "max_relative_positions": 16,
    },
    "electra": {"embedding_size": 16},
    "modernbert": {
        "local_attention": 6,
        # The defaults are beyond this vocabulary.
        "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3,
    },
}  # fmt: skip


def tiny_config(model_type: str, **changes: Any) -> Any:
    """Return a config of 3 layers x 4 heads and hidden size 32, with large weights."""
    from transformers import CONFIG_MAPPING

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "hidden_size": HIDDEN,
        "intermediate_size": NEURONS,
        "max_position_embeddings": MAX_LENGTH + 4,
        "initializer_range": 0.3,
        "num_labels": 2,
        "pad_token_id": 1,
    }
    sizes |= FAMILY_CONFIGS.get(model_type, {})
    if model_type == "distilbert":
        sizes["hidden_dim"] = sizes.pop("intermediate_size")
    return CONFIG_MAPPING[model_type](**{**sizes, **changes})


def tiny_model(
    model_type: str = "bert",
    *,
    kind: str = "sequence",
    attention: str | None = None,
    seed: int = 0,
    bare: bool = False,
    **changes: Any,
) -> Any:
    """Return a model in eval mode with random weights; `changes` go to the config."""
    import transformers

    if model_type == "deberta-v2":
        message = r"`torch\.jit\.script` is deprecated"  # transformers calls it on import
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message, DeprecationWarning)
            importlib.import_module("transformers.models.deberta_v2.modeling_deberta_v2")
    options = {} if attention is None else {"attn_implementation": attention}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        auto = getattr(transformers, "AutoModel" if bare else TASK_TYPES[kind].auto_class)
        model = auto.from_config(tiny_config(model_type, **changes), **options)
        with torch.no_grad():
            for parameter in model.parameters():
                # Biases of 0 and norms of 1, as transformers initialises them, would hide mistakes.
                if parameter.dim() == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def random_batch(
    model: Any, *, rows: int = 4, length: int = 9, seed: int = 0, padded: bool = True
) -> dict[str, Tensor]:
    """Return a batch of random rows; the first one has full length."""
    generator = torch.Generator().manual_seed(seed)
    pad = model.config.pad_token_id
    input_ids = torch.randint(5, VOCABULARY, (rows, length), generator=generator)
    lengths = torch.randint(2, length + 1, (rows,), generator=generator)
    lengths[0] = length
    if not padded:
        lengths[:] = length
    tokens = torch.arange(length) < lengths[:, None]  # (rows, length)
    batch = {"input_ids": input_ids.where(tokens, pad), "attention_mask": tokens.long()}
    if model.config.model_type in ("bert", "electra"):
        batch["token_type_ids"] = torch.randint(0, 2, (rows, length), generator=generator) * tokens
    return batch


def tiny_tokenizer() -> Any:
    """Return a lower-casing WordPiece tokenizer that knows all letters and some words."""
    from transformers import BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "is"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    names = [*words, *letters, *(f"##{letter}" for letter in letters)]
    return BertTokenizer(
        vocab={name: index for index, name in enumerate(names)}, model_max_length=MAX_LENGTH
    )
