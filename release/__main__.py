"""Make the files of a release in dist/ from the tag at HEAD.

`--dry-run` takes any commit and any change, and leaves the image out; CI runs it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agent import __version__
from agent.revision import revision
from release import image, licenses, sbom
from release.errors import Refused, run
from release.parts import image_parts, python_parts
from release.provenance import Source, sha256, statement

if TYPE_CHECKING:
    from release.parts import Part

ROOT = Path(__file__).parents[1]
PINNED = "manifests/image/requirements.txt"
WHEEL = f"bwagent-{__version__}-py3-none-any.whl"
TAG = f"localhost/bwagent:{__version__}"


def main() -> int:
    """Return the exit code; an error is one line on stderr."""
    parser = argparse.ArgumentParser(prog="nox -s release --", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="any commit; no image")
    parser.add_argument("--source", metavar="URL", help="the repository (default: remote origin)")
    parser.add_argument("--base", metavar="NAME@sha256:...", help="base of the image")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder of the results")
    flags = parser.parse_args()
    try:
        source = _source(flags.source, dry_run=flags.dry_run)
        base = None if flags.dry_run else image.checked_base(flags.base)
        for path in make(source, flags.dist.resolve(), base):
            print(f"{sha256(path)}  {path.name}")  # noqa: T201 - as sha256sum does
    except (OSError, Refused) as fault:
        print(f"release: {fault}", file=sys.stderr)  # noqa: T201 - the one line of an error
        return 1
    return 0


def _source(url: str | None, *, dry_run: bool) -> Source:
    """Return what HEAD is; raises Refused if it is no release and this is no dry run."""
    known = revision(ROOT)
    if not known:
        raise Refused(f"{ROOT}: no git checkout")
    repository = url or _origin()
    if dry_run:
        return Source(repository, known.name, *known)
    tag = f"v{__version__}"
    if tag not in run("git", "-C", ROOT, "tag", "--points-at", "HEAD").split():
        raise Refused(f"HEAD is not {tag}, the tag of agent/__init__.py's version")
    if run("git", "-C", ROOT, "status", "--porcelain"):
        raise Refused("the checkout has changes or files that git does not know")
    return Source(repository, f"refs/tags/{tag}", *known)


def _origin() -> str:
    try:
        return run("git", "-C", ROOT, "remote", "get-url", "origin")
    except Refused as error:
        raise Refused("--source: missing, and the checkout has no remote origin") from error


def make(source: Source, dist: Path, base: str | None) -> list[Path]:
    """Make all files; `base` None leaves out the image. Return them, the provenance last."""
    dist.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(source.epoch)}
    run(sys.executable, "-m", "hatchling", "build", "-d", dist, cwd=ROOT, env=environment)
    wheel = dist / WHEEL
    files = [
        wheel,
        dist / f"bwagent-{__version__}.tar.gz",
        *_papers(wheel, "wheel", _pinned(), source),
    ]
    if base:
        files += _image(source, dist, base)
    inputs = {f"docker://{base}": base.rpartition("@sha256:")[2]} if base else {}
    provenance = dist / f"bwagent-{__version__}.intoto.json"
    provenance.write_text(statement(source, files, inputs))
    return [*files, provenance]


def _pinned() -> list[Part]:
    """Install the pinned packages for a moment, and list them."""
    with tempfile.TemporaryDirectory() as folder:
        run(
            *(sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"),
            *("--no-compile", "--no-deps", "--only-binary", ":all:", "--require-hashes"),
            *("--target", folder, "-r", ROOT / PINNED),
        )
        return python_parts(Path(folder))


def _image(source: Source, dist: Path, base: str) -> list[Path]:
    image.build(ROOT, TAG, base, __version__, source)
    archive = dist / f"bwagent-{__version__}-{os.uname().machine}.oci.tar"
    image.save(TAG, archive, source.epoch)
    with image.file_system(TAG) as root:
        parts = image_parts(root)
    return [archive, *_papers(archive, "image", parts, source)]


def _papers(subject: Path, kind: str, parts: list[Part], source: Source) -> list[Path]:
    """Write the SBOM and the list of licenses of a file."""
    found = licenses.checked(parts)
    document = sbom.document(kind, __version__, sha256(subject), source.epoch, found)
    papers = {"cdx.json": document, "licenses.tsv": licenses.listing(found)}
    paths = []
    for suffix, text in papers.items():
        paths.append(subject.with_name(f"bwagent-{__version__}-{kind}.{suffix}"))
        paths[-1].write_text(text)
    return paths


if __name__ == "__main__":
    sys.exit(main())
