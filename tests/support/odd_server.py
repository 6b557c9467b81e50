"""A TCP server that sends what a test gives it, over TLS on request."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

Respond = Callable[[socket.socket], None]


@dataclass(slots=True)
class OddServer:
    """The server's port, its TLS, and the requests that it received, as bytes."""

    port: int
    context: ssl.SSLContext | None = None  # a certificate that is loaded replaces the present one
    requests: list[bytes] = field(default_factory=list)


def says(*replies: bytes) -> Respond:
    """Send one reply to each connection, the last one to all further ones, and close."""
    left = list(replies)

    def respond(connection: socket.socket) -> None:
        connection.sendall(left.pop(0) if len(left) > 1 else left[0])

    return respond


def reply(
    status: int,
    body: bytes,
    *headers: str,
    kind: str = "application/json",
    length: int | None = None,
) -> bytes:
    """Return a reply with a body; `length` is its Content-Length, if not the true one."""
    size = len(body) if length is None else length
    head = [
        f"HTTP/1.1 {status} Reply",
        f"Content-Type: {kind}",
        f"Content-Length: {size}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


@contextmanager
def serving(respond: Respond, certificate: tuple[Path, Path] | None = None) -> Iterator[OddServer]:
    """Listen on a free port, and answer each request with `respond`; with a certificate and its
    key, over TLS.
    """
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = OddServer(listener.getsockname()[1], context)
        thread = threading.Thread(target=_serve, args=(listener, respond, server), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def _serve(listener: socket.socket, respond: Respond, server: OddServer) -> None:
    context = server.context
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with suppress(OSError), connection:
            stream = context.wrap_socket(connection, server_side=True) if context else connection
            with stream:
                server.requests.append(_request(stream))
                respond(stream)


def _request(stream: socket.socket) -> bytes:
    """Receive one request with its body, or the first segment of what is not HTTP."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = stream.recv(65536)
        data += piece
        if not piece or not data[:1].isalpha():
            return data
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        body += stream.recv(65536)
    return head + b"\r\n\r\n" + body
