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
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.snapshot.recordings import load
from agent.snapshot.tree import DiskStore, MemoryStore, SnapshotFiles, Store, Tree
from agent.sysfs.worker import InlineWorker
from agent.text import Json, visible

SCHEMA = 1
# Aliases too (EOPNOTSUPP, ENOTSUP), of which errno.errorcode has one.
ERRNOS: dict[str, int] = {
    name: number for name, number in vars(errno).items() if name.startswith("E")
}
BARE = "sys/class/infiniband"
MAX_QUOTE = 128  # characters of a snapshot's text in an error message
MAX_TEXT = 253  # a host name, RFC 1035


def replay(
    snapshot: str,
    excluded: tuple[str, ...] = (),
    backend: tuple[str, ...] = (),
    *,
    tiers: bool = False,
) -> Host:
    """Return the Host of a snapshot; `excluded` and `backend` are globs of RDMA devices.

    It explores the switches above if `tiers` is set.

    Raises Malformed if it is no snapshot, Unavailable if it cannot be read.
    """
    with _named(snapshot):
        store = _store(snapshot)
        files = SnapshotFiles(store)
        errors, meta, facts = (
            files.json(name) or {} for name in ("errors.json", "meta.json", "host.json")
        )
        if (schema := meta.get("schema", SCHEMA)) != SCHEMA:
            text = f"meta.json: schema {_quoted(schema)}; this agent reads schema {SCHEMA}"
            raise Malformed(text)
        io = load(files, facts)
        captured = _time(meta)
        newest = (at for part in io.values() if (at := part.newest()) is not None)
        when = max(newest, default=time.time()) if captured is None else captured
        host = Host(
            root=_tree(store, errors),
            clock=lambda: when,
            name=_string(facts, "host.json", "hostname"),
            kernel=_string(meta, "meta.json", "kernel"),
            excluded=excluded,
            backend=backend,
            worker=InlineWorker,
        )
        for part in io.values():
            host = part.replayed(host)
        return host if tiers else host._replace(explore=None)


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


def _tree(store: Store, notes: Json) -> Tree:
    """Return the tree with the failed reads and the empty folders of errors.json."""
    failed, empty = notes.get("errors", {}), notes.get("empty", [])
    if not isinstance(failed, dict):
        raise Malformed("errors.json: 'errors' is no object")
    for path, name in failed.items():
        if not isinstance(name, str) or name not in ERRNOS:
            raise Malformed(f"errors.json: {_quoted(path)}: {_quoted(name)} is no errno name")
    if not isinstance(empty, list) or not all(isinstance(item, str) for item in empty):
        raise Malformed("errors.json: 'empty' is no list of paths")
    try:
        return Tree(store, {path: ERRNOS[name] for path, name in failed.items()}, empty)
    except OSError as error:
        raise Malformed(f"errors.json: {_quoted(error.filename)}: {error.strerror}") from error


def _quoted(value: object) -> str:
    return visible(ascii(value), MAX_QUOTE)


def _store(snapshot: str) -> Store:
    if stat.S_ISDIR(os.stat(snapshot).st_mode):  # noqa: PTH116 - no import of pathlib for one line
        if os.path.ismount(f"{snapshot}/sys"):
            raise Malformed(
                "no snapshot: its sys is a mounted file system (bwagent capture copies it)"
            )
        return DiskStore(snapshot, _mount(DiskStore(snapshot)))
    from agent.snapshot.archive import entries  # not for a folder: tarfile slows the start

    members = entries(snapshot)
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
    if {store.kind(name) for name in names} == {"link"}:
        lack = "only links, whose targets are not in it (cp -rL copies the targets)"
    else:
        lack = "neither a sys folder nor the devices of class/infiniband are in it"
    raise Malformed(f"no snapshot: {lack}")


def _string(facts: Json, file: str, key: str) -> str | None:
    value = facts.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_TEXT:
        raise Malformed(f"{file}: {key!r} is no text of at most {MAX_TEXT} printable characters")
    return value or None


def _time(meta: Json) -> float | None:
    """Return the time of the capture in seconds since the epoch, if meta.json has it."""
    text = _string(meta, "meta.json", "time")
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        form = "2026-05-04T10:00:00Z"
        raise Malformed(f"meta.json: time {_quoted(text)} is not of the form {form}") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
