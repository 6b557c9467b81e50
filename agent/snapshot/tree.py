"""A captured file tree as a `Root`: links stay inside the tree, and what the capture could not read fails again.

The kernel is never asked to resolve a path of a snapshot: somebody else made it, and a link in it may point anywhere.
So a `Store` only says what stands at a path all of whose folders are real, and `Tree` walks the links itself.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_LINKS = 40  # on the way to one file, as in the kernel (include/linux/namei.h, MAXSYMLINKS)
MOST_STEPS = 400  # on that way, ".." and the links' own included; sysfs needs about 40


class Store(Protocol):
    """What stands at a path, which holds neither links nor "..". The empty path is the top."""

    def kind(self, path: str) -> str | None:
        """`"file"`, `"folder"`, `"link"`; None: nothing, or nothing that we touch."""

    def read(self, path: str, limit: int) -> bytes:
        """At most `limit` bytes of a file."""

    def names(self, path: str) -> list[str]:
        """The names in a folder."""

    def target(self, path: str) -> str:
        """Where a link points."""


class Tree:
    """A Root over a store, with the errors of `errors.json`: path -> errno, and folders that were empty."""

    def __init__(self, store: Store, errors: Mapping[str, int], empty: Iterable[str] = ()) -> None:
        self._store = store
        self._folders: dict[str, str] = {}
        self._errors = {self.place(path): number for path, number in errors.items()}
        self._empty = {self.place(path) for path in empty}

    def read(self, path: str, limit: int) -> bytes:
        place = self._followed(self._checked(path))
        if self._kind(place) != "file":
            raise _os_error(errno.EISDIR if self._kind(place) else errno.ENOENT, path)
        return self._store.read(place, limit)

    def names(self, path: str) -> list[str]:
        place = self._followed(self._checked(path))
        if place in self._empty:
            return []
        if self._kind(place) != "folder":
            raise _os_error(errno.ENOTDIR if self._kind(place) else errno.ENOENT, path)
        return self._store.names(place)

    def link(self, path: str) -> str:
        place = self._checked(path)
        if self._kind(place) != "link":
            raise _os_error(errno.EINVAL if self._kind(place) else errno.ENOENT, path)
        return self._store.target(place)

    def _checked(self, path: str) -> str:
        """Where `path` is, its last part not followed; raises what the capture met there."""
        place = self.place(path)
        if place in self._errors:
            raise _os_error(self._errors[place], path)
        return place

    def _followed(self, place: str) -> str:
        """Only the last part can still be a link: the folders on the way have been followed."""
        return self.resolve(place) if self._store.kind(place) == "link" else place

    def _kind(self, place: str) -> str | None:
        return "folder" if place in self._empty else self._store.kind(place)

    def place(self, path: str) -> str:
        """Where a path is, its last part not followed."""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self.resolve(folder)
        return _join(self._folders[folder], name)

    def resolve(self, path: str) -> str:
        """Where a path is, every link followed. ELOOP: too many of them, too long a way; EXDEV: one leads outside."""
        place, todo, links, steps = "", path.split("/")[::-1], 0, 0
        while todo:
            part, steps = todo.pop(), steps + 1
            if steps > MOST_STEPS:
                raise _os_error(errno.ELOOP, path)
            if part == "..":
                place = _parent(place, path)
            elif self._store.kind(below := _join(place, part)) == "link" and part not in {"", "."}:
                links += 1
                todo += self._steps(below, links)
            elif part not in {"", "."}:
                place = below
        return place

    def _steps(self, link: str, links: int) -> list[str]:
        target = self._store.target(link)
        if links > MOST_LINKS:
            raise _os_error(errno.ELOOP, link)
        if target.startswith("/"):
            raise _os_error(errno.EXDEV, link)
        return target.split("/")[::-1]


def _parent(place: str, path: str) -> str:
    if not place:
        raise _os_error(errno.EXDEV, path)
    return place.rpartition("/")[0]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class DiskStore:
    """A folder on disk, seen as if it stood at `mount` ("" or, for a bare tree, `sys/class/infiniband`)."""

    def __init__(self, top: str, mount: str = "") -> None:
        self._top = top
        self._mount = mount
        self._kinds: dict[str, str | None] = {}

    def kind(self, path: str) -> str | None:
        if path not in self._kinds:
            self._kinds[path] = self._look(path)
        return self._kinds[path]

    def read(self, path: str, limit: int) -> bytes:
        fd = os.open(self._real(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            return os.read(fd, limit)
        finally:
            os.close(fd)

    def names(self, path: str) -> list[str]:
        if above := _below(self._mount, path):
            return [above.partition("/")[0]]
        return os.listdir(self._real(path))

    def target(self, path: str) -> str:
        return os.readlink(self._real(path))

    def _look(self, path: str) -> str | None:
        if _below(self._mount, path):
            return "folder"
        try:
            mode = os.lstat(self._real(path)).st_mode
        except (OSError, ValueError):
            return None
        return _KINDS.get(stat.S_IFMT(mode))

    def _real(self, path: str) -> str:
        if self._mount and path != self._mount and not path.startswith(f"{self._mount}/"):
            raise _os_error(errno.ENOENT, path)
        return f"{self._top}/{path.removeprefix(self._mount).lstrip('/')}"


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def _below(mount: str, path: str) -> str:
    """The rest of `mount` where `path` is above it: sys/class/infiniband, sys -> class/infiniband."""
    if not mount or path == mount:
        return ""
    return (
        mount
        if not path
        else mount.removeprefix(f"{path}/")
        if mount.startswith(f"{path}/")
        else ""
    )


class MemoryStore:
    """A tree in memory: files are bytes, links are text, folders follow from the paths."""

    def __init__(self, entries: Mapping[str, bytes | str | None]) -> None:
        self._entries = entries
        self._children: dict[str, set[str]] = {"": set()}
        for path in entries:
            self._add(path)

    def kind(self, path: str) -> str | None:
        if path in self._children:
            return "folder"
        entry = self._entries.get(path)
        return None if entry is None else "link" if isinstance(entry, str) else "file"

    def read(self, path: str, limit: int) -> bytes:
        data = self._entries[path]
        return data[:limit] if isinstance(data, bytes) else b""

    def names(self, path: str) -> list[str]:
        return list(self._children[path])

    def target(self, path: str) -> str:
        target = self._entries[path]
        return target if isinstance(target, str) else ""

    def _add(self, path: str) -> None:
        if self._entries[path] is None:
            self._children.setdefault(path, set())
        folder, _, name = path.rpartition("/")
        while name and name not in self._children.setdefault(folder, set()):
            self._children[folder].add(name)
            folder, _, name = folder.rpartition("/")
