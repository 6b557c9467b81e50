"""The image, built from the Containerfile and run, without a registry.

The base is a Debian 12 built by mmdebstrap, with its Python. The image has a hash of its inputs as
a label, and is built only if they changed, in one process at a time. All layers stay in a store of
their own in the cache, so that a build only repeats what changed; after three days they go.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.real_parts import CACHE_OF_PARTS, lacks

ROOT = Path(__file__).parents[3]
CACHE = CACHE_OF_PARTS / "container"
TAG = "localhost/bwagent:test"
INPUTS = ("Containerfile", "manifests/image", "agent")  # what the build sees
LABEL = "bwagent.test.inputs"
LABELS = f'{{{{index .Labels "{LABEL}"}}}}'
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
    root = None if os.geteuid() == 0 else "building a Debian and running containers need root"
    return lacks(*PROGRAMS) or root


class Image:
    """The built image; `run` starts a container of it and removes it afterwards."""

    def __init__(self) -> None:
        configure(CACHE)
        self.inputs = digest(INPUTS, *BASE, Path(__file__).read_text())
        with locked("image"):
            shown = do("podman", "image", "inspect", f"--format={LABELS}", TAG, check=False).stdout
            if shown.strip() != self.inputs:
                self._build()

    def _build(self) -> None:
        mounts = [f"--volume={path}:{path}:ro" for path in MOUNTED if Path(path).exists()]
        bud(
            *("--layers", "--force-rm", f"--ignorefile={ROOT}/manifests/image/containerignore"),
            *(f"--build-arg=BASE={own_base()}", *mounts, f"--label={LABEL}={self.inputs}"),
            *("-t", TAG, str(ROOT)),
        )
        do("podman", "image", "prune", "--force", f"--filter=until={KEPT}")

    def archive(self, name: str) -> Path:
        """Return an archive of the image under this name, as containerd imports it."""
        return saved(
            f"agent-{digest((), self.inputs, name)}",
            lambda path: do("buildah", "push", "--quiet", TAG, f"docker-archive:{path}:{name}"),
        )

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `bwagent ARGUMENTS` in a container; for the options see `_privileges`."""
        return self._run([TAG, *arguments], **options)

    def python(self, code: str, **options: Any) -> str:
        """Return the output of a program that the image's Python runs in place of bwagent."""
        entry = [
            "/usr/bin/python3",
            "-ISOO",
            "-c",
            f"import sys; sys.path.append('/opt/bwagent')\n{code}",
        ]
        done = self._run([f"--entrypoint={json.dumps(entry)}", TAG], **options)
        assert not done.returncode, done.stderr
        return done.stdout

    def inspect(self) -> dict[str, Any]:
        """Return podman's description of the image."""
        (known,) = json.loads(do("podman", "image", "inspect", TAG).stdout)
        return dict(known)

    def layers(self) -> list[int]:
        """The bytes of each layer, unpacked, the lowest first."""
        said = do("podman", "history", "--format=json", TAG).stdout
        steps = json.loads(said)
        return [step["size"] for step in reversed(steps) if step["size"]]

    @contextmanager
    def file_system(self) -> Iterator[Path]:
        """Give the image's file system as a folder."""
        place = do("podman", "image", "mount", TAG).stdout.strip()
        try:
            yield Path(place)
        finally:
            do("podman", "image", "unmount", TAG)

    def _run(self, what: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        # Its warnings are of cgroups that the machine does not let it write.
        start = ["podman", "--log-level=error", "run", *_privileges(**options)]
        return do(*start, *what, check=False)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Wait until no other process is in such a block."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(names: Iterable[str], *more: str) -> str:
    """Return a hash of files of the checkout, those in folders included, and of more text."""
    found = hashlib.sha256("\0".join(more).encode())
    for top in names:
        for path in sorted([ROOT / top, *(ROOT / top).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                content = path.read_bytes()
                found.update(f"{path.relative_to(ROOT)} {len(content)} ".encode() + content)
    return found.hexdigest()[:12]


def saved(name: str, write: Callable[[Path], object]) -> Path:
    """Return what `write` has made of this name, a kind and a hash, in place of the last one."""
    kind = name.rpartition("-")[0]
    path = CACHE / kind / name
    with locked(kind):
        if not path.exists():
            shutil.rmtree(path.parent, ignore_errors=True)
            path.parent.mkdir()
            write(path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)
    return path


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


def bud(*arguments: str) -> None:
    do("buildah", "bud", "--quiet", "--isolation=chroot", *arguments)


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


def do(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "CONTAINERS_CONF": str(CACHE / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(CACHE / "storage.conf"),
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
