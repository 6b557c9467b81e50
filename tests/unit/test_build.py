"""Wheel and sdist: the same input gives the same bytes, and the revision is in them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from agent import __version__
from agent.revision import FILE, Revision, parsed, revision
from tests.support.checkouts import COMMITTED, committed

EPOCH = 1_700_000_000
INPUT = ("agent", "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "hatch_build.py")


class Built(NamedTuple):
    """A wheel and an sdist."""

    wheel: Path
    sdist: Path

    def digests(self) -> list[str]:
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in self]


def copied(repository: Path, folder: Path) -> Path:
    """Copy what a build reads; file times become those of now."""
    folder.mkdir(parents=True)
    for name in INPUT:
        source = repository / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored, copy_function=shutil.copy)
        else:
            shutil.copy(source, folder / name)
    return folder


def build(source: Path, *, umask: int = 0o022, **variables: str) -> Built:
    """Build with hatchling, which is already installed: nothing is downloaded."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", "out"],
        cwd=source,
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], **variables},
        umask=umask,
    )
    out = source / "out"
    return Built(
        out / f"bwagent-{__version__}-py3-none-any.whl", out / f"bwagent-{__version__}.tar.gz"
    )


def in_wheel(built: Built, name: str) -> str:
    with zipfile.ZipFile(built.wheel) as wheel:
        return wheel.read(name).decode()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A repository with the package's files in one commit."""
    return committed(copied(request.config.rootpath, tmp_path_factory.mktemp("build") / "checkout"))


@pytest.fixture(scope="module")
def built(checkout: Path) -> Built:
    return build(checkout, TZ="UTC")


@pytest.mark.slow
def test_two_builds_have_one_digest(checkout: Path, built: Built, tmp_path: Path) -> None:
    """Another folder, umask, time zone, locale, hash seed and other file times change no byte."""
    other = tmp_path / "a folder" / "elsewhere"
    shutil.copytree(
        checkout, other, ignore=shutil.ignore_patterns("out"), copy_function=shutil.copy
    )
    for path in other.rglob("*.py"):
        os.utime(path, (5_000_000, 5_000_000))
    zone = {"TZ": "Pacific/Chatham", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    assert build(other, umask=0o077, **zone).digests() == built.digests()


@pytest.mark.slow
def test_the_revision_is_in_both(checkout: Path, built: Built) -> None:
    """REVISION is the checkout's revision with the time of its commit."""
    known = revision(checkout)
    assert known is not None
    assert known.time == COMMITTED
    assert parsed(in_wheel(built, FILE)) == known
    with tarfile.open(built.sdist) as sdist:
        member = sdist.extractfile(f"bwagent-{__version__}/{FILE}")
        assert member is not None
        assert parsed(member.read().decode()) == known


@pytest.mark.slow
def test_an_sdist_without_git(built: Built, tmp_path: Path) -> None:
    """The wheel that is built from the sdist on a host without git is the same wheel."""
    with tarfile.open(built.sdist) as sdist:
        safe = getattr(tarfile, "data_filter", None)  # Debian 12 has Python 3.11.2 without it
        sdist.extractall(tmp_path, **({"filter": safe} if safe else {}))  # noqa: S202 - our own
    again = build(tmp_path / f"bwagent-{__version__}", PATH="/nowhere")
    assert again.digests()[0] == built.digests()[0]


@pytest.mark.slow
def test_without_any_revision(repository: Path, tmp_path: Path) -> None:
    """An archive without git builds, and claims no revision."""
    with zipfile.ZipFile(build(copied(repository, tmp_path / "copy")).wheel) as wheel:
        assert FILE not in wheel.namelist()


@pytest.mark.slow
def test_source_date_epoch(checkout: Path, tmp_path: Path) -> None:
    """SOURCE_DATE_EPOCH is the time of the revision and of the files."""
    source = tmp_path / "copy"
    shutil.copytree(checkout, source, ignore=shutil.ignore_patterns("out"))
    dated = build(source, SOURCE_DATE_EPOCH=str(EPOCH))
    known = parsed(in_wheel(dated, FILE))
    assert isinstance(known, Revision)
    assert known.time == EPOCH
    with zipfile.ZipFile(dated.wheel) as wheel:
        assert {entry.date_time[:3] for entry in wheel.infolist()} == {(2023, 11, 14)}
