"""The chart under manifests/chart, and the real helm that renders and installs it.

helm is a program of this host only: without a cluster's flags it sees no kubeconfig, and its caches
are in a folder of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from tests.support.kube.manifests import MANIFESTS, Object, by_kind, parsed
from tests.support.kube.programs import environment
from tests.support.real_parts import CACHE_OF_PARTS, go_version

HERE = Path(__file__).parent
CHART = MANIFESTS / "chart"
PROFILES = tuple(sorted(path.stem for path in (CHART / "profiles").iterdir()))
# What every installation says: where the image is. Tests put it where a node looks for it.
SITE = ("-f", str(HERE / "site.yaml"))
VERSION = go_version(HERE, "helm.sh/helm/v3")
CACHE = CACHE_OF_PARTS / "helm" / VERSION


class HelmError(Exception):
    """A failure of helm: its standard error."""


def program() -> Path:
    """Return the path of helm: $HELM, else the one that build.sh made."""
    return Path(os.environ.get("HELM") or CACHE / "helm")


def missing() -> str | None:
    """Return the reason why there is no helm here; None if there is one."""
    if program().is_file():
        return None
    return f"there is no helm in $HELM, and none in {CACHE}: run {HERE / 'build.sh'} (with Go)"


def helm(*arguments: str, kubeconfig: Path | None = None) -> str:
    """Return helm's output; raises HelmError if it fails.

    Without a cluster a warning is an error, too; the API server may have warnings about Pods.
    """
    with tempfile.TemporaryDirectory(prefix="helm-") as home:
        known = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig)}
        done = subprocess.run(
            [str(program()), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**environment(Path(home)), **known},
        )
    if done.returncode or (done.stderr and kubeconfig is None):
        raise HelmError(done.stderr.strip())
    return done.stdout


def profile(name: str) -> tuple[str, str]:
    return "-f", str(CHART / "profiles" / f"{name}.yaml")


def rendered(
    *flags: str, release: str = "bwagent", namespace: str = "bwagent", chart: Path = CHART
) -> tuple[Object, ...]:
    text = helm("template", release, str(chart), "-n", namespace, *SITE, *flags)
    return parsed(text)


def nested(values: Object) -> Object:
    """Return values with dotted names as a tree."""
    tree: Object = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        at = tree
        for group in groups:
            at = at.setdefault(group, {})
        at[last] = value
    return tree


def with_values(folder: Path, values: Object, chart: Path = CHART) -> dict[str, Object]:
    """Return the rendered objects by kind, but for those about Events, with these values."""
    file = folder / "values.yaml"
    file.write_text(json.dumps(nested(values)))
    return by_kind(rendered("-f", str(file), chart=chart))
