"""Captures a snapshot: every read of one observation, with its result or errno, for a replay.

`RecordingRoot` is a Root that records the results of the Root below it. Another version of the
agent may read more of the node, so a listed folder is recorded with all its links and sub-folders;
files are recorded only if they were read.

A snapshot is written into a new folder, or as a tar archive to a stream: that of `tar -cf` of a
folder (agent/snapshot/archive.py reads it). Nothing is written to a disk for it.
"""

from __future__ import annotations

import errno
import io
import tarfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import IO, Any

import agent
from agent.folder import new_folder
from agent.host import Host
from agent.model import Observation
from agent.snapshot.recordings import PARTS, Recordings, merged
from agent.snapshot.replay import SCHEMA
from agent.snapshot.tree import Content, Contents, MemoryStore, Tree
from agent.sources.counters import read_counters
from agent.sources.observe import observe
from agent.sources.pci import read_paths
from agent.sysfs.reader import Root
from agent.text import as_json, many

README = """\
# Captured by bwagent {agent}

A snapshot of what bwagent read on a node with kernel {kernel}, at {time}.
`bwagent probe --replay .` shows it; `errors.json` lists the reads that failed, and the folders
in which nothing was found or looked for.
"""

TOP = "bwagent-capture"  # the folder in an archive
WRITER = "a capture"
STANDARD_OUTPUT = "standard output"
# A replayed tree (agent/snapshot/tree.py) returns these by itself: no entry, or a broken link.
IMPLIED = frozenset({errno.ENOENT, errno.ELOOP, errno.EXDEV})


