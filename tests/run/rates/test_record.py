"""The file that comes out: it is gone on with, added to, and never mixed with another."""

from __future__ import annotations

import dataclasses
import json
import os
import re

import pytest

from auber.errors import RunError
from auber.run.rates.choice import RULE, choose_rate, to_json
from auber.run.rates.grid import Grid
from auber.run.rates.record import Record, read_record
from auber.run.rates.tunings import try_rates
from tests.run.rates.made import GRID, QUICK, Follower, scores_of
from tests.small import small_task


def test_what_was_cut_goes_on_where_it_was(model, unbroken, tmp_path):
    out = tmp_path / "new" / "rates.json"
    with pytest.raises(KeyboardInterrupt):
        try_rates(
            model, [small_task()], GRID, settings=QUICK, out=out, progress=Follower(stop_after=3)
        )
    kept = json.loads(out.read_text())
    assert (len(kept["trials"]), kept["choice"]) == (3, None)
    follower = Follower()
    record = try_rates(model, [small_task()], GRID, settings=QUICK, out=out, progress=follower)
    assert (follower.planned, follower.stages) == (1, ["agreement seed 1 rate 0.001"])
    assert follower.said == [f"{out}: 3 of 4 tunings are there already"]
    assert follower.notes == [f"accuracy {100 * record.trials[-1].score:.2f}"]
    assert scores_of(record) == scores_of(unbroken)
    assert read_record(out) == record
    kept = json.loads(out.read_text())
    assert (kept["format"], kept["kind"], kept["choice"]["rule"]) == (1, "rates", RULE)
    assert kept["provenance"]["threads"] == 1


def test_a_grid_can_grow_and_shrink_in_one_file(model, unbroken, tmp_path):
    out = tmp_path / "rates.json"
    out.write_text(json.dumps(to_json(unbroken)))
    follower = Follower()
    second = dataclasses.replace(small_task(), name="second")
    record = try_rates(
        model, [second], Grid((1e-3,), (0,)), settings=QUICK, out=out, progress=follower
    )
    assert follower.stages == ["second seed 0 rate 0.001"]
    assert len(record.trials) == 5
    assert choose_rate(record).rates == (1e-3,)
    assert [task.name for task in record.tasks] == ["agreement", "second"]
    follower = Follower()
    record = try_rates(model, [small_task()], GRID, settings=QUICK, out=out, progress=follower)
    assert follower.stages == []
    assert choose_rate(record) == choose_rate(unbroken)
    assert len(record.trials) == 5


def test_a_file_is_added_to_by_one_call_at_a_time(model, tmp_path):
    out = tmp_path / "rates.json"
    tried = []

    class Second(Follower):
        def begin(self, stage, total):
            message = (
                rf"^{re.escape(str(out))}: process {os.getpid()} on .* \(since .*\) is at work in it; wait for it or stop it, or choose "
                "another --out$"
            )
            with pytest.raises(RunError, match=message):
                try_rates(model, [small_task()], Grid((1e-2,), (0,)), settings=QUICK, out=out)
            tried.append(stage)

    try_rates(
        model, [small_task()], Grid((1e-3,), (0,)), settings=QUICK, out=out, progress=Second()
    )
    assert tried == ["agreement seed 0 rate 0.001"]
    assert [path.name for path in tmp_path.iterdir()] == ["rates.json"], "the lock is given back"
    try_rates(model, [small_task()], Grid((1e-2,), (0,)), settings=QUICK, out=out)
    assert [trial.rate for trial in read_record(out).trials] == [1e-3, 1e-2]


def test_a_link_stays_and_what_it_leads_to_is_gone_on_with(model, tmp_path):
    kept, link = tmp_path / "disk" / "kept.json", tmp_path / "rates.json"
    link.symlink_to(kept)
    for seed in (0, 1):
        try_rates(model, [small_task()], Grid((1e-3,), (seed,)), settings=QUICK, out=link)
    assert link.is_symlink()
    assert [trial.seed for trial in read_record(kept).trials] == [0, 1]


def test_trials_of_another_kind_do_not_share_a_file(model, unbroken, tmp_path):
    out = tmp_path / "rates.json"
    out.write_text(json.dumps(to_json(unbroken)))
    before = out.read_text()
    message = (
        "rates.json: holds trials of another kind: held_out was 0.2 and is now 0.3, agreement: rows_tuned was 48 and is now 42, "
        "agreement: rows_held_out was 12 and is now 18, agreement: epochs was 1 and is now 2; use the same or another --out"
    )
    with pytest.raises(RunError, match=f"{message}$"):
        try_rates(
            model,
            [small_task()],
            Grid((1e-3,), (0,), 0.3),
            settings={**QUICK, "first.epochs": 2},
            out=out,
        )
    assert out.read_text() == before


def test_trials_of_other_versions_do_not_share_a_file(model, unbroken, tmp_path):
    out = tmp_path / "rates.json"
    versions = {**unbroken.provenance["versions"], "torch": "1.0"}
    older = dataclasses.replace(unbroken, provenance={**unbroken.provenance, "versions": versions})
    out.write_text(json.dumps(to_json(older)))
    message = r"rates.json: its trials were made with torch 1\.0, and this is .*; use that version or another --out$"
    with pytest.raises(RunError, match=message):
        try_rates(model, [small_task()], Grid((1e-2,), (0,)), settings=QUICK, out=out)
    # Where nothing is tried anew, the file goes on to say what made it.
    record = try_rates(model, [small_task()], GRID, settings=QUICK, out=out)
    assert record.provenance == older.provenance == read_record(out).provenance


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "rates.json: cannot be read as JSON \\(.*\\); choose another --out"),
        (
            '{"kind": "bench"}',
            "rates.json: must be a result of 'auber rates', found something else; choose another",
        ),
        (
            '{"kind": "rates", "format": 2}',
            "rates.json: format 1 can be read, found 2; choose another --out",
        ),
        (
            '{"kind": "rates", "format": 1}',
            "rates.json: is damaged \\('command'\\); choose another --out",
        ),
    ],
)
def test_another_file_is_left_alone(model, tmp_path, text, message):
    out = tmp_path / "rates.json"
    out.write_text(text)
    with pytest.raises(RunError, match=message):
        try_rates(model, [small_task()], GRID, settings=QUICK, out=out)
    assert out.read_text() == text


def test_a_trial_of_a_wrong_type_is_damage(unbroken):
    data = json.loads(json.dumps(to_json(unbroken)))
    data["trials"][0]["score"] = "high"
    with pytest.raises(
        RunError, match="^here: is damaged \\(score 'high'\\); choose another --out$"
    ):
        Record.from_json(data, "here")


def test_a_file_that_cannot_be_written_is_found_out_first(model, tmp_path):
    (tmp_path / "file").touch()
    follower = Follower()
    with pytest.raises(RunError, match="cannot be written \\(.*\\); choose another --out"):
        try_rates(
            model,
            [small_task()],
            GRID,
            settings=QUICK,
            out=tmp_path / "file" / "x.json",
            progress=follower,
        )
    assert follower.stages == []
