"""`python -m release`, which `nox -s release` starts: what it refuses, in one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.errors import Refused
from release.image import checked_base
from tests.support.checkouts import committed, git

pytestmark = pytest.mark.slow  # each starts Python and git
RELEASE, BETWEEN = "7.8.9", "7.9.0.dev0"
SOURCE = ("--source", "https://example.com/bwagent")


def release(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "release", *arguments]
    return subprocess.run(command, cwd=repository, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(
    "base", [None, "", "python:3.13", "python@sha256:12", "@sha256:" + 64 * "a"]
)
def test_a_base_without_its_digest(base: str | None) -> None:
    """A tag moves, and the image that it made could not be built again."""
    with pytest.raises(Refused, match=r"^--base .*: name it by its digest"):
        checked_base(base)


def test_a_base_with_its_digest() -> None:
    base = f"registry.example.com:5000/python@sha256:{64 * 'a'}"
    assert checked_base(base) == base


@pytest.fixture
def checkout(repository: Path, tmp_path: Path) -> Path:
    return copy(repository, tmp_path / "checkout", RELEASE)


def copy(repository: Path, folder: Path, version: str) -> Path:
    """A repository of what decides whether there is a release, in one commit without a tag."""
    for name in ("agent/revision.py", ".gitignore"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / name, folder / name)
    (folder / "agent/__init__.py").write_text(f'__version__ = "{version}"\n')
    shutil.copytree(repository / "release", folder / "release")
    return committed(folder)


def complaint(checkout: Path, *arguments: str) -> str:
    """Return the one line of a release that is refused, and writes nothing."""
    refused = release(checkout, *arguments)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1
    assert not (checkout / "dist").exists()
    return refused.stderr.removesuffix("\n")


def test_no_release_without_its_tag(checkout: Path) -> None:
    """The tag is that of the version; another one is none."""
    its_tag = f"v{RELEASE}, the tag of agent/__init__.py's version"
    assert complaint(checkout, *SOURCE) == f"release: HEAD is not {its_tag}"
    git(checkout, "tag", "v7.8.8")
    assert complaint(checkout, *SOURCE) == f"release: HEAD is v7.8.8 and not {its_tag}"
    git(checkout, "tag", f"v{RELEASE}")
    assert complaint(checkout, *SOURCE).startswith("release: --base missing:")


def test_between_two_releases(repository: Path, tmp_path: Path) -> None:
    """A version that ends in .dev0 needs no tag, and is that of no release."""
    checkout = copy(repository, tmp_path / "between", BETWEEN)
    assert complaint(checkout, *SOURCE).startswith("release: --base missing:")
    git(checkout, "tag", "vendored")
    assert complaint(checkout, *SOURCE).startswith("release: --base missing:")
    git(checkout, "tag", f"v{RELEASE}")
    its_tag = f"v{BETWEEN}, the tag of agent/__init__.py's version"
    assert complaint(checkout, *SOURCE) == f"release: HEAD is v{RELEASE} and not {its_tag}"


def test_no_release_of_changed_files(checkout: Path) -> None:
    """A file that git does not know could get into the sdist."""
    git(checkout, "tag", f"v{RELEASE}")
    assert complaint(checkout, *SOURCE).startswith("release: --base missing:")
    (checkout / "agent/new.py").write_text("")
    assert complaint(checkout, *SOURCE).startswith("release: the checkout has changes or files")


def test_no_release_of_an_unknown_repository(checkout: Path) -> None:
    """Image and provenance say where the source is."""
    assert complaint(checkout, "--dry-run").startswith("release: --source: missing")


@pytest.mark.parametrize(
    "address", ["https://robot:s3cret@example.com/bwagent", "git@example.com:s3cret", ""]
)
def test_no_release_with_a_credential(checkout: Path, address: str) -> None:
    """A clone of a CI often has one in its remote; neither file nor error has it then."""
    git(checkout, "remote", "add", "origin", address)
    assert "s3cret" not in complaint(checkout, "--dry-run")
    assert complaint(checkout, "--dry-run").startswith("release: --source: ")


def test_a_folder_that_cannot_be_made(checkout: Path) -> None:
    line = complaint(checkout, "--dry-run", *SOURCE, "--dist", "/proc/nowhere")
    assert line.startswith("release: ")
    assert line.endswith("'/proc/nowhere'")


def test_no_release_without_git(checkout: Path) -> None:
    """An archive without git says no revision, so nothing could be proved about it."""
    shutil.rmtree(checkout / ".git")
    assert complaint(checkout, *SOURCE).endswith(": no git checkout")
