"""Runs whose folder was tampered with between a stop and the next start: seen and said, or of no consequence."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from auber import prune
from auber.config import make_config
from auber.data import make_task
from auber.errors import RunError
from auber.system.locks import read_holder
from tests.soak.figures import Figure, Meter
from tests.soak.ground import Ground, wait_until
from tests.soak.job import run_of


def start_twice(ground: Ground, times: int) -> Figure:
    """Start a run in a folder where another process is at work, where one was killed, and where one of another machine was."""
    with Meter() as meter:
        for _ in range(times):
            out = ground.new_folder()
            child = ground.nursery.start([ground.job.prune(out)])
            wait_until(lambda out=out: _in_the_search(out))  # type: ignore[misc]
            with pytest.raises(RunError) as caught:
                _prune_here(ground, out)
            holder = read_holder(run_of(out))
            assert holder is not None
            assert holder.process == child.process
            assert f"on {os.uname().nodename} (since " in str(holder)
            assert str(caught.value).endswith(
                f"run: {holder} is at work in it; wait for it or stop it, or choose another --out"
            )
            os.kill(child.process, signal.SIGKILL)
            child.wait()
            lock = run_of(out) / ".lock"
            left = lock.read_text(encoding="utf-8")
            elsewhere = replace(holder, host="elsewhere")
            lock.write_text(json.dumps(asdict(elsewhere)), encoding="utf-8")
            line = ground.fail(out)
            assert (
                f"{elsewhere} was at work in it and did not sign off; whether it has ended" in line
            )
            lock.write_text(left, encoding="utf-8")  # again that of a process that is gone
            ground.finish(out)
    return meter.figure("second starts", times)


def tear_lines(ground: Ground, times: int, seed: int = 0) -> Figure:
    """Cut the last line of the ledger and of the events anywhere, as a power cut may."""
    cuts = random.Random(seed)
    with Meter() as meter:
        for _ in range(times):
            out = ground.new_folder()
            ground.kill_when(_in_the_search, out)
            for name in ("scores.jsonl", "events.jsonl"):
                path = run_of(out) / name
                length = len(path.read_bytes().splitlines()[-1])
                os.truncate(path, path.stat().st_size - cuts.randint(1, length))
            ground.finish(out)
            for line in (run_of(out) / "events.jsonl").read_text(encoding="utf-8").splitlines():
                json.loads(line)
    return meter.figure("torn lines", times)


def flip_bits(ground: Ground, times: int, seed: int = 0) -> Figure:
    """Flip one bit of the weights a run would go on from: refused, naming stage and file; what is advised then helps."""
    bits = random.Random(seed)
    with Meter() as meter:
        for _ in range(times):
            out = ground.new_folder()
            ground.kill_when(lambda out: (run_of(out) / "stages" / "layer-00.json").exists(), out)
            stage = _newest_stage(out)
            weights = stage / "model.safetensors"
            content = bytearray(weights.read_bytes())
            content[bits.randrange(len(content))] ^= 1 << bits.randrange(8)
            weights.write_bytes(content)
            line = ground.fail(out)
            assert (
                f"auber: stage {stage.name}: {weights}: must be the file the run wrote (sha256 "
                in line
            ), line
            assert f"or delete every file of {_stages(out)} but first.json and first/" in line, line
            for path in _stages(out).iterdir():
                if path.is_dir() and path.name != "first":
                    shutil.rmtree(path)
                elif path.suffix == ".json" and path.name != "first.json":
                    path.unlink()
            ground.finish(out)
    return meter.figure("flipped bits", times)


def foist_scores(ground: Ground, times: int) -> Figure:
    """Put scores of other weights or rows into the ledger, for every mask a run may ask for: none is ever used."""
    with Meter() as meter:
        for _ in range(times):
            out = ground.new_folder()
            ground.kill_when(_in_the_search, out)
            ledger = run_of(out) / "scores.jsonl"
            known = [json.loads(line) for line in ground.unbroken["scores"]]
            foreign = [
                json.dumps({**score, "key": score["key"][::-1], "score": 1.0}) for score in known
            ]
            with ledger.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in foreign)
            ground.finish(out, besides=("scores",))
            found = ledger.read_text(encoding="utf-8").splitlines()
            assert sorted(found) == sorted([*ground.unbroken["scores"], *foreign]), (
                "its own scores, and nothing else's"
            )
    return meter.figure("foreign scores", times, scores=len(known) * times)


def change_versions(ground: Ground, times: int) -> Figure:
    """Go on with a run that was begun with another torch: refused; where it is allowed, written into events and result."""
    with Meter() as meter:
        for _ in range(times):
            out = ground.new_folder()
            ground.kill_when(lambda out: (run_of(out) / "stages" / "first.json").exists(), out)
            record = run_of(out) / "run.json"
            facts = json.loads(record.read_text(encoding="utf-8"))
            now, facts["versions"]["torch"] = facts["versions"]["torch"], "2.0.0"
            record.write_text(json.dumps(facts), encoding="utf-8")
            line = ground.fail(out)
            assert (
                f"run: was begun with other versions: torch was 2.0.0 and is now {now}; install those"
                in line
            ), line
            ground.finish(out, "--allow-upgrade")
            result = json.loads((run_of(out) / "result.json").read_text(encoding="utf-8"))
            (upgrade,) = result["provenance"]["upgrades"]
            assert upgrade["changed"] == {"torch": ["2.0.0", now]}
            assert "first" in upgrade["after"]
            assert '"event": "upgraded"' in (run_of(out) / "events.jsonl").read_text(
                encoding="utf-8"
            )
    return meter.figure("changed versions", times)


def _in_the_search(out: Path) -> bool:
    scores = run_of(out) / "scores.jsonl"
    return scores.exists() and scores.read_bytes().count(b"\n") >= 3


def _stages(out: Path) -> Path:
    return run_of(out) / "stages"


def _newest_stage(out: Path) -> Path:
    """The folder with the weights a run would go on from."""
    done = [record.with_suffix("") for record in sorted(_stages(out).glob("layer-*.json"))]
    return [folder for folder in done if folder.is_dir()][-1]


def _prune_here(ground: Ground, out: Path) -> None:
    job = ground.job
    task = make_task(job.train, job.dev, text=["text"])
    prune(
        job.model,
        task=task,
        config=make_config("paper", file=job.config),
        out=run_of(out),
        resume=True,
    )
