"""What the stages of a run weigh beside each other."""

from __future__ import annotations

import pytest

from auber.data.splits import make_splits
from auber.models.encoders import encoder_of
from auber.run.request import make_ask, make_job
from auber.run.starts import Start
from auber.run.work import Work
from auber.search.registry import get_method
from tests.small import small_config, small_start, small_task


def work_of(method="auber", **changes):
    model, tokenizer = small_start()
    task, config = small_task(), small_config(**changes)
    start = Start(model, tokenizer, "small", tuned=False)
    job = make_job(make_ask(task, get_method(method), config, None), start, None, None)
    return Work(job, make_splits(task.train.labels, config, 3, False), encoder_of(model))


def test_a_tuning_weighs_its_rows_as_often_as_it_goes_over_them():
    work = work_of(
        first__epochs=3,
        layer__epochs=2,
        last__epochs=4,
        last__watch_fraction=0.1,
        reward__fraction=0.5,
    )
    assert work.first() == 3 * 60
    assert work.later([0, 2]) == [2 * 30, 2 * 30, 4 * 54]


def test_gates_weigh_as_much_as_all_their_trials():
    work = work_of(voita__trials=8, voita__epochs=3)
    assert work.ranking("voita") == 8 * 3 * 60
    assert work.ranking("michel") == 60
    assert work.ranking("random") == 0


def test_scouts_weigh_what_they_are_tuned_on():
    work = work_of(
        protocol="crossfit", reward__folds=2, first__epochs=1, layer__epochs=1, last__epochs=1
    )
    first = work.scouts([0, 1])
    assert len(first) == 2 * (1 + 2 + 1)
    assert first[0] == first[4] == 30


@pytest.mark.parametrize("method", ["auber", "greedy", "exhaustive"])
def test_a_search_weighs_less_the_fewer_layers_are_behind_it(method):
    work = work_of(method)
    assert work.search(0) > work.search(1) > work.search(2) > 0


def test_more_games_weigh_more_until_every_mask_is_known():
    few, many, all_masks = (work_of(agent__episodes=episodes).search(0) for episodes in (2, 3, 500))
    assert few < many <= all_masks == work_of("exhaustive").search(0)
