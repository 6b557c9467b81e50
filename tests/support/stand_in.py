"""The stand-in libibumad and a refusal of queue pair 0, built from C when a test needs them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("stand_in_umad.c")

NO_QP0 = SOURCE.with_name("no_qp0.c")


def missing() -> str | None:
    """Return the reason why it cannot be built here, or None."""
    return None if shutil.which("cc") else "cc not installed (tests/apt-packages.txt)"


def build(folder: Path) -> str:
    """Build the library and return its path."""
    library = str(folder / "libibumad.so.3")
    _compile(SOURCE, library)
    return library


def build_no_qp0(folder: Path) -> str:
    """Build the library that is preloaded to refuse SMPs, and return its path."""
    library = str(folder / "no_qp0.so")
    _compile(NO_QP0, library)
    return library


def _compile(source: Path, library: str) -> None:
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, str(source)]
    subprocess.run(command, check=True, timeout=60)
