"""Kueue's own API types and CRDs, built and fetched by build.sh."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.real_parts import CACHE_OF_PARTS, go_version

HERE = Path(__file__).parent
VERSION = go_version(HERE, "sigs.k8s.io/kueue")
CACHE = CACHE_OF_PARTS / "kueue" / VERSION
CRDS = (CACHE / "topologies.yaml", CACHE / "resourceflavors.yaml")


class DecodeError(Exception):
    """An error of the decoder: its standard error."""


def missing() -> str | None:
    """Return why there is no decoder; None if it is there."""
    if (CACHE / "decode").is_file():
        return None
    return f"there is no decoder of Kueue's types in {CACHE}: run {HERE / 'build.sh'} (with Go)"


def decode(manifests: str) -> list[str]:
    """Return the kind and name of each manifest; raises DecodeError if Kueue's types differ."""
    done = subprocess.run(
        [CACHE / "decode"], input=manifests, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DecodeError(done.stderr.strip())
    return done.stdout.splitlines()
