"""Make the files of a release in dist/ from the tag at HEAD, or of a commit between two.

The version of such a commit ends in .dev0, and its images have the revision in their tag.
`--dry-run` takes any commit and any change, and leaves the image out; CI runs it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from agent import __version__
from agent.revision import revision
from release.errors import Refused, run
from release.files import ROOT, make
from release.image import checked_base
from release.provenance import Source
from release.version import is_release


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
        base = None if flags.dry_run else checked_base(flags.base)
        *_, sums = make(source, flags.dist.resolve(), base)
        print(sums.read_text(), end="")  # noqa: T201 - as sha256sum does
    except (OSError, Refused) as fault:
        print(f"release: {fault}", file=sys.stderr)  # noqa: T201 - the one line of an error
        return 1
    return 0


def _source(url: str | None, *, dry_run: bool) -> Source:
    """Return what HEAD is; but for a dry run raises Refused if its tag is not its version's."""
    known = revision(ROOT)
    if not known:
        raise Refused(f"{ROOT}: no git checkout")
    repository = _checked(url or _origin())
    if dry_run:
        return Source(repository, known.name, *known)
    tag = f"v{__version__}"
    tags = run("git", "-C", ROOT, "tag", "--points-at", "HEAD", "--list", "v[0-9]*").split()
    if tag not in tags and (tags or is_release(__version__)):
        here = f"{', '.join(tags)} and not" if tags else "not"
        raise Refused(f"HEAD is {here} {tag}, the tag of agent/__init__.py's version")
    if run("git", "-C", ROOT, "status", "--porcelain"):
        raise Refused("the checkout has changes or files that git does not know")
    return Source(repository, f"refs/tags/{tag}" if tags else known.name, *known)


def _checked(url: str) -> str:
    """Return the address; raises Refused, without naming it, if it could have a credential."""
    if not re.fullmatch(r"https://[^@\s]+", url):
        raise Refused("--source: it has to be an https address without a credential")
    return url.removesuffix(".git")


def _origin() -> str:
    try:
        return run("git", "-C", ROOT, "remote", "get-url", "origin")
    except Refused as error:
        raise Refused("--source: missing, and the checkout has no remote origin") from error


if __name__ == "__main__":
    sys.exit(main())
