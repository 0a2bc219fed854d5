from __future__ import annotations

from auber.errors import unknown_name


def test_the_nearest_name_is_suggested():
    message = unknown_name("task", "mprc", ["mrpc", "cola", "wnli", "rte"])
    assert message == "Unknown task 'mprc'. Did you mean 'mrpc'? Known: cola, mrpc, rte, wnli"


def test_no_suggestion_where_nothing_is_near():
    assert unknown_name("task", "zzzz", ["mrpc"]) == "Unknown task 'zzzz'. Known: mrpc"
