from auber.config import Config
from auber.data.encoding import EncodedRows
from auber.metrics.task_metrics import smooth_metric
from auber.scoring import PlanScorer
from auber.search.rankings import exchange, fisher
from auber.training.evaluation import predict
from tests.search.made import random_rows, ranking_inputs
from tests.small import cpu, small_config
from tests.tiny_models import tiny_model


def test_exchanges_keep_the_size_and_raise_the_reward():
    model = tiny_model("bert", num_labels=2, initializer_range=0.5).eval()
    rows = random_rows(model, 64)
    answers = predict(model, rows).argmax(1)
    rows = EncodedRows(rows.input_ids, rows.token_types, answers, rows.pad_token_id)
    config: Config = small_config(size__keep=0.5, search__rewards=60, search__rows=48)
    inputs = ranking_inputs(model, None, config=config, rows=rows)
    start, found = fisher.choose_plan(inputs).plan, exchange.choose_plan(inputs)
    record = found.details["exchange"]
    assert record["rewards"] == 60
    assert record["score"] > record["start_score"]
    assert found.plan != start
    shares = [plan.cost(model, 24).multiply_adds for plan in (start, found.plan)]
    assert max(shares) <= 0.5
    assert abs(shares[0] - shares[1]) < 0.03
    # The reward is that of the pruned model.
    scorer = PlanScorer(model, rows, smooth_metric("accuracy"), cpu())
    assert scorer.score(found.plan) > scorer.score(start)
    assert exchange.choose_plan(inputs).plan == found.plan
