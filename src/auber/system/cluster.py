"""Ray: imported with the settings it must find, started on this machine or joined by address.

A cluster of our own listens on 127.0.0.1 alone, asks for a token that nobody else has, and reports to nobody. Ray reads most of
this from the environment when it is imported, so a program that imports Ray first decides it itself.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from typing import Any

from auber.errors import ConfigError


def import_ray(wanted_by: str) -> Any:
    """The package, set up; `wanted_by` names the option that needs it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules and "RAY_ADDRESS" not in os.environ:
        # The name is Ray's: without clusters it listens on the loopback address; an address given to `init` is not heeded.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        if "RAY_AUTH_MODE" not in os.environ:
            # Left to itself Ray would write a token into the home folder, for every later cluster to find.
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"{wanted_by} needs Ray, which is not installed; pip install 'auber[ray]'"
        ) from error
    return ray


def start_ray(ray: Any, num_cpus: int) -> None:
    """A cluster on this machine, for as long as this process is connected to it."""
    ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, log_to_driver=False)


def join_ray(ray: Any, address: str, wanted_by: str) -> None:
    """Connect to a cluster that is there."""
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"{wanted_by}: RAY_ADDRESS must be a cluster that takes us, found '{address}' ({str(error).splitlines()[0]}); "
            "check the address and, if it asks for a token, RAY_AUTH_MODE and RAY_AUTH_TOKEN"
        ) from error


def _knock(address: str) -> None:
    """Raise `OSError` where nobody answers at host:port: Ray itself would try for minutes and then end the process."""
    host, colon, port = address.rpartition(":")
    if colon and host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()
