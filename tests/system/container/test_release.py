"""`python -m release` from a tag: the images of both architectures, and the documents about them.

The image for the other architecture is built here and not run.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent import __version__
from agent.revision import parsed
from release.files import CYCLONEDX, IN_TOTO, STEM
from release.layout import NAME
from release.version import tag
from tests.support import registry
from tests.support.checkouts import COMMITTED
from tests.support.container.released import Archive, Released, missing
from tests.support.real_parts import require

pytestmark = pytest.mark.slow
MACHINES = {"amd64": "Advanced Micro Devices X86-64", "arm64": "AArch64"}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    """A registry with both bases, and a folder for releases, which pytest would keep."""
    require(missing())
    folder = tmp_path_factory.mktemp("released")
    with registry.registry(folder / "registry") as address:
        made = Released(folder, address)
        yield made
    made.forget()


@pytest.fixture(scope="module")
def dist(released: Released) -> Path:
    return released.dist()


@pytest.fixture(scope="module")
def archive(dist: Path) -> Archive:
    return Archive(dist / f"{STEM}.oci.tar")


def test_checksums(dist: Path) -> None:
    """`sha256sum -c` finds every file of the release as it was made."""
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        check=True,
        capture_output=True,
        cwd=dist,
        text=True,
    )
    found = {line.removesuffix(": OK") for line in done.stdout.splitlines()}
    assert found == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}


@pytest.mark.sweep
def test_another_run(released: Released) -> None:
    """The same tag and base give the same bytes: from a checkout with other modes and times, on a
    machine that never built an image. The archive of both images is one of the files.
    """
    once = released.make("once")
    again = released.make("again", umask=0o077, cached=False)
    assert (again / "SHA256SUMS").read_text() == (once / "SHA256SUMS").read_text()


def test_the_provenance_names_every_file(dist: Path) -> None:
    """Each file with its digest, but the statement itself and the checksums."""
    statement = json.loads((dist / f"{STEM}.intoto.json").read_text())
    made = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    others = {"SHA256SUMS", f"{STEM}.intoto.json"}
    assert made == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in dist.iterdir()
        if path.name not in others
    }


def test_architectures(archive: Archive) -> None:
    """One index has an image of each architecture; labels name commit and base."""
    found: dict[str, str] = {}
    for name, descriptor in archive.images():
        configuration = archive.json(archive.json(descriptor)["config"])
        found[name] = configuration["architecture"]
        labels = configuration["config"]["Labels"]
        assert labels["org.opencontainers.image.base.name"].endswith("/python")
        assert labels["org.opencontainers.image.base.digest"].startswith("sha256:")
    assert found == {name: name for name in MACHINES}


@cache
def files(archive: Archive, architecture: str) -> dict[str, bytes]:
    """Return the regular files of an image by their paths."""
    manifest = archive.json(dict(archive.images())[architecture])
    found: dict[str, bytes] = {}
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(archive.blob(layer))) as tar:
            for entry in tar:
                if entry.isfile() and (file := tar.extractfile(entry)):
                    found[entry.name] = file.read()
    return found


def test_the_revision(archive: Archive) -> None:
    """The agent in the images knows the commit and its day; the tag of the images has the commit
    where it is no release.
    """
    (name,) = [one["annotations"][NAME] for one in archive.listed() if "annotations" in one]
    for machine in MACHINES:
        revision = parsed(files(archive, machine)["opt/bwagent/agent/REVISION"].decode())
        assert revision
        assert revision.time == COMMITTED
        assert name == tag(__version__, revision)
    for _, descriptor in archive.images():
        configuration = archive.json(archive.json(descriptor)["config"])
        assert configuration["config"]["Labels"]["org.opencontainers.image.version"] == name


def is_elf(content: bytes) -> bool:
    return content.startswith(b"\x7fELF")


def readelf(archive: Archive, architecture: str, folder: Path, flag: str) -> list[str]:
    """Return the lines that readelf prints of all ELF files of an image."""
    known = [content for content in files(archive, architecture).values() if is_elf(content)]
    assert len(known) > 40
    for number, content in enumerate(known):
        (folder / str(number)).write_bytes(content)
    command = ["readelf", "--wide", flag, *(str(number) for number in range(len(known)))]
    done = subprocess.run(command, check=True, capture_output=True, cwd=folder, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("architecture", MACHINES)
def test_programs_and_libraries(archive: Archive, architecture: str, tmp_path: Path) -> None:
    """Each is for the image's architecture, and the image has every library that one names."""
    lines = readelf(archive, architecture, tmp_path, "--file-header")
    machines = {line.partition(":")[2].strip() for line in lines if "  Machine:" in line}
    assert machines == {MACHINES[architecture]}
    said = "\n".join(readelf(archive, architecture, tmp_path, "--dynamic"))
    needed = set(re.findall(r"\(NEEDED\) .*\[(.+)\]", said))
    assert "libc.so.6" in needed
    assert needed <= {name.rpartition("/")[2] for name in files(archive, architecture)}


