"""Every reader, on some hundred hostile inputs: it takes them or refuses them with an error of ours, and changes nothing else."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.readers import READERS
from tests.fuzz.trial import FORMS, Trial


def quick(examples):
    """The same inputs every time, however long one takes: the trial has an alarm of its own."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(params=sorted(READERS), scope="module")
def trial(request, tmp_path_factory):
    return Trial(READERS[request.param], tmp_path_factory.mktemp("fuzz") / "trial")


def inputs(reader):
    """Fewer where an input takes longer."""
    return 120 if reader.share == 1.0 else 40 if reader.share >= 0.3 else 15


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_ordinary_file(trial, form):
    for target in trial.reader.targets:
        outcome = trial.run_form(target, form)
        assert not outcome.is_finding, f"{target}: {outcome.details}"


def test_spoilt_examples(trial):
    @quick(inputs(trial.reader))
    @given(random=st.integers(0, 2**32 - 1).map(Random))
    def check(random):
        target, data = trial.draw(random)
        outcome = trial.run(target, data)
        assert not outcome.is_finding, f"{target} = {data[:500]!r}: {outcome.details}"

    check()


def test_any_bytes(trial):
    @quick(inputs(trial.reader) // 3)
    @given(
        data=st.binary(max_size=200)
        | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace"))
    )
    def check(data):
        outcome = trial.run(trial.reader.targets[0], data)
        assert not outcome.is_finding, f"{data!r}: {outcome.details}"

    check()
