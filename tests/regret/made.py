"""Score tables of made-up layers."""

from __future__ import annotations

from auber.regret.tables import LayerTable, RunTables
from auber.search.players.exhaustive import all_masks
from auber.search.toy import ToyLayer


def make_layer(
    layer: int = 0, num_heads: int = 5, *, bias: float = 0.002, heads: tuple[int, ...] = ()
) -> LayerTable:
    """The table of the made-up layer with this number as its seed."""
    toy = ToyLayer(num_heads, layer, bias=bias)
    return LayerTable(
        layer=layer,
        heads=heads or tuple(range(num_heads)),
        reward_rows=40,
        states={"value": {"l1": tuple(toy.state.tolist())}},
        scores=tuple(toy.score(mask) for mask in all_masks(range(num_heads))),
    )


def make_run(
    task: str = "toys", layers: tuple[int, ...] = (0, 2), seed: int = 0, **changes: int
) -> RunTables:
    """The tables of a made-up run."""
    return RunTables(
        model="made-up",
        task=task,
        metric="accuracy",
        protocol="seen",
        seed=seed,
        command="auber prune --method exhaustive",
        provenance={"device": "cpu"},
        layers=tuple(make_layer(layer, **changes) for layer in layers),
    )
