"""A base for another architecture: a Debian that is unpacked and not installed.

None of its programs was started, so its package database is made of the packages themselves.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.support.container.image import CACHE, bud, configure, do

ARCHITECTURE = "arm64"
PLATFORM = f"linux/{ARCHITECTURE}"
RECIPE = (
    *("--variant=extract", f"--architectures={ARCHITECTURE}", "--include=python3"),
    *("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "--skip=cleanup", "bookworm"),
)


def base() -> str:
    """Return the base's name, which has the recipe's hash; build it if the recipe changed."""
    configure(CACHE)
    known = hashlib.sha256(" ".join(RECIPE).encode()).hexdigest()[:12]
    name = f"localhost/bwagent-base-{ARCHITECTURE}:{known}"
    if do("buildah", "images", "-q", name, check=False).returncode:
        with tempfile.TemporaryDirectory() as folder:
            _bootstrap(Path(folder), name)
    return name


def _bootstrap(folder: Path, name: str) -> None:
    tree = folder / "tree"
    do("mmdebstrap", "--quiet", *RECIPE, str(tree))
    for archive in sorted((tree / "var/cache/apt/archives").glob("*.deb")):
        _register(archive, tree / "var/lib/dpkg")
        archive.unlink()
    (folder / "Containerfile").write_text("FROM scratch\nCOPY tree /\n")
    bud(f"--platform={PLATFORM}", "-t", name, str(folder))


def _register(archive: Path, database: Path) -> None:
    """Write the entries that dpkg makes of an installed package."""
    fields = _printed("dpkg-deb", "-f", str(archive)).decode()
    with (database / "status").open("a") as status:
        status.write(f"\n{fields.rstrip()}\nStatus: install ok installed\n")
    known = dict(line.split(": ", 1) for line in fields.splitlines() if ": " in line)
    suffix = f":{ARCHITECTURE}" if known.get("Multi-Arch") == "same" else ""
    content = io.BytesIO(_printed("dpkg-deb", "--fsys-tarfile", str(archive)))
    with tarfile.open(fileobj=content) as files:
        names = [entry.name.removeprefix(".").rstrip("/") or "/." for entry in files]
    listing = database / "info" / f"{known['Package']}{suffix}.list"
    listing.write_text("".join(f"{name}\n" for name in names))


def _printed(*command: str) -> bytes:
    return subprocess.run(command, check=True, capture_output=True).stdout
