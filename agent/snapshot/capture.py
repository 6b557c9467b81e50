"""A snapshot of this node: what was really read while observing it, errors included, so that a replay sees the same.

`Recorder` is a Root that remembers every answer of the Root below it. Reads of the same node by another version of
the agent may ask for more, so folders are remembered with all their links and sub-folders; of plain files only those
that were read.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agent
from agent.errors import Unavailable
from agent.snapshot.recorded import Doors, recording, save
from agent.snapshot.replay import SCHEMA
from agent.snapshot.tree import Tree
from agent.sources.observe import observe
from agent.sysfs.worker import DeviceReaders

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agent.host import Host
    from agent.model import Observation
    from agent.sysfs.reader import Root

README = """\
# Captured by bwagent {agent}

A snapshot of what bwagent read on a node with kernel {kernel}, at {time}.
`bwagent probe --replay .` shows it; `errors.json` lists the reads that failed, and the folders in which nothing was
found or looked for.
"""


# A tree answers these by itself: nothing is there, or the links on the way (which are remembered) lead nowhere.
UNSAID = frozenset({errno.ENOENT, errno.ELOOP, errno.EXDEV})


@dataclass(slots=True)
class Record:
    """What was read, by the path that was asked for: files, links, folders, and errnos by name."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # host.json
    meta: dict[str, Any] = field(default_factory=dict)  # meta.json
    doors: Doors = field(default_factory=Doors)  # lldp/, smp/

    def copy(self) -> Record:
        """The record as it is now; each copy below is one step for other threads."""
        errors = (
            self.errors.copy()
        )  # first: what is answered meanwhile is then an error and a file, never neither
        return Record(
            self.files.copy(), self.links.copy(), self.folders.copy(), errors, self.facts, self.meta
        )


class Recorder:
    """A Root that writes down what the Root below it answers."""

    def __init__(self, root: Root, record: Record) -> None:
        self._root = root
        self._record = record

    def read(self, path: str, limit: int) -> bytes:
        with self._noting(path):
            self._record.files[path] = self._root.read(path, limit)
        return self._record.files[path]

    def names(self, path: str) -> list[str]:
        with self._noting(path):
            names = self._root.names(path)
        self._record.folders.add(path)
        for name in names:
            self._note_entry(f"{path}/{name}")
        return names

    def link(self, path: str) -> str:
        self._note_way(path.rpartition("/")[0])
        try:
            self._record.links[path] = self._root.link(path)
        except OSError as error:
            self._note_no_link(path, error.errno or 0)
            raise
        return self._record.links[path]

    def _note_no_link(self, path: str, number: int) -> None:
        if number == errno.EINVAL:  # a copied tree has a folder there
            self._record.folders.add(path)
        elif number not in UNSAID:
            self._record.errors[path] = errno.errorcode.get(number, "EIO")

    @contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """Until it answers, a read has timed out: a snapshot that is written meanwhile says so."""
        self._note_way(path)
        self._record.errors[path] = "ETIMEDOUT"
        try:
            yield
        except OSError as error:
            self._record.errors[path] = errno.errorcode.get(error.errno or 0, "EIO")
            if error.errno in UNSAID:
                self._record.errors.pop(path, None)
            raise
        self._record.errors.pop(
            path, None
        )  # gone already when two devices asked for a netdev's file at once

    def _note_way(self, path: str) -> None:
        """Remember the links on the way to a path, itself included."""
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            self._note_link("/".join(parts[:end]))

    def _note_entry(self, path: str) -> None:
        if not self._note_link(path):
            try:
                self._root.names(path)
            except OSError:
                return
            self._record.folders.add(path)

    def _note_link(self, path: str) -> bool:
        if path in self._record.folders:
            return False
        if path not in self._record.links:
            try:
                self._record.links[path] = self._root.link(path)
            except OSError:
                return False
        return True


def record(host: Host, sources: Collection[str] = ()) -> tuple[Record, Observation]:
    """Observe a host and remember everything that was read."""
    growing = Record(facts={"hostname": host.name})
    listening, doors = recording(host)
    recorder = Recorder(host.root, growing)
    # New readers: those of the host may have facts already, and would not read them again.
    observation = observe(replace(listening, root=recorder, readers=DeviceReaders()), sources)
    journal = (
        growing.copy()
    )  # a read that blocked may go on, and add to what is about to be written
    journal.doors = doors
    journal.facts["private_flags"] = doors.flags
    when = datetime.fromtimestamp(observation.time, UTC)
    journal.meta = {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "kernel": host.kernel,
        "time": when.isoformat().replace("+00:00", "Z"),
        "boot_id": observation.boot_id,
        "anonymized": [],
    }
    return journal, observation


def summary(journal: Record) -> str:
    """What a record holds, in a line; the reads that failed by name."""
    text = f"{len(journal.files)} files, {len(journal.links)} links"
    failed = ", ".join(f"/{path} ({error})" for path, error in sorted(journal.errors.items()))
    parts = (text, f"not read: {failed}" if failed else "", journal.doors.left_out or "")
    return "; ".join(filter(None, parts))


def refuse_existing(folder: str) -> None:
    """Unavailable where something stands already: a capture overwrites nothing."""
    if not folder:
        raise Unavailable("'': no name for a folder")
    if os.path.lexists(folder):
        raise Unavailable(f"{folder}: exists already; a capture overwrites nothing")


def write(journal: Record, folder: str) -> None:
    """Write a snapshot; all of it or, when something goes wrong, nothing. Unavailable: why not."""
    refuse_existing(folder)
    place = Path(folder).absolute()
    try:
        draft = Path(tempfile.mkdtemp(prefix=".bwagent-capture.", dir=place.parent))
    except OSError as error:
        raise Unavailable(f"{folder}: {error.strerror}") from error
    try:
        _fill(draft, journal)
        draft.chmod(0o755)
        draft.rename(place)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise Unavailable(f"{folder}: {error.strerror}; nothing was left behind") from error


def _fill(draft: Path, journal: Record) -> None:
    links, places = _places(journal)
    save(journal.doors, draft)
    for path, target in links.items():
        _with_parent(draft / path).symlink_to(target)
    for path, data in journal.files.items():
        _with_parent(draft / places[path]).write_bytes(data)
    for path in journal.folders:
        (draft / places[path]).mkdir(parents=True, exist_ok=True)
    empty = sorted(
        {places[path] for path in journal.folders if not os.listdir(draft / places[path])}
    )
    notes = {"errors": dict(sorted(journal.errors.items())), "empty": empty}
    for name, content in (
        ("errors.json", notes),
        ("host.json", journal.facts),
        ("meta.json", journal.meta),
    ):
        (draft / name).write_text(json.dumps(content, indent=2) + "\n")
    (draft / "README.md").write_text(README.format(**journal.meta))


def _with_parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _places(journal: Record) -> tuple[dict[str, str], dict[str, str]]:
    """The links by where in the snapshot they stand, and where every other path is once they are followed."""
    links = _Links()
    tree = Tree(links, {})
    for path in sorted(journal.links, key=lambda path: path.count("/")):
        links[tree.place(path)] = journal.links[path]
    return links, {path: tree.resolve(path) for path in (*journal.files, *journal.folders)}


class _Links(dict[str, str]):
    """A store of nothing but links."""

    def kind(self, path: str) -> str | None:
        return "link" if path in self else None

    def target(self, path: str) -> str:
        return self[path]

    def read(self, path: str, limit: int) -> bytes:  # noqa: ARG002 - the Store protocol's
        raise FileNotFoundError(path)

    def names(self, path: str) -> list[str]:
        raise FileNotFoundError(path)
