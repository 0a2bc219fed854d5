from __future__ import annotations

import errno
from io import FileIO

import pytest

from auber.errors import RunError
from auber.run.ledger import Ledger


def remember(ledger, key, layer, scores):
    """Have scores computed that are not known yet."""
    assert ledger.complete(
        key, layer, list(scores), lambda masks: [scores[mask] for mask in masks]
    ) == [*scores.values()]


def known(ledger, key, layer, mask):
    """The score of a mask, None where it would have to be computed."""
    return ledger.complete(key, layer, [mask], lambda masks: [None for _ in masks])[0]


def test_scores_come_back_exactly(tmp_path):
    path = tmp_path / "scores.jsonl"
    ledger = Ledger(path)
    remember(ledger, "key", 3, {(1, 4): 1 / 3})
    remember(ledger, "key", 3, {(): -0.0})
    ledger.close()
    again = Ledger(path, writable=False)
    assert len(again) == 2
    assert known(again, "key", 3, (1, 4)) == 1 / 3
    assert known(again, "key", 3, ()) == 0.0
    assert known(again, "other", 3, (1, 4)) is known(again, "key", 2, (1, 4)) is None


def test_a_torn_last_line_is_cut_off(tmp_path):
    path = tmp_path / "scores.jsonl"
    ledger = Ledger(path)
    remember(ledger, "key", 0, {(1,): 0.5})
    ledger.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "key", "layer": 0, "rem')
    ledger = Ledger(path)
    assert len(ledger) == 1
    assert path.read_bytes() == whole
    remember(ledger, "key", 0, {(2,): 0.25})
    ledger.close()
    assert len(Ledger(path)) == 2


def test_damage_inside_is_an_error_that_names_the_line(tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_text('{"key": "k", "layer": 0, "removed": [], "score": 0.5}\nnonsense\n')
    with pytest.raises(RunError, match=r"scores.jsonl, line 2: not a score .*; remove the line"):
        Ledger(path)


def test_a_reader_does_not_write(tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(b"torn")
    ledger = Ledger(path, writable=False)
    remember(ledger, "key", 0, {(): 0.5})
    assert known(ledger, "key", 0, ()) == 0.5
    assert path.read_bytes() == b"torn"


def test_only_what_is_missing_is_computed(tmp_path):
    ledger = Ledger(tmp_path / "scores.jsonl")
    remember(ledger, "key", 0, {(1,): 0.5})
    asked = []

    def compute(masks):
        asked.append(list(masks))
        return [len(mask) / 10 for mask in masks]

    assert ledger.complete("key", 0, [(1,), (3, 2), (), (2, 3)], compute) == [0.5, 0.2, 0.0, 0.2]
    assert asked == [[(2, 3), ()]]
    assert ledger.complete("key", 0, [(2, 3)], compute) == [0.2]
    assert len(asked) == 1
    ledger.close()


def test_scores_of_one_pass_are_written_whole_or_not_at_all(tmp_path):
    """Computed in another pass, the missing ones might differ in their last bits."""
    path = tmp_path / "scores.jsonl"
    ledger = Ledger(path)
    remember(ledger, "key", 0, {(): 0.5})
    before = path.read_bytes()

    class FullDisk(FileIO):
        def write(self, data):
            if len(data) < 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(bytes(data[:90]))

    ledger.close()
    ledger._file = FullDisk(path, "ab")
    with pytest.raises(OSError, match="No space left"):
        remember(ledger, "key", 0, {(1,): 0.25, (2,): 0.75, (3,): 0.125})
    assert path.read_bytes() == before
    ledger.close()
    remember(ledger, "key", 0, {(1,): 0.25, (2,): 0.75, (3,): 0.125})
    ledger.close()
    assert len(Ledger(path)) == 4
