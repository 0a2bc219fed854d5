"""How a run takes heads out of its model: plainly, or so that those that stay stand in for those that go (`search.mend`).

What heads say of each other is learned of the model as it is before any of the heads in question goes, so that a run that was cut
and removes them again comes to the same weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from auber.encoders import encoder_of
from auber.mending import Mending, learn_mending, remove_mended
from auber.plan import PruningPlan
from auber.surgery import remove_heads
from auber.tasks.encoding import EncodedRows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Removals:
    """Removes heads from one model after another, mended by what they compute for some rows where it `mends`."""

    def __init__(self, rows: EncodedRows, *, mends: bool) -> None:
        self._rows, self._mends = rows, mends
        self._known: dict[int, Mending] = {}  # by layer

    def mending(self, model: PreTrainedModel, layer: int) -> Mending | None:
        """How the heads of a layer stand in for each other now, for who scores masks; a later removal goes by the same."""
        if not self._mends:
            return None
        self._known = learn_mending(model, self._rows, [layer])
        return self._known.get(layer)

    def remove(self, model: PreTrainedModel, plan: PruningPlan) -> None:
        """Take out those of a plan's heads that the model still has."""
        left = plan - encoder_of(model).removed
        if not self._mends:
            remove_heads(model, left)
        elif left:
            if not self._known.keys() >= left.keys():
                self._known = learn_mending(model, self._rows)
            remove_mended(model, left, self._known)

    def forget(self) -> None:
        """What was learned is of another model than the next."""
        self._known = {}
