"""The parts below a root: Python packages by their metadata, Debian packages by status.d.

Invariant: a part is in the list because its own metadata lies below the root, so the list is what
was shipped and not what was asked for.
"""

from __future__ import annotations

import re
from email.parser import HeaderParser
from importlib.metadata import Distribution, distributions
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote

from release.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEBIAN = "var/lib/dpkg/status.d"
OWN = {"bwagent", "agent"}  # the subject, which is no part of itself
INTERPRETER = "usr/local/lib/python3.*/os.py"


class Part(NamedTuple):
    """A package: its kind, name, version, package URL, and the license that its metadata states."""

    kind: Literal["pypi", "deb", "generic"]
    name: str
    version: str
    purl: str
    stated: str | None = None


def python_parts(folder: Path) -> list[Part]:
    """Return the Python packages that are installed in a folder, by name."""
    found = (python_part(one) for one in distributions(path=[str(folder)]))
    return sorted(part for part in found if part.name not in OWN)


def python_part(one: Distribution) -> Part:
    """Return an installed package, by its name as PyPI spells it."""
    name = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()
    fields = one.metadata
    stated = fields.get_all("License-Expression") or fields.get_all("License") or [None]
    return Part("pypi", name, one.version, f"pkg:pypi/{name}@{one.version}", stated[0])


def debian_parts(root: Path) -> list[Part]:
    """Return the Debian packages below a root; raises Refused if one lacks its copyright file."""
    parts = []
    for path in sorted((root / DEBIAN).glob("*")):
        if not (root / "usr/share/doc" / path.name / "copyright").is_file():
            raise Refused(f"{path.name}: its copyright file is not in the image")
        parts.append(_debian(path.read_text()))
    return parts


def _debian(entry: str) -> Part:
    fields = HeaderParser().parsestr(entry)
    name, version, architecture = (fields[key] for key in ("Package", "Version", "Architecture"))
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={architecture}"
    return Part("deb", name, version, purl)


def image_parts(root: Path, packages: str = "opt/bwagent") -> list[Part]:
    """Return all parts of an image's file system; raises Refused for a file of no package."""
    stray = sorted(_stray(root / packages))
    if stray:
        raise Refused(f"{packages}/{stray[0]}: belongs to no package ({len(stray)} such files)")
    interpreters = [
        Part("generic", "python", version, f"pkg:generic/python@{version}")
        for path in root.glob(INTERPRETER)
        for version in [path.parent.name.removeprefix("python")]
    ]
    return [*python_parts(root / packages), *debian_parts(root), *interpreters]


def _stray(folder: Path) -> Iterator[str]:
    """Yield the files that neither a package's RECORD names nor the agent has."""
    records = (one.files or [] for one in distributions(path=[str(folder)]))
    known = {str(name) for files in records for name in files}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        is_ours = name.startswith("agent/") or "__pycache__" in path.parts
        if not is_ours and name not in known and path.is_file():
            yield name
