"""Encoders with layers of different widths, for `from_pretrained(..., trust_remote_code=True)`.

`config.json` lists the removed heads of each layer under `auber_removed_heads`, and the neurons
left in each layer under `auber_intermediate_sizes` if they differ. Each class of this file is the
transformers class of the same name, built from the config and then narrowed. Its weights load,
train and save like those of any other model. The file lies in the folder of every model that
`auber` has pruned and needs only torch and transformers. To add an encoder family, add a line to
`_LAYOUTS`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from torch import Tensor, nn

# Earlier versions implement attention differently and would fail with an obscure error.
if int(transformers.__version__.split(".")[0]) < 5:
    raise ImportError(
        f"modeling_auber.py needs transformers 5, found {transformers.__version__}; "
        "pip install --upgrade transformers"
    )

_REMOVED_HEADS = "auber_removed_heads"
_SIZES = "auber_intermediate_sizes"

# The largest value of each width: a config.json from elsewhere may ask for any.
_MOST = {
    "num_hidden_layers": 1024,
    "num_attention_heads": 1024,
    "hidden_size": 2**16,
    "intermediate_size": 2**20,
    "hidden_dim": 2**20,
    "vocab_size": 2**20,
    "max_position_embeddings": 2**20,
    "type_vocab_size": 2**20,
}


@dataclass(frozen=True)
class _Layout:
    """Where attention and feed-forward of a family are.

    Every linear in `attention` has outputs for all heads, except `output`, which reads them.
    """

    layers: str  # from the bare model to the list of its layers, the others from a layer
    attention: str
    output: str
    expand: str = "intermediate.dense"
    contract: str = "output.dense"
    shares_bias: bool = False  # all layers share one table of position biases, a column per head
    needs_heads: bool = False  # its forward cannot reshape to 0 heads


_BERT = _Layout("encoder.layer", "attention.self", "attention.output.dense")
_LAYOUTS = {
    "bert": _BERT,
    "camembert": _BERT,
    "deberta-v2": replace(_BERT, needs_heads=True),
    "distilbert": _Layout(
        "transformer.layer", "attention", "attention.out_lin", "ffn.lin1", "ffn.lin2"
    ),
    "electra": _BERT,
    "modernbert": _Layout("layers", "attn", "attn.Wo", "mlp.Wi", "mlp.Wo"),
    "mpnet": _Layout("encoder.layer", "attention.attn", "attention.attn.o", shares_bias=True),
    "roberta": _BERT,
    "xlm-roberta": _BERT,
}


class _Narrowed:
    """What a class of this file adds to the transformers class that it is derived from."""

    def __init__(self, config: Any, *arguments: Any, **named: Any) -> None:
        _require_widths(config)  # before anything is built
        kept_heads, sizes = _kept_heads(config), _sizes(config)
        super().__init__(config, *arguments, **named)  # type: ignore[call-arg]
        for layer, heads in kept_heads.items():
            attention, output = _attention_of(self, layer)
            _narrow(attention, output, heads, config.num_attention_heads)
            if _layout_of(self).shares_bias:
                share_bias(attention, torch.tensor(heads, dtype=torch.long))
            if _layout_of(self).needs_heads and not heads:
                attention.forward = attend_without_heads
        for layer, size in enumerate(sizes):
            _narrow_feed_forward(self, layer, size)

    def initialize_weights(self) -> None:
        """Fill the buffers that are in no file; transformers builds models on the meta device."""
        super().initialize_weights()  # type: ignore[misc]
        for layer, heads in _kept_heads(self.config).items():  # type: ignore[attr-defined]
            attention, _ = _attention_of(self, layer)
            if hasattr(attention, "present_heads"):  # not before the layer is narrowed
                attention.present_heads.copy_(torch.tensor(heads, dtype=torch.long))


def __getattr__(name: str) -> Any:
    """Make the narrowed form of a transformers class such as `BertForSequenceClassification`."""
    plain: Any = None if name.startswith("_") else getattr(transformers, name, None)
    config_class = getattr(plain, "config_class", None)
    if getattr(config_class, "model_type", None) not in _LAYOUTS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    made = type(
        name,
        (_Narrowed, plain),
        {"__module__": __name__, "__doc__": f"{name} without some of its heads and neurons."},
    )
    globals()[name] = made
    return made


def _layout_of(model: Any) -> _Layout:
    return _LAYOUTS[model.config.model_type]


def _attention_of(model: Any, layer: int) -> tuple[Any, nn.Linear]:
    """Return a layer's attention and the linear that reads the outputs of its heads."""
    layout, block = _layout_of(model), _layer_of(model, layer)
    return block.get_submodule(layout.attention), block.get_submodule(layout.output)


def _layer_of(model: Any, layer: int) -> Any:
    return model.base_model.get_submodule(f"{_layout_of(model).layers}.{layer}")


