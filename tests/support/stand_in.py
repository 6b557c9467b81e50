"""The stand-in libibumad, built from stand_in_umad.c when a test needs it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("stand_in_umad.c")


def missing() -> str | None:
    """Return the reason why it cannot be built here, or None."""
    return None if shutil.which("cc") else "cc not installed (tests/apt-packages.txt)"


def build(folder: Path) -> str:
    """Build the library and return its path."""
    library = str(folder / "libibumad.so.3")
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return library
