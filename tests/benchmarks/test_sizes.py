"""The study of sizes: its plan, a block, the peer, the statistics and the page."""

from __future__ import annotations

import copy
import shutil
from statistics import variance

import pytest
import torch

import auber
from auber.errors import ConfigError, RunError
from auber.export.measure import count_multiply_adds
from auber.export.speed import Amount, RunSpeed, Speed, SpeedProvenance, Timing
from auber.export.subjects import read_subjects
from auber.metrics.statistics import paired
from auber.models.costs import UnitCosts
from auber.search.registry import METHODS
from benchmarks import tiny
from benchmarks.sizes import __main__ as sizes
from benchmarks.sizes import page, peer
from benchmarks.sizes.answers import answer, differences, pool
from benchmarks.sizes.plan import CONTROL, PLAN, Question, read_plan
from benchmarks.sizes.record import Model, read_models, write_models
from tests.tiny_models import HEADS, NEURONS, random_batch, tiny_model

SMALL_PLAN = """
model = "tiny"
small = "smaller"
int8 = { arms = ["default", "minilm-l6"], seeds = [0] }
settings = { threads = 1, max_length = 24, "last.epochs" = 1, "size.multiple" = 1 }

[tasks.words]
rows = 60
model = { rate = 1e-3, epochs = 1 }
small = { rate = 1e-3, epochs = 1 }

[[arms]]
name = "original+tuning"
method = "original+tuning"
seeds = [0]

[[arms]]
name = "default"
method = "fisher"
sizes = [0.8, 0.5]
seeds = [0]

[[arms]]
name = "minilm-l6"
method = "small"
seeds = [0]

[[arms]]
name = "A/A control"
method = "original+tuning"
settings = { seed = 1000 }
seeds = [0]

[[questions]]
name = "a"
text = "?"
arm = "default"
sizes = [0.5]
against = ["original+tuning"]
seeds = [0]
margin = 0.5
"""


@pytest.fixture(autouse=True)
def _methods():
    """Forget the peer afterwards, which a block adds to the methods."""
    known = {*METHODS}
    yield
    for name in {*METHODS} - known:
        del METHODS[name]


@pytest.fixture
def block(tmp_path):
    """The words of a run of a tiny block."""
    for name in ("tiny", "smaller"):
        tiny.save_model(tmp_path / "models" / name)
    for split in ("train", "dev"):
        shutil.copy(tiny.GOLDEN / f"{split}.csv", tmp_path / f"words-{split}.csv")
    (tmp_path / "plan.toml").write_text(SMALL_PLAN)
    words = ["run", "--task", "words", "--seed", 0, "--models", tmp_path / "models"]
    words += ["--data", tmp_path, "--plan", tmp_path / "plan.toml", "--out", tmp_path / "out.json"]
    return [str(word) for word in words]


def test_the_arms_and_tasks_that_the_plan_names_exist():
    plan = read_plan(PLAN)
    arms = {arm.name for arm in plan.arms}
    named = {name for each in plan.questions for name in (each.arm, *each.against)}
    assert named | {*plan.int8.arms} <= arms
    for each in (*plan.arms, *plan.questions):
        assert {*each.tasks} <= {*plan.tasks}
    # Each compared model is made in every block of its question.
    for question in plan.questions:
        for task in question.tasks or plan.tasks:
            for seed in question.seeds:
                made = {arm.name: arm.sizes for arm in plan.arms_of(task, seed)}
                assert {*question.against} <= {*made}
                assert {*question.sizes} <= {*made[question.arm]}


