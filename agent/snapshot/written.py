"""Writes a snapshot: into a new folder, or as a tar archive to a stream.

Entries are path -> bytes of a file, text of a link or None of a folder. An archive is that of
`tar -cf` of a folder (agent/snapshot/archive.py reads it); nothing is written to a disk for it.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from agent.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Entry = bytes | str | None
    Entries = dict[str, Entry]

TOP = "bwagent-capture"  # the folder in an archive


def refuse_existing(path: str) -> None:
    """Raise Unavailable if `path` exists: a capture overwrites nothing."""
    if not path:
        raise Unavailable("'': no name for a folder")
    if os.path.lexists(path):
        raise Unavailable(f"{path}: exists already; a capture overwrites nothing")


def write_folder(entries: Mapping[str, Entry], folder: str) -> None:
    """Write atomically: into a temporary folder, then renamed. Raises Unavailable."""
    with draft_of(folder) as draft:
        for path, entry in entries.items():
            _write(draft / path, entry)
        draft.chmod(0o755)
        draft.rename(Path(folder))


@contextmanager
def draft_of(target: str) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, which must not exist, and remove it at the end.

    There a rename moves no data. An OSError in the block becomes Unavailable.
    """
    refuse_existing(target)
    draft = _draft(target)
    try:
        yield draft
    except OSError as error:
        raise Unavailable(f"{target}: {error.strerror}; nothing was left behind") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # a folder that was renamed is not there


def _draft(target: str) -> Path:
    try:
        return Path(
            tempfile.mkdtemp(prefix=".bwagent-capture.", dir=Path(target).absolute().parent)
        )
    except OSError as error:
        raise Unavailable(f"{target}: {error.strerror}") from error


def _write(path: Path, entry: Entry) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry is None:
        path.mkdir(exist_ok=True)
    elif isinstance(entry, str):
        path.symlink_to(entry)
    else:
        path.write_bytes(entry)


def write_tar(entries: Mapping[str, Entry], stream: IO[bytes], time: float) -> None:
    """Write an archive; `time` is that of its members. Raises OSError."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for path, entry in sorted(entries.items()):
            archive.addfile(*_member(f"{TOP}/{path}", entry, time))


def _member(name: str, entry: Entry, time: float) -> tuple[tarfile.TarInfo, IO[bytes] | None]:
    member = tarfile.TarInfo(name)
    member.mtime, member.mode = int(time), 0o644
    if entry is None:
        member.type, member.mode = tarfile.DIRTYPE, 0o755
    elif isinstance(entry, str):
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry, 0o777
    else:
        member.size = len(entry)
        return member, io.BytesIO(entry)
    return member, None
