"""The files of a release, made in one folder."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agent import __version__
from agent.revision import Revision
from release import image, licenses, plugin, sbom
from release.errors import pip_install, run
from release.layout import Layout
from release.parts import image_parts, python_parts
from release.provenance import digests, sha256, statement
from release.version import tag

if TYPE_CHECKING:
    from release.layout import Descriptor
    from release.parts import Part
    from release.provenance import Source

ROOT = Path(__file__).parents[1]
PINNED = "manifests/image/requirements.txt"
STEM = f"bwagent-{__version__}"
WHEEL = f"{STEM}-py3-none-any.whl"
CYCLONEDX = "application/vnd.cyclonedx+json"
IN_TOTO = "application/vnd.in-toto+json"


def make(source: Source, dist: Path, base: str | None) -> list[Path]:
    """Make all files; `base` None leaves out the image. Return them, the checksums last."""
    dist.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(source.epoch)}
    run(sys.executable, "-m", "hatchling", "build", "-d", dist, cwd=ROOT, env=environment)
    wheel = dist / WHEEL
    files = [wheel, dist / f"{STEM}.tar.gz"]
    files += _papers(dist, "wheel", sha256(wheel), _pinned(), source)
    made, parts = plugin.make(wheel, dist, __version__, source)
    files += [*made, *_papers(dist, "plugin", sha256(made[0]), parts, source)]
    if base:
        files += _image(source, dist, base)
    provenance = dist / f"{STEM}.intoto.json"
    provenance.write_text(statement(source, digests(files), _inputs(base)))
    files.append(provenance)
    return [*files, _checksums(dist, files)]


def _inputs(base: str | None) -> dict[str, str]:
    return {f"docker://{base}": base.rpartition("@sha256:")[2]} if base else {}


def _checksums(dist: Path, files: list[Path]) -> Path:
    path = dist / "SHA256SUMS"
    path.write_text("".join(f"{known}  {name}\n" for name, known in digests(files).items()))
    return path


def _pinned() -> list[Part]:
    """Install the pinned packages for a moment, and list them."""
    with tempfile.TemporaryDirectory() as folder:
        pip_install(folder, "--require-hashes", "-r", ROOT / PINNED)
        return python_parts(Path(folder))


def _image(source: Source, dist: Path, base: str) -> list[Path]:
    """Make the archive of the images of all architectures, with the documents about them."""
    archive = dist / f"{STEM}.oci.tar"
    version = tag(__version__, Revision(source.commit, source.epoch))
    name = f"bwagent:{version}"
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        images = {
            architecture: _built(source, layout, base, version, architecture)
            for architecture in image.ARCHITECTURES.values()
        }
        files = []
        for architecture, descriptor in images.items():
            with image.file_system(_local(version, architecture)) as root:
                parts = image_parts(root)
            kind, digest = f"image-{architecture}", _hex(descriptor)
            files += _papers(dist, kind, digest, parts, source)
            layout.attach(descriptor, dist / f"{STEM}-{kind}.cdx.json", CYCLONEDX)
        index = layout.index(version, images)
        made = {f"{name}-{architecture}": _hex(one) for architecture, one in images.items()}
        made[name] = _hex(index)
        files.append(dist / f"{STEM}-image.intoto.json")
        files[-1].write_text(statement(source, made, _inputs(base)))
        layout.attach(index, files[-1], IN_TOTO)
        layout.close()
        image.pack(layout.folder, archive, source.epoch)
    return [archive, *files]


def _local(version: str, architecture: str) -> str:
    """Return the name of an image in the store of this machine."""
    return f"localhost/bwagent:{version}-{architecture}"


def _built(
    source: Source, layout: Layout, base: str, version: str, architecture: str
) -> Descriptor:
    """Build the image for an architecture and write it into the layout."""
    local = _local(version, architecture)
    name, _, digest = base.partition("@")
    arguments = {"BASE": base, "BASE_NAME": name, "BASE_DIGEST": digest, "VERSION": version}
    image.build(ROOT, local, f"linux/{architecture}", source, arguments)
    image.push(local, layout.folder, architecture)
    return layout.named(architecture)


def _hex(descriptor: Descriptor) -> str:
    return str(descriptor["digest"]).removeprefix("sha256:")


def _papers(dist: Path, kind: str, digest: str, parts: list[Part], source: Source) -> list[Path]:
    """Write the SBOM and the list of licenses of what has this digest."""
    found = licenses.checked(parts)
    papers = {
        "cdx.json": sbom.document(kind, __version__, digest, source.epoch, found),
        "licenses.tsv": licenses.listing(found),
    }
    paths = []
    for suffix, text in papers.items():
        paths.append(dist / f"{STEM}-{kind}.{suffix}")
        paths[-1].write_text(text)
    return paths
