from __future__ import annotations

import pytest

from auber.run.rates.choice import choose_rate
from tests.run.rates.made import record_of


def test_the_best_rate_has_the_highest_mean_over_tasks():
    choice = choose_rate(
        record_of(
            {
                "rte": {1e-5: [0.6, 0.6], 2e-5: [0.6, 0.7], 5e-5: [0.5, 0.9]},
                "mrpc": {1e-5: [0.7, 0.7], 2e-5: [0.8, 0.8], 5e-5: [0.6, 0.6]},
            }
        )
    )
    assert (choice.best, choice.notes) == (2e-5, ())
    assert choice.means == pytest.approx((0.65, 0.725, 0.65))
    assert [task.best for task in choice.tasks] == [5e-5, 2e-5]
    assert choice.tasks[0].deviations == pytest.approx((0.0, 0.05 * 2**0.5, 0.2 * 2**0.5))


def test_a_tie_goes_to_the_smaller_rate_whatever_the_order_of_the_seeds():
    # Added up from left to right the two differ in their last bit.
    choice = choose_rate(
        record_of({"rte": {5e-5: [0.1, 0.2, 0.3], 2e-5: [0.3, 0.2, 0.1], 1e-5: [0.0, 0.0, 0.0]}})
    )
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    assert choice.best == 2e-5


def test_a_rate_that_learned_nothing_is_named():
    record = record_of(
        {"rte": {1e-5: [0.5, 0.5], 2e-5: [0.5, 0.6], 5e-5: [0.4, 0.6]}},
        one_class={("rte", 0, 1e-5), ("rte", 1, 1e-5)},
    )
    assert choose_rate(record).notes == (
        "rte at 1e-05: every held-out row got the same answer with 2 of 2 seeds",
        "rte at 5e-05: 50.00 is no better than always answering the same (50.00)",
    )


@pytest.mark.parametrize(
    ("scores", "note"),
    [
        (
            {1e-5: [0.9], 2e-5: [0.8]},
            "the best rate is the smallest tried; add smaller ones than 1e-05",
        ),
        (
            {1e-5: [0.8], 2e-5: [0.9]},
            "the best rate is the largest tried; add larger ones than 2e-05",
        ),
        ({1e-5: [0.8]}, "1e-05 was the only rate tried; add smaller and larger ones"),
    ],
)
def test_a_best_rate_at_an_end_is_named(scores, note):
    choice = choose_rate(record_of({"rte": scores}))
    assert choice.notes == (note,)
    assert choice.tasks[0].deviations is None
