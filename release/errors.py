"""The one error of a release, and the starting of programs that may cause it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Refused(Exception):  # noqa: N818 - nothing failed: it says what has to be mended first
    """A release cannot be made; the text is one line that names the subject."""


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Return what a program prints; raises Refused with its last line if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - the programs that a release is made by
            command, check=False, capture_output=True, cwd=cwd, env=env, text=True
        )
    except FileNotFoundError as error:
        raise Refused(f"{command[0]}: not installed") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Refused(f"{' '.join(map(str, command[:3]))}: {said}")
    return done.stdout.strip()


def pip_install(folder: str | Path, *arguments: str | Path) -> None:
    """Install wheels, and nothing that they depend on, into a folder."""
    run(
        *(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"),
        *("--no-compile", "--no-deps", "--only-binary", ":all:", "--target", folder, *arguments),
    )
