"""A Debian of another architecture, unpacked but not installed: none of its programs was started.

Its package database, which dpkg would have written, is made of the packages themselves.
"""

from __future__ import annotations

import subprocess
import tarfile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ARCHITECTURE = "arm64"
HOOKS = "/usr/share/mmdebstrap/hooks/merged-usr"
RECIPE = (
    *("--variant=extract", f"--architectures={ARCHITECTURE}", "--include=python3"),
    *(f"--hook-dir={HOOKS}", "--skip=cleanup", "bookworm"),
)


def register(tree: Path) -> None:
    """Write the database of the packages whose archives lie in the tree, and remove those."""
    database = tree / "var/lib/dpkg"
    with (database / "status").open("a") as status:
        for archive in sorted((tree / "var/cache/apt/archives").glob("*.deb")):
            fields = _printed("dpkg-deb", "-f", str(archive))
            status.write(f"\n{fields.rstrip()}\nStatus: install ok installed\n")
            known = dict(line.split(": ", 1) for line in fields.splitlines() if ": " in line)
            suffix = f":{ARCHITECTURE}" if known.get("Multi-Arch") == "same" else ""
            listing = database / "info" / f"{known['Package']}{suffix}.list"
            listing.write_text("".join(f"{name}\n" for name in _names(archive)))
            archive.unlink()


def _printed(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _names(archive: Path) -> list[str]:
    """Return the absolute paths of a package's files."""
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as packed:
        with tarfile.open(fileobj=_stream(packed), mode="r|") as files:
            return [entry.name.removeprefix(".").rstrip("/") or "/." for entry in files]


def _stream(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout
    return process.stdout
