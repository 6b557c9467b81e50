"""Building helm: once, and by Go alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.go_cache import pretend
from tests.support.helm.chart import HERE, VERSION, helm, missing
from tests.support.real_parts import require

if TYPE_CHECKING:
    from pathlib import Path


def build(**environment: str) -> subprocess.CompletedProcess[str]:
    script = ["/bin/sh", str(HERE / "build.sh")]
    return subprocess.run(
        script, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_building_again(tmp_path: Path) -> None:
    """A second build builds nothing, and needs no Go."""
    folder = tmp_path / "bwagent/helm" / VERSION
    pretend(HERE / "build.sh", folder, "helm")
    done = build(XDG_CACHE_HOME=str(tmp_path), PATH="/usr/bin:/bin")
    assert (done.returncode, done.stdout) == (0, f"{folder}\n")


def test_building_without_go(tmp_path: Path) -> None:
    """Without Go the build fails in one line, and leaves nothing behind."""
    (tmp_path / "bin").mkdir()
    for name in ("awk", "cat", "dirname", "sha256sum"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    done = build(XDG_CACHE_HOME=str(tmp_path / "cache"), PATH=str(tmp_path / "bin"))
    assert (done.returncode, done.stderr) == (1, "there is no Go to build helm with\n")
    assert not (tmp_path / "cache").exists()


def test_the_pinned_version() -> None:
    """The program that was built has the version of go.mod."""
    require(missing())
    if os.environ.get("HELM"):
        pytest.skip("a helm of one's own")
    assert helm("version", "--template", "{{.Version}}") == VERSION


def test_a_helm_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason for a skip names the command that builds it."""
    monkeypatch.setenv("HELM", str(tmp_path / "helm"))
    assert "build.sh" in (missing() or "")