@dataclass(slots=True)
class Record:
    """The content of a snapshot; files, links, folders and errors by the path of the read."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)  # errno names
    facts: dict[str, Any] = field(default_factory=dict)  # host.json
    meta: dict[str, Any] = field(default_factory=dict)  # meta.json
    io: Recordings = field(default_factory=dict)  # of what is no file
    unread: list[str] = field(default_factory=list)  # what else was asked for, with the reason

    def copy(self) -> Record:
        """Return a copy while other threads may still record; each dict.copy() is atomic."""
        # errors first: a read that returns now is then recorded as error and file, never as neither
        errors = self.errors.copy()
        files, links, folders = self.files.copy(), self.links.copy(), self.folders.copy()
        return replace(self, files=files, links=links, folders=folders, errors=errors)


class RecordingRoot:
    """A Root that records the results of the Root below it."""

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
        for entry in (f"{path}/{name}" for name in names):
            if not self._note_link(entry):
                with suppress(OSError):
                    self._root.names(entry)
                    self._record.folders.add(entry)
        return names

    def link(self, path: str) -> str:
        self._note_way(path.rpartition("/")[0])
        try:
            self._record.links[path] = self._root.link(path)
        except OSError as error:
            if error.errno == errno.EINVAL:  # in a copied tree a folder replaces the link
                self._record.folders.add(path)
            elif error.errno not in IMPLIED:
                self._record.errors[path] = _errno_name(error)
            raise
        return self._record.links[path]

    @contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """Record the errno of a read; ETIMEDOUT as long as it has not returned."""
        self._note_way(path)
        self._record.errors[path] = "ETIMEDOUT"
        try:
            yield
        except OSError as error:
            if error.errno in IMPLIED:
                self._record.errors.pop(path, None)
            else:
                self._record.errors[path] = _errno_name(error)
            raise
        # removed already if two device threads read one netdev's file at the same time
        self._record.errors.pop(path, None)

    def _note_way(self, path: str) -> None:
        """Record the links among the path and its ancestors: sys/class, sys/class/net."""
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            self._note_link("/".join(parts[:end]))

    def _note_link(self, path: str) -> bool:
        """Record the link at this path; False if there is none."""
        if path in self._record.folders:
            return False
        if path not in self._record.links:
            with suppress(OSError):
                self._record.links[path] = self._root.link(path)
        return path in self._record.links


def _errno_name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "EIO")


def recording(host: Host) -> tuple[Host, Recordings]:
    """Return the host with I/O that is recorded, and the recordings, empty so far."""
    io: Recordings = {}
    for name, part in PARTS.items():
        io[name], host = part.record(host)
    return host, io


def record(
    host: Host, sources: Collection[str] = (), *, modules: bool = False
) -> tuple[Record, Observation]:
    """Observe a host once; return everything that was read, and the observation.

    The transceiver modules are read only if they are asked for.
    """
    recorded_host, io = recording(host)
    live = Record(facts={"hostname": host.name}, io=io)
    recorded_host = recorded_host._replace(root=RecordingRoot(host.root, live))
    observation = observe(recorded_host, sources)
    read_paths(recorded_host, observation.ports)
    read_counters(recorded_host, observation.ports)
    if modules:
        from agent.transceiver.modules import rows

        _, problems = rows(observation, recorded_host.modules)
        live.unread += [f"{problem.subject} ({problem.text})" for problem in problems]
    captured = live.copy()  # a blocked read may return later and still write to `live`
    when = datetime.fromtimestamp(observation.time, UTC)
    captured.meta = {
        "schema": SCHEMA,
        "agent": agent.__version__,
        "kernel": host.kernel,
        "time": when.isoformat().replace("+00:00", "Z"),
        "boot_id": observation.boot_id,
        "anonymized": [],
    }
    return captured, observation


def summary(captured: Record) -> str:
    """Return one line: the number of files and links, and the failed reads."""
    read = f"{many(len(captured.files), 'file')}, {many(len(captured.links), 'link')}"
    failed = [f"/{path} ({error})" for path, error in sorted(captured.errors.items())]
    failed += captured.unread
    return f"{read}; not read: {', '.join(failed)}" if failed else read


def entries(captured: Record) -> Contents:
    """Return the snapshot as path -> bytes of a file, target of a link or None of a folder."""
    links: Contents = {}  # by their real path
    tree = Tree(MemoryStore(links), {})
    for path in sorted(captured.links, key=lambda path: path.count("/")):
        links[tree.place(path)] = captured.links[path]
    contents: Contents = {**links, **merged(part.files() for part in captured.io.values())}
    contents |= {tree.resolve(path): data for path, data in captured.files.items()}
    folders = {tree.resolve(path) for path in captured.folders}
    paths = contents.keys() | folders
    used = {str(above) for path in paths for above in PurePosixPath(path).parents}
    facts = captured.facts | merged(part.facts() for part in captured.io.values())
    notes = {"errors": dict(sorted(captured.errors.items())), "empty": sorted(folders - used)}
    return {
        **contents,
        **dict.fromkeys(folders),
        "errors.json": as_json(notes),
        "host.json": as_json(facts),
        "meta.json": as_json(captured.meta),
        "README.md": README.format(**captured.meta).encode(),
    }


def write_folder(entries: Mapping[str, Content], folder: str) -> None:
    """Write a new folder, as a whole or not at all. Raises Unavailable."""
    with new_folder(folder, WRITER) as draft:
        for above in {path.rpartition("/")[0] for path in entries}:
            (draft / above).mkdir(parents=True, exist_ok=True)
        for path, content in entries.items():
            place = draft / path
            if content is None:
                place.mkdir(exist_ok=True)
            elif isinstance(content, str):
                place.symlink_to(content)
            else:
                place.write_bytes(content)


def write_tar(entries: Mapping[str, Content], stream: IO[bytes], time: float) -> None:
    """Write an archive; `time` is that of its members. Raises OSError."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path, content in sorted(entries.items()):
            member, data = tarfile.TarInfo(f"{TOP}/{path}"), None
            member.mtime, member.mode = int(time), 0o644
            if content is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(content, str):
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, content, 0o777
            else:
                member.size, data = len(content), io.BytesIO(content)
            archive.addfile(member, data)
