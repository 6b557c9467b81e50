"""The one reader of kernel files.

Two layers read files. A `Root` gives what the kernel gives: bytes, names, link targets or an OSError. A `Reader` on
top of it owns the only list of errnos that mean "this attribute is not there", bounds every read, and turns every
other failure into a `Problem` and None, so that an odd attribute costs itself and nothing else.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Protocol, TypeVar

from agent.errors import Malformed, Unavailable
from agent.model import Problem, natural

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PAGE = 4096  # a sysfs attribute is at most a page (Documentation/filesystems/sysfs.rst)
TABLE = 1 << 20  # procfs tables and directories have no such limit; this one is ours
NOT_AVAILABLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENODATA})
UNSET = frozenset(
    {errno.EINVAL}
)  # what `speed` of a downed netdev and `ndevs` of an empty GID answer

# O_NONBLOCK: a FIFO put where an attribute should be must not wait for a writer.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Root(Protocol):
    """A tree of kernel files. Paths are relative and begin with `sys/` or `proc/`; every failure is an OSError."""

    def read(self, path: str, limit: int) -> bytes:
        """At most `limit` bytes of a file."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, in any order."""

    def link(self, path: str) -> str:
        """The target of a symbolic link; EINVAL where there is something else."""


class LiveRoot:
    """The kernel's own trees; `sys` may be where a container mounts the host's /sys."""

    def __init__(self, sys: str = "/sys", proc: str = "/proc") -> None:
        self._sys = sys
        self._proc = proc

    def read(self, path: str, limit: int) -> bytes:
        fd = os.open(self._place(path), OPEN_FLAGS)
        try:
            data = os.read(fd, limit)
            # One read is a whole sysfs attribute; a procfs table comes in pieces of up to a page.
            while (
                limit > PAGE + 1
                and data
                and len(data) < limit
                and (more := os.read(fd, limit - len(data)))
            ):
                data += more
            return data
        finally:
            os.close(fd)

    def names(self, path: str) -> list[str]:
        return os.listdir(self._place(path))

    def link(self, path: str) -> str:
        return os.readlink(self._place(path))

    def _place(self, path: str) -> str:
        return self._sys + path[3:] if path.startswith("sys/") else self._proc + path[4:]


class Reader:
    """Reads for one subject; what fails is None here and a `Problem` in `problems`.

    A read that timed out in the kernel raises Unavailable: each further one would cost another minute.
    """

    def __init__(self, root: Root, source: str) -> None:
        self.problems: list[Problem] = []
        self._root = root
        self._source = source

    def data(self, path: str, limit: int = PAGE) -> bytes | None:
        """Up to `limit` bytes of a file."""
        try:
            return self._root.read(path, limit)
        except OSError as error:
            self._failed(path, error)
            return None

    def text(
        self, path: str, limit: int = PAGE, *, quiet: frozenset[int] = frozenset()
    ) -> str | None:
        """The text of a file without surrounding white space; None when it is empty."""
        try:
            return _decode(self._root.read(path, limit + 1), limit)
        except OSError as error:
            self._failed(path, error, quiet)
        except Malformed as error:
            self.report(path, str(error))
        return None

    def value(
        self,
        path: str,
        parse: Callable[[str], T],
        limit: int = PAGE,
        *,
        quiet: frozenset[int] = frozenset(),
    ) -> T | None:
        """What `parse` makes of the text of a file."""
        text = self.text(path, limit, quiet=quiet)
        return self.parsed(path, text, parse)

    def parsed(self, path: str, text: str | None, parse: Callable[[str], T]) -> T | None:
        """What `parse` makes of a text that came from `path`."""
        try:
            return parse(text) if text is not None else None
        except Malformed as error:
            self.report(path, str(error))
            return None

    def names(self, path: str) -> list[str] | None:
        """The printable names in a directory, in natural order."""
        try:
            found = self._root.names(path)
        except OSError as error:
            self._failed(path, error)
            return None
        if not all(map(_is_printable, found)):
            found = [name for name in found if self._is_fit(path, name)]
        return sorted(found, key=natural) if len(found) > 1 else found

    def link(self, path: str) -> str | None:
        """The target of a link; "" where something else stands (in a copied tree); None where nothing does."""
        try:
            return self._root.link(path)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return ""
            self._failed(path, error)
            return None

    def report(self, path: str, text: str, error: str | None = None) -> None:
        """Note a problem with `path`."""
        self.problems.append(Problem(self._source, f"/{path}", error, text))

    def _failed(self, path: str, error: OSError, quiet: frozenset[int] = frozenset()) -> None:
        if error.errno == errno.ETIMEDOUT:
            raise Unavailable(f"/{path}: timed out in the kernel") from error
        if error.errno not in NOT_AVAILABLE and error.errno not in quiet:
            self.report(path, os.strerror(error.errno or 0), errno.errorcode.get(error.errno or 0))

    def _is_fit(self, path: str, name: str) -> bool:
        if not (fit := _is_printable(name)):
            self.report(path, f"the name {ascii(name)[:128]} is not printable ASCII; left out")
        return fit


def _is_printable(name: str) -> bool:
    return name.isascii() and name.isprintable()


def _decode(data: bytes, limit: int) -> str | None:
    if len(data) > limit:
        raise Malformed(f"longer than {limit} bytes")
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        raise Malformed("is not UTF-8 text") from None
    if not text.isprintable() and not text.replace("\n", "").replace("\t", "").isprintable():
        raise Malformed("holds unprintable characters")
    return text or None
