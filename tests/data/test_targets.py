from __future__ import annotations

import pytest
import torch

from auber.data.targets import Tags
from auber.errors import TaskError
from auber.metrics.tags import read_scheme
from tests.kinds import TAGS, random_kind_rows

PINNED = {
    "tokens": "2a2ba934a20727c901b03fc533cc01b9c855bf46864b72aa80469dce27007ba5",
    "spans": "296864ad6c87b7a0283a7d8047bb73cdcb89dd2b6569a66f211b60dd75721100",
}


@pytest.mark.parametrize("kind", PINNED)
def test_selected_rows_keep_their_targets(kind):
    rows = random_kind_rows(kind)
    part = rows.select([3, 1])
    assert [part[0], part[1]] == [rows[3], rows[1]]
    assert part.content_hash != rows.select([1, 3]).content_hash
    # PYTHONPATH=. python -c "from tests.kinds import *; print(random_kind_rows(KIND).content_hash)"
    assert rows.select(range(len(rows))).content_hash == rows.content_hash == PINNED[kind]


@pytest.mark.parametrize("kind", PINNED)
def test_these_rows_have_no_label_for_a_row(kind):
    rows = random_kind_rows(kind)
    message = f"^rows of kind {kind} have no label for a whole row; give rows of kind sequence$"
    with pytest.raises(TaskError, match=message):
        _ = rows.labels


def test_the_truth_has_the_order_that_is_asked_for():
    rows = Tags([[0, 1], [2], [3, 4, 0]], read_scheme(TAGS))
    truth = rows.truth([2, 0, 1], [2, 1, 3], torch.device("cpu"))
    assert truth.tags.tolist() == [3, 4, 0, 0, 1, 2]
    assert truth.firsts.tolist() == [True, False, False, True, False, True]
    assert truth.places.tolist() == list(range(6))
