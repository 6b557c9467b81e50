"""The chart under manifests/chart, the real helm that renders and installs it, and looks at the
fields of what was rendered: each a function of the objects by kind.

helm is a program of this host only: without a cluster's flags it sees no kubeconfig, and its caches
are in a folder of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


Kinds = dict[str, Object]
Look = Callable[[Kinds], object]


def spec(objects: Kinds) -> Object:
    found: Object = objects["DaemonSet"]["spec"]["template"]["spec"]
    return found


def container(objects: Kinds) -> Object:
    found: Object = spec(objects)["containers"][0]
    return found


def of(kind: str, *path: str | int) -> Look:
    """Return the look at one field of the object of this kind; None where it is not."""

    def look(objects: Kinds) -> object:
        found: Any = objects.get(kind)
        for key in path:
            found = found and (found[key] if isinstance(key, int) else found.get(key))
        return found

    return look


def of_pod(*path: str | int) -> Look:
    return of("DaemonSet", "spec", "template", "spec", *path)


def of_container(*path: str | int) -> Look:
    return of_pod("containers", 0, *path)


def setting(name: str) -> Look:
    return of("ConfigMap", "data", f"BWAGENT_{name}")


def variable(name: str) -> Look:
    return lambda objects: next(
        (one.get("value") for one in container(objects)["env"] if one["name"] == name), None
    )


def mounted(name: str) -> Look:
    """Return the look at where a volume is mounted."""

    def look(objects: Kinds) -> object:
        places = {one["name"]: one["mountPath"] for one in container(objects)["volumeMounts"]}
        volumes = [one["name"] for one in spec(objects)["volumes"]]
        return places.get(name) if name in volumes else None

    return look


def in_policy(name: str) -> Look:
    def look(objects: Kinds) -> object:
        rows = objects["ValidatingAdmissionPolicy"]["spec"]["variables"]
        return next(row["expression"].strip("'") for row in rows if row["name"] == name)

    return look


def endpoint(*path: str | int) -> Look:
    return of("PodMonitor", "spec", "podMetricsEndpoints", 0, *path)


def of_check(*path: str | int) -> Look:
    """Return the look at the container of the CronJob."""
    pod = ("spec", "jobTemplate", "spec", "template", "spec")
    return of("CronJob", *pod, "containers", 0, *path)
