from __future__ import annotations

import json

import pytest

from auber.bench.record import Bench, read_bench
from auber.errors import RunError
from tests.bench.records import make_bench


@pytest.mark.parametrize(
    "missing", [{}, {"rewards": None, "growth": None}, {"tuning": None, "search": None}]
)
def test_a_record_comes_back_from_json(missing):
    bench = Bench.from_json(json.loads(json.dumps(make_bench(**missing).to_json())))
    assert bench.to_json() == make_bench(**missing).to_json()
    assert Bench.from_json(bench.to_json()) == bench


def test_numbers_have_six_digits():
    assert make_bench(seconds=1.23456789).to_json()["seconds"] == 1.23457


def changed(*keys, value):
    data = make_bench().to_json()
    place = data
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "here: a result of 'auber bench' is needed, found something else"),
        ({"kind": "prune"}, "here: a result of 'auber bench' is needed, found something else"),
        (changed("format", value=2), "here: format 1 can be read, found 2; make the result anew"),
        (
            changed("extra", value=1),
            "here: an object with command, device, .* is needed, found command",
        ),
        (changed("device", value=[]), "here: device: an object with .* is needed, found list"),
        (changed("device", "name", value=3), "here: device: name: str is needed, found 3"),
        (changed("seconds", value="long"), "here: seconds: float is needed, found 'long'"),
        (
            changed("rewards", "layers", 1, "layer", value=True),
            "here: rewards: layers: 1: layer: int is needed",
        ),
        (changed("growth", value={}), "here: growth: tuple is needed, found {}"),
    ],
)
def test_anything_else_is_refused(data, message):
    with pytest.raises(RunError, match=f"^{message}"):
        Bench.from_json(data, "here")


def test_a_file_from_before_all_parts_of_the_time_were_told_apart():
    data = make_bench().to_json()
    for name in ("choosing", "timing"):
        del data["search"]["seconds"][name]
    bench = Bench.from_json(data)
    assert (bench.search.seconds.choosing, bench.search.seconds.timing) == (None, None)
    assert bench.to_json() == make_bench().to_json()


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(
        RunError,
        match=r"bad.json: cannot be read as JSON .*; give a file made by 'auber bench --out'$",
    ):
        read_bench(tmp_path / "bad.json")
    with pytest.raises(
        RunError, match=r"none.json: no such file; give one made by 'auber bench --out'$"
    ):
        read_bench(tmp_path / "none.json")
