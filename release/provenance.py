"""The provenance of files: an in-toto Statement v1 with a predicate of SLSA Provenance v1.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
https://slsa.dev/spec/v1.0/provenance

Written by the release script itself and not signed, so it is what SLSA calls Build L1: it says how
the files were made and protects from mistakes, not from who runs the script. Times of the run are
left out; they would make each run's statement another one.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"


class Source(NamedTuple):
    """Where the input came from: repository, ref, commit and the time of that."""

    repository: str
    ref: str
    commit: str
    epoch: int


def sha256(path: Path) -> str:
    """Return a file's digest in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(files: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of files by their names."""
    return {path.name: sha256(path) for path in files}


def statement(source: Source, made: Mapping[str, str], inputs: Mapping[str, str]) -> str:
    """Return the statement about what was made; both it and further `inputs` have their sha256."""
    uri = f"git+{source.repository}@{source.ref}"
    revision = {"uri": uri, "digest": {"gitCommit": source.commit.removesuffix("-dirty")}}
    others = [{"uri": name, "digest": {"sha256": known}} for name, known in sorted(inputs.items())]
    definition = {
        "buildType": f"{source.repository}#nox-release-v1",
        "externalParameters": {"repository": source.repository, "ref": source.ref},
        "internalParameters": {"SOURCE_DATE_EPOCH": source.epoch, "revision": source.commit},
        "resolvedDependencies": [revision, *others],
    }
    predicate = {
        "buildDefinition": definition,
        "runDetails": {"builder": {"id": f"{source.repository}#release"}},
    }
    subjects = [{"name": name, "digest": {"sha256": known}} for name, known in sorted(made.items())]
    document = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": predicate,
    }
    return f"{json.dumps(document, indent=2)}\n"
