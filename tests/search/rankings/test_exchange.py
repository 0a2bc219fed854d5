from dataclasses import replace

import pytest

from auber.data.encoding import EncodedRows
from auber.metrics.task_metrics import smooth_metric
from auber.scoring import PlanScorer
from auber.search.rankings import exchange, fisher
from auber.training.evaluation import predict
from tests.search.made import random_rows, ranking_inputs
from tests.small import Messages, cpu, small_config
from tests.tiny_models import tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model("bert", num_labels=2, initializer_range=0.5).eval()


def make_inputs(model, num_removed=None, **changes):
    rows = random_rows(model, 64)
    answers = predict(model, rows).argmax(1)
    rows = EncodedRows(rows.input_ids, rows.token_types, answers, rows.pad_token_id)
    config = small_config(search__rewards=60, search__rows=48, **changes)
    return replace(
        ranking_inputs(model, num_removed, config=config, rows=rows), progress=Messages()
    )


def test_exchanges_keep_the_size_and_raise_the_reward(model):
    inputs = make_inputs(model, size__keep=0.45)
    start, found = fisher.choose_plan(inputs).plan, exchange.choose_plan(inputs)
    record = found.details["exchange"]
    assert record["rewards"] == 60
    assert record["score"] > record["start_score"]
    assert found.plan != start
    shares = [plan.cost(model, 24).multiply_adds for plan in (start, found.plan)]
    assert max(shares) <= 0.45
    assert abs(shares[0] - shares[1]) < 0.03
    # The reward is that of the pruned model.
    scorer = PlanScorer(model, inputs.rows, smooth_metric("accuracy"), cpu())
    assert scorer.score(found.plan) > scorer.score(start)
    assert exchange.choose_plan(inputs).plan == found.plan


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"size__keep": 0.5}, "from 0.5 upwards it had no significant loss"),
        ({"size__keep": 0.4, "size__even": True}, "exchanges would make the layers uneven"),
    ],
)
def test_without_a_search_the_plan_is_fishers_and_the_reason_is_given(model, changes, reason):
    inputs = make_inputs(model, **changes)
    found = exchange.choose_plan(inputs)
    assert found.plan == fisher.choose_plan(inputs).plan
    assert found.details == {}
    exchange.choose_plan(inputs)  # for another size of the same run
    assert inputs.progress.said == [f"a ranking (fisher) decides, without a search: {reason}"]


def test_a_number_of_heads_is_exchanged_among_heads(model):
    inputs = make_inputs(model, 5)
    found = exchange.choose_plan(inputs)
    assert (found.plan.num_heads, found.plan.num_neurons) == (5, 0)
    assert found.details["exchange"]["rewards"] > 1


def test_the_minutes_become_a_number_of_plans_that_is_measured_once(model):
    inputs, settled = make_inputs(model, size__keep=0.4, search__minutes=1e-6), {}

    def settle(name, measure):
        settled.setdefault(name, measure())
        return settled[name]

    inputs = replace(inputs, settle=settle)
    assert exchange.choose_plan(inputs).details["exchange"]["rewards"] == 1
    assert settled == {"plans scored, keep 0.4": 1}
    (said,) = inputs.progress.said
    assert said.startswith("the search scores 1 plans in about 0 s, fewer than search.rewards = 60")
    settled["plans scored, keep 0.4"] = 9  # by a run that was stopped
    assert exchange.choose_plan(inputs).details["exchange"]["rewards"] == 9
