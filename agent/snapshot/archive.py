"""Reads a tar archive (plain, gzip, zstd) into memory, with limits, and writes nothing to disk.

Invariants:
- one bad member refuses the archive: an absolute name, "..", a link out of the archive, a device, a
  FIFO, more members or bytes than a node can have;
- a member is accepted or refused by its header, before its data is read;
- an unreadable header refuses the archive, since the members behind it would be missing unnoticed.
"""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

MAX_MEMBERS = 50_000  # a node with 32 HCAs has about 3,000
MAX_SIZE = 64 << 20  # bytes of all members, and of the decompressed archive without its headers
MAX_EXTENDED_HEADER = 64 << 10  # bytes; tarfile reads these headers into memory
MAX_NAME = 128  # characters of a member's name in an error message
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # magic numbers: RFC 1952, RFC 8878


def entries(path: str) -> dict[str, bytes | str | None]:
    """Return path -> bytes of a file, text of a link or None of a folder, without the top folder.

    Raises Malformed for an archive that is refused, Unavailable without the zstd package.
    """
    if not os.path.isfile(path):
        raise Malformed("neither a folder nor a file")
    with open(path, "rb") as file, _readable(), _decompressed(file) as stream:
        bounded = _Bounded(stream)
        found = _members(bounded)
        bounded.drain()
    return _without_top(found)


class _Member(tarfile.TarInfo):
    """A header; only zeros end the archive, where tarfile also stops silently at a bad header."""

    EXTRA = frozenset(
        {
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
            tarfile.GNUTYPE_LONGNAME,
            tarfile.GNUTYPE_LONGLINK,
        }
    )

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            member = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if bytes(buf) == bytes(tarfile.BLOCKSIZE):
                raise
            raise tarfile.ReadError(str(error)) from error
        if member.type in cls.EXTRA and not 0 <= member.size <= MAX_EXTENDED_HEADER:
            raise tarfile.ReadError(f"an extended header of {member.size} bytes")
        return member


def _members(stream: _Bounded) -> dict[str, bytes | str | None]:
    found: dict[str, bytes | str | None] = {}
    total = 0
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
        for number, member in enumerate(archive, 1):
            total += _cost(member)
            if number > MAX_MEMBERS or total > MAX_SIZE:
                raise Malformed(
                    f"more than {MAX_MEMBERS} members or {MAX_SIZE >> 20} MiB, "
                    f"at member {_name(member.name)}"
                )
            found[_inside(member.name, member.name)] = _content(archive, member, found)
    return found


def _cost(member: tarfile.TarInfo) -> int:
    """Return the bytes of memory of a member: its data, and its name once per folder in it."""
    if member.size < 0:
        raise Malformed(f"member {_name(member.name)} has a size of {member.size} bytes")
    return member.size + len(member.linkname) + len(member.name) * (1 + member.name.count("/"))


def _content(
    archive: tarfile.TarFile, member: tarfile.TarInfo, found: dict[str, bytes | str | None]
) -> bytes | str | None:
    if member.isdir():
        return None
    if member.issym():
        _inside(posixpath.join(posixpath.dirname(member.name), member.linkname), member.name)
        return member.linkname
    if member.islnk():
        target = _inside(member.linkname, member.name)
        if target not in found:
            raise Malformed(f"member {_name(member.name)} is a hard link to no earlier member")
        return found[target]
    if not member.isreg():
        raise Malformed(f"member {_name(member.name)} is no file, folder or link")
    file = archive.extractfile(member)
    return file.read() if file else b""


def _inside(path: str, member: str) -> str:
    """Return the normalized path; raise Malformed if it leads out of the archive."""
    plain = posixpath.normpath(path)
    if path.startswith("/") or plain == ".." or plain.startswith("../"):
        raise Malformed(f"member {_name(member)} leads outside the archive")
    return "" if plain == "." else plain


def _name(member: str) -> str:
    return visible(repr(member), MAX_NAME)


def _without_top(found: dict[str, bytes | str | None]) -> dict[str, bytes | str | None]:
    """Strip a single top folder, unless it belongs to the tree (sys, class, a device)."""
    tops = {path.partition("/")[0] for path in found if path}
    top = tops.pop() if len(tops) == 1 else ""
    if top in {"", "sys", "class"} or any(path.startswith(f"{top}/ports/") for path in found):
        return {path: data for path, data in found.items() if path}
    return {
        path[len(top) + 1 :]: data for path, data in found.items() if path.startswith(f"{top}/")
    }


@contextmanager
def _readable() -> Iterator[None]:
    """Turn the errors of tarfile and the decompressors about bad bytes into Malformed."""
    try:
        yield
    except RecursionError as error:
        raise Malformed("no tar archive: extended headers without end") from error
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise Malformed(f"no tar archive, or a truncated one: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise Malformed(f"no tar archive, or a truncated one: {error}") from error


@contextmanager
def _decompressed(file: io.BufferedReader) -> Iterator[Any]:
    magic = file.peek(4)
    if magic.startswith(GZIP):
        import gzip

        with gzip.open(file) as stream:
            yield stream
    elif magic.startswith(ZSTD):
        with _zstd(file) as stream:
            yield stream
    else:
        yield file


@contextmanager
def _zstd(file: io.BufferedReader) -> Iterator[Any]:
    try:
        from backports import zstd
    except ImportError:
        raise Unavailable(
            "a zstd archive needs the package backports.zstd: pip install 'bwagent[zstd]'"
        ) from None
    try:
        with zstd.open(file) as stream:
            yield stream
    except zstd.ZstdError as error:
        raise Malformed(f"no tar archive, or a truncated one: {error}") from error


class _Bounded(io.RawIOBase):
    """The decompressed stream, limited to MAX_SIZE and the headers of MAX_MEMBERS."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = MAX_SIZE + MAX_MEMBERS * 3 * tarfile.BLOCKSIZE

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise Malformed(f"unpacks to more than {MAX_SIZE >> 20} MiB")
        return data

    def drain(self) -> None:
        """Read to the end of the file, so that the decompressor verifies its checksum."""
        while self.read(tarfile.RECORDSIZE):
            pass
