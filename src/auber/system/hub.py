"""Use the cache of the Hugging Face Hub at once when the Hub cannot be reached.

Its client retries five times per file, with growing delays, before it looks into the cache. Without
a network, that is half a minute for a mistyped folder.
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

_CONNECT_SECONDS = 5.0
_CACHE_SECONDS = 60.0  # how long the answer is cached: the network may come back
_reachable: dict[str, tuple[float, bool]] = {}  # by endpoint: time of the check, answer


def why_no_name(name: str) -> str | None:
    """Return why a text cannot be the name of a model on the Hub; None if it can."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        return str(error)
    return None


@contextmanager
def reading_hub(name: str) -> Iterator[None]:
    """Put the client of the Hub into offline mode if `name` is no folder and the Hub is down."""
    from huggingface_hub import constants

    if Path(name).is_dir() or constants.HF_HUB_OFFLINE or _is_reachable(constants.ENDPOINT):
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = False


def _is_reachable(endpoint: str) -> bool:
    checked, answer = _reachable.get(endpoint, (-math.inf, False))
    if time.monotonic() - checked > _CACHE_SECONDS:
        answer = _can_connect(endpoint)
        _reachable[endpoint] = time.monotonic(), answer
    return answer


def _can_connect(endpoint: str) -> bool:
    """Return whether the endpoint accepts connections; assume so behind a proxy."""
    address = urlsplit(endpoint)
    proxies = urllib.request.getproxies()
    if address.hostname is None or address.scheme in proxies or "all" in proxies:
        return True
    try:
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname, port), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True
