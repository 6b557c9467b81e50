"""The layout of images and documents; tests/system/container/test_release.py has its readers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from release.layout import NAME, Layout

KIND = "application/vnd.example+json"
IMAGE = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:1", "size": 7}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A layout into which a program has written an image named amd64."""
    (tmp_path / "blobs/sha256").mkdir(parents=True)
    written = {"manifests": [IMAGE | {"annotations": {NAME: "amd64"}}]}
    (tmp_path / "index.json").write_text(json.dumps(written))
    return Layout(tmp_path)


def read(layout: Layout, descriptor: dict[str, Any]) -> Any:
    """Return the document of a descriptor whose digest and size are true."""
    content = (layout.folder / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert descriptor["size"] == len(content)
    return json.loads(content)


def listed(layout: Layout) -> list[dict[str, Any]]:
    return list(json.loads((layout.folder / "index.json").read_text())["manifests"])


def test_the_index(layout: Layout) -> None:
    """Only the index has a name, and it knows the platform of each image."""
    assert layout.named("amd64") == IMAGE
    layout.index("1.0", {"amd64": layout.named("amd64")})
    layout.close()
    (entry,) = listed(layout)
    assert entry["annotations"] == {NAME: "1.0"}
    platform = {"architecture": "amd64", "os": "linux"}
    assert read(layout, entry)["manifests"] == [IMAGE | {"platform": platform}]


def test_a_referrer(layout: Layout, tmp_path: Path) -> None:
    """The subject is the image, the one layer the document with its file's name."""
    path = tmp_path / "document.json"
    path.write_text('{"a": 1}')
    layout.attach(IMAGE, path, KIND)
    layout.close()
    (entry,) = listed(layout)
    manifest = read(layout, entry)
    assert (entry["artifactType"], manifest["artifactType"]) == (KIND, KIND)
    assert manifest["subject"] == IMAGE
    assert read(layout, manifest["config"]) == {}
    (layer,) = manifest["layers"]
    assert read(layout, layer) == {"a": 1}
    assert layer["annotations"] == {"org.opencontainers.image.title": "document.json"}
