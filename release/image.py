"""The image of a release: built by buildah, saved as an OCI archive, its file system listed."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from release.errors import Refused, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from release.provenance import Source


def checked_base(base: str | None) -> str:
    """Return the base; raises Refused if it is not named by its digest, since tags move."""
    if not base or not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", base):
        raise Refused(f"--base {base or 'missing'}: name it by its digest, NAME@sha256:...")
    return base


def build(root: Path, tag: str, base: str, version: str, source: Source) -> None:
    """Build the image `tag` from the checkout `root`; raises Refused if it could not be listed."""
    if os.geteuid():
        raise Refused("only root can mount the image to list its files: try buildah unshare")
    day = f"{datetime.fromtimestamp(source.epoch, UTC):%Y-%m-%dT%H:%M:%SZ}"
    arguments = {
        "BASE": base,
        "VERSION": version,
        "REVISION": source.commit,
        "SOURCE_DATE_EPOCH": str(source.epoch),
        "CREATED": day,
        "SOURCE": source.repository,
    }
    run(
        *("buildah", "bud", "--quiet", "--layers", f"--timestamp={source.epoch}", "-t", tag),
        f"--ignorefile={root}/manifests/image/containerignore",
        *(f"--build-arg={name}={value}" for name, value in arguments.items()),
        root,
        cwd=root,
    )


def save(tag: str, archive: Path) -> None:
    """Write the image as an OCI archive."""
    archive.unlink(missing_ok=True)  # buildah adds to an archive that is there
    run("buildah", "push", "--quiet", tag, f"oci-archive:{archive}")


@contextmanager
def file_system(tag: str) -> Iterator[Path]:
    """Give the image's file system as a folder."""
    container = run("buildah", "from", "--pull-never", tag)
    try:
        yield Path(run("buildah", "mount", container))
    finally:
        run("buildah", "rm", container)
