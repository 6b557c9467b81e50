"""The notation of --metrics-address."""

from __future__ import annotations

import re
import socket

from agent.errors import Malformed

_PORT = re.compile(r"[0-9]{1,5}")


def parse_address(text: str) -> tuple[str, int]:
    """Parse `IP:PORT`; raise Malformed for anything else, including a host name.

    An IPv6 address may have brackets or, as in Kubernetes' `$(NODE_IP):9477`, none. `:9477` is
    every address of the host.
    """
    host, port = _split(text)
    try:
        socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError) as error:
        raise Malformed(f"{text[:64]!r} is no IP:PORT: {host[:64]!r} is no IP address") from error
    return host, port


def _split(text: str) -> tuple[str, int]:
    """Return the host, without its brackets, and the port."""
    host, colon, port = text.rpartition(":")
    if not (colon and _PORT.fullmatch(port) and int(port) <= 0xFFFF):
        raise Malformed(f"{text[:64]!r} is no IP:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, int(port)
