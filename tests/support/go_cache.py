"""The cache of what the scripts make that source go.sh."""

from __future__ import annotations

import subprocess
from pathlib import Path


def pretend(script: Path, folder: Path, *names: str) -> None:
    """Put empty files into a folder of the cache, as if the script had made them."""
    command = ["sh", "-c", ". ../go.sh; key", script.name]
    key = subprocess.run(command, cwd=script.parent, check=True, capture_output=True).stdout
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
        (folder / f".{name}.key").write_bytes(key)
