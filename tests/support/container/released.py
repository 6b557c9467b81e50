"""A release made by `python -m release` in a checkout with its tag, from bases in a registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any, NamedTuple

from agent import __version__
from tests.support import registry
from tests.support.container import foreign, image
from tests.support.oras.client import oras

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = "https://example.com/bwagent"
EPOCH = 1_800_000_000
TAG = f"v{__version__}"
INPUT = ("agent", "docs/man", "release", "manifests/image", "Containerfile", "hatch_build.py")
PAPERS = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", ".gitignore")
IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


def checkout(folder: Path) -> Path:
    """Copy what a release reads into a repository, in one commit with the tag of the version."""
    for name in (*INPUT, *PAPERS):
        source, target = image.ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    day = {"GIT_COMMITTER_DATE": f"{EPOCH} +0000", "GIT_AUTHOR_DATE": f"{EPOCH} +0000"}
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one"), ("tag", TAG)):
        command = ["git", *IDENTITY, *words]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, env=os.environ | day)
    return folder


def pushed_bases(folder: Path, address: str) -> str:
    """Push both bases to a registry; return their list's name with its digest."""
    file, name = folder / "digest", f"{address}/python"
    credentials = f"--creds={registry.USER}:{registry.PASSWORD}"
    options = ("--all", "--tls-verify=false", credentials, f"--digestfile={file}")
    image.do("buildah", "manifest", "push", *options, foreign.bases(), f"docker://{name}:1")
    return f"{name}@{file.read_text()}"


class Released(NamedTuple):
    """A folder with the checkout, a registry without TLS, and the base in it."""

    folder: Path
    address: str
    base: str

    def make(self, name: str) -> Path:
        """Run the release with this machine's proxies and credentials; return its folder."""
        dist = self.folder / name
        command = [sys.executable, "-m", "release", "--source", SOURCE, "--dist", str(dist)]
        command += ["--base", self.base]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            cwd=self.folder / "checkout",
            env=os.environ | self._settings(),
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return dist

    def _settings(self) -> dict[str, str]:
        """Return variables that have buildah use the tests' store and reach the registry."""
        host = f'[[registry]]\nlocation = "{self.address}"\ninsecure = true\n'
        volumes = [f"{path}:{path}:ro" for path in image.MOUNTED if os.path.exists(path)]
        files = {
            "CONTAINERS_REGISTRIES_CONF": host,
            "CONTAINERS_CONF": f"[containers]\nvolumes = {json.dumps(volumes)}\n",
            "REGISTRY_AUTH_FILE": json.dumps(registry.credentials(self.address)),
        }
        for name, text in files.items():
            (self.folder / name).write_text(text)
        paths = {name: str(self.folder / name) for name in files}
        storage = str(image.CACHE / "storage.conf")
        return {**paths, "CONTAINERS_STORAGE_CONF": storage, "BUILDAH_ISOLATION": "chroot"}

    def oras(self, *words: str) -> str:
        """Run oras with the registry's credentials."""
        settings = ["--registry-config", str(self.folder / "REGISTRY_AUTH_FILE")]
        return oras(*words, *settings, folder=self.folder)


class Archive:
    """An OCI archive, read by tarfile and json alone."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.files = {
                entry.name: file.read() for entry in tar if (file := tar.extractfile(entry))
            }

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        return self.files[f"blobs/{descriptor['digest'].replace(':', '/')}"]

    def json(self, descriptor: dict[str, Any]) -> Any:
        return json.loads(self.blob(descriptor))

    def listed(self) -> list[dict[str, Any]]:
        """Return the descriptors in index.json."""
        entries = json.loads(self.files["index.json"])["manifests"]
        return list(entries)

    def images(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield architecture and descriptor of each image of the one index."""
        (index,) = [self.json(one) for one in self.listed() if "annotations" in one]
        for one in index["manifests"]:
            yield one["platform"]["architecture"], one
