"""The image of a release: built and written by buildah, its file system listed."""

from __future__ import annotations

import os
import re
import tarfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from release.archive import plain
from release.errors import Refused, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from release.provenance import Source


# By the machine's name in uname(2).
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def checked_base(base: str | None) -> str:
    """Return the base; raises Refused if it is not named by its digest, since tags move."""
    if not base or not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", base):
        raise Refused(f"--base {base or 'missing'}: name it by its digest, NAME@sha256:...")
    return base


def build(root: Path, tag: str, platform: str, source: Source, arguments: dict[str, str]) -> None:
    """Build the image `tag` from the checkout `root`; raises Refused if it could not be listed.

    Nothing comes from the layers of builds before: those have the times of their own builds and
    the Debian packages of their days, and buildah takes one whose labels have other values, as the
    text `LABEL x=$Y` is the same. `--layers` keeps the layers apart, which would be one otherwise.
    """
    if os.geteuid():
        raise Refused("only root can mount the image to list its files: try buildah unshare")
    known = {
        "REVISION": source.commit,
        "SOURCE_DATE_EPOCH": str(source.epoch),
        "CREATED": f"{datetime.fromtimestamp(source.epoch, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "SOURCE": source.repository,
        "BUILDPLATFORM": f"linux/{own_architecture()}",  # buildah 1.28 has no own
        **arguments,
    }
    run(
        *("buildah", "bud", "--quiet", "--no-cache", "--layers", "--force-rm"),
        *(f"--timestamp={source.epoch}", f"--platform={platform}", "-t", tag),
        f"--ignorefile={root}/manifests/image/containerignore",
        *(f"--build-arg={name}={value}" for name, value in known.items()),
        root,
        cwd=root,
    )


def own_architecture() -> str:
    """Return the architecture of this machine as images have it."""
    machine = os.uname().machine
    return ARCHITECTURES.get(machine, machine)


def push(tag: str, folder: Path, name: str) -> None:
    """Write the image into an OCI layout under a name."""
    run("buildah", "push", "--quiet", tag, f"oci:{folder}:{name}")


def pack(folder: Path, archive: Path, epoch: int) -> None:
    """Write the files of a folder into a tar file, in order and with one time, owner and mode."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            tar.add(path, name, recursive=False, filter=plain(epoch))


@contextmanager
def file_system(tag: str) -> Iterator[Path]:
    """Give the image's file system as a folder."""
    container = run("buildah", "from", "--pull-never", tag)
    try:
        yield Path(run("buildah", "mount", container))
    finally:
        run("buildah", "rm", container)
