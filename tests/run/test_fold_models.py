"""Protocol crossfit: each row is scored by the fold model that was trained without it."""

from __future__ import annotations

import json

import pytest
import torch

import auber
from auber.data.encoding import encode_split
from auber.errors import RunError
from auber.models.surgery import remove
from auber.run import steps, tunings
from auber.run.files import read_json
from auber.run.folder import Run
from auber.system.seeds import derive
from auber.training.tuning import tune
from tests.small import cpu, small_config, small_start, small_task
from tests.splits import read_splits

TASK = small_task()
SETTINGS = {
    "protocol": "crossfit",
    "reward__measure": "smooth",
    "reward__head": 1.0,  # so that heads go
    "agent__choose": "best",
}


class CutError(Exception):
    pass


def prune(
    folder,
    method="auber",
    *,
    model=None,
    resume=False,
    origin=None,
    heads=None,
    progress=None,
    **changes,
):
    start, tokenizer = small_start()
    return auber.prune(
        model or start,
        tokenizer,
        task=TASK,
        method=method,
        config=small_config(**{"first__when": "always", **SETTINGS, **changes}),
        out=folder,
        resume=resume,
        origin=origin,
        heads=heads,
        progress=progress,
    )


def cut_and_resumed(monkeypatch, folder, cut, **changes):
    """Interrupt a run before one of its stages is written, and resume it."""
    finish = Run.finish_stage

    def stop(self, stage, *rest, **options):
        if stage == cut:
            raise CutError
        return finish(self, stage, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "finish_stage", stop)
        with pytest.raises(CutError):
            prune(folder, **changes)
    return prune(folder, resume=True, **changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crossfit") / "run"
    return prune(folder), folder


def same_weights(one, other):
    states = one.state_dict(), other.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][name], states[1][name]) for name in states[0]
    )


def test_the_stages_of_a_run(run):
    outcome, folder = run
    stages = {path.stem for path in (folder / "stages").glob("*.json")}
    lost = [layer for layer in range(3) if outcome.plan.heads.get(layer, ())]
    assert lost, "heads go, for each is paid for"
    wanted = {f"{kind}{number}" for kind in ("scout-", "layer-0") for number in range(3)}
    wanted |= {"first", "rewind", "last"}
    assert stages == wanted | {f"tuning-{layer:02}" for layer in lost}
    assert outcome.result["tuned_layers"] == lost
    assert not [path for path in (folder / "stages").iterdir() if path.is_dir()]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert {entry["stage"] for entry in events if entry["event"] == "stage"} == stages


