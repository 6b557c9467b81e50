"""`kubectl bwagent` as one file for Python 3.11 or newer, its archive, and krew's manifest of it.

The file is what zipapp makes: `#!/usr/bin/env python3`, then a zip archive of pure Python.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from release.archive import plain
from release.errors import pip_install
from release.parts import python_parts
from release.provenance import sha256
from release.version import tag

if TYPE_CHECKING:
    from release.parts import Part
    from release.provenance import Source

HERE = Path(__file__).parent
PROGRAM = "kubectl-bwagent"
SHEBANG = b"#!/usr/bin/env python3\n"
WHEELS = (
    *("--platform", "manylinux_2_17_x86_64", "--platform", "manylinux_2_28_x86_64"),
    *("--python-version", "3.11", "--implementation", "cp"),
)


def make(wheel: Path, dist: Path, version: str, source: Source) -> tuple[list[Path], list[Part]]:
    """Return the files, and the parts in them."""
    archive, manifest = dist / f"{PROGRAM}-{version}.tar.gz", dist / "bwagent.yaml"
    with tempfile.TemporaryDirectory() as folder:
        tree, program = Path(folder, "tree"), Path(folder, PROGRAM)
        _install(wheel, tree)
        parts = python_parts(tree)
        _zip(tree, program, source.epoch)
        shutil.copy(HERE.parent / "LICENSE", folder)
        _pack([program, Path(folder, "LICENSE")], archive, source.epoch)
    values = {"source": source.repository, "version": tag(version), "archive": archive.name}
    text = Template((HERE / "krew.yaml").read_text())
    manifest.write_text(text.substitute(values, sha256=sha256(archive)))
    return [archive, manifest], parts


def _install(wheel: Path, tree: Path) -> None:
    """Install the wheel and what is pinned, but nothing that is compiled."""
    pip_install(tree, *WHEELS, "--require-hashes", "-r", HERE / "plugin.txt")
    pip_install(tree, *WHEELS, "--no-index", wheel)
    for folder in ("bin", "share"):
        shutil.rmtree(tree / folder, ignore_errors=True)
    for path in tree.rglob("*.so"):
        path.unlink()
    # pip's own records: where the wheel was, what else was installed.
    for path in tree.glob("*.dist-info/*"):
        if path.name in {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}:
            path.unlink()
    shutil.copy(HERE / "plugin_main.py", tree / "__main__.py")


def _zip(tree: Path, program: Path, epoch: int) -> None:
    """Write the program: files in order, with one time and mode."""
    day = time.gmtime(epoch)[:6]
    with program.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(path for path in tree.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(tree).as_posix(), day)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    program.chmod(0o755)


def _pack(files: list[Path], archive: Path, epoch: int) -> None:
    """Write a tar.gz with one time and owner."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in files:
            tar.add(path, path.name, filter=plain(epoch))
