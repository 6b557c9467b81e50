"""Write a folder that is complete when it appears, and overwrite nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import Rejected, Unavailable

ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip")


def refuse_existing(target: str, writer: str) -> None:
    """Raise Unavailable if `target` exists; `writer` overwrites nothing."""
    if not target:
        raise Unavailable("'': no name for a folder")
    if os.path.lexists(target):
        raise Unavailable(f"{target}: exists already; {writer} overwrites nothing")


def refuse_archive(target: str) -> None:
    """Raise Rejected if the name of a folder ends as that of an archive does."""
    if target.lower().endswith(ARCHIVES):
        name = Path(target).name.partition(".")[0]
        raise Rejected(
            f"{target}: this would be a folder; for an archive: bwagent capture - >{name}.tar,"
            f" or kubectl bwagent capture NODE {name}.tar"
        )


@contextmanager
def draft_of(target: str, writer: str) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, which must not exist, and remove it at the end.

    There a rename moves no data. An OSError in the block becomes Unavailable.
    """
    refuse_existing(target, writer)
    try:
        parent = Path(target).absolute().parent
        draft = Path(tempfile.mkdtemp(prefix=".bwagent-", dir=parent))
    except OSError as error:
        raise Unavailable(f"{target}: {error.strerror}") from error
    try:
        yield draft
    except OSError as error:
        raise Unavailable(f"{target}: {error.strerror}; nothing was left behind") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # a folder that was renamed is not there


@contextmanager
def new_folder(target: str, writer: str) -> Iterator[Path]:
    """Yield a temporary folder that becomes `target` at the end; see `draft_of`."""
    with draft_of(target, writer) as draft:
        yield draft
        draft.chmod(0o755)
        draft.rename(target)
