"""Rows that are learned from a teacher too: besides its class, each has the probabilities that a scout which never saw it gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from auber.evaluation import predict
from auber.kinds import KINDS
from auber.outputs import OUTPUTS, Targets
from auber.tasks.answers import Labels
from auber.tasks.encoding import EncodedRows

KIND = "taught"


@dataclass(frozen=True)
class TaughtLabels(Labels):
    """A class a row, and the distribution over classes to learn in its place."""

    kind: ClassVar[str] = KIND

    targets: Tensor  # (rows, classes), float32

    def select(self, indices: Sequence[int]) -> TaughtLabels:
        """Those of the rows at these indices."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return TaughtLabels(self.labels[chosen], self.targets[chosen])

    def features(self, row: int) -> dict[str, Any]:
        """What a loss takes: a number a class."""
        return {f"target_{place}": value for place, value in enumerate(self.targets[row].tolist())}


class _Taught(type(OUTPUTS["sequence"])):  # type: ignore[misc]
    """One class a row, learned from a distribution."""

    def batch_loss(self, model: Any, inputs: dict[str, Tensor], targets: Targets) -> Tensor:
        wanted = torch.stack([targets[f"target_{place}"] for place in range(len(targets))], dim=-1)  # (rows, classes)
        return F.cross_entropy(self.logits(model(**inputs)).float(), wanted)


def taught(rows: EncodedRows, scouts: Sequence[Any], folds: np.ndarray, weight: float) -> EncodedRows:
    """The rows with targets of which this share is the scouts' out-of-fold probabilities and the rest the row's own class."""
    # The package has no such kind; it is made known where it is first wanted, so that importing this changes nothing.
    KINDS.setdefault(KIND, replace(KINDS["sequence"], name=KIND))
    OUTPUTS.setdefault(KIND, _Taught())
    labels = rows.labels
    probabilities = torch.zeros(len(rows), scouts[0].config.num_labels)
    for fold, scout in enumerate(scouts):
        mine = np.flatnonzero(folds == fold)
        probabilities[mine] = predict(scout, rows.select(mine.tolist())).float().softmax(-1).cpu()
    targets = weight * probabilities + (1 - weight) * F.one_hot(labels, probabilities.shape[1])
    return EncodedRows(rows.input_ids, rows.token_types, TaughtLabels(labels, targets), rows.pad_token_id)
