"""The version of agent/__init__.py, its spelling as a tag, and every other place that has it.

    python3 -m release.version             print the tag of images and charts of this checkout
    python3 -m release.version 0.4.0       set the version of a release
    python3 -m release.version 0.5.0.dev0  set that of what follows it

A version between two releases is that of the next one with `.dev0` (PEP 440). Tags of images and
versions of charts are Semantic Versions: 0.5.0-dev.2fd1c04a9e31, with the revision. What is checked
in cannot know it and has 0.5.0-dev, which is no tag of a release either. So has an archive without
git; a checkout that git refuses has no tag.

Invariant: imports the standard library only, since it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agent.revision import ROOT, Revision, revision
from release.errors import Refused

CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"
_SHORT = 12  # digits of a revision in a tag
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(\.dev0)?")
_WRITTEN = r"([0-9]+\.[0-9]+\.[0-9]+(?:\.dev0|-dev)?)(?![\w.-]*\w)"


def tag(version: str, known: Revision | None = None) -> str:
    """Return a version as images and charts have it, between two releases with the revision."""
    number, separator, _ = version.partition(".dev")
    if not separator:
        return version
    if not known:
        return f"{number}-dev"
    name, separator, dirty = known.name.partition("-")
    # Digits alone would be a number, which has no leading zero.
    digits = next((n for n in range(_SHORT, len(name)) if not name[:n].isdecimal()), len(name))
    return f"{number}-dev.{name[:digits]}{separator}{dirty}"


def is_release(version: str) -> bool:
    """Return False for a version between two releases."""
    return ".dev" not in version


# File, what is before the version there, and how it is spelled.
PLACES: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("agent/__init__.py", '^__version__ = "', str),
    ("docs/release.md", "^bwagent ", str),
    ("Containerfile", "^ARG VERSION=", tag),
    ("Containerfile", "bwagent:", tag),
    ("manifests/base/agent/daemonset.yaml", "image: SET-THE-IMAGE-IN-YOUR-OVERLAY:", tag),
    ("manifests/examples/weekly-check/cronjob.yaml", "IMAGE-IN-YOUR-OVERLAY:", tag),
    ("manifests/chart/Chart.yaml", "^version: ", tag),
    ("manifests/chart/Chart.yaml", "^appVersion: ", tag),
)


def written(root: Path, name: str, before: str) -> set[str]:
    """Return the versions in a file behind what matches `before`."""
    return set(re.findall(f"(?:{before}){_WRITTEN}", (root / name).read_text(), re.MULTILINE))


def changed(root: Path, version: str, day: str) -> dict[Path, str]:
    """Return the files that have a version with a later one; raises Refused if there is none.

    In the changelog the section Unreleased becomes that of a release of this day, and a new one
    begins with what follows.
    """
    file, before, _ = PLACES[0]
    (current,) = written(root, file, before)
    if _order(version) <= _order(current):
        raise Refused(f"{version}: the version is {current}, and a later one follows it")
    texts = {name: (root / name).read_text() for name, *_ in PLACES}
    for name, before, spelled in PLACES:
        pattern = re.compile(f"({before}){_WRITTEN}", re.MULTILINE)
        texts[name], count = pattern.subn(rf"\g<1>{spelled(version)}", texts[name])
        if not count:
            raise Refused(f"{name}: no version behind {before!r}")
    texts[CHANGELOG] = _changelog((root / CHANGELOG).read_text(), version, day)
    return {root / name: text for name, text in texts.items()}


def _order(version: str) -> tuple[int, int, int, bool]:
    match = _VERSION.fullmatch(version)
    if not match:
        raise Refused(f"{version}: neither a version as 0.4.0 nor one as 0.5.0.dev0")
    return int(match[1]), int(match[2]), int(match[3]), not match[4]


def _changelog(text: str, version: str, day: str) -> str:
    head, begin, sections = text.partition("\n## ")
    first = begin[1:] + sections
    if is_release(version):
        news = first.removeprefix(UNRELEASED).partition("\n## ")[0]
        if not first.startswith(UNRELEASED) or not news.strip():
            raise Refused(f"{CHANGELOG}: the first section is not Unreleased, or is empty")
        return f"{head}\n## {version} - {day}\n{first.removeprefix(UNRELEASED)}"
    if first.startswith(UNRELEASED):
        return text
    return f"{head}\n{UNRELEASED}\n{first}"


def _known(root: Path, version: str) -> Revision | None:
    """Return the revision; raises Refused where git, which has it, does not name it."""
    known = revision(root)
    if not known and not is_release(version) and (root / ".git").exists():
        see = f"run as the owner of the checkout, and see: git -C {root} log -1"
        raise Refused(f"{root}: git names no commit, which belongs into the tag: {see}")
    return known


def main() -> int:
    """Print the tag, or write the files; return the exit code; an error is one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="python3 -m release.version",
        description="Print the tag of images and charts of this checkout, or set the version.",
    )
    parser.add_argument("version", nargs="?", help="0.4.0 of a release, or 0.5.0.dev0 after it")
    flags = parser.parse_args()
    try:
        if flags.version is None:
            file, before, _ = PLACES[0]
            (current,) = written(ROOT, file, before)
            print(tag(current, _known(ROOT, current)))  # noqa: T201 - what was asked for
            return 0
        day = time.strftime("%Y-%m-%d", time.gmtime())
        for path, text in changed(ROOT, flags.version, day).items():
            path.write_text(text)
    except (OSError, Refused) as fault:
        print(f"release.version: {fault}", file=sys.stderr)  # noqa: T201 - the one line of an error
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
