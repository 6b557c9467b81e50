"""The revision that this code was built from, and its time.

A wheel, an sdist and the image have the file REVISION beside this module, one line: a revision of
git, `-dirty` behind it if files were changed, and seconds since 1970. A checkout has none, and git
is asked. Code from elsewhere, an archive without git for instance, has no known revision.

Invariant: imports the standard library only, since hatch_build.py runs it before anything is
installed.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FILE = "agent/REVISION"
PATIENCE = 5  # seconds for git, which may wait for a network file system
_LINE = re.compile(r"([0-9a-f]{40,64}(?:-dirty)?) ([0-9]{1,11})\n?")
_SHORT = 12  # digits of a revision for people


class Revision(NamedTuple):
    """A revision of git, and the time of its commit in seconds since 1970."""

    name: str
    time: int

    def __str__(self) -> str:
        """The revision in short and the day: 2fd1c04a9e31, 2026-11-05."""
        digits, _, dirty = self.name.partition("-")
        day = time.strftime("%Y-%m-%d", time.gmtime(self.time))
        return f"{digits[:_SHORT]}{dirty and f'-{dirty}'}, {day}"

    def line(self) -> str:
        """The contents of REVISION."""
        return f"{self.name} {self.time}\n"


def revision(root: Path = ROOT) -> Revision | None:
    """Return the revision of the code below `root`; None if it is unknown."""
    try:
        return parsed(_written(root))
    except (OSError, ValueError, KeyError):
        pass
    # The repository of another project may be above: a home directory under git for instance.
    if not (root / ".git").exists():
        return None
    head = parsed(_git(root, "log", "-1", "--no-show-signature", "--format=%H %ct"))
    if not head:
        return None
    is_dirty = _git(root, "status", "--porcelain", "--untracked-files=no")
    return Revision(f"{head.name}-dirty", head.time) if is_dirty else head


def _written(root: Path) -> str:
    """Return the contents of REVISION; `kubectl bwagent` is a zip archive with a shebang."""
    if not root.is_file():
        return (root / FILE).read_text("ascii")
    from zipfile import ZipFile

    with ZipFile(root) as archive:
        return archive.read(FILE).decode("ascii")


def parsed(line: str) -> Revision | None:
    """Parse the contents of REVISION; None if they are malformed."""
    match = _LINE.fullmatch(line)
    return Revision(match[1], int(match[2])) if match else None


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints; nothing if git is missing, fails or does not return."""
    import subprocess  # a build has the file, and needs no git

    # A hook of git runs with GIT_DIR set, to a repository that need not be this one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        return subprocess.run(  # noqa: S603 - constant arguments
            ["git", "--no-optional-locks", "-C", root, *arguments],  # noqa: S607 - as the user has it
            check=True,
            capture_output=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PATIENCE,
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
