"""A tar file into memory, bounded, without ever writing a member to disk.

An archive is refused as a whole for one bad member: an absolute name, `..`, a link that leads outside, a device or a
FIFO, more members or bytes than a node can have. Everything is decided from a member's header, before its data is
read, and a header that cannot be read refuses the archive: what stands behind it would be missing without a word.
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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

MOST_MEMBERS = 50_000  # a node with 32 HCAs has about 3,000
MOST_BYTES = 64 << 20  # all members together, and all that the archive unpacks to
MOST_EXTRA = 64 << 10  # of a header in front of a member's own, which tarfile takes into memory
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # RFC 1952, RFC 8878: how such files begin


def entries(path: str) -> dict[str, bytes | str | None]:
    """Path -> bytes of a file, target of a link, None of a folder; the folder that all lie in is left out."""
    if not os.path.isfile(path):
        raise Malformed("neither a folder nor a file")
    with open(path, "rb") as file, _readable(), _decompressed(file) as stream:
        bounded = _Bounded(stream)
        found = _members(bounded)
        bounded.drain()
    return _without_top(found)


class _Member(tarfile.TarInfo):
    """A header. Only the zeros at its end end an archive; tarfile also stops, silently, at what it cannot read."""

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
        if member.type in cls.EXTRA and not 0 <= member.size <= MOST_EXTRA:
            raise tarfile.ReadError(f"an extended header of {member.size} bytes")
        return member


def _members(stream: _Bounded) -> dict[str, bytes | str | None]:
    found: dict[str, bytes | str | None] = {}
    total = 0
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
        for number, member in enumerate(archive, 1):
            total += _cost(member)
            if number > MOST_MEMBERS or total > MOST_BYTES:
                raise Malformed(
                    f"more than {MOST_MEMBERS} members or {MOST_BYTES >> 20} MiB, at member {member.name[:128]!r}"
                )
            found[_inside(member.name, member.name)] = _content(archive, member, found)
    return found


def _cost(member: tarfile.TarInfo) -> int:
    """Bytes of memory: the data, and the name once for every folder on the way."""
    if member.size < 0:
        raise Malformed(f"member {member.name[:128]!r} has a size of {member.size} bytes")
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
            raise Malformed(f"member {member.name[:128]!r} is a hard link to nothing before it")
        return found[target]
    if not member.isreg():
        raise Malformed(f"member {member.name[:128]!r} is a device, a FIFO or the like")
    file = archive.extractfile(member)
    return file.read() if file else b""


def _inside(path: str, member: str) -> str:
    """`path` in its plain form; refused where it leads outside the archive."""
    plain = posixpath.normpath(path)
    if path.startswith("/") or plain == ".." or plain.startswith("../"):
        raise Malformed(f"member {member[:128]!r} leads outside the archive")
    return "" if plain == "." else plain


def _without_top(found: dict[str, bytes | str | None]) -> dict[str, bytes | str | None]:
    """An archive of one folder that holds the snapshot is the snapshot (a folder with ports is a device, though)."""
    tops = {path.partition("/")[0] for path in found if path}
    top = tops.pop() if len(tops) == 1 else ""
    if top in {"", "sys", "class"} or any(path.startswith(f"{top}/ports/") for path in found):
        return {path: data for path, data in found.items() if path}
    return {
        path[len(top) + 1 :]: data for path, data in found.items() if path.startswith(f"{top}/")
    }


@contextmanager
def _readable() -> Iterator[None]:
    """What the decompressors and tarfile raise about bad bytes, as one kind of error."""
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
    """What an archive unpacks to, at most MOST_BYTES and its headers."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = MOST_BYTES + MOST_MEMBERS * 3 * tarfile.BLOCKSIZE

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise Malformed(f"unpacks to more than {MOST_BYTES >> 20} MiB")
        return data

    def drain(self) -> None:
        """Read what follows the end, so that a decompressor sees its checksum."""
        while self.read(tarfile.RECORDSIZE):
            pass
