"""The stand-in libibumad, and what is preloaded for ibsim, built from C when a test needs them."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("stand_in_umad.c")


def build(folder: Path) -> str:
    """Build the library and return its path."""
    library = str(folder / "libibumad.so.3")
    compile_library(SOURCE, library)
    return library


def build_preloaded(name: str, folder: Path) -> str:
    """Build a library that is preloaded, once in a folder, and return its path."""
    library = folder / f"{name}.so"
    if not library.exists():
        compile_library(SOURCE.with_name(f"{name}.c"), str(library))
    return str(library)


def compile_library(source: Path, library: str, *flags: str) -> None:
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags]
    subprocess.run([*command, "-o", library, str(source)], check=True, timeout=60)
