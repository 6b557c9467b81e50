"""Reads a tar archive (plain, gzip, zstd) into memory, with limits, and writes nothing to disk.

Formats: ustar and pax (IEEE Std 1003.1, pax, "ustar Interchange Format" and "pax Extended Header"),
GNU long names (tar(5) of libarchive). tarfile decodes single headers only: it follows extended
headers by recursion, and takes a time that is quadratic in their size (CVE-2024-6232, before Python
3.11.10).

Invariants:
- one bad member refuses the archive: an absolute name, "..", a link out of the archive, a device, a
  FIFO, a sparse file, more members or bytes than a node can have;
- a header, also an extended header, is accepted or refused by its type and size, before its data is
  read; the work is linear in the bytes read;
- an unreadable header refuses the archive, since the members behind it would be missing unnoticed.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.errors import Malformed, not_installed
from agent.snapshot.tree import Content, Contents
from agent.text import visible

MAX_MEMBERS = 50_000  # a node with 32 HCAs has about 3,000
MAX_SIZE = 64 << 20  # bytes of all members, and of the decompressed archive without its headers
MAX_EXTENDED_SIZE = 4 << 10  # bytes of one extended header; a path has 4,096 at most (PATH_MAX)
MAX_EXTENDED = 4  # extended headers of one member: global, pax, and GNU's two for long names
MAX_NAME = 128  # characters of a member's name in an error message
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # magic numbers: RFC 1952, RFC 8878
FILES = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE})
LONG = {tarfile.GNUTYPE_LONGNAME: "name", tarfile.GNUTYPE_LONGLINK: "linkname"}
PAX = frozenset({tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE})
KEYWORDS = {b"path": "name", b"linkpath": "linkname"}
_RECORD = re.compile(rb"([1-9]\d{0,3}) ([^=\n]+)=")  # "27 path=sys/class/infiniband\n"


def entries(path: str) -> Contents:
    """Return path -> bytes of a file, text of a link or None of a folder, without the top folder.

    Raises Malformed for an archive that is refused, Unavailable without the zstd package.
    """
    if not os.path.isfile(path):
        raise Malformed("neither a folder nor a file")
    contents: Contents = {}
    number = total = 0
    with open(path, "rb") as file, _decompressed(file) as decompressed:
        stream = _Bounded(decompressed)
        while member := _next_member(stream):
            if member.size < 0:
                raise Malformed(f"member {_name(member.name)} has a size of {member.size} bytes")
            number += 1
            # the memory of a member: its data, and its name once for each folder in it
            folders = member.name.count("/") + 1
            total += member.size + len(member.linkname) + len(member.name) * folders
            if number > MAX_MEMBERS or total > MAX_SIZE:
                text = f"more than {MAX_MEMBERS} members or {MAX_SIZE >> 20} MiB"
                raise Malformed(f"{text}, at member {_name(member.name)}")
            contents[_inside(member.name, member.name)] = _content(stream, member, contents)
        stream.drain()
    # Strip a single top folder, unless it belongs to the tree (sys, class, a device).
    tops = {path.partition("/")[0] for path in contents if path}
    top = f"{tops.pop()}/" if len(tops) == 1 else ""
    if top in {"sys/", "class/"} or any(path.startswith(f"{top}ports/") for path in contents):
        top = ""
    return {
        path.removeprefix(top): data
        for path, data in contents.items()
        if path and path.startswith(top)
    }


def _next_member(stream: _Bounded) -> tarfile.TarInfo | None:
    """Return the next member, as its extended headers have it; None at the end of the archive.

    The data of a file is to be read before the next member.
    """
    fields: dict[str, Any] = {}  # attributes of the member's TarInfo
    for _ in range(MAX_EXTENDED + 1):
        block = stream.exactly(tarfile.BLOCKSIZE)
        if not any(block):  # a block of zeros ends the archive
            if fields:
                raise Malformed("the archive ends after an extended header")
            return None
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if header.type not in PAX and header.type not in LONG:
            for name, value in fields.items():
                setattr(header, name, value)
            return header
        if not 0 <= header.size <= MAX_EXTENDED_SIZE:
            raise Malformed(
                f"member {_name(header.name)} is an extended header of {header.size} bytes; "
                f"the limit is {MAX_EXTENDED_SIZE}"
            )
        data = stream.content(header.size)
        if header.type in LONG:
            fields[LONG[header.type]] = _text(data.partition(b"\0")[0])
            continue
        records = _pax_fields(header, data)
        if header.type != tarfile.XGLTYPE:  # a global header, as the comment of `git archive`
            fields |= records
    raise Malformed("extended headers without end")


def _pax_fields(header: tarfile.TarInfo, data: bytes) -> dict[str, Any]:
    """Return the fields in the records `LENGTH KEYWORD=VALUE` and a line end of a pax header."""
    fields: dict[str, Any] = {}
    at = 0
    while at < len(data):
        match = _RECORD.match(data, at)
        end = at + int(match[1]) if match else 0
        if not match or end <= match.end() or data[end - 1 : end] != b"\n":
            raise Malformed(f"member {_name(header.name)} is no pax header, at octet {at}")
        keyword, value = match[2], data[match.end() : end - 1]
        if keyword.startswith(b"GNU.sparse."):
            fields["sparse"] = keyword
        elif keyword == b"size":
            if not re.fullmatch(rb"-?\d{1,20}", value):
                text = f"member {_name(header.name)} is a pax header with a size that is none"
                raise Malformed(text)
            fields["size"] = int(value)
        elif keyword in KEYWORDS:
            fields[KEYWORDS[keyword]] = _text(value)
        at = end
    return fields


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def _content(stream: _Bounded, member: tarfile.TarInfo, earlier: Contents) -> Content:
    if member.isdir():
        return None
    if member.issym():
        _inside(posixpath.join(posixpath.dirname(member.name), member.linkname), member.name)
        return member.linkname
    if member.islnk():
        target = _inside(member.linkname, member.name)
        if target not in earlier:
            raise Malformed(f"member {_name(member.name)} is a hard link to no earlier member")
        return earlier[target]
    if member.type not in FILES or member.issparse():
        raise Malformed(f"member {_name(member.name)} is no plain file, folder or link")
    return stream.content(member.size)


def _inside(path: str, member: str) -> str:
    """Return the normalized path; raise Malformed if it leads out of the archive."""
    plain = posixpath.normpath(path)
    if path.startswith("/") or plain == ".." or plain.startswith("../"):
        raise Malformed(f"member {_name(member)} leads outside the archive")
    return "" if plain == "." else plain


def _name(member: str) -> str:
    return visible(repr(member), MAX_NAME)


@contextmanager
def _decompressed(file: io.BufferedReader) -> Iterator[Any]:
    """Yield the stream; errors of tarfile and the decompressors about bad bytes are Malformed."""
    errors: tuple[type[Exception], ...] = (tarfile.TarError, EOFError, zlib.error, ValueError)
    try:
        magic = file.peek(4)
        if magic.startswith(GZIP):
            import gzip

            with gzip.open(file) as stream:
                yield stream
        elif magic.startswith(ZSTD):
            try:
                from backports import zstd
            except ImportError:
                raise not_installed("a zstd archive", "backports.zstd", "zstd") from None
            errors += (zstd.ZstdError,)
            with zstd.open(file) as stream:
                yield stream
        else:
            yield file
    except errors as error:
        raise Malformed(f"not a tar archive, or truncated: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise Malformed(f"not a tar archive, or truncated: {error}") from error


class _Bounded:
    """The decompressed stream, limited to MAX_SIZE and the headers of MAX_MEMBERS."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = MAX_SIZE + MAX_MEMBERS * 3 * tarfile.BLOCKSIZE

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; none at the end."""
        data: bytes = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise Malformed(f"unpacks to more than {MAX_SIZE >> 20} MiB")
        return data

    def exactly(self, size: int) -> bytes:
        """Return `size` bytes; raise EOFError if there are fewer."""
        parts = []
        while size and (part := self.read(size)):
            parts.append(part)
            size -= len(part)
        if size:
            raise EOFError("unexpected end of data")
        return b"".join(parts)

    def content(self, size: int) -> bytes:
        """Return the data of a member, without the padding of its last block."""
        return self.exactly(size + -size % tarfile.BLOCKSIZE)[:size]

    def drain(self) -> None:
        """Read to the end of the file, so that the decompressor verifies its checksum."""
        while self.read(tarfile.RECORDSIZE):
            pass
