from __future__ import annotations

import json
import os
import signal

import pytest

from auber.run.rates.choice import RULE, choose_rate
from auber.run.rates.record import read_record
from tests.kinds import write_kind_files
from tests.run.rates.made import QUICK, record_of


def test_the_command(run_auber, model, tmp_path):
    out = tmp_path / "rates.json"
    small = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    call = [
        "rates",
        "--model",
        model,
        "--task",
        "agreement",
        "--rates",
        "1e-3,1e-4",
        "--seeds",
        "0,1",
        *small,
    ]
    code, printed, err = run_auber(
        *call, "--set", "first.batch_size=200", "--held-out", "0.5", "--out", out
    )
    assert code == 0
    assert "agreement seed 1 rate 0.001: " in err
    record = read_record(out)
    assert record.command.startswith("auber rates --model tiny --task agreement")
    choice = choose_rate(record)
    lines = printed.splitlines()
    assert lines[0] == "tiny: points on the held-out rows, mean and standard deviation over 2 seeds"
    assert lines[1].split() == ["task", "metric", "held", "out", "majority", "0.0001", "0.001"]
    assert lines[2].split()[:5] == [
        "agreement",
        "accuracy",
        "300",
        "50.00",
        f"{100 * choice.tasks[0].means[0]:.2f}",
    ]
    assert f"best rate: {choice.best:g} ({RULE})" in lines
    assert [line for line in lines if line.startswith("careful: ")] == [
        f"careful: {note}" for note in choice.notes
    ]
    assert lines[-1] == f"result: {out}"
    code, printed, err = run_auber(
        *call,
        "--set",
        "first.batch_size=200",
        "--held-out",
        "0.5",
        "--out",
        out,
        "--json",
        "--quiet",
    )
    assert (code, err) == (0, "")
    assert json.loads(printed)["choice"]["best"] == choice.best
    assert json.loads(printed)["trials"] == json.loads(out.read_text())["trials"]


def test_rows_of_your_own_alone_and_beside_a_known_task(run_auber, model, tmp_path):
    lines = [f"the key is red {number},{number % 2}\n" for number in range(40)]
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("".join(["said,y\n", *lines]))
    small = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    files = ["--train", tmp_path / "a.csv", "--dev", tmp_path / "b.csv"]
    call = [
        "rates",
        "--model",
        model,
        "--rates",
        "1e-3",
        "--seeds",
        "0",
        *small,
        "--out",
        tmp_path / "rates.json",
    ]
    code, out, _ = run_auber(*call, *files, "--text", "said", "--label", "y", "--name", "films")
    assert code == 0
    assert out.splitlines()[2].split()[:3] == ["films", "accuracy", "8"]
    both = [*files, "--text", "said", "--label", "y", "--name", "films", "--task", "agreement"]
    code, _, err = run_auber(*call, *both)
    assert code == 0
    assert "rates.json: 1 of 2 tunings are there already" in err
    assert read_record(tmp_path / "rates.json").asked_tasks == ("agreement", "films")

    (tmp_path / "a.csv").write_text("".join(["said,y\n", *lines[2:]]))
    code, _, err = run_auber(*call, *both)
    assert code == 2
    assert "rates.json: holds trials of another kind: films: data was '" in err

    train, dev = write_kind_files("tokens", tmp_path)
    code, _, err = run_auber(
        "rates", "--model", model, *small, "--train", train, "--dev", dev, "--metric", "entity_f1"
    )
    message = "auber: rows of kind sequence are needed here, found rows of kind tokens; give texts with labels\n"
    assert (code, err.endswith(message)) == (2, True)


def test_tasks_are_summed_up_in_a_last_row(capsys):
    from auber.cli.rates import show

    scores = {1e-5: [0.6], 2e-5: [0.7], 5e-5: [0.6]}
    record = record_of({"rte": scores, "mrpc": scores})
    show(record, choose_rate(record), None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tiny: points on the held-out rows, seed 0"
    assert lines[4].split() == ["mean", "60.00", "70.00", "*", "60.00"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "rtte"], "auber: Unknown task 'rtte'. Did you mean 'rte'?"),
        (
            ["--task", "agreement", "--rates", "x"],
            "auber: --rates must be numbers with commas between",
        ),
        (["--task", "agreement", "--set", "seed=1"], "auber: settings: trying rates reads"),
        (
            ["--task", "agreement", "--out", "/dev/null"],
            "auber: /dev/null: must be a file or a name for a new one, found a device or a pipe",
        ),
        ([], "auber: name a task with --task, or your own rows with --train FILE --dev FILE"),
        (
            ["--train", "a.csv"],
            "auber: --train and --dev go together, found --train alone; add --dev FILE",
        ),
        (
            ["--train", "no.csv", "--dev", "b.csv"],
            "auber: no.csv: there is no such file; correct the path",
        ),
        (
            ["--train", "a.csv", "--dev", "b.csv", "--data", "x"],
            "auber: --data goes with --task; your own rows are",
        ),
        (
            ["--task", "agreement", "--text", "x"],
            "auber: --text goes with your own rows; task 'agreement' has its own",
        ),
        (
            ["--task", "agreement", "--preset", "papr"],
            "auber: Unknown preset 'papr'. Did you mean 'paper'?",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run_auber, model, arguments, message):
    code, out, err = run_auber("rates", "--model", model, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


@pytest.mark.parametrize(("sent", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("out", [["--out", "x.json"], []])
def test_a_stop_says_how_to_go_on_from_what_is_kept(run_auber, monkeypatch, out, sent, expected):
    monkeypatch.setattr(
        "auber.run.rates.tunings.try_rates", lambda *_, **__: os.kill(os.getpid(), sent)
    )
    code, _, err = run_auber("rates", "--model", "m", "--task", "agreement", *out)
    advice = "; go on with: auber rates --model m --task agreement --out x.json" if out else ""
    assert (code, err) == (expected, f"auber: stopped{advice}\n")
