"""Damaged variants of valid files, drawn from a `random.Random`, so that a seed decides all of
them.

A dialect decides how a file is taken apart before it is damaged: `json` by the values of its tree,
`jsonl` by line, `toml` by assignment, `rows` by field. Every dialect is sometimes treated as bytes.
"""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

NAMES = [
    "../escaped", "../../../../tmp/escaped", "/etc/passwd", "C:\\escaped", ".", "..", "a/b", "CON",
    "a\0b", "~root",
]  # fmt: skip
TEXTS = [
    "", " ", "\0", "\x1b[2J", "\n", "\u2028", "\ud800", "\U0001f600", "\u0663", "\ufeff", "=1+1",
    "'open", '"', "none", "x" * 3000,
]  # fmt: skip
NUMBERS = [
    0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308, float("nan"),
    float("inf"),
]  # fmt: skip
OTHERS: list[Any] = [
    None, True, False, [], {}, [[]], [None] * 300, {"": {}}, {"a": {"b": [1, {"c": None}]}},
]  # fmt: skip
_TOML_VALUES = [
    "nan", "-inf", "1e400", "0x" + "f" * 5000, "0o7", "9" * 400, "9" * 5000, "-1", "1.5", "true",
    '""', '"\\u0000"', '"../escaped"', '"/etc/passwd"', "'''\nmany\nlines'''", "[]", "[[[]]]", "{}",
    "{a = {b = 1}}", "1979-05-27T07:32:00Z", "07:32:00", '["mrpc", "mrpc"]', '["../escaped"]',
    "[0, 0]", "[-1]", '"x', "1_000", f'"{"x" * 3000}"',
]  # fmt: skip
_TOML_TABLES = [
    "[settings]", "[tasks.rte]", "[[settings]]", '[tasks."../x"]', "[agent.gamma]", "[a.b]",
]  # fmt: skip
_TOML_KEYS = ["model", "seed", "agent.gamma", "tasks", '"../x"']
_FIELDS = [
    *NAMES, *TEXTS[:-3], '"', '""', '"open', ",", "\t", "1", "-7", "1e400", "nan", "9" * 5000,
    "x" * 140_000,
]  # fmt: skip
_BYTES = [
    b"\xef\xbb\xbf", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\r\n", b"\n\n", b'"', b"{",
    b"[" * 200, b"\x1a", b"=",
]  # fmt: skip
_FILES = [b"", b"\n", b"null", b"PK\x03\x04", pickle.dumps({"weights": [1.0]}), b"\x80\x02\xff" * 9]


def mutate(random: Random, example: bytes, dialect: str) -> bytes:
    """Return the example with one to three mistakes."""
    data = example
    for _ in range(random.randint(1, 3)):
        change = _change_bytes if random.random() < 0.3 else _DIALECTS[dialect]
        data = change(random, data)
    return data


def _change_json(random: Random, data: bytes) -> bytes:
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return _change_bytes(random, data)
    choice = random.random()
    if choice < 0.1:
        return random.choice([b"[", b'{"a":']) * 100_000
    if choice < 0.2:  # a repeated key, which a tree cannot have
        found = list(re.finditer(rb'"[^"\\]*": *', data))
        if found:
            key = random.choice(found)
            return data[: key.start()] + key[0] + b"0, " + data[key.start() :]
    try:
        return json.dumps(_change_tree(random, tree)).encode()
    except RecursionError:  # too deep to be written
        return data


def _change_tree(random: Random, tree: Any) -> Any:
    """Return the tree with a change at one place."""
    places = list(_places(tree))
    if not places or random.random() < 0.05:
        return _hostile(random)
    holder, key = random.choice(places)
    choice = random.random()
    if choice < 0.6:
        holder[key] = _hostile(random)
    elif choice < 0.75:
        del holder[key]
    elif isinstance(holder, dict):
        holder[random.choice([*NAMES, *TEXTS, "0", "9" * 5000, "-1", "kind"])] = holder[key]
    else:
        holder.insert(key, holder[key])
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict | list):
            for key in list(node) if isinstance(node, dict) else range(len(node)):
                yield node, key
                pending.append(node[key])


def _hostile(random: Random) -> Any:
    if random.random() < 0.03:
        deep: Any = 0
        in_lists = random.random() < 0.5
        for _ in range(random.randint(200, 900)):
            deep = [deep] if in_lists else {"a": deep}
        return deep
    kinds: list[list[Any]] = [NAMES, TEXTS, NUMBERS, OTHERS]
    return copy.deepcopy(random.choice(random.choice(kinds)))


def _change_jsonl(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = _change_json(random, lines[at])
    if random.random() < 0.2:
        lines.insert(at, random.choice(lines))
    return b"\n".join(lines)


def _change_toml(random: Random, data: bytes) -> bytes:
    choice = random.random()
    if choice < 0.03:
        return data + b"\n" + b".".join([b"a"] * 20_000) + b" = 1\n"
    if choice < 0.06:
        return data + b"\nx = " + b"[" * 20_000
    lines = data.decode("utf-8", "replace").split("\n")
    at = random.randrange(len(lines))
    key = lines[at].partition("=")[0].strip() or random.choice(_TOML_KEYS)
    if choice < 0.6:
        lines[at] = f"{key} = {random.choice(_TOML_VALUES)}"
    elif choice < 0.7:
        del lines[at]
    elif choice < 0.8:
        lines.insert(at, random.choice(lines))
    elif choice < 0.9:
        lines.insert(at, random.choice(_TOML_TABLES))
    else:
        lines[at] = f"{random.choice([*NAMES, *TEXTS])} = {random.choice(_TOML_VALUES)}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _change_rows(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    separator = random.choice([b"\t", b",", b" "])
    fields = lines[at].split(separator)
    place = random.randrange(len(fields))
    choice = random.random()
    if choice < 0.6:
        fields[place] = random.choice(_FIELDS).encode("utf-8", "surrogatepass")
    elif choice < 0.75:
        del fields[place]
    elif choice < 0.9:
        fields.insert(place, fields[place])
    else:
        fields *= 40
    lines[at] = separator.join(fields)
    return b"\n".join(lines)


def _change_bytes(random: Random, data: bytes) -> bytes:
    at, end = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
    choice = random.randrange(8)
    if choice == 0 and data:
        flipped = bytearray(data)
        for _ in range(random.randint(1, 8)):
            flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        return bytes(flipped)
    if choice == 1:
        return data[:at]
    if choice == 2:
        return data[:at] + data[end:]
    if choice == 3:
        return data[:end] + data[at:end] * random.randint(1, 4) + data[end:]
    if choice == 4:
        wide = data.decode("latin-1").encode("utf-16")
        return random.choice([b"\xef\xbb\xbf" + data, wide, data.replace(b"\n", b"\r\n")])
    if choice == 5:
        return random.choice([*_FILES, random.randbytes(40)])
    return data[:at] + random.choice(_BYTES) + data[at:]


_DIALECTS: dict[str, Callable[[Random, bytes], bytes]] = {
    "bytes": _change_bytes,
    "json": _change_json,
    "jsonl": _change_jsonl,
    "rows": _change_rows,
    "toml": _change_toml,
}
