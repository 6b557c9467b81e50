"""`kubectl bwagent` as one file, as krew installs it, started by the real kubectl."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from agent import __version__
from release import plugin
from release.licenses import checked
from release.parts import Part
from release.provenance import Source, sha256
from release.version import tag
from tests.support.fleet_nodes import listed, whole
from tests.support.kube import programs
from tests.support.real_parts import require
from tests.support.snapshots import FIXTURES, REPOSITORY

pytestmark = pytest.mark.slow
EPOCH = 1_800_000_000
SOURCE = Source("https://example.com/bwagent", "refs/tags/v1", 40 * "b", EPOCH)
OPTIONAL = {"jinja2", "openpyxl"}  # for the page and for plans in workbooks


class Made(NamedTuple):
    """The files of one build, the parts in them, and the folder into which they are unpacked."""

    archive: Path
    manifest: Path
    parts: list[Part]
    folder: Path

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command with the plugin and kubectl on PATH, and a python3 without packages."""
        others = (Path(programs.program("kubectl")), Path(sys.executable).resolve())
        path = ":".join(map(str, [self.folder, *(one.parent for one in others), "/usr/bin"]))
        known = {"PATH": path, "HOME": str(self.folder)}
        return subprocess.run(
            words, check=False, capture_output=True, env=known, input=stdin, text=True
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY)
    (found,) = folder.glob("*.whl")
    return found


def make(wheel: Path, folder: Path) -> Made:
    folder.mkdir()
    (archive, manifest), parts = plugin.make(wheel, folder, __version__, SOURCE)
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    return Made(archive, manifest, parts, folder / "unpacked")


@pytest.fixture(scope="module")
def made(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    require(programs.missing())
    return make(wheel, tmp_path_factory.mktemp("plugin") / "made")


def nodes() -> str:
    return listed([whole(number) for number in range(1, 5)])


def test_its_files(made: Made) -> None:
    """A program and its license, and nothing compiled in the program."""
    assert {path.name for path in made.folder.iterdir()} == {plugin.PROGRAM, "LICENSE"}
    assert os.access(made.folder / plugin.PROGRAM, os.X_OK)
    with zipfile.ZipFile(made.folder / plugin.PROGRAM) as program:
        assert "agent/cli.py" in program.namelist()
        assert not [name for name in program.namelist() if ".so" in Path(name).suffixes]
    assert {one.part.name for one in checked(made.parts)} >= OPTIONAL


@pytest.mark.sweep
def test_two_builds_have_one_digest(wheel: Path, made: Made, tmp_path: Path) -> None:
    """Another umask changes no byte."""
    previous = os.umask(0o077)
    try:
        again = make(wheel, tmp_path / "again")
    finally:
        os.umask(previous)
    assert sha256(again.archive) == sha256(made.archive)


def test_version(made: Made) -> None:
    """It names its revision, without git."""
    said = made.run("kubectl", "bwagent", "--version")
    assert (said.returncode, said.stderr) == (0, "")
    assert re.fullmatch(rf"bwagent {re.escape(__version__)} \([0-9a-f]{{12}}.*\)\n", said.stdout)


def test_a_fleet(made: Made) -> None:
    """The Nodes come from kubectl by a pipe, or from a file."""
    said = made.run("kubectl", "bwagent", "fleet", "verify", "--nodes", "-", stdin=nodes())
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("4 nodes: no findings; 32 of 32 cables follow the pattern")


def test_the_page(made: Made) -> None:
    """The page is whole: template, style sheet and script come out of the archive."""
    words = ("fleet", "verify", "--nodes", "-", "-o", "html")
    said = made.run("kubectl", "bwagent", *words, stdin=nodes())
    assert (said.returncode, said.stderr) == (0, "")
    folder = REPOSITORY / "agent/fleet/page"
    for name in ("page.css", "page.js"):
        assert (folder / name).read_text().strip() in said.stdout


def test_a_replay(made: Made) -> None:
    """A snapshot gives the same labels as elsewhere; kubectl passes on the exit code."""
    words = ("probe", "--replay", str(FIXTURES / "dgx-h100"), "-o", "labels")
    said = made.run("kubectl", "bwagent", *words)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == (FIXTURES / "dgx-h100/expected.labels").read_text()
    assert made.run("kubectl", "bwagent", "fleet", "--nosuch").returncode == 2


@pytest.mark.parametrize(
    ("words", "package"), [(("fleet", "verify"), "kubernetes"), (("run",), "pythonjsonlogger")]
)
def test_what_it_cannot(made: Made, words: tuple[str, ...], package: str) -> None:
    """One line names the package that is missing, and what to do."""
    said = made.run("kubectl", "bwagent", *words, "--kubeconfig", "/nowhere")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith(f"kubectl bwagent: this needs the package {package}, ")
    assert "from its checkout (pip install .). " in said.stderr
    assert "--nodes -" in said.stderr


def test_the_manifest(made: Made) -> None:
    """The rules of krew's own validation, and the digest of the archive."""
    manifest: dict[str, Any] = yaml.safe_load(made.manifest.read_text())
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    assert f"kubectl-{manifest['metadata']['name']}" == plugin.PROGRAM
    spec = manifest["spec"]
    assert spec["version"] == f"v{tag(__version__)}"
    assert spec["homepage"] == SOURCE.repository
    assert spec["shortDescription"].count("\n") == 0 < len(spec["shortDescription"]) <= 50
    assert spec["description"].strip()
    (platform,) = spec["platforms"]
    assert platform["uri"].startswith(SOURCE.repository)
    assert platform["uri"].endswith(f"/{made.archive.name}")
    assert platform["sha256"] == sha256(made.archive)
    assert (made.folder / platform["bin"]).is_file()
    (expression,) = platform["selector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("os", "In")
    assert "windows" not in expression["values"]
