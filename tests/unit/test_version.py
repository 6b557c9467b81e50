"""The one version: the package's, and wherever else it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent import __version__

NUMBER = r"(\d+\.\d+\.\d+)\b"
PLACES = [
    ("Containerfile", rf"bwagent:{NUMBER}"),
    ("Containerfile", rf"^ARG VERSION={NUMBER}"),
    ("docs/release.md", rf"^bwagent {NUMBER}"),
    ("CONTRIBUTING.md", rf"git checkout v{NUMBER}"),
    ("manifests/README.md", rf"bwagent:{NUMBER}"),
    ("manifests/README.md", rf"newTag: {NUMBER}"),
    ("manifests/base/agent/daemonset.yaml", rf"image: SET-THE-IMAGE-IN-YOUR-OVERLAY:{NUMBER}"),
    ("manifests/chart/Chart.yaml", rf"^version: {NUMBER}"),
    ("manifests/chart/Chart.yaml", rf"^appVersion: {NUMBER}"),
]


@pytest.mark.parametrize(("name", "pattern"), PLACES)
def test_the_version_is_one(repository: Path, name: str, pattern: str) -> None:
    """Chart, manifests, image and their documents have the version of the package."""
    found = re.findall(pattern, (repository / name).read_text(), re.MULTILINE)
    assert set(found) == {__version__}
