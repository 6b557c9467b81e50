"""The parts below a root, written by hand as pip and gather.py write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.errors import Refused
from release.parts import image_parts

ENTRY = """\
Package: libexample1
Status: install ok installed
Architecture: amd64
Version: 1:2.3+b1-4~deb12u1
Description: an example
 Package: not this one
"""


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image with one Python package, one Debian package, an interpreter and the agent."""
    folder = "opt/bwagent/Some_Example-1.0.dist-info"
    files = {
        f"{folder}/METADATA": "Metadata-Version: 2.4\nName: Some.Example\nVersion: 1.0\n"
        "License-Expression: MIT\n",
        f"{folder}/RECORD": "example.py,,\nSome_Example-1.0.dist-info/METADATA,,\n"
        "Some_Example-1.0.dist-info/RECORD,,\n",
        "opt/bwagent/example.py": "",
        "opt/bwagent/__pycache__/example.cpython-313.pyc": "",
        "opt/bwagent/agent/cli.py": "",
        "var/lib/dpkg/status.d/libexample1": ENTRY,
        "usr/share/doc/libexample1/copyright": "",
        "usr/local/lib/python3.13/os.py": "",
    }
    write(tmp_path, files)
    return tmp_path


def test_all_kinds(root: Path) -> None:
    """Names as their registries spell them, and package URLs with what has to be quoted quoted."""
    python, debian, interpreter = image_parts(root)
    assert python == ("pypi", "some-example", "1.0", "pkg:pypi/some-example@1.0", "MIT")
    purl = "pkg:deb/debian/libexample1@1%3A2.3%2Bb1-4~deb12u1?arch=amd64"
    assert debian == ("deb", "libexample1", "1:2.3+b1-4~deb12u1", purl, None)
    assert interpreter[:3] == ("generic", "python", "3.13")


def test_a_file_of_no_package(root: Path) -> None:
    write(root, {"opt/bwagent/stray.so": "", "opt/bwagent/sub/stray.py": ""})
    with pytest.raises(Refused, match=r"^opt/bwagent/stray\.so: .*2 such files"):
        image_parts(root)


def test_a_debian_package_without_its_copyright_file(root: Path) -> None:
    """A license is not fulfilled by a name: its text has to be there."""
    (root / "usr/share/doc/libexample1/copyright").unlink()
    with pytest.raises(Refused, match=r"^libexample1: its copyright file"):
        image_parts(root)