def test_the_same_python_files(archive: Archive) -> None:
    """Source and bytecode of the agent and of its packages are the same in both images."""
    known = [
        {
            name: content
            for name, content in files(archive, architecture).items()
            if name.startswith("opt/bwagent/") and name.endswith((".py", ".pyc"))
        }
        for architecture in MACHINES
    ]
    assert "opt/bwagent/agent/cli.py" in known[0]
    assert known[0] == known[1]


def referrers(tree: dict[str, Any]) -> dict[str, str]:
    """Return the digests of the documents that oras found, by their type."""
    return {one["artifactType"]: one["digest"] for one in tree["referrers"]}


def test_documents_in_a_registry(released: Released, dist: Path, archive: Archive) -> None:
    """The client oras copies the archive into a registry without a referrers API, and finds there
    the SBOM of each image and the provenance of all.
    """
    name = f"{released.address}/bwagent"
    (version,) = [one["annotations"][NAME] for one in archive.listed() if "annotations" in one]
    source = f"{dist}/{STEM}.oci.tar:{version}"
    copied = f"{name}:{version}"
    released.oras("cp", "-r", "--from-oci-layout", "--to-plain-http", source, copied)
    subjects = {architecture: one["digest"] for architecture, one in archive.images()}
    (index,) = [one["digest"] for one in archive.listed() if "annotations" in one]
    expected = {
        index: (IN_TOTO, f"{STEM}-image.intoto.json"),
        **{one: (CYCLONEDX, f"{STEM}-image-{name}.cdx.json") for name, one in subjects.items()},
    }
    for subject, (media_type, file) in expected.items():
        where = f"{name}@{subject}"
        tree = json.loads(released.oras("discover", "--plain-http", "--format=json", where))
        (found,) = referrers(tree).items()
        assert found[0] == media_type
        out = f"pulled-{subject[7:15]}"
        released.oras("pull", "--plain-http", "-o", out, f"{name}@{found[1]}")
        assert (released.folder / out / file).read_bytes() == (dist / file).read_bytes()
    tags = released.oras("repo", "tags", "--plain-http", name).split()
    assert set(tags) == {version, *(one.replace(":", "-") for one in expected)}


@pytest.mark.parametrize("architecture", MACHINES)
def test_the_sbom_is_of_the_image(dist: Path, archive: Archive, architecture: str) -> None:
    """Its subject is the image's digest, and its Debian packages are of the architecture."""
    bom = json.loads((dist / f"{STEM}-image-{architecture}.cdx.json").read_text())
    digest = dict(archive.images())[architecture]["digest"]
    subject = bom["metadata"]["component"]
    assert f"sha256:{subject['hashes'][0]['content']}" == digest
    debian = [one["purl"] for one in bom["components"] if one["purl"].startswith("pkg:deb/")]
    assert len(debian) > 10
    assert all(purl.endswith(f"?arch={architecture}") for purl in debian)