def test_fold_models_count_apart_from_the_tuning_of_the_result(run):
    cost = run[0].result["cost"]
    first = 2 * -(-60 // 32)  # epochs, batches
    splits = read_splits(run[1])
    steps = 0
    for fold in range(3):
        own = splits.without_fold(fold)
        after_layers = sum(-(-len(layer.mini_train) // 32) for layer in own.layers)
        steps += 2 * -(-len(own.first) // 32) + after_layers + 2 * -(-len(own.last_train) // 32)
    assert cost["scout_steps"] == steps + first, "with the first model, which serves the search"
    control = first + len(run[0].result["tuned_layers"]) * -(-20 // 32) + 2 * -(-54 // 32)
    assert cost["tuning_steps"] == control
    assert cost["seconds"]["scouts"] > 0


@pytest.fixture(scope="module")
def unwound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unwound") / "run"
    return prune(folder, search__rewind=False), folder


@pytest.mark.parametrize("made", ["run", "unwound"])
def test_the_plan_is_applied_to_the_pretrained_or_the_fine_tuned_model(made, request):
    outcome, folder = request.getfixturevalue(made)
    model, tokenizer = small_start()
    splits, config = read_splits(folder), small_config(**SETTINGS)
    rows = encode_split(tokenizer, TASK, "train", 24)

    def do(indices, settings, purpose, layer=None, watch=None):
        seed = derive(config.seed, f"tuning/{purpose}", layer)
        tune(model, rows.select(indices), settings, seed=seed, hardware=cpu(), watch=watch)

    if made == "run":
        remove(model, outcome.plan)
    do(splits.first, config.first, "first")
    if made == "unwound":
        remove(model, outcome.plan)
    for layer in outcome.result["tuned_layers"]:
        do(splits.layers[layer].mini_train, config.layer, "layer", layer)
    do(splits.last_train, config.last, "last", watch=(rows.select(splits.last_watch), TASK.metric))
    assert same_weights(model, outcome.model)


@pytest.mark.parametrize("cut", ["layer-02", "tuning-00"])
def test_a_run_without_rewind_is_resumed(cut, unwound, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut, search__rewind=False)
    assert again.plan == unwound[0].plan
    assert same_weights(again.model, unwound[0].model)


def test_no_fold_model_scores_a_row_it_was_tuned_on(monkeypatch, tmp_path):
    seen, scored, tuned = {}, [], []
    crossed = steps.CrossFitScorer

    def listen(model, rows, *rest, watch=None, **more):
        if not hasattr(model, "mark"):
            model.mark = len(seen)  # which its copies have too
        for some in (rows, *([] if watch is None else watch[:1])):
            seen.setdefault(model.mark, set()).update(map(tuple, some.input_ids))
        tuned.append(model.mark)
        return tune(model, rows, *rest, watch=watch, **more)

    def build(parts, *rest):
        scored.extend(parts)
        return crossed(parts, *rest)

    monkeypatch.setattr(tunings, "tune", listen)
    monkeypatch.setattr(steps, "CrossFitScorer", build)
    prune(tmp_path / "run", agent__episodes=1)
    assert len(scored) == 9, "three fold models for each of three layers"
    for fold_model, rows, _ in scored:
        assert tuned.count(fold_model.mark) == 1 + 3 + 1, "first, after each layer, last"
        # by their words: a sentence that stands in train twice is in one fold
        assert not any(tuple(ids) in seen[fold_model.mark] for ids in rows.input_ids)
    splits = read_splits(tmp_path / "run")
    assert sorted(row for fold in splits.folds for row in fold) == list(range(60))


@pytest.mark.parametrize("cut", ["scout-1", "layer-02", "rewind", "last"])
def test_a_run_is_resumed(cut, run, monkeypatch, tmp_path):
    again = cut_and_resumed(monkeypatch, tmp_path / "run", cut)
    assert again.plan == run[0].plan
    assert same_weights(again.model, run[0].model)
    assert again.result["cost"]["rewards_computed"] == run[0].result["cost"]["rewards_computed"]
    assert again.result["cost"]["scout_steps"] == run[0].result["cost"]["scout_steps"]


def test_methods_without_fold_models_run_as_under_seen(run, tmp_path):
    crossed = prune(tmp_path / "crossfit", "michel", heads=run[1])
    (tmp_path / "as seen").mkdir()
    for name in ("run.json", "result.json"):
        content = (
            (run[1] / name).read_text().replace('"protocol": "crossfit"', '"protocol": "seen"')
        )
        (tmp_path / "as seen" / name).write_text(content)
    seen = prune(tmp_path / "seen", "michel", protocol="seen", heads=tmp_path / "as seen")
    assert same_weights(crossed.model, seen.model)


def test_a_model_tuned_before_gives_the_same_run(run, tmp_path):
    model, tokenizer = small_start()
    config = small_config(**SETTINGS)
    start = auber.finetune(model, tokenizer, task=TASK, config=config, out=tmp_path / "start")
    found = prune(tmp_path / "run", model=tmp_path / "start", origin=model, first__when="never")
    assert found.plan == run[0].plan
    assert same_weights(found.model, run[0].model)
    assert found.result["start"] == start.result["start"] == run[0].result["start"]


def test_damaged_weights_of_a_fold_model(monkeypatch, tmp_path):
    def stop(*_):
        raise CutError

    with monkeypatch.context() as patched:
        patched.setattr(steps.Steps, "decide", stop)
        with pytest.raises(CutError):
            prune(tmp_path / "run")
    (tmp_path / "run" / "stages" / "scout-2" / "model.safetensors").write_bytes(b"other")
    with pytest.raises(
        RunError,
        match=r"^stage scout-2: .*scout-2/model.safetensors: must be the file the run wrote "
        r".*first.json and first/",
    ):
        prune(tmp_path / "run", resume=True)


def test_numbers_to_predict_are_rewarded_by_what_is_explained_of_them(tmp_path):
    tokenizer = small_start()[1]
    rows = [{"text": first, "label": len(first) / 10} for first in TASK.train.first]
    model = small_start(num_labels=1)[0]
    config = small_config(**{"first__when": "always", **SETTINGS})
    found = auber.prune(
        model,
        tokenizer,
        task=auber.make_task(rows, rows[:20], metric="spearman"),
        config=config,
        out=tmp_path / "run",
    )
    assert found.plan.num_heads > 0
    assert found.result["metric"] == "spearman"
    stage = read_json(tmp_path / "run" / "stages" / "layer-00.json")
    assert 0 <= stage["search"]["unpruned_score"] <= 1


def searches(out):
    stages = [read_json(path) for path in sorted((out / "stages").glob("layer-*.json"))]
    return [stage["search"] for stage in stages if "search" in stage]


@pytest.mark.parametrize("seed", [0, 4, 5])  # with 4 and 5 some layers explain nothing
def test_with_caution_a_head_has_to_gain(tmp_path, seed):
    free, cautious = (
        prune(tmp_path / f"run {caution:g}", reward__head=0.02, reward__caution=caution, seed=seed)
        for caution in (0.0, 10.0)
    )
    assert free.plan.num_heads > cautious.plan.num_heads == 0
    assert not any("change_costs" in search for search in searches(tmp_path / "run 0"))
    for search in searches(tmp_path / "run 10"):
        assert min(search["change_costs"]) > 0
        assert search["rewards_asked"] >= search["rewards_computed"] >= len(search["present"]) + 1
