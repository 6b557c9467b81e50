"""The archive of an image."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from release.image import pack

EPOCH = 1_800_000_000


def test_the_same_layout_gives_the_same_archive(tmp_path: Path) -> None:
    """Order of creation, modes and times of the files change no byte; all files are in it."""
    archives = []
    for number, names in enumerate([("index.json", "blobs/a"), ("blobs/a", "index.json")]):
        folder = tmp_path / f"layout-{number}"
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
            path.chmod(0o600 + number * 0o44)
            os.utime(path, (number, number))
        archives.append(tmp_path / f"{number}.tar")
        pack(folder, archives[-1], EPOCH)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as tar:
        assert tar.getnames() == ["blobs", "blobs/a", "index.json"]
        assert {entry.mtime for entry in tar} == {EPOCH}
