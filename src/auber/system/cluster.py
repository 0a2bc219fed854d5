"""Import Ray, and start a local cluster or connect to one.

A local cluster listens on 127.0.0.1 only, requires a random token and sends no usage statistics.
Ray reads most of these options from the environment on import. If the program has imported Ray
before, its own options apply.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from typing import Any

from auber.errors import ConfigError, first_line


def import_ray(wanted_by: str) -> Any:
    """Return the module `ray`; `wanted_by` is the option that needs it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules and "RAY_ADDRESS" not in os.environ:
        # Despite its name, this makes Ray listen on the loopback address on every system.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        if "RAY_AUTH_MODE" not in os.environ:
            # Otherwise Ray stores a token in the home folder and reuses it for later clusters.
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"{wanted_by} needs Ray, which is not installed; pip install 'auber[ray]'"
        ) from error
    return ray


def open_ray(ray: Any, address: str | None, wanted_by: str, num_cpus: int) -> None:
    """Connect to a running cluster; without address, start one that ends with this process."""
    if not address:
        ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, log_to_driver=False)
        return
    try:
        _check_port(address)
        ray.init(address=address, log_to_driver=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"{wanted_by}: RAY_ADDRESS must be a cluster that accepts the connection, found "
            f"'{address}' ({first_line(error)}); check the address and, if it requires a "
            "token, RAY_AUTH_MODE and RAY_AUTH_TOKEN"
        ) from error


def _check_port(address: str) -> None:
    """Raise `OSError` if host:port does not answer; Ray would retry for minutes, then exit."""
    host, colon, port = address.rpartition(":")
    if colon and host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()
