"""The address that is served on: how it is written, and having it.

The law of this module: what is wrong stops the start, and what is only not there yet is waited for. A node's address
may come up after its pods do, and an IPv6 one is no address before duplicates were looked for; labels must not wait for
that. A port that somebody else has, or that the process may not have, will not get better.
"""

from __future__ import annotations

import errno
import os
import socket

from agent.errors import Malformed, Unavailable


class NotYetError(Unavailable):
    """The address is no address of this host, or of none that is up."""


def parse_address(text: str) -> tuple[str, int]:
    """`IP:PORT`, an IPv6 one with brackets or, as `$(NODE_IP):9477` makes it, without; `:9477` is any; or Malformed."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    if not (":" in text and port.isascii() and port.isdecimal() and int(port) <= 0xFFFF):
        raise Malformed(f"{text[:64]!r} is no IP:PORT")
    try:
        socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError) as error:
        raise Malformed(f"{text[:64]!r} is no IP:PORT: {host[:64]!r} is no IP address") from error
    return host, int(port)


def listen(host: str, port: int) -> socket.socket:
    """A socket that clients may connect to and that nobody waits for; Unavailable, or NotYetError."""
    both = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        kind = NotYetError if error.errno == errno.EADDRNOTAVAIL else Unavailable
        why = os.strerror(error.errno or 0)  # the error's own text tells the address once more
        raise kind(f"cannot serve metrics on {host or '*'} port {port}: {why}") from error
    listener.settimeout(0)
    return listener
