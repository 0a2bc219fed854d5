"""Records: strict reading of JSON, with all problems in one message."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from pydantic import AliasChoices, Field

from auber.errors import RunError
from auber.system.records import Count, Name, Number, Record, parse, read


class Layer(Record):
    heads: tuple[Count, ...]
    score: Number | None = None


class Model(Record):
    name: Name
    kind: Literal["mask", "slice"] = "mask"
    layers: tuple[Layer, ...] = ()
    times: dict[str, Number] = Field(default_factory=dict)
    seconds: float = Field(default=1.0, validation_alias=AliasChoices("seconds", "duration"))


GOOD = {"name": "m", "layers": [{"heads": [1, 2]}], "times": {"total": 3}}


def test_reads_json_and_writes_it_back(tmp_path):
    record = parse(Model, GOOD, "a.json", "run it again")
    assert record.layers[0].heads == (1, 2)
    assert parse(Model, record.to_json(), "a.json", "") == record
    assert record.to_json()["layers"] == [{"heads": [1, 2], "score": None}]
    assert record.to_json(drop_none=True)["layers"] == [{"heads": [1, 2]}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(GOOD))
    assert read(Model, path, "") == record


def test_reports_all_problems_in_one_line():
    data = {
        "naem": "m",
        "kind": "cut",
        "layers": [{"heads": [1, "2"], "scor": 1}, 3],
        "times": {"total": float("nan"), "a": True},
    }
    with pytest.raises(RunError) as caught:
        parse(Model, data, "a.json", "run it again")
    message = str(caught.value)
    assert message == (
        "a.json: lacks 'name'; 'kind' must be 'mask' or 'slice', found 'cut'; "
        "'layers.0.heads.1' must be a whole number, found '2'; "
        "unknown key 'layers.0.scor'. Did you mean 'score'?; "
        "'layers.1' must be a JSON object, found 3; "
        "'times.total' must be a finite number, found nan; "
        "'times.a' must be a finite number, found True; "
        "unknown key 'naem'. Did you mean 'name'?; "
        "it is damaged or of another version: run it again"
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "a\x1b[31m"}, r"'name' must be printable text, found 'a\\x1b\[31m'"),
        ({"layers": [{"heads": [-1]}]}, r"'layers.0.heads.0' must be at least 0, found -1"),
        ({"layers": [{"heads": [2**63]}]}, r"'layers.0.heads.0' must be at most 92233"),
        ({"times": {"total": 1e16}}, r"'times.total' must be less than 1000000000000000"),
        ({"times": {"total": 10**400}}, r"'times.total' must be"),
        ({"layers": {}}, r"'layers' must be a list, found {}"),
        ({"\x1b": 1}, r"unknown key ''\\x1b''"),
        ({"name": "\ud800"}, r"a.json: "),
        ({"times": {str(i): "x" for i in range(30)}}, r"; 10 more problems; it is damaged"),
    ],
)
def test_refuses(change, problem):
    with pytest.raises(RunError, match=problem) as caught:
        parse(Model, {**GOOD, **change}, "a.json", "run it again")
    assert str(caught.value).endswith("run it again")
    assert "\n" not in str(caught.value)


def test_names_a_missing_or_damaged_file(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(RunError, match="no such file; is this a run folder\\?"):
        read(Model, path, "", missing="is this a run folder?")
    for content in (b"{", b"\xff", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(RunError, match="cannot be read .*; it is damaged: copy it back"):
            read(Model, path, "copy it back")
