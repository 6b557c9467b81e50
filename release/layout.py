"""An OCI image layout: one index over the images of all platforms, and the documents about them.

https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md

A document is attached as a referrer: a manifest of its own whose `subject` is the image. So the
image's digest stays what it is, and registries and clients find the document by that digest.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Descriptor = dict[str, Any]

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
NAME = "org.opencontainers.image.ref.name"
TITLE = "org.opencontainers.image.title"


class Layout:
    """The layout in a folder, to which other programs may have written images by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listed: list[Descriptor] = []

    def named(self, name: str) -> Descriptor:
        """Return the descriptor of an image that was written under a name."""
        entries = json.loads((self.folder / "index.json").read_text())["manifests"]
        (found,) = [one for one in entries if one.get("annotations", {}).get(NAME) == name]
        return _bare(found)

    def index(self, name: str, platforms: dict[str, Descriptor]) -> Descriptor:
        """Add the index of images, by architecture, under a name."""
        manifests = [
            image | {"platform": {"architecture": architecture, "os": "linux"}}
            for architecture, image in platforms.items()
        ]
        found = self._json({"mediaType": INDEX, "manifests": manifests})
        self._listed.append(found | {"annotations": {NAME: name}})
        return found

    def attach(self, subject: Descriptor, path: Path, media_type: str) -> None:
        """Add the document in a file as a referrer of the subject."""
        layer = self._blob(path.read_bytes(), media_type)
        manifest = {
            "mediaType": MANIFEST,
            "artifactType": media_type,
            "config": self._blob(b"{}", EMPTY),
            "layers": [layer | {"annotations": {TITLE: path.name}}],
            "subject": subject,
        }
        self._listed.append(self._json(manifest) | {"artifactType": media_type})

    def close(self) -> None:
        """Write index.json: the index, by its name, and the referrers."""
        entries = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self._listed}
        (self.folder / "index.json").write_text(json.dumps(entries))

    def _json(self, manifest: dict[str, Any]) -> Descriptor:
        text = json.dumps({"schemaVersion": 2, **manifest}, indent=2)
        return self._blob(text.encode(), manifest["mediaType"])

    def _blob(self, content: bytes, media_type: str) -> Descriptor:
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _bare(descriptor: Descriptor) -> Descriptor:
    return {key: descriptor[key] for key in ("mediaType", "digest", "size")}
