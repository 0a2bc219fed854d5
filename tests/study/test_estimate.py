from __future__ import annotations

from auber.study.estimate import Clock
from auber.study.plan import Block, StudyRun


def run_of(method: str | None) -> StudyRun:
    return StudyRun(method or "start", method, from_start=method is not None, is_matched=False)


def test_a_run_is_expected_to_take_as_long_as_its_kind():
    clock = Clock()
    clock.add("rte", "auber", 10)
    clock.add("rte", "auber", 20)
    clock.add("cola", "auber", 60)
    assert clock.expect("rte", "auber") == 15
    assert clock.expect("mrpc", "auber") == 30, "its method on any task"
    assert clock.expect("rte", None) is None
    open_runs = [(Block("rte", "seen", 1), run_of(name)) for name in ("auber", None)]
    assert clock.estimate(open_runs) == (15, 1)
    assert clock.guess(open_runs) == 15 + 30
    assert clock.guess([]) is None
    assert Clock().guess(open_runs) is None
