"""Repositories of git that a test makes, whatever the configuration of the user is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

COMMITTED = 1_800_000_000  # 2027-01-15: the time of every commit
IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


def git(folder: str | Path, *arguments: str) -> None:
    """Run git in a folder."""
    times = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{COMMITTED} +0900")
    environment = {"PATH": os.environ["PATH"], **times}
    command = ["git", *IDENTITY, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)


def committed(folder: Path) -> Path:
    """Make a repository of a folder: all of its files are in one commit."""
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    return folder
