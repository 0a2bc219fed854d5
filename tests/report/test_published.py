from __future__ import annotations

from auber.report.published import _TABLES, Published, published
from auber.search.registry import METHODS


def test_cells_of_the_papers_tables():
    assert published("mrpc", "auber") == Published(86.03, 20)
    assert published("rte", "voita") == Published(63.61, None)
    assert published("wnli", "auber-reverse") == Published(54.93, 101)
    assert published("mrpc", "original+tuning") is None  # the paper lacks this control
    assert published("agreement", "auber") is None
    assert set(_TABLES) <= set(METHODS)
