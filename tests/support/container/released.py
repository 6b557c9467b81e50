"""A release made by `python -m release` in a checkout, with its tag where the version is that of
one, from bases in a registry.

Its files are kept in the cache, and made anew if one of their inputs has changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from functools import cached_property
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from agent import __version__
from release.version import is_release
from tests.support import registry
from tests.support.checkouts import committed, git
from tests.support.container import foreign, image
from tests.support.real_parts import CACHE_OF_PARTS, go_version, lacks

SOURCE = "https://example.com/bwagent"
INPUT = ("agent", "docs/man", "release", "manifests/image", "Containerfile", "hatch_build.py")
PAPERS = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", ".gitignore")
ORAS = Path(__file__).parents[1] / "oras"
CACHE = CACHE_OF_PARTS / "oras" / go_version(ORAS, "oras.land/oras")


def _oras() -> Path:
    return Path(os.environ.get("ORAS") or CACHE / "oras")


def missing() -> str | None:
    """Return the reason why no release can be made and looked at here; None if it can."""
    there = f"there is no oras in $ORAS, and none in {CACHE}: run {ORAS / 'build.sh'} (with Go)"
    no_oras = None if _oras().is_file() else there
    return image.missing() or lacks("docker-registry") or no_oras


def checkout(folder: Path) -> Path:
    """Copy what a release reads into a repository, in one commit; a release has its tag."""
    for name in (*INPUT, *PAPERS):
        source, target = image.ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    committed(folder)
    if is_release(__version__):
        git(folder, "tag", f"v{__version__}")
    return folder


class Released:
    """Releases of checkouts in a folder, and a registry without TLS that has the base."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        self._configure()

    def dist(self) -> Path:
        """Return the folder of the files of a release."""
        ours = [Path(one).read_text() for one in (__file__, image.__file__, foreign.__file__)]
        tools = sorted(f"{one.name} {one.version}" for one in distributions())
        known = image.digest((*INPUT, *PAPERS), sys.version, *tools, *ours)
        return image.saved(f"dist-{known}", lambda path: shutil.copytree(self.make("dist"), path))

    def make(self, name: str, *, umask: int = 0o022, cached: bool = True) -> Path:
        """Run the release in a checkout and a store of its own; return the folder of its files.

        If `cached`, the layers of the images that other tests built are in its reach.
        """
        source = self.folder / f"{name}-checkout"
        clone = ["git", "clone", "-q", str(self._origin), str(source)]
        subprocess.run(clone, check=True, capture_output=True, umask=umask)
        command = [sys.executable, "-m", "release", "--source", SOURCE, "--base", self.base]
        command += ["--dist", str(self.folder / name)]
        environment = os.environ | self._settings(self.folder / f"{name}-store", cached=cached)
        done = subprocess.run(
            command, check=False, capture_output=True, cwd=source, env=environment, text=True
        )
        assert done.returncode == 0, done.stderr
        return self.folder / name

    def _configure(self) -> None:
        """Write what buildah has to know of the machine's proxies and of the registry."""
        host = f'[[registry]]\nlocation = "{self.address}"\ninsecure = true\n'
        volumes = [f"{path}:{path}:ro" for path in image.MOUNTED if os.path.exists(path)]
        (self.folder / "registries.conf").write_text(host)
        (self.folder / "config.json").write_text(json.dumps(registry.credentials(self.address)))
        (self.folder / "containers.conf").write_text(
            f"[containers]\nvolumes = {json.dumps(volumes)}\n"
        )

    def forget(self) -> None:
        """Remove the stores, of a gigabyte each, and keep the files of the releases."""
        for store in self.folder.glob("*-store"):
            shutil.rmtree(store, ignore_errors=True)

    def _settings(self, store: Path, *, cached: bool) -> dict[str, str]:
        """Return the variables of a build in a store."""
        image.configure(store, others=cached)
        return {
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf"),
            "CONTAINERS_STORAGE_CONF": str(store / "storage.conf"),
            "REGISTRY_AUTH_FILE": str(self.folder / "config.json"),
        }

    @cached_property
    def _origin(self) -> Path:
        return checkout(self.folder / "origin")

    @cached_property
    def base(self) -> str:
        """Push a base for both architectures; return its name with the digest."""
        name = f"{self.address}/python"
        options = ("--tls-verify=false", f"--creds={registry.USER}:{registry.PASSWORD}")
        for number, one in enumerate((image.own_base(), foreign.base())):
            image.do("buildah", "push", "--quiet", *options, one, f"docker://{name}:{number}")
        self.oras("manifest", "index", "create", "--plain-http", f"{name}:both", "0", "1")
        return f"{name}@{self.oras('resolve', '--plain-http', f'{name}:both').strip()}"

    def oras(self, *words: str) -> str:
        """Return the output of oras, a client that shares no code with the release, with the
        registry's credentials.
        """
        environment = os.environ | {"DOCKER_CONFIG": str(self.folder), "NO_PROXY": "127.0.0.1"}
        command = [str(_oras()), *words]
        done = subprocess.run(
            command, check=False, capture_output=True, cwd=self.folder, env=environment, text=True
        )
        assert not done.returncode, done.stderr
        return done.stdout


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
