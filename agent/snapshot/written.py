"""Writes a snapshot: into a new folder, or as a tar archive to a stream.

Entries are path -> bytes of a file, text of a link or None of a folder. An archive is that of
`tar -cf` of a folder (agent/snapshot/archive.py reads it); nothing is written to a disk for it.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from typing import IO

from agent.folder import new_folder
from agent.snapshot.tree import Entry

TOP = "bwagent-capture"  # the folder in an archive
WRITER = "a capture"


def write_folder(entries: Mapping[str, Entry], folder: str) -> None:
    """Write a new folder, as a whole or not at all. Raises Unavailable."""
    with new_folder(folder, WRITER) as draft:
        for path, entry in entries.items():
            place = draft / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry is None:
                place.mkdir(exist_ok=True)
            elif isinstance(entry, str):
                place.symlink_to(entry)
            else:
                place.write_bytes(entry)


def write_tar(entries: Mapping[str, Entry], stream: IO[bytes], time: float) -> None:
    """Write an archive; `time` is that of its members. Raises OSError."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path, entry in sorted(entries.items()):
            member, data = tarfile.TarInfo(f"{TOP}/{path}"), None
            member.mtime, member.mode = int(time), 0o644
            if entry is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(entry, str):
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry, 0o777
            else:
                member.size, data = len(entry), io.BytesIO(entry)
            archive.addfile(member, data)