def test_a_block_is_continued_without_losing_a_model(tmp_path, block, capsys):
    out, work = tmp_path / "out.json", ["--work", str(tmp_path / "work")]
    sizes.main([*block, "--minutes", "0"])
    assert "0 minutes are over" in capsys.readouterr().out
    sizes.main([*block, *work])
    found = read_models(out)
    assert [(each.arm, each.keep) for each in found] == [
        ("A/A control", None), ("default", 0.5), ("default", 0.8), ("minilm-l6", None),
        (CONTROL, None),
    ]  # fmt: skip
    again, half, large, _, control = found
    assert half.multiply_adds < large.multiply_adds < control.multiply_adds
    assert sum(half.neurons) < sum(control.neurons) == 96
    assert half.int8 is not None
    assert control.int8 is None
    assert again.start == half.start == control.start
    capsys.readouterr()
    sizes.main(block)
    assert "has all arms of words" in capsys.readouterr().out
    # Another fine-tuned model needs its own of what others are compared with.
    before = [each.model_copy(update={"start": "before"}) for each in found[1:]]
    write_models(out, before)
    sizes.main([*block, *work])
    models = read_models(out)
    assert all(each in models for each in before)
    after = [each for each in models if each not in before]
    assert [(each.arm, each.dev) for each in after] == [
        (each.arm, each.dev) for each in (again, half, large, control)
    ]
    # Shapes are measured by `auber speed`.
    shapes = tmp_path / "shapes"
    words = ["shapes", *block[1:7], "--plan", str(tmp_path / "plan.toml")]
    sizes.main([*words, "--results", str(out), "--out", str(shapes)])
    (subject,) = read_subjects([shapes / "default-0.5"], None)
    counts = [count_multiply_adds(model, 32) for model in subject.build()]
    assert counts == [control.multiply_adds, half.multiply_adds]
    names = {"default-0.5", "default-0.8", "minilm-l6", CONTROL}
    assert {path.name for path in shapes.iterdir()} == names


def test_what_a_block_cannot_do_is_said_before_it_begins(tmp_path, block, monkeypatch):
    with pytest.raises(ConfigError, match=r"seed 9: the plan has no such block; .* seeds 0$"):
        sizes.main([word if word != "0" else "9" for word in block])
    (tmp_path / "plan.toml").write_text(SMALL_PLAN.replace('"fisher"', '"torch-pruning"'))
    monkeypatch.setattr(peer, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"needs the package torch-pruning 1\.6\.1, found none; "):
        sizes.main(block)
    (tmp_path / "plan.toml").write_text("model =")
    with pytest.raises(ConfigError, match=r"plan\.toml: cannot be read .*; give a plan"):
        sizes.main(block)


def make_model(arm, keep, task, seed, dev, **changes):
    """Return the record of a model."""
    shape = {"heads": (4,), "neurons": (8,), "multiply_adds": 10, "parameters": 10}
    origin = {
        "command": "c",
        "provenance": {"device": "cpu", "commit": {"id": "f" * 40, "dirty": False}},
    }
    scores = {"train": 90.0, "loss": None, "int8": None, "seconds": 1.0}
    names = {"arm": arm, "keep": keep, "task": task, "seed": seed, "dev": dev, "start": "s"}
    return Model(**{**names, **shape, **origin, **scores, **changes})


