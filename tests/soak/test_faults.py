"""A small version of each drill on broken runs."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.soak import damage, disks, kills
from tests.soak.ground import made_ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    with made_ground(tmp_path_factory.mktemp("soak"), is_quick=True) as made:
        yield made


def test_another_outcome_is_seen(ground):
    other = replace(ground, unbroken={**ground.unbroken, "gap": 2.0})
    with pytest.raises(AssertionError, match=r"\['gap'\] differ from the unbroken run's"):
        other.finish(ground.folder / "unbroken")


def test_a_drill_that_fails_does_not_take_the_next_with_it(ground):
    out = ground.new_folder()
    left = ground.nursery.start([ground.job.prune(out)])  # and nobody waits for it
    ground.finish(ground.new_folder())
    assert left.wait() in (0, -signal.SIGKILL)


def test_killed_runs_end_like_an_unbroken_one(ground):
    figure = kills.kill_runs(ground, 3)
    assert sum(figure.details["phases"].values()) == figure.count == 3


def test_a_stop_says_how_to_go_on(ground):
    assert kills.stop_runs(ground, 2).count == 2


def test_no_room_for_a_file(ground):
    weights = (
        (ground.folder / "unbroken" / "runs" / "run" / "model" / "model.safetensors").stat().st_size
    )
    assert disks.limit_files(ground, [300, weights // 2]).count == 2


def test_a_full_disk(ground):
    if not disks.can_mount():
        pytest.skip("to mount a small disk takes rights this process does not have")
    assert disks.fill_disks(ground, 1).count == 1


def test_a_read_only_disk(ground):
    if not disks.can_mount():
        pytest.skip("to mount a disk takes rights this process does not have")
    assert disks.close_disks(ground, 1).count == 1


@pytest.mark.parametrize(
    "drill",
    [
        damage.start_twice,
        damage.tear_lines,
        damage.flip_bits,
        damage.foist_scores,
        damage.change_versions,
    ],
    ids=lambda drill: drill.__name__,
)
def test_damage_between_stop_and_start(drill, ground):
    assert drill(ground, 1).count == 1
