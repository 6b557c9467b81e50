"""A snapshot as a Host: a folder, a tar (plain, gzip, zstd), or only a tree of class/infiniband that somebody copied.

The layout is in sysfs_fixtures/README.md. A snapshot comes from a stranger: what it may cost is bounded, what it may
name lies inside it, and what is no snapshot is refused as a whole, with one line that says why.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.snapshot.recorded import load
from agent.snapshot.tree import DiskStore, MemoryStore, Tree
from agent.sysfs.reader import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.snapshot.tree import Store

SCHEMA = 1
BARE = "sys/class/infiniband"
LONGEST_QUOTE = 128
LONGEST_TEXT = 253  # a host name, RFC 1035


def replay(snapshot: str, excluded: tuple[str, ...] = (), backend: tuple[str, ...] = ()) -> Host:
    """The host that a snapshot was taken of. Malformed or Unavailable: it is none, in words."""
    with _named(snapshot):
        store = _store(snapshot)
        notes = _json(store, "errors.json")
        meta = _json(store, "meta.json")
        facts = _json(store, "host.json")
        if meta.get("schema", SCHEMA) != SCHEMA:
            raise Malformed(
                f"meta.json: schema {_brief(meta['schema'])}; this agent reads schema {SCHEMA}"
            )
        doors = load(store, facts.get("private_flags", {}))
        when = _first(_time(meta), doors.newest(), time.time())
        return Host(
            root=_tree(store, notes),
            clock=lambda: when,
            name=_string(facts, "host.json", "hostname"),
            kernel=_string(meta, "meta.json", "kernel"),
            excluded=excluded,
            backend=backend,
            frames=doors.frames if doors.listened else None,
            private_flags=doors.private_flags,
            ask_smp=doors.ask_smp,
            gpus=doors.gpus,
        )


@contextmanager
def _named(snapshot: str) -> Iterator[None]:
    """Every error says which snapshot it is about."""
    try:
        yield
    except Malformed as error:
        raise Malformed(f"{snapshot}: {error}") from error
    except Unavailable as error:
        raise Unavailable(f"{snapshot}: {str(error).removeprefix(f'{snapshot}: ')}") from error
    except OSError as error:
        raise Unavailable(f"{snapshot}: {error.strerror or error}") from error


def _tree(store: Store, notes: dict[str, Any]) -> Tree:
    try:
        return Tree(store, _errnos(notes), _strings(notes, "empty"))
    except OSError as error:
        raise Malformed(f"errors.json: {_brief(error.filename)}: {error.strerror}") from error


def _brief(value: object) -> str:
    """A stranger's value for one line of text."""
    text = ascii(value)
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}..."


def _store(snapshot: str) -> Store:
    if stat.S_ISDIR(os.stat(snapshot).st_mode):  # noqa: PTH116 - pathlib would be loaded for this line alone
        return DiskStore(snapshot, _mount(DiskStore(snapshot)))
    from agent.snapshot.archive import entries  # a folder, the usual case, needs no tarfile

    members = entries(snapshot)
    mount = _mount(MemoryStore(members))
    return MemoryStore({f"{mount}/{path}".lstrip("/"): data for path, data in members.items()})


def _mount(store: Store) -> str:
    """Where in a full snapshot the top of `store` belongs: "", or `sys`, or the class folder of a bare tree."""
    if store.kind("sys") == "folder":
        return ""
    if store.kind("class/infiniband") == "folder":
        return "sys"
    names = store.names("")
    if any(store.kind(f"{name}/ports") == "folder" for name in names):
        return BARE
    if any(store.kind(name) == "link" for name in names):
        raise Malformed(
            "no snapshot: only links, which were copied without what they lead to (cp -rL follows them)"
        )
    raise Malformed(
        "no snapshot: neither a sys folder nor the devices of class/infiniband are in it"
    )


def _json(store: Store, name: str) -> dict[str, Any]:
    if store.kind(name) != "file":
        return {}
    data = store.read(name, TABLE + 1)
    try:
        value = json.loads(data) if len(data) <= TABLE else None
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{name}: no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed(f"{name}: no JSON object of at most {TABLE} bytes")
    return value


def _errnos(notes: dict[str, Any]) -> dict[str, int]:
    numbers = {name: number for number, name in errno.errorcode.items()}
    failed = notes.get("errors", {})
    if not isinstance(failed, dict):
        raise Malformed("errors.json: 'errors' is no object")
    for path, name in failed.items():
        if not isinstance(name, str) or name not in numbers:
            raise Malformed(f"errors.json: {_brief(path)}: {_brief(name)} is no errno name")
    return {path: numbers[name] for path, name in failed.items()}


def _strings(notes: dict[str, Any], key: str) -> list[str]:
    found = notes.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise Malformed(f"errors.json: {key!r} is no list of paths")
    return found


def _string(facts: dict[str, Any], file: str, key: str) -> str | None:
    value = facts.get(key)
    if value is not None and not (
        isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_TEXT
    ):
        raise Malformed(
            f"{file}: {key!r} is no text of at most {LONGEST_TEXT} printable characters"
        )
    return value or None


def _first(*times: float | None) -> float:
    return next(when for when in times if when is not None)


def _time(meta: dict[str, Any]) -> float | None:
    """The capture's now, where it says."""
    text = _string(meta, "meta.json", "time")
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise Malformed(
            f"meta.json: time {_brief(text)} is not of the form 2026-05-04T10:00:00Z"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
