"""oras, a client of OCI artifacts that shares no code with the release."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.real_parts import CACHE_OF_PARTS, go_version

HERE = Path(__file__).parent
VERSION = go_version(HERE, "oras.land/oras")
CACHE = CACHE_OF_PARTS / "oras" / VERSION


def _program() -> Path:
    return Path(os.environ.get("ORAS") or CACHE / "oras")


def missing() -> str | None:
    """Return the reason why there is no oras here; None if there is one."""
    if _program().is_file():
        return None
    return f"there is no oras in $ORAS, and none in {CACHE}: run {HERE / 'build.sh'} (with Go)"


def oras(*arguments: str, folder: Path) -> str:
    """Return oras' output; it runs in a folder, whose config.json has credentials."""
    environment = os.environ | {"DOCKER_CONFIG": str(folder), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [str(_program()), *arguments],
        check=False,
        capture_output=True,
        cwd=folder,
        env=environment,
        text=True,
    )
    assert not done.returncode, done.stderr
    return done.stdout
