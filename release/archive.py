"""Tar entries that depend on nothing but the files and the time of the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Callable


def plain(epoch: int) -> Callable[[tarfile.TarInfo], tarfile.TarInfo]:
    """Return the filter of TarFile.add that gives each entry one time, owner and mode."""

    def entry_of(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        is_executable = entry.isdir() or bool(entry.mode & 0o100)
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = epoch, 0, 0, "", ""
        entry.mode = 0o755 if is_executable else 0o644
        return entry

    return entry_of
