"""The image, built from the Containerfile and run, without a registry.

The base is a Debian 12 built by mmdebstrap, with its Python. All layers stay in a store of their
own in the cache, so that a second build only repeats what changed; after three days they go.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.real_parts import CACHE_OF_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[3]
CACHE = CACHE_OF_PARTS / "container"
TAG = "localhost/bwagent:test"
PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap")
BASE = ("--variant=minbase", "--include=python3,python3-pip", "bookworm")
KEPT = "72h"  # layers that no tag needs
PATIENCE = 300  # seconds for the longest step, which downloads
# What a proxy makes of https is trusted and pip finds its index in the build as they do outside.
MOUNTED = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf")
STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{0}/storage"\nrunroot = "{0}/run"\n'
ADDITIONAL = '[storage.options]\nadditionalimagestores = ["{0}/storage"]\n'
# crun, and limits on processes, want a cgroup and a kernel that containers in containers do not
# have.
ENGINE = (
    "[containers]\ndefault_ulimits = []\npids_limit = 0\n"
    '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n'
)


def missing() -> str | None:
    """Return the reason why no image can be built and run here; None if it can."""
    absent = [program for program in PROGRAMS if not shutil.which(program)]
    if absent:
        return f"{', '.join(absent)} not installed (tests/apt-packages.txt)"
    return None if os.geteuid() == 0 else "building a Debian and running containers need root"


class Image:
    """The built image; `run` starts a container of it and removes it afterwards.

    Built from `context` and `base` with more `options` of buildah, and kept in `store`.
    """

    def __init__(
        self, *options: str, base: str = "", context: Path = ROOT, store: Path = CACHE
    ) -> None:
        self.store = store
        configure(store)
        build = [
            "--layers",
            "--force-rm",
            "--ignorefile",
            f"{context}/manifests/image/containerignore",
            "--build-arg",
            f"BASE={base or own_base()}",
        ]
        mounts = [f"--volume={path}:{path}:ro" for path in MOUNTED if Path(path).exists()]
        bud(*build, *mounts, *options, "-t", TAG, str(context), store=store)
        do("podman", "image", "prune", "--force", f"--filter=until={KEPT}", store=store)

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `bwagent ARGUMENTS` in a container; for the options see `_privileges`."""
        return self._run([TAG, *arguments], **options)

    def python(self, code: str, **options: Any) -> str:
        """Return the output of a program that the image's Python runs in place of bwagent."""
        entry = [
            "/usr/bin/python3",
            "-IS",
            "-c",
            f"import sys; sys.path.append('/opt/bwagent')\n{code}",
        ]
        done = self._run([f"--entrypoint={json.dumps(entry)}", TAG], **options)
        assert not done.returncode, done.stderr
        return done.stdout

    def inspect(self) -> dict[str, Any]:
        """Return podman's description of the image."""
        (known,) = json.loads(do("podman", "image", "inspect", TAG, store=self.store).stdout)
        return dict(known)

    def layers(self) -> list[int]:
        """The bytes of each layer, unpacked, the lowest first."""
        said = do("podman", "history", "--format=json", TAG, store=self.store).stdout
        steps = json.loads(said)
        return [step["size"] for step in reversed(steps) if step["size"]]

    @contextmanager
    def file_system(self) -> Iterator[Path]:
        """Give the image's file system as a folder."""
        place = do("podman", "image", "mount", TAG, store=self.store).stdout.strip()
        try:
            yield Path(place)
        finally:
            do("podman", "image", "unmount", TAG, store=self.store)

    def _run(self, what: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        # Its warnings are of cgroups that the machine does not let it write.
        start = ["podman", "--log-level=error", "run", *_privileges(**options)]
        return do(*start, *what, check=False, store=self.store)


def own_base() -> str:
    """Return the local base's name, which has the recipe's hash; build it if the recipe changed."""
    configure(CACHE)
    recipe = " ".join(BASE)
    name = f"localhost/bwagent-base:{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if do("buildah", "images", "-q", name, check=False).returncode:
        with tempfile.TemporaryDirectory() as folder:
            do("mmdebstrap", "--quiet", *BASE, f"{folder}/base.tar")
            Path(folder, "Containerfile").write_text("FROM scratch\nADD base.tar /\n")
            bud("-t", name, folder)
    return name


def bud(*arguments: str, store: Path = CACHE) -> None:
    do("buildah", "bud", "--quiet", "--isolation=chroot", *arguments, store=store)


def configure(store: Path, *, others: bool = True) -> None:
    """Write the configuration of a store; with `others` it reads the images of the cache, too."""
    store.mkdir(parents=True, exist_ok=True)
    more = ADDITIONAL.format(CACHE) if others and store != CACHE else ""
    (store / "storage.conf").write_text(STORAGE.format(store) + more)
    (store / "containers.conf").write_text(ENGINE)


def _privileges(
    user: str = "", add: str = "", mounts: Mapping[Path, str] | None = None
) -> list[str]:
    """Return the flags of a read-only root without capabilities but `add`; `mounts` are
    read-only.
    """
    options = ["--rm", "--network=host", "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"]
    options += [f"--user={user}"] if user else []
    options += [f"--cap-add={add}"] if add else []
    return options + [f"--volume={path}:{place}:ro" for path, place in (mounts or {}).items()]


def do(*command: str, check: bool = True, store: Path = CACHE) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "CONTAINERS_CONF": str(store / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(store / "storage.conf"),
    }
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
    )
    assert not check or not done.returncode, (
        f"{command[:2]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    )
    return done
