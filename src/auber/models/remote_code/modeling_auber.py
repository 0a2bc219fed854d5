"""Encoders without some of their attention heads, for `from_pretrained(..., trust_remote_code=True)`.

`config.json` names the heads that were removed, layer by layer, under `auber_removed_heads`. A class of this file is the
transformers class of the same name, built from the config and then narrowed to the heads that are left; its weights
load, train and save as any other model's do. The file stands in the folder of every model that `auber` has pruned and
needs torch and transformers alone. To add an encoder family: one line in `_LAYOUTS`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

if (
    int(transformers.__version__.split(".")[0]) < 5
):  # its attention is written otherwise, and would fail obscurely
    raise ImportError(
        f"modeling_auber.py needs transformers 5, found {transformers.__version__}; pip install --upgrade transformers"
    )

_REMOVED_HEADS = "auber_removed_heads"


@dataclass(frozen=True)
class _Layout:
    """Where the attention of a family lies. Each linear of `attention` gives all heads, but for `output`, which reads them."""

    layers: str  # from the bare model to the list of its layers
    attention: str  # from a layer
    output: str  # from a layer
    shares_bias: bool = False  # one table of position biases, a column a head, serves all layers
    needs_heads: bool = False  # its forward cannot reshape to 0 heads


_BERT = _Layout("encoder.layer", "attention.self", "attention.output.dense")
_LAYOUTS = {
    "bert": _BERT,
    "camembert": _BERT,
    "deberta-v2": replace(_BERT, needs_heads=True),
    "distilbert": _Layout("transformer.layer", "attention", "attention.out_lin"),
    "electra": _BERT,
    "modernbert": _Layout("layers", "attn", "attn.Wo"),
    "mpnet": _Layout("encoder.layer", "attention.attn", "attention.attn.o", shares_bias=True),
    "roberta": _BERT,
    "xlm-roberta": _BERT,
}


class _Narrowed:
    """What a class of this file adds to the transformers class it is derived from."""

    def __init__(self, config: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)  # type: ignore[call-arg]
        for layer, heads in _kept_heads(config).items():
            attention, output = _attention_of(self, layer)
            _narrow(attention, output, heads, config.num_attention_heads)
            if _layout_of(self).shares_bias:
                _share_bias(attention, heads)
            if _layout_of(self).needs_heads and not heads:
                attention.forward = _attend_without_heads

    def initialize_weights(self) -> None:
        """Fill what no file holds; transformers builds on the meta device, so this comes after the weights are loaded."""
        super().initialize_weights()  # type: ignore[misc]
        for layer, heads in _kept_heads(self.config).items():  # type: ignore[attr-defined]
            attention, _ = _attention_of(self, layer)
            if hasattr(attention, "present_heads"):  # not before the layer is narrowed
                attention.present_heads.copy_(torch.tensor(heads, dtype=torch.long))


def __getattr__(name: str) -> Any:
    """The narrowed form of a transformers class, such as `BertForSequenceClassification`, made when first asked for."""
    plain: Any = None if name.startswith("_") else getattr(transformers, name, None)
    config_class = getattr(plain, "config_class", None)
    if getattr(config_class, "model_type", None) not in _LAYOUTS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    made = type(
        name,
        (_Narrowed, plain),
        {"__module__": __name__, "__doc__": f"{name} without some of its heads."},
    )
    globals()[name] = made
    return made


def _layout_of(model: Any) -> _Layout:
    return _LAYOUTS[model.config.model_type]


def _attention_of(model: Any, layer: int) -> tuple[Any, nn.Linear]:
    """A layer's attention, and the linear that reads what its heads give."""
    layout = _layout_of(model)
    block = model.base_model.get_submodule(f"{layout.layers}.{layer}")
    return block.get_submodule(layout.attention), block.get_submodule(layout.output)


def _kept_heads(config: Any) -> dict[int, list[int]]:
    """The heads that are left in each layer that lost some, numbered as in the unpruned model."""
    removed = getattr(config, _REMOVED_HEADS, None) or {}
    heads = range(config.num_attention_heads)
    return {
        int(layer): [head for head in heads if head not in gone] for layer, gone in removed.items()
    }


def _narrow(attention: nn.Module, output: nn.Linear, heads: list[int], num_heads: int) -> None:
    """Cut a layer to the width of its heads; which values the cut keeps is of no importance, the file's take their place."""
    for linear in attention.children():
        if isinstance(linear, nn.Linear) and linear is not output:
            width = linear.out_features // num_heads * len(heads)
            linear.weight = nn.Parameter(linear.weight.detach()[:width].clone())  # (width, hidden)
            if linear.bias is not None:
                linear.bias = nn.Parameter(linear.bias.detach()[:width].clone())  # (width,)
            linear.out_features = width
    width = output.in_features // num_heads * len(heads)
    output.weight = nn.Parameter(output.weight.detach()[:, :width].clone())  # (hidden, width)
    output.in_features = width
    for name, size in (("num_attention_heads", len(heads)), ("all_head_size", width)):
        if hasattr(attention, name):  # some forwards reshape by it
            setattr(attention, name, size)


def _share_bias(attention: nn.Module, heads: list[int]) -> None:
    """Let a layer read its own heads' columns of the bias that all layers share."""
    attention.register_buffer(
        "present_heads", torch.tensor(heads, dtype=torch.long), persistent=False
    )
    attention.register_forward_pre_hook(_take_present_columns, with_kwargs=True)


def _take_present_columns(
    attention: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Cut `position_bias`, the third argument, to the heads that are present: (1, present_heads, length, length), for all rows."""
    heads: Any = attention.present_heads
    if "position_bias" in named:
        return arguments, {
            **named,
            "position_bias": named["position_bias"][:1].index_select(1, heads),
        }
    hidden, mask, bias, *rest = arguments
    return (hidden, mask, bias[:1].index_select(1, heads), *rest), named


def _attend_without_heads(
    hidden: Tensor, _mask: Tensor, output_attentions: bool = False, **_positions: Any
) -> tuple[Tensor, Tensor | None]:
    """What an attention without heads gives: contexts (rows, length, 0) and the weights of no head."""
    rows, length, _ = hidden.shape
    weights = hidden.new_empty(rows, 0, length, length) if output_attentions else None
    return hidden.new_empty(rows, length, 0), weights
