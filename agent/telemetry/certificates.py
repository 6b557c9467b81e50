"""TLS for the metrics server: PEM files, read again when they change.

A request to /metrics needs a certificate of the client CA, if one is configured. /healthz and
/readyz do not, since a kubelet has none to show. So the handshake asks for a certificate without
requiring it, a wrong certificate ends it, and agent/telemetry/server.py refuses /metrics without.

Invariants:
- Files that cannot be used at the start end the command with one line. Later ones are reported in
  `fault`, and the certificates in use stay.
- A Secret is replaced file by file or by a symbolic link: the state of all files is compared before
  each connection, and taken before they are read, so a change meanwhile causes another read. Files
  that cannot be used are read again for each connection: what mends them may be no change of theirs
  (permissions of a folder, descriptors).
"""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path
from typing import NamedTuple

from agent.errors import Malformed, Unavailable

Versions = tuple[tuple[int, int, int] | None, ...]

MAX_BYTES = 1 << 20  # of a file
MISMATCH = "KEY_VALUES_MISMATCH"  # SSLError.reason


class Files(NamedTuple):
    """The paths of the flags --metrics-cert, --metrics-key and --metrics-client-ca."""

    cert: str
    key: str
    client_ca: str | None = None


class Certificates:
    """The TLS context of the files as they are now, or as they were last usable."""

    def __init__(self, files: Files) -> None:
        """Read the files; raises Unavailable if they cannot be used."""
        self.fault = ""  # the reason why the files as they are now cannot be used
        self._files = files
        self._state = _state(files)
        try:
            self._context = _context(files)
        except (Malformed, OSError) as error:
            raise Unavailable(f"cannot serve metrics: {error}") from error

    @property
    def asks_clients(self) -> bool:
        """True if /metrics needs a client certificate."""
        return self._files.client_ca is not None

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        state = _state(self._files)
        if state != self._state or self.fault:
            self._state = state
            try:
                self._context, self.fault = _context(self._files), ""
            except (Malformed, OSError) as error:
                self.fault = str(error)
        return self._context


def _state(files: Files) -> Versions:
    """Return device, inode and time of each file, which distinguish two versions; None: no file.

    The time is that of the inode: a copy may keep the time of the contents, chmod leaves it.
    """
    versions: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            status = Path(path).stat() if path else None
        except OSError:
            status = None
        versions.append((status.st_dev, status.st_ino, status.st_ctime_ns) if status else None)
    return tuple(versions)


def _context(files: Files) -> ssl.SSLContext:
    """Read the files; raises Malformed with a file's path, and OSError."""
    _require(files.cert, "BEGIN CERTIFICATE", "certificate")
    _require(files.key, "PRIVATE KEY", "private key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def refuse() -> str:
        """Answer OpenSSL, which asks for a password, in place of the terminal."""
        raise Malformed(f"{files.key} is encrypted")

    try:
        context.load_cert_chain(files.cert, files.key, refuse)
    except ssl.SSLError as error:
        raise Malformed(_misfit(files, error)) from error
    if files.client_ca:
        _require(files.client_ca, "BEGIN CERTIFICATE", "certificate")
        try:
            context.load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            raise Malformed(f"{files.client_ca}: {_words(error, 'certificate')}") from error
        context.verify_mode = ssl.CERT_OPTIONAL
        # a resumed session would outlive the client's certificate
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def _require(path: str, mark: str, what: str) -> None:
    """Raise Malformed for a PEM file that cannot be read or lacks what it is for.

    A file that blocks, or that is longer than MAX_BYTES, is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="latin-1") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Malformed(f"{path} is not a regular file")
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise Malformed(f"{path} is longer than {MAX_BYTES} bytes")
    if mark not in text:
        raise Malformed(f"{path} has no {what} in PEM")


def _misfit(files: Files, error: ssl.SSLError) -> str:
    """Return which of certificate and key cannot be used, and why."""
    if error.reason == MISMATCH:
        return f"{files.key} is not the key of {files.cert}"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(files.cert)
    except ssl.SSLError as fault:
        return f"{files.cert}: {_words(fault, 'certificate')}"
    return f"{files.cert if error.reason else files.key}: {_words(error, 'private key')}"


def _words(error: ssl.SSLError, what: str) -> str:
    """Return OpenSSL's reason in words, `ee key too small`; malformed files may have none."""
    return (error.reason or f"the {what} is malformed").replace("_", " ").lower()
