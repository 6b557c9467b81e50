"""A snapshot as a Host: a folder, a tar (plain, gzip, zstd), or a bare copy of class/infiniband.

sysfs_fixtures/README.md describes the layout. A stranger made the snapshot, so:
- its size and the work to read it are bounded;
- every path and link in it stays inside it;
- a file that does not follow its format refuses the snapshot, with one line that names the file.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.snapshot.files import SnapshotFiles
from agent.snapshot.recorded import load
from agent.snapshot.tree import DiskStore, MemoryStore, Tree
from agent.sysfs.worker import DeviceReaders, InlineWorker
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.snapshot.tree import Store

    Facts = dict[str, Any]

SCHEMA = 1
# Aliases too (EOPNOTSUPP, ENOTSUP), of which errno.errorcode has one.
ERRNOS: dict[str, int] = {
    name: number for name, number in vars(errno).items() if name.startswith("E")
}
BARE = "sys/class/infiniband"
MAX_QUOTE = 128  # characters of a snapshot's text in an error message
MAX_TEXT = 253  # a host name, RFC 1035


def replay(snapshot: str, excluded: tuple[str, ...] = (), backend: tuple[str, ...] = ()) -> Host:
    """Return the Host of a snapshot; `excluded` and `backend` are globs of RDMA devices.

    Raises Malformed for what is no snapshot, Unavailable for one that cannot be read.
    """
    with _named(snapshot):
        store = _store(snapshot)
        notes = _notes(SnapshotFiles(store))
        return Host(
            root=_tree(store, notes.errors),
            excluded=excluded,
            backend=backend,
            readers=DeviceReaders(worker=InlineWorker),
            **_recorded(SnapshotFiles(store), notes),
        )


class _Notes(NamedTuple):
    """The JSON files of a snapshot that are no source's."""

    errors: Facts  # errors.json
    meta: Facts  # meta.json
    host: Facts  # host.json


def _notes(files: SnapshotFiles) -> _Notes:
    notes = _Notes(*(files.json(f"{name}.json") or {} for name in _Notes._fields))
    _require_schema(notes.meta.get("schema", SCHEMA))
    return notes


def _require_schema(schema: object) -> None:
    if schema != SCHEMA:
        raise Malformed(f"meta.json: schema {_quoted(schema)}; this agent reads schema {SCHEMA}")


def _recorded(files: SnapshotFiles, notes: _Notes) -> Facts:
    """Return the fields of a Host that the capture recorded, beside its tree."""
    io = load(files, notes.host)
    when = _first(_time(notes.meta), io.newest(), time.time())
    return {
        "clock": lambda: when,
        "name": _string(notes.host, "host.json", "hostname"),
        "kernel": _string(notes.meta, "meta.json", "kernel"),
        **io.replayed(),
    }


@contextmanager
def _named(snapshot: str) -> Iterator[None]:
    """Start every error message with the path of the snapshot."""
    try:
        yield
    except Malformed as error:
        raise Malformed(f"{snapshot}: {error}") from error
    except Unavailable as error:
        raise Unavailable(f"{snapshot}: {str(error).removeprefix(f'{snapshot}: ')}") from error
    except OSError as error:
        raise Unavailable(f"{snapshot}: {error.strerror or error}") from error


def _tree(store: Store, notes: Facts) -> Tree:
    try:
        return Tree(store, _errnos(notes), _empty(notes))
    except OSError as error:
        raise Malformed(f"errors.json: {_quoted(error.filename)}: {error.strerror}") from error


def _quoted(value: object) -> str:
    return visible(ascii(value), MAX_QUOTE)


def _store(snapshot: str) -> Store:
    mode = os.stat(snapshot).st_mode  # noqa: PTH116 - no import of pathlib for one line
    return _folder(snapshot) if stat.S_ISDIR(mode) else _archive(snapshot)


def _folder(top: str) -> Store:
    if os.path.ismount(f"{top}/sys"):
        raise Malformed("no snapshot: its sys is a mounted file system (bwagent capture copies it)")
    return DiskStore(top, _mount(DiskStore(top)))


def _archive(path: str) -> Store:
    from agent.snapshot.archive import entries  # not for a folder: tarfile slows the start

    members = entries(path)
    mount = _mount(MemoryStore(members))
    return MemoryStore({f"{mount}/{path}".lstrip("/"): data for path, data in members.items()})


def _mount(store: Store) -> str:
    """Return the path of the store's top in a full snapshot: "", "sys", or BARE for a bare copy."""
    if store.kind("sys") == "folder":
        return ""
    if store.kind("class/infiniband") == "folder":
        return "sys"
    names = store.names("")
    if any(store.kind(f"{name}/ports") == "folder" for name in names):
        return BARE
    raise Malformed(f"no snapshot: {_lack({store.kind(name) for name in names})}")


def _lack(kinds: set[str | None]) -> str:
    """Describe a folder that is no snapshot by the kinds of its entries."""
    if kinds == {"link"}:
        return "only links, whose targets are not in it (cp -rL copies the targets)"
    return "neither a sys folder nor the devices of class/infiniband are in it"


def _errnos(notes: Facts) -> dict[str, int]:
    failed = notes.get("errors", {})
    if not isinstance(failed, dict):
        raise Malformed("errors.json: 'errors' is no object")
    return {path: _errno(path, name) for path, name in failed.items()}


def _errno(path: str, name: object) -> int:
    if not isinstance(name, str) or name not in ERRNOS:
        raise Malformed(f"errors.json: {_quoted(path)}: {_quoted(name)} is no errno name")
    return ERRNOS[name]


def _empty(notes: Facts) -> list[str]:
    """Return the paths of the folders that were empty in the capture."""
    found = notes.get("empty", [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise Malformed("errors.json: 'empty' is no list of paths")
    return found


def _string(facts: Facts, file: str, key: str) -> str | None:
    value = facts.get(key)
    if value is not None and not _is_plain(value):
        raise Malformed(f"{file}: {key!r} is no text of at most {MAX_TEXT} printable characters")
    return value or None


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= MAX_TEXT


def _first(*times: float | None) -> float:
    return next(when for when in times if when is not None)


def _time(meta: Facts) -> float | None:
    """Return the time of the capture in seconds since the epoch, if meta.json has it."""
    text = _string(meta, "meta.json", "time")
    return None if text is None else _seconds(text)


def _seconds(text: str) -> float:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise Malformed(
            f"meta.json: time {_quoted(text)} is not of the form 2026-05-04T10:00:00Z"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
