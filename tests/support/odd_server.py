"""Something at the other end of a TCP connection that says whatever a test wants, over TLS if
wanted.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Speak = Callable[[socket.socket], None]


@dataclass(slots=True)
class OddServer:
    """Where it listens, and the requests that it was sent, as they came."""

    port: int
    requests: list[bytes] = field(default_factory=list)


def says(*replies: bytes) -> Speak:
    """Say these one after another, one to a connection, the last for ever, and close."""
    left = list(replies)

    def speak(connection: socket.socket) -> None:
        connection.sendall(left.pop(0) if len(left) > 1 else left[0])

    return speak


def reply(
    status: int,
    body: bytes,
    *headers: str,
    kind: str = "application/json",
    length: int | None = None,
) -> bytes:
    """A reply with a body; `length` is what it claims to be long."""
    size = len(body) if length is None else length
    head = [
        f"HTTP/1.1 {status} Said",
        f"Content-Type: {kind}",
        f"Content-Length: {size}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


@contextmanager
def serving(speak: Speak, certificate: tuple[Path, Path] | None = None) -> Iterator[OddServer]:
    """Listen on a free port, and let `speak` answer each request; with a certificate and its key,
    over TLS.
    """
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = OddServer(listener.getsockname()[1])
        thread = threading.Thread(
            target=_serve, args=(listener, speak, context, server), daemon=True
        )
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def _serve(
    listener: socket.socket, speak: Speak, context: ssl.SSLContext | None, server: OddServer
) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with suppress(OSError), connection:
            stream = context.wrap_socket(connection, server_side=True) if context else connection
            with stream:
                server.requests.append(_request(stream))
                speak(stream)


def _request(stream: socket.socket) -> bytes:
    """One request with its body; of what is no HTTP, the start of a handshake say, the first
    piece.
    """
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


def certificate(folder: Path, name: str = "127.0.0.1") -> tuple[Path, Path]:
    """A certificate that signs itself, for an address of this host, and its key."""
    paths = folder / "tls.crt", folder / "tls.key"
    subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{name}", "-days", "2")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    command: tuple[Any, ...] = (
        "openssl",
        "req",
        "-x509",
        *key,
        *subject,
        "-out",
        paths[0],
        "-keyout",
        paths[1],
    )
    subprocess.run(command, check=True, capture_output=True)
    return paths
