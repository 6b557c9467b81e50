"""The CRDs of the Prometheus operator, fetched by fetch.sh."""

from __future__ import annotations

from pathlib import Path

from tests.support.real_parts import CACHE_OF_PARTS

HERE = Path(__file__).parent
VERSION = next(
    line.split()[-1]
    for line in (HERE / "go.mod").read_text().splitlines()
    if line.startswith("require ")
)
CACHE = CACHE_OF_PARTS / "prometheus-operator" / VERSION
CRDS = tuple(CACHE / f"{kind}.yaml" for kind in ("podmonitors", "prometheusrules"))


def missing() -> str | None:
    """Return why there are no CRDs; None if they are there."""
    if all(path.is_file() for path in CRDS):
        return None
    return f"there are no CRDs of the Prometheus operator in {CACHE}: run {HERE / 'fetch.sh'}"
