"""Looks at the fields of the rendered chart: each a function of its objects by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.kube.manifests import Object

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
