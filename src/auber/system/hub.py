"""The hub's names, and the hub where it cannot be reached: what its cache holds is read, and what it does not is said at once.

Its client asks five times with longer and longer waits between, for every file, before it looks into the cache: half a minute for
a mistyped folder, on a machine without a network.
"""

from __future__ import annotations

import math
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

_PATIENCE = 5.0  # seconds to connect in
_REMEMBERED = 60.0  # seconds for which an answer holds: a network may come back
_answers: dict[str, tuple[float, bool]] = {}


def why_no_name(name: str) -> str | None:
    """Why the hub would not take this for a model's name; None where it would."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        return str(error)
    return None


@contextmanager
def reading_hub(name: str) -> Iterator[None]:
    """Within the context the hub's client does not wait for a hub that is out of reach; a folder needs no hub."""
    from huggingface_hub import constants

    if Path(name).is_dir() or constants.HF_HUB_OFFLINE or not _is_out_of_reach(constants.ENDPOINT):
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = False


def _is_out_of_reach(endpoint: str) -> bool:
    asked, found = _answers.get(endpoint, (-math.inf, False))
    if time.monotonic() - asked > _REMEMBERED:
        found = not _answers_at(endpoint)
        _answers[endpoint] = time.monotonic(), found
    return found


def _answers_at(endpoint: str) -> bool:
    """Whether anybody can be connected to; behind a proxy, which may reach what this machine cannot, it is taken to be so."""
    address = urlsplit(endpoint)
    proxies = urllib.request.getproxies()
    if address.hostname is None or address.scheme in proxies or "all" in proxies:
        return True
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname, port), timeout=_PATIENCE).close()
    except (OSError, ValueError):
        return False
    return True
