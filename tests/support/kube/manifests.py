"""The project's manifests, as files and as kustomize renders them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agent import __version__
from release.version import tag
from tests.support.kube.programs import program

MANIFESTS = Path(__file__).parents[3] / "manifests"
OVERLAYS = tuple(sorted(path.name for path in (MANIFESTS / "overlays").iterdir()))
# What becomes YAML by helm.
TEMPLATES = tuple(sorted((MANIFESTS / "chart/templates").glob("*.yaml")))
FILES = tuple(sorted({*MANIFESTS.rglob("*.yaml")} - {*TEMPLATES}))

# What overlays have instead of an image: no kubelet reads it as a name.
NO_IMAGE = "SET-THE-IMAGE-IN-YOUR-OVERLAY"
TAG = tag(__version__)
IMAGE = f"bwagent:{TAG}"  # what the tests' nodes have
IMAGES = [{"name": NO_IMAGE, "newName": "bwagent"}]  # as a kustomization says it

Object = dict[str, Any]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast


def rendered(overlay: str) -> str:
    """Return the output of `kubectl kustomize` for an overlay; a warning is an error."""
    command = [program("kubectl"), "kustomize", str(MANIFESTS / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if done.stderr:
        raise ValueError(done.stderr)
    return done.stdout


def parsed(text: str) -> tuple[Object, ...]:
    found = yaml.load_all(text, Loader=LOADER)
    return tuple(one for one in found if one is not None)


@cache
def objects(overlay: str) -> tuple[Object, ...]:
    return parsed(rendered(overlay))


def the(kind: str, overlay: str) -> Object:
    """Return the only object of this kind in an overlay that is not about Events."""
    return only(kind, objects(overlay))


def only(kind: str, objects: Iterable[Object]) -> Object:
    """Return the only object of this kind that is not about Events."""
    (found,) = (one for one in without_events(objects) if one["kind"] == kind)
    return found


def without_events(objects: Iterable[Object]) -> list[Object]:
    """Return the objects that are not about Events: the policy about Nodes, for one."""
    return [one for one in objects if "-events" not in one["metadata"]["name"]]


def named(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    """Return objects by kind and name, of which no two have the same."""
    rows = [((one["kind"], one["metadata"]["name"]), one) for one in objects]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def by_kind(objects: Iterable[Object]) -> dict[str, Object]:
    """Return the objects by kind, but for those about Events."""
    return {one["kind"]: one for one in without_events(objects)}


def pod(overlay: str) -> Object:
    """Return the Pod that the overlay's DaemonSet creates."""
    template = the("DaemonSet", overlay)["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **template,
        "metadata": {**template["metadata"], "name": "bwagent"},
    }


def site_overlay(folder: Path, overlay: str, fields: Mapping[str, Any]) -> Path:
    """Write an overlay of one's own over one of the project's, with these fields of a
    kustomization; their components and transformers are folders of the manifests.
    """

    def up(path: str | Path) -> str:
        return os.path.relpath(MANIFESTS / path, folder.resolve())

    of_project = {
        name: [up(path) for path in fields[name]]
        for name in ("components", "transformers")
        if name in fields
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [up(Path("overlays", overlay))],
        **fields,
        **of_project,
    }
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    return folder


def with_settings(*literals: str) -> Object:
    """Return the fields of an overlay with other settings."""
    return {
        "configMapGenerator": [{"name": "bwagent", "behavior": "merge", "literals": literals}],
        "transformers": ["settings-in-policy"],
    }


def own_overlay(folder: Path, overlay: str, *settings: str) -> Path:
    """Write an overlay of one's own, as manifests/README.md shows it: one with other settings."""
    return site_overlay(folder, overlay, with_settings(*settings))


def settings(overlay: str) -> dict[str, str]:
    """Return the overlay's settings: flags as environment variables."""
    return dict(the("ConfigMap", overlay)["data"])
