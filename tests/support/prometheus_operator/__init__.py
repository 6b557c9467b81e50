"""The CRDs of the Prometheus operator, fetched by fetch.sh."""

from __future__ import annotations

from pathlib import Path

from tests.support.real_parts import CACHE_OF_PARTS, go_version

HERE = Path(__file__).parent
VERSION = go_version(HERE, "github.com/prometheus-operator/prometheus-operator")
CACHE = CACHE_OF_PARTS / "prometheus-operator" / VERSION
CRDS = tuple(CACHE / f"{kind}.yaml" for kind in ("podmonitors", "prometheusrules"))


def missing() -> str | None:
    """Return why there are no CRDs; None if they are there."""
    if all(path.is_file() for path in CRDS):
        return None
    return f"there are no CRDs of the Prometheus operator in {CACHE}: run {HERE / 'fetch.sh'}"
