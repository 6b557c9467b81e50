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

    from agent.snapshot.tree import Entry

    Entries = dict[str, Entry]

MAX_MEMBERS = 50_000  # a node with 32 HCAs has about 3,000
MAX_SIZE = 64 << 20  # bytes of all members, and of the decompressed archive without its headers
MAX_EXTENDED_HEADER = 64 << 10  # bytes; tarfile reads these headers into memory
MAX_NAME = 128  # characters of a member's name in an error message
_TOO_MUCH = f"more than {MAX_MEMBERS} members or {MAX_SIZE >> 20} MiB"
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # magic numbers: RFC 1952, RFC 8878


def entries(path: str) -> Entries:
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
        member.check_size()
        return member

    def check_size(self) -> None:
        """Raise ReadError for an extended header that is too long to be read into memory."""
        if self.type in self.EXTRA and not 0 <= self.size <= MAX_EXTENDED_HEADER:
            raise tarfile.ReadError(f"an extended header of {self.size} bytes")


def _members(stream: _Bounded) -> Entries:
    found: Entries = {}
    total = 0
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
        for number, member in enumerate(archive, 1):
            total += _cost(member)
            if number > MAX_MEMBERS or total > MAX_SIZE:
                raise Malformed(f"{_TOO_MUCH}, at member {_name(member)}")
            found[_inside(member.name, member)] = _content(archive, member, found)
    return found


def _cost(member: tarfile.TarInfo) -> int:
    """Return the bytes of memory of a member: its data, and its name once per folder in it."""
    if member.size < 0:
        raise _refused(member, f"has a size of {member.size} bytes")
    return member.size + len(member.linkname) + len(member.name) * (1 + member.name.count("/"))


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, found: Entries) -> Entry:
    if member.isdir():
        return None
    if member.issym():
        return _target(member)
    if member.islnk():
        return _linked(member, found)
    return _data(archive, member)


def _target(member: tarfile.TarInfo) -> str:
    _inside(posixpath.join(posixpath.dirname(member.name), member.linkname), member)
    return member.linkname


def _linked(member: tarfile.TarInfo, found: Entries) -> Entry:
    """Return the content of an earlier member, to which this one is a hard link."""
    target = _inside(member.linkname, member)
    if target not in found:
        raise _refused(member, "is a hard link to no earlier member")
    return found[target]


def _data(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if not member.isreg():
        raise _refused(member, "is no file, folder or link")
    file = archive.extractfile(member)
    return file.read() if file else b""


def _inside(path: str, member: tarfile.TarInfo) -> str:
    """Return the normalized path; raise Malformed if it leads out of the archive."""
    plain = posixpath.normpath(path)
    if path.startswith("/") or plain == ".." or plain.startswith("../"):
        raise _refused(member, "leads outside the archive")
    return "" if plain == "." else plain


def _refused(member: tarfile.TarInfo, reason: str) -> Malformed:
    return Malformed(f"member {_name(member)} {reason}")


def _name(member: tarfile.TarInfo) -> str:
    return visible(repr(member.name), MAX_NAME)


def _without_top(found: Entries) -> Entries:
    """Strip the single top folder, if there is one."""
    top = _top(found)
    return {path.removeprefix(top): data for path, data in found.items() if _is_below(path, top)}


def _is_below(path: str, top: str) -> bool:
    return path != "" and path.startswith(top)


def _top(found: Entries) -> str:
    """Return the single top folder with a slash; "" if it belongs to the tree (sys, a device)."""
    tops = {path.partition("/")[0] for path in found if path}
    top = tops.pop() if len(tops) == 1 else ""
    is_device = any(path.startswith(f"{top}/ports/") for path in found)
    return "" if is_device or top in {"", "sys", "class"} else f"{top}/"


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