def test_files_are_merged_once(tmp_path):
    one = make_model("default", 0.5, "rte", 0, 70.0)
    write_models(tmp_path / "a.json", [one])
    write_models(tmp_path / "b.json", [one, make_model("default", 0.25, "rte", 0, 68.0)])
    words = ["merge", str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    for _ in range(2):
        sizes.main([*words, "--out", str(tmp_path / "all.json")])
        assert read_models(tmp_path / "all.json") == read_models(tmp_path / "b.json")
    write_models(tmp_path / "a.json", [one.model_copy(update={"dev": 71.0})])
    with pytest.raises(RunError, match=r"rte seed 0, default was evaluated twice .*; leave out"):
        sizes.main([*words, "--out", str(tmp_path / "all.json")])


@pytest.mark.parametrize("share", [0.5, 0.25, 0.125])
def test_the_peer_gets_the_size_with_the_same_widths_everywhere(share):
    costs = UnitCosts(4 * 768 * 64 + 2 * 64 * 128, 2 * 768, 12, 12, 3072)  # mpnet-base
    heads, neurons = peer.find_widths(costs, share, 8)
    left = 12 * (heads * costs.head + neurons * costs.neuron) / costs.total
    assert share - 12 * 8 * costs.neuron / costs.total < left <= share
    assert neurons > 0


@pytest.mark.parametrize("model_type", ["bert", "mpnet"])
def test_the_peer_prunes_as_its_plan_does(model_type):
    pytest.importorskip("torch_pruning")
    model = tiny_model(model_type, attention="eager")
    own, batch = copy.deepcopy(model), random_batch(model)
    model(**batch, labels=torch.tensor([0, 1, 0, 1])).loss.backward()

    def pruned(groups):
        for group in groups:
            yield group
            group.prune()

    plan = peer.find_plan(model, pruned(peer.make_pruner(model, 2, 16).step(interactive=True)))
    assert [len(heads) for heads in plan.heads.values()] == 3 * [HEADS - 2]
    assert [len(neurons) for neurons in plan.neurons.values()] == 3 * [NEURONS - 16]
    if model_type == "mpnet":  # whose bias of positions torch-pruning does not slice
        return
    auber.remove(own, plan)
    with torch.no_grad():
        assert torch.allclose(model(**batch).logits, own(**batch).logits, atol=1e-5)


def question(**changes):
    """Return a question about seeds 0 to 2."""
    return Question(
        **{"name": "q", "text": "?", "arm": "default", "against": (CONTROL,), "seeds": (0, 1, 2)}
        | changes
    )


def make_block(task, seed, scores, start="s"):
    """Return models of one fine-tuned model by their (arm, size)."""
    return [make_model(*key, task, seed, dev, start=start) for key, dev in scores.items()]


def pairs_of(gains, other=CONTROL, keep=0.5):
    """Return models of `default`, all of one score, and of another arm, by their differences."""
    other_keep = None if other in (CONTROL, "minilm-l6") else keep
    return [
        model
        for task, values in gains.items()
        for seed, gain in enumerate(values)
        for model in make_block(task, seed, {("default", keep): 80, (other, other_keep): 80 - gain})
    ]


def test_differences_are_those_of_one_fine_tuned_model():
    models = make_block("rte", 0, {("default", 0.5): 70.0, (CONTROL, None): 69.0}, "one")
    models += make_block("rte", 0, {("default", 0.5): 75.0, (CONTROL, None): 72.0}, "two")
    models += make_block("rte", 1, {("default", 0.5): 60.0}, "three")
    models += make_block("rte", 1, {(CONTROL, None): 50.0}, "four")
    models += make_block("rte", 9, {("default", 0.5): 60.0, (CONTROL, None): 50.0})
    found = differences(models, question(), 0.5, CONTROL, read_plan(PLAN))
    assert found == {"rte": [2.0]}


def test_tasks_weigh_the_same():
    one, many = [1.0, 2.0, 3.0], [-1.0, -3.0, -2.0, -2.0, -2.0, -2.0]
    found = pool({"a": one, "b": many, "c": [50.0]})
    assert found.mean == pytest.approx(0)
    parts = [variance(values) / len(values) / 4 for values in (one, many)]
    assert found.error == pytest.approx(sum(parts) ** 0.5)
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 5)
    assert found.freedom == pytest.approx(freedom)
    # Of one task it is the paired t test.
    alone, known = pool({"a": many}), paired(many)
    assert alone.interval == pytest.approx((known.differences.low, known.differences.high))
    assert alone.p == pytest.approx(known.p_t)
    assert pool({"a": [1.0]}) is None
    assert pool({"a": [1.0, 1.0]}).interval is None


