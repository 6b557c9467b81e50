"""A captured file tree as a `Root`: reads that failed in the capture fail again with their errno.

The kernel never resolves a path of a snapshot, whose links may point anywhere. A `Store` returns
the entry at a path without links in its folders; `Tree` resolves the links itself and raises EXDEV
for one that leads out of the tree.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from agent.errors import Malformed
from agent.sysfs.reader import TABLE

Content = bytes | str | None  # of a file, target of a link, None of a folder
Contents = dict[str, Content]  # by path

MAX_LINKS = 40  # links in one path, as in the kernel (include/linux/namei.h, MAXSYMLINKS)
MAX_STEPS = 400  # components of one path, those of its links included; sysfs needs about 40

# Errors of reads of an entry of another kind.
_WRONG_KIND = {"file": errno.EISDIR, "folder": errno.ENOTDIR, "link": errno.EINVAL}


class Store(Protocol):
    """The entries of a tree, by paths without links and "..". The empty path is the root."""

    def kind(self, path: str) -> str | None:
        """Return "file", "folder" or "link"; None for any other entry and for none."""

    def read(self, path: str, limit: int) -> bytes:
        """Return at most `limit` bytes of a file."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, in any order."""

    def target(self, path: str) -> str:
        """Return the target of a link."""


class Tree:
    """A Root over a store, with the errors (path -> errno) and empty folders of errors.json."""

    def __init__(self, store: Store, errors: Mapping[str, int], empty: Iterable[str] = ()) -> None:
        self._store = store
        self._folders: dict[str, str] = {}
        self._errors = {self.place(path): number for path, number in errors.items()}
        self._empty = {self.place(path) for path in empty}

    def read(self, path: str, limit: int) -> bytes:
        return self._store.read(self._entry("file", path), limit)

    def names(self, path: str) -> list[str]:
        place = self._entry("folder", path)
        return [] if place in self._empty else self._store.names(place)

    def link(self, path: str) -> str:
        place = self._checked(path)
        _require("link", self._kind(place), path)
        return self._store.target(place)

    def _entry(self, kind: str, path: str) -> str:
        """Return the place of a file or folder; raises the kernel's OSError for anything else."""
        place = self._checked(path)
        actual = self._kind(place)
        if actual == "link":  # no other component can be a link
            place = self.resolve(place)
            actual = self._kind(place)
        _require(kind, actual, path)
        return place

    def _kind(self, place: str) -> str | None:
        return "folder" if place in self._empty else self._store.kind(place)

    def _checked(self, path: str) -> str:
        """Return `place(path)`, or raise the error that the capture recorded there."""
        place = self.place(path)
        if place in self._errors:
            raise _os_error(self._errors[place], path)
        return place

    def place(self, path: str) -> str:
        """Return the path with the links in its folders resolved, but not its last component."""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self.resolve(folder)
        return _join(self._folders[folder], name)

    def resolve(self, path: str) -> str:
        """Return the path with every link resolved.

        Raises OSError: ELOOP beyond MAX_LINKS or MAX_STEPS, EXDEV for a link out of the tree.
        """
        place, todo, links, steps = "", path.split("/")[::-1], 0, 0
        while todo:
            part, steps = todo.pop(), steps + 1
            if steps > MAX_STEPS:
                raise _os_error(errno.ELOOP, path)
            if part == "..":
                if not place:
                    raise _os_error(errno.EXDEV, path)
                place = place.rpartition("/")[0]
            elif part in {"", "."}:
                continue
            elif self._store.kind(below := _join(place, part)) == "link":
                links += 1
                target = self._store.target(below)
                if links > MAX_LINKS:
                    raise _os_error(errno.ELOOP, below)
                if target.startswith("/"):
                    raise _os_error(errno.EXDEV, below)
                todo += target.split("/")[::-1]
            else:
                place = below
        return place


def _require(kind: str, actual: str | None, path: str) -> None:
    if actual != kind:
        raise _os_error(_WRONG_KIND[kind] if actual else errno.ENOENT, path)


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class DiskStore:
    """A folder on disk, mounted at `mount`: "", or "sys/class/infiniband" for a bare tree."""

    def __init__(self, top: str, mount: str = "") -> None:
        self._top = top
        self._mount = mount
        self._kinds: dict[str, str | None] = {}

    def kind(self, path: str) -> str | None:
        if path not in self._kinds:
            try:
                is_above_mount = bool(_below(self._mount, path))
                mode = stat.S_IFDIR if is_above_mount else os.lstat(self._real(path)).st_mode
                self._kinds[path] = _KINDS.get(stat.S_IFMT(mode))
            except (OSError, ValueError):
                self._kinds[path] = None
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

    def _real(self, path: str) -> str:
        if self._mount and path != self._mount and not path.startswith(f"{self._mount}/"):
            raise _os_error(errno.ENOENT, path)
        return f"{self._top}/{path.removeprefix(self._mount).lstrip('/')}"


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


def _below(mount: str, path: str) -> str:
    """Return the part of `mount` below `path`, or "": "sys/class", "sys" -> "class"."""
    if not path:
        return mount
    return mount.removeprefix(f"{path}/") if mount.startswith(f"{path}/") else ""


class MemoryStore:
    """A tree in memory: path -> bytes of a file, text of a link, None of a folder."""

    def __init__(self, entries: Mapping[str, Content]) -> None:
        self._entries = entries
        self._children: dict[str, set[str]] = {"": set()}
        for path, content in entries.items():
            if content is None:
                self._children.setdefault(path, set())
            folder, _, name = path.rpartition("/")
            while name and name not in self._children.setdefault(folder, set()):
                self._children[folder].add(name)
                folder, _, name = folder.rpartition("/")

    def kind(self, path: str) -> str | None:
        if path in self._children:
            return "folder"
        content = self._entries.get(path)
        return None if content is None else "link" if isinstance(content, str) else "file"

    def read(self, path: str, limit: int) -> bytes:
        data = self._entries[path]
        return data[:limit] if isinstance(data, bytes) else b""

    def names(self, path: str) -> list[str]:
        return list(self._children[path])

    def target(self, path: str) -> str:
        target = self._entries[path]
        return target if isinstance(target, str) else ""


class SnapshotFiles:
    """The files beside `sys` and `proc`; links are not followed, and every read has a limit."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def has_folder(self, path: str) -> bool:
        """Return True if there is a folder at this path."""
        return self._store.kind(path) == "folder"

    def has_file(self, path: str) -> bool:
        """Return True if there is a regular file at this path."""
        return self._store.kind(path) == "file"

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the regular files in a folder; none if there is no folder."""
        names = sorted(self._store.names(folder)) if self.has_folder(folder) else []
        return [name for name in names if self._store.kind(f"{folder}/{name}") == "file"]

    def read(self, path: str, limit: int = TABLE) -> bytes:
        """Return the content of a file; raise Malformed beyond `limit` bytes."""
        data = self._store.read(path, limit + 1)
        if len(data) > limit:
            raise Malformed(f"{path}: longer than {limit} bytes")
        return data

    def json(self, path: str) -> dict[str, Any] | None:
        """Return a JSON object, None if there is no file; raise Malformed for anything else."""
        if self._store.kind(path) != "file":
            return None
        try:
            value = json.loads(self.read(path))
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{path}: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Malformed(f"{path}: not a JSON object")
        return value