def _require_widths(config: Any) -> None:
    """Raise `ValueError` unless all widths are whole numbers of a size that models have."""
    for name, most in _MOST.items():
        value = getattr(config, name, 0)
        if type(value) is not int or not 0 <= value <= most:
            raise ValueError(
                f"config.json: {name} must be a whole number from 0 to {most}, found "
                f"{str(value)[:60]}"
            )


def _kept_heads(config: Any) -> dict[int, list[int]]:
    """Return the remaining heads of each layer that lost some, as numbered before pruning."""
    removed = getattr(config, _REMOVED_HEADS, None) or {}
    layers, heads = range(config.num_hidden_layers), range(config.num_attention_heads)
    if not isinstance(removed, dict):
        raise ValueError(f"config.json: {_REMOVED_HEADS} must be an object, found {removed!r:.60}")
    names = {str(layer) for layer in layers}
    for layer, gone in removed.items():
        if str(layer) not in names or not (
            isinstance(gone, list) and all(type(head) is int and head in heads for head in gone)
        ):
            raise ValueError(
                f"config.json: {_REMOVED_HEADS} must list heads of the model's {len(layers)} "
                f"layers of {len(heads)} heads, found {str(gone)[:60]} in layer {str(layer)[:20]}"
            )
    return {
        int(layer): [head for head in heads if head not in gone] for layer, gone in removed.items()
    }


def _sizes(config: Any) -> list[int]:
    """Return the number of neurons left in each layer; nothing if all layers have as many."""
    sizes: list[int] = getattr(config, _SIZES, None) or []
    whole = getattr(config, "hidden_dim", None) or config.intermediate_size
    if sizes and not (
        isinstance(sizes, list)
        and len(sizes) == config.num_hidden_layers
        and all(type(size) is int and 0 <= size <= whole for size in sizes)
    ):
        raise ValueError(
            f"config.json: {_SIZES} must have a number from 0 to {whole} for each of the model's "
            f"{config.num_hidden_layers} layers, found {str(sizes)[:60]}"
        )
    return sizes


def _narrow_feed_forward(model: Any, layer: int, size: int) -> None:
    """Cut a layer's feed-forward to a number of neurons."""
    layout, block = _layout_of(model), _layer_of(model, layer)
    expand, contract = (block.get_submodule(name) for name in (layout.expand, layout.contract))
    _narrow_outputs(expand, expand.out_features // contract.in_features * size)
    _narrow_inputs(contract, size)


def _narrow(attention: nn.Module, output: nn.Linear, heads: list[int], num_heads: int) -> None:
    """Cut a layer to the width of its heads; the values do not matter, a file's replace them."""
    for linear in attention.children():
        if isinstance(linear, nn.Linear) and linear is not output:
            _narrow_outputs(linear, linear.out_features // num_heads * len(heads))
    width = output.in_features // num_heads * len(heads)
    _narrow_inputs(output, width)
    for name, size in (("num_attention_heads", len(heads)), ("all_head_size", width)):
        if hasattr(attention, name):  # some forwards reshape by it
            setattr(attention, name, size)


def _narrow_outputs(linear: nn.Linear, width: int) -> None:
    linear.weight = nn.Parameter(linear.weight.detach()[:width].clone())  # (width, in_features)
    if linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias.detach()[:width].clone())  # (width,)
    linear.out_features = width


def _narrow_inputs(linear: nn.Linear, width: int) -> None:
    linear.weight = nn.Parameter(linear.weight.detach()[:, :width].clone())  # (out, width)
    linear.in_features = width


def share_bias(attention: nn.Module, heads: Tensor) -> None:
    """Let a layer read the columns of its own heads from the bias that all layers share."""
    attention.register_buffer("present_heads", heads, persistent=False)
    attention.register_forward_pre_hook(_take_present_columns, with_kwargs=True)


def _take_present_columns(
    attention: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Cut `position_bias`, the third argument, to (1, present_heads, length, length).

    All rows of a batch have the same bias, and transformers passes a copy for each.
    """
    heads: Any = attention.present_heads
    if "position_bias" in named:
        bias = named["position_bias"][:1].index_select(1, heads)
        return arguments, {**named, "position_bias": bias}
    hidden, mask, bias, *rest = arguments
    return (hidden, mask, bias[:1].index_select(1, heads), *rest), named


def attend_without_heads(
    hidden: Tensor, _mask: Tensor, output_attentions: bool = False, **_positions: Any
) -> tuple[Tensor, Tensor | None]:
    """Return contexts (rows, length, 0) and the weights of no head."""
    rows, length, _ = hidden.shape
    weights = hidden.new_empty(rows, 0, length, length) if output_attentions else None
    return hidden.new_empty(rows, length, 0), weights
