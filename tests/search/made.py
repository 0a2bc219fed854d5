"""Inputs of searches and rankings from tiny models, random rows and made-up layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from auber.config import Config
from auber.data.encoding import EncodedRows
from auber.models.encoders import encoder_of
from auber.models.surgery import remove
from auber.search.methods import LayerSearch, RankingInputs
from auber.search.toy import ToyLayer
from auber.system.progress import Progress
from auber.training.evaluation import predict
from tests.small import cpu, small_config
from tests.tiny_models import VOCABULARY, tiny_model


def random_rows(model: Any, count: int = 12, *, seed: int = 0) -> EncodedRows:
    """Return rows of 2 to 11 tokens with labels that fit the model, numbers for one output."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 12, (count,), generator=draw).tolist()
    ids = [torch.randint(5, VOCABULARY, (length,), generator=draw).tolist() for length in lengths]
    types = None
    if model.config.model_type in ("bert", "electra"):
        types = [torch.randint(0, 2, (length,), generator=draw).tolist() for length in lengths]
    if model.config.num_labels == 1:
        labels = torch.randn(count, generator=draw)
    else:
        labels = torch.randint(0, model.config.num_labels, (count,), generator=draw)
    return EncodedRows(ids, types, labels, model.config.pad_token_id)


def self_labelled(model: Any, count: int = 24) -> EncodedRows:
    """Return rows whose targets are the model's outputs: closing a working head costs loss."""
    rows = random_rows(model, count)
    return EncodedRows(
        rows.input_ids, rows.token_types, predict(model, rows).squeeze(-1), rows.pad_token_id
    )


@torch.no_grad()
def silence_heads(model: Any, heads: Mapping[int, Iterable[int]]) -> None:
    """Make some heads, by layer, of no effect."""
    for layer, silent in heads.items():
        for head in silent:
            encoder_of(model).parts(layer).output.weight[:, head * 8 : head * 8 + 8] = 0


def ranking_inputs(
    model: Any,
    num_removed: int | None = 0,
    rows: EncodedRows | None = None,
    config: Config | None = None,
) -> RankingInputs:
    """Return the inputs of a ranking."""
    config = config or small_config()
    return RankingInputs(
        model=model,
        encoder=encoder_of(model),
        num_removed=num_removed,
        rows=random_rows(model) if rows is None else rows,
        metric="accuracy" if model.config.num_labels > 1 else "pearson",
        hardware=cpu(),
        config=config,
        progress=Progress(),
    )


class CountingToy:
    """A made-up layer that records the masks scored; heads may be numbered unlike positions."""

    def __init__(self, layer: ToyLayer, heads: tuple[int, ...] | None = None) -> None:
        self.layer, self.asked = layer, list[tuple[int, ...]]()
        self.heads = tuple(range(layer.num_heads)) if heads is None else heads

    def score(self, removed: tuple[int, ...]) -> float:
        return self.layer.score(tuple(self.heads.index(head) for head in removed))

    def score_many(self, masks: Any) -> list[float]:
        self.asked += masks
        return [self.score(mask) for mask in masks]

    def search(
        self, config: Config | None = None, progress: Any = None, **given: Any
    ) -> LayerSearch:
        """Return a search of this layer; its weights are a tiny model's with as many heads."""
        num_heads = max(self.heads) + 1
        model = tiny_model(
            "bert", num_attention_heads=num_heads, hidden_size=4 * num_heads, num_hidden_layers=1
        )
        encoder = encoder_of(model)
        if gone := [head for head in range(num_heads) if head not in self.heads]:
            remove(model, {0: gone})
        return LayerSearch(
            0,
            encoder,
            self.heads,
            self.score_many,
            config or small_config(),
            progress or Progress(),
            **given,
        )
