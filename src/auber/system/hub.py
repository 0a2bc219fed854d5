"""Use the cache of the Hugging Face Hub at once when the Hub cannot be reached.

Its client retries five times per file, with growing delays, before it looks into the cache. Without
a network, that is half a minute for a mistyped folder.
"""

from __future__ import annotations

import functools
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

_CONNECT_SECONDS = 5.0


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

    minute = int(time.monotonic() // 60)
    if Path(name).is_dir() or constants.HF_HUB_OFFLINE or _can_connect(constants.ENDPOINT, minute):
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = False


@functools.lru_cache(maxsize=1)
def _can_connect(endpoint: str, minute: int) -> bool:
    """Return whether the endpoint accepts connections; assume so behind a proxy.

    The answer is cached within a `minute`: the network may come back.
    """
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
