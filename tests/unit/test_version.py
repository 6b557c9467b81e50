"""The one version: the package's, wherever else it is written, and how it is set."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import __version__
from agent.revision import Revision
from release.errors import Refused
from release.version import CHANGELOG, PLACES, changed, is_release, tag, written
from tests.support.checkouts import COMMITTED, committed

NAME = "2fd1c04a9e31" + 28 * "0"
DAY = "2027-01-15"
NO_CACHE = shutil.ignore_patterns("__pycache__")  # Python may write it anew
# https://semver.org, "Is there a suggested regular expression", without build metadata: none can
# be in the tag of an image.
SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
)


@pytest.mark.parametrize(("name", "before", "spelled"), PLACES)
def test_the_version_is_one(
    repository: Path, name: str, before: str, spelled: Callable[[str], str]
) -> None:
    """Chart, manifests, image and their documents have the version of the package."""
    assert written(repository, name, before) == {spelled(__version__)}


def test_the_changelog_has_the_version(repository: Path) -> None:
    """The first section is that of the release, or of what follows the last one."""
    first = re.findall("^## (.*)$", (repository / CHANGELOG).read_text(), re.MULTILINE)[0]
    expected = rf"{re.escape(__version__)} - \d{{4}}-\d\d-\d\d"
    assert re.fullmatch(expected if is_release(__version__) else "Unreleased", first)


@pytest.mark.parametrize(
    ("version", "name", "expected"),
    [
        ("0.3.0", None, "0.3.0"),
        ("0.3.0", NAME, "0.3.0"),
        ("0.4.0.dev0", None, "0.4.0-dev"),
        ("0.4.0.dev0", NAME, "0.4.0-dev.2fd1c04a9e31"),
        ("0.4.0.dev0", f"{NAME}-dirty", "0.4.0-dev.2fd1c04a9e31-dirty"),
        # Digits alone, and a zero before them: not until there is a letter.
        ("0.4.0.dev0", "0" + 12 * "1" + 27 * "a", "0.4.0-dev.0111111111111a"),
    ],
)
def test_tags(version: str, name: str | None, expected: str) -> None:
    """A tag is a Semantic Version, and between two releases never that of one."""
    found = tag(version, Revision(name, COMMITTED) if name else None)
    assert found == expected
    assert SEMVER.fullmatch(found)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", found)  # of an image


@pytest.fixture
def copy(repository: Path, tmp_path: Path) -> Path:
    """A copy of the files with the version, which is then 7.8.0.dev0."""
    for name in {CHANGELOG, *(file for file, *_ in PLACES)}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / name, tmp_path)
        shutil.move(tmp_path / Path(name).name, tmp_path / name)
    set_to(tmp_path, "7.8.0.dev0")
    changelog = tmp_path / CHANGELOG
    changelog.write_text("# Changelog\n\n## Unreleased\n\n### Added\n\n- A.\n\n## 7.7.0 - d\n")
    return tmp_path


def set_to(folder: Path, version: str) -> None:
    for path, text in changed(folder, version, DAY).items():
        path.write_text(text)


def test_a_release_and_what_follows(copy: Path) -> None:
    """Every place follows, and the section Unreleased becomes that of the release."""
    for version in ("7.8.0", "7.9.0.dev0"):
        set_to(copy, version)
        for name, before, spelled in PLACES:
            assert written(copy, name, before) == {spelled(version)}
    assert (copy / CHANGELOG).read_text() == (
        f"# Changelog\n\n## Unreleased\n\n## 7.8.0 - {DAY}\n\n### Added\n\n- A.\n\n## 7.7.0 - d\n"
    )


def test_what_is_no_next_version(copy: Path) -> None:
    """One line that names it; nothing of the checkout changes."""
    for version in ("7.7.9", "7.8.0.dev0", "7.8.0-dev", "v7.8.0", "7.8", "7.8.0.dev1"):
        with pytest.raises(Refused, match=f"^{re.escape(version)}: "):
            changed(copy, version, DAY)


def test_a_release_without_news(copy: Path) -> None:
    """Nor one that Unreleased in the changelog says nothing of."""
    for text in ("# C\n\n## Unreleased\n\n## 7.7.0 - d\n\n- B.\n", "# C\n\n## 7.7.0 - d\n\n- B.\n"):
        (copy / CHANGELOG).write_text(text)
        with pytest.raises(Refused, match=r"^CHANGELOG\.md: the first section is not Unreleased"):
            changed(copy, "7.8.0", DAY)


def test_a_place_that_is_gone(copy: Path) -> None:
    (copy / "Containerfile").write_text("FROM scratch\n")
    with pytest.raises(Refused, match=r"^Containerfile: no version behind "):
        changed(copy, "7.8.0", DAY)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-IS", "-c", "import sys; sys.path[:0] = ['.']; "]
    command[-1] += "import runpy; runpy.run_module('release.version', run_name='__main__')"
    return subprocess.run(
        [*command, *arguments], cwd=folder, check=False, capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_command(repository: Path, copy: Path) -> None:
    """It needs no package but the checkout's; it prints the tag, and sets the version."""
    shutil.copy(repository / "agent/revision.py", copy / "agent")
    shutil.copytree(repository / "release", copy / "release", ignore=NO_CACHE)
    committed(copy)
    assert re.fullmatch(r"7\.8\.0-dev\.[0-9a-f]{12,}\n", run(copy).stdout)
    refused = run(copy, "7.7.0")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert run(copy).stdout.startswith("7.8.0-dev.")
    assert run(copy, "7.8.0").returncode == 0
    assert run(copy).stdout == "7.8.0\n"


def test_a_checkout_that_git_refuses(repository: Path, copy: Path) -> None:
    """One line and no tag, which would lack the commit: as for another user than the owner."""
    shutil.copy(repository / "agent/revision.py", copy / "agent")
    shutil.copytree(repository / "release", copy / "release", ignore=NO_CACHE)
    assert run(copy).stdout == "7.8.0-dev\n"  # an archive
    (copy / ".git").mkdir()
    refused = run(copy)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"release.version: {copy}: git names no commit, which belongs into the tag: "
        f"run as the owner of the checkout, and see: git -C {copy} log -1\n"
    )
    set_to(copy, "7.8.0")
    assert run(copy).stdout == "7.8.0\n"  # a release has no commit in its tag