def test_the_answers():
    plan = read_plan(PLAN)
    noise = [0.1, -0.1, 0.2, -0.2, 0.0]
    tasks = ("cola", "mrpc", "rte", "sst2", "subj", "trec")
    models = pairs_of(dict.fromkeys(tasks, noise))  # a
    models += pairs_of(dict.fromkeys(tasks, (5.1, 5.2, 5.0)), "voita", 0.25)
    models += pairs_of(dict.fromkeys(tasks, noise[:3]), "random", 0.25)
    models += pairs_of(dict.fromkeys(tasks[:5], (-3.1, -2.9, -3, -3.2, -2.8)), "minilm-l6", 0.125)
    found = {each.question: each for each in answer(models, plan)}
    assert len(found) == 18
    rows = [each for each in found.values() if each.words]
    assert [each.question[0] for each in rows] == ["a", "b", "b", "c"]
    half, voita, random, small = rows
    assert half.words == "Yes: at most 0.05 points are lost (one-sided 95 % bound)."
    assert half.pairs == "30 of 60"
    assert voita.question == "b: At 0.25, is `default` ahead of voita?"
    assert voita.words.startswith("Yes, by 5.1 points (p ")
    assert random.words.startswith("No significant difference (p ")
    assert small.words.startswith("No, it is behind by 3.0 points (p ")
    assert small.pairs == "25 of 30, 5 of 6 tasks"
    worse = answer(pairs_of({task: [each - 0.48 for each in noise] for task in tasks}), plan)
    assert worse[0].words == "Not shown: up to 0.53 points may be lost (one-sided 95 % bound)."


def test_the_page_of_some_results():
    plan, models = read_plan(PLAN), pairs_of({"rte": [0.5, 1.5], "cola": [-1.0, 0.0]})
    models = [each.model_copy(update={"int8": each.dev - 1}) for each in models]
    text = page.render(models, {}, plan)
    assert "**mpnet-base pruned by `default`, " in text.splitlines()[0]
    assert "+0.2 (-1.3 to +1.8) at 50 % of the multiply-adds** (tasks: 2 of 6).\n" in text
    assert "- `results/studies/sizes.json`: 8 models, each with its command; cpu, commit" in text
    work, latency = page.draw(models, {}, plan).values()
    titles = [axes.get_title(loc="left") for axes in work.axes]
    assert titles[:3] == ["cola", "mrpc: not measured", "rte"]
    assert {line.get_label() for line in work.axes[0].lines} >= {
        "default",
        "default, int8",
        "unpruned",
    }
    assert all(axes.get_title(loc="left").endswith("not measured") for axes in latency.axes)


def make_speed(name, *milliseconds):
    """Return the speed of a model: unpruned, pruned, and both in int8."""
    names = ("unpruned", "pruned", "unpruned int8", "pruned int8")
    timings = tuple(
        Timing.of((runtime, "cpu", "float32"), 1, 128, names, [[each / 1000] * 6 for each in times])
        for runtime, times in (("torch", (1, 1)), ("onnxruntime", milliseconds))
    )
    sizes = dict.fromkeys(("heads_removed", "heads", "neurons_removed", "neurons"), 0)
    amounts = dict.fromkeys(("parameters", "multiply_adds"), Amount(unpruned=1, pruned=1))
    plan = auber.PruningPlan()
    return RunSpeed(
        name=name, family="mpnet", plan=plan, int8_bytes=None, timings=timings, **sizes, **amounts
    )


def test_latencies_are_shares_of_the_unpruned_model():
    runs = (make_speed(CONTROL, 100, 101, 40, 41), make_speed("default-0.5", 99, 50, 40, 20))
    origin = SpeedProvenance(versions={}, commit=None, threads=2)
    speed = Speed(command="c", runs=runs, left_out=(), seconds=1, provenance=origin)
    found = page.find_latency(
        {"a.json": speed, "b.json": speed.model_copy(update={"runs": runs[1:]})}
    )
    assert found == {
        (CONTROL, "float32"): pytest.approx(101), (CONTROL, "int8"): pytest.approx(41),
        ("default-0.5", "float32"): pytest.approx(50), ("default-0.5", "int8"): pytest.approx(20),
    }  # fmt: skip
