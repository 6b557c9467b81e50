"""The chart under manifests/chart, and the real helm that renders and installs it.

helm is a program of this host only: without a cluster's flags it sees no kubeconfig, and its caches
are in a folder of its own.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.support.kube.manifests import MANIFESTS
from tests.support.kube.programs import environment

if TYPE_CHECKING:
    from tests.support.kube.manifests import Object

HERE = Path(__file__).parent
CHART = MANIFESTS / "chart"
PROFILES = tuple(sorted(path.stem for path in (CHART / "profiles").iterdir()))
VERSION = next(
    line.split()[-1]
    for line in (HERE / "go.mod").read_text().splitlines()
    if line.startswith("require helm.sh/helm/v3 ")
)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bwagent/helm" / VERSION


class HelmError(Exception):
    """A failure of helm: its standard error."""


def _program() -> Path:
    return Path(os.environ.get("HELM") or CACHE / "helm")


def missing() -> str | None:
    """Return the reason why there is no helm here; None if there is one."""
    if _program().is_file():
        return None
    return f"there is no helm in $HELM, and none in {CACHE}: run {HERE / 'build.sh'} (with Go)"


def helm(*arguments: str, kubeconfig: Path | None = None) -> str:
    """Return helm's output; raises HelmError if it fails, or if it warns."""
    with tempfile.TemporaryDirectory(prefix="helm-") as home:
        known = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
        done = subprocess.run(
            [str(_program()), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**environment(Path(home)), **known},
        )
    if done.returncode or done.stderr:
        raise HelmError(done.stderr.strip())
    return done.stdout


def profile(name: str) -> tuple[str, str]:
    """Return the flags of helm for a profile."""
    return "-f", str(CHART / "profiles" / f"{name}.yaml")


def rendered(
    *flags: str, release: str = "bwagent", namespace: str = "bwagent", chart: Path = CHART
) -> tuple[Object, ...]:
    """Return the objects of `helm template`."""
    text = helm("template", release, str(chart), "-n", namespace, *flags)
    return tuple(each for each in yaml.safe_load_all(text) if each is not None)


def the(kind: str, objects: tuple[Object, ...]) -> Object:
    """Return the only object of this kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found
