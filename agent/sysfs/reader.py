"""Bounded, error-tolerant reads of kernel files.

A `Root` returns bytes, directory entries and link targets as the kernel gives them, or raises
OSError. A `Reader` on top of it bounds the size of every read and maps errors to values.

Invariants of `Reader`:
- An errno in NOT_AVAILABLE means that the attribute does not exist: the value is None. This is the
  only list of such errnos.
- ETIMEDOUT raises Unavailable.
- Reads by `decisive` that fail, or give a malformed value, are in `undecided`, too.
- Any other error, and any malformed value, becomes one `Problem` and None; other attributes are
  not affected.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Protocol, TypeVar

from agent.errors import Malformed, Unavailable
from agent.model import Problem
from agent.text import natural

R = TypeVar("R")
T = TypeVar("T")

PAGE = 4096  # bytes: maximum size of a sysfs attribute (Documentation/filesystems/sysfs.rst)
TABLE = 1 << 20  # bytes: our limit for procfs tables, which have none of their own
NOT_AVAILABLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODATA})
# The errno of `speed` while the netdev is down, and of `ndevs` for an empty GID.
UNSET = frozenset({errno.EINVAL})

# O_NONBLOCK: an open of a FIFO in place of an attribute must not wait for a writer.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Root(Protocol):
    """A tree of kernel files.

    Paths are relative and begin with `sys/` or `proc/`. Every method raises OSError on failure.
    """

    def read(self, path: str, limit: int) -> bytes:
        """Read at most `limit` bytes of a file."""

    def names(self, path: str) -> list[str]:
        """List a directory, in any order."""

    def link(self, path: str) -> str:
        """Read the target of a symbolic link; EINVAL if the path is not a link."""


class LiveRoot:
    """The kernel's /sys and /proc; `sys` and `proc` are their mount points."""

    def __init__(self, sys: str = "/sys", proc: str = "/proc") -> None:
        self._sys = sys
        self._proc = proc

    def read(self, path: str, limit: int) -> bytes:
        fd = os.open(self._absolute(path), OPEN_FLAGS)
        try:
            data = os.read(fd, limit)
            if limit <= PAGE + 1:
                return data  # one read(2) returns a whole sysfs attribute
            # A read(2) of a procfs table returns about a page at a time.
            while data and len(data) < limit:
                chunk = os.read(fd, limit - len(data))
                if not chunk:
                    break
                data += chunk
            return data
        finally:
            os.close(fd)

    def names(self, path: str) -> list[str]:
        return os.listdir(self._absolute(path))

    def link(self, path: str) -> str:
        return os.readlink(self._absolute(path))

    def _absolute(self, path: str) -> str:
        if path.startswith("sys/"):
            return self._sys + path.removeprefix("sys")
        return self._proc + path.removeprefix("proc")


class Reader:
    """Reads the files of one subject and collects `problems`; `source` is the source's name.

    Methods return None for an attribute that does not exist or could not be read. They raise
    Unavailable on ETIMEDOUT, since each further read of that device would time out too.
    """

    def __init__(self, root: Root, source: str, of: Reader | None = None) -> None:
        """Read by `source`; `of` is the reader whose decisive reads the new reader does."""
        self.problems: list[Problem] = of.problems if of else []
        self.undecided: list[str] = of.undecided if of else []  # the decisive reads that failed
        self._root, self._source = root, source
        self._is_decisive = of is not None

    @property
    def decisive(self) -> Reader:
        """The same reader for the reads that decide the role of a port."""
        return Reader(self._root, self._source, self)

    def data(
        self, path: str, limit: int = PAGE, *, quiet: frozenset[int] = frozenset()
    ) -> bytes | None:
        """Read up to `limit` bytes of a file; an errno in `quiet` is not reported."""
        try:
            return self._root.read(path, limit)
        except OSError as error:
            self._failed(path, error, quiet)
            return None

    def text(self, path: str, *, quiet: frozenset[int] = frozenset()) -> str | None:
        """Read an attribute as text without surrounding white space; None if that is empty."""
        return self.parsed(path, self.data(path, PAGE + 1, quiet=quiet), _decode) or None

    def value(
        self, path: str, parse: Callable[[str], T], *, quiet: frozenset[int] = frozenset()
    ) -> T | None:
        """Read an attribute and parse its text.

        An empty file has no value; where it decides, it is malformed unless `parse` accepts it.
        """
        text = self.parsed(path, self.data(path, PAGE + 1, quiet=quiet), _decode)
        return self.parsed(path, text if self._is_decisive else text or None, parse)

    def table(self, path: str, parse: Callable[[str], T]) -> T | None:
        """Read a procfs table and parse it; of a table that is too long, the first lines.

        A line that is not printable UTF-8 is left out: a netdev name may have any bytes but a few,
        and that of one netdev hides no other line.
        """
        data = self.data(path, TABLE)
        if data is None:
            return None
        whole = data if len(data) < TABLE else data[: data.rfind(b"\n") + 1]
        # surrogates do not print
        text = whole.rstrip(b"\n").decode("utf-8", "surrogateescape")
        lines = (line for line in text.split("\n") if line.replace("\t", "").isprintable())
        return self.parsed(path, "\n".join(lines), parse)

    def parsed(self, path: str, raw: R | None, parse: Callable[[R], T]) -> T | None:
        """Parse what was read from `path`; report Malformed."""
        if raw is None:
            return None
        try:
            return parse(raw)
        except Malformed as error:
            self.report(path, str(error))
            if self._is_decisive:
                self.undecided.append(f"/{path} is malformed")
            return None

    def names(self, path: str) -> list[str] | None:
        """List the printable names in a directory, in natural order."""
        try:
            names = self._root.names(path)
        except OSError as error:
            self._failed(path, error)
            return None
        printable = [name for name in names if name.isascii() and name.isprintable()]
        if len(printable) < len(names):
            for name in sorted(set(names).difference(printable)):
                text = f"the name {ascii(name)[:128]} is not printable ASCII; left out"
                self.report(path, text)
        return sorted(printable, key=natural)

    def link(self, path: str) -> str | None:
        """Read the target of a link.

        "" if the path exists but is not a link, as in a copied tree; None if it does not exist.
        """
        try:
            return self._root.link(path)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return ""
            self._failed(path, error)
            return None

    def report(self, path: str, text: str, error: str | None = None) -> None:
        """Add a problem with `path`; `error` is an errno's name."""
        self.problems.append(Problem(self._source, f"/{path}", error, text))

    def _failed(self, path: str, error: OSError, quiet: frozenset[int] = frozenset()) -> None:
        number = error.errno or 0
        if number == errno.ETIMEDOUT:
            raise Unavailable(f"/{path}: timed out in the kernel") from error
        if number not in NOT_AVAILABLE and number not in quiet:
            self.report(path, os.strerror(number), errno.errorcode.get(number))
            if self._is_decisive:
                self.undecided.append(f"/{path} cannot be read")


def _decode(data: bytes) -> str:
    if len(data) > PAGE:
        raise Malformed(f"longer than {PAGE} bytes")
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        raise Malformed("is not UTF-8 text") from None
    if not text.replace("\n", "").replace("\t", "").isprintable():
        raise Malformed("contains unprintable characters")
    return text
