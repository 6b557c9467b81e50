"""SBOM and provenance, as their readers see them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from urllib.parse import unquote

import pytest

from release.licenses import checked
from release.parts import Part
from release.provenance import Source, digests, statement
from release.sbom import document

DIGEST = 64 * "a"
PARTS = [
    Part("pypi", "click", "8.3", "pkg:pypi/click@8.3", "BSD-3-Clause"),
    Part("deb", "liblzma5", "5.4.1-1", "pkg:deb/debian/liblzma5@5.4.1-1?arch=amd64"),
]
SOURCE = Source("https://example.com/bwagent", "refs/tags/v1", 40 * "b", 1_800_000_000)


@pytest.mark.parametrize(
    ("kind", "type_", "purl"),
    [
        ("image-arm64", "container", f"pkg:oci/bwagent@sha256:{DIGEST}"),
        ("wheel", "application", "pkg:pypi/bwagent@1.0"),
    ],
)
def test_sbom(kind: str, type_: str, purl: str) -> None:
    """Subject with digest and day of the commit; each part with package URL and license."""
    bom = json.loads(document(kind, "1.0", DIGEST, SOURCE.epoch, checked(PARTS)))
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert bom["metadata"]["timestamp"] == "2027-01-15T08:00:00+00:00"
    subject = bom["metadata"]["component"]
    assert (subject["type"], subject["version"]) == (type_, "1.0")
    assert unquote(subject["purl"]) == purl
    assert subject["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]
    found = {one["purl"]: one["licenses"][0]["expression"] for one in bom["components"]}
    assert found == {PARTS[0].purl: "BSD-3-Clause", PARTS[1].purl: "LicenseRef-public-domain"}
    (root,) = [one for one in bom["dependencies"] if one["ref"] == subject["bom-ref"]]
    assert set(root["dependsOn"]) == found.keys()


def test_the_same_parts_give_the_same_sbom() -> None:
    """Order, time of day and randomness leave no trace; another file has another serial number."""
    found = checked(PARTS)
    first = document("image-amd64", "1.0", DIGEST, 5, found)
    assert document("image-amd64", "1.0", DIGEST, 5, found[::-1]) == first
    serials = {
        json.loads(document("image-amd64", "1.0", digest, 5, found))["serialNumber"]
        for digest in (DIGEST, 64 * "b")
    }
    assert len(serials) == 2


def test_provenance(tmp_path: Path) -> None:
    """Every file with its digest; the commit and the base are the inputs."""
    for name in ("b.whl", "a.tar.gz"):
        (tmp_path / name).write_text(name)
    made = digests(tmp_path.iterdir())
    base = "docker://example.com/python@sha256:1"
    said = json.loads(statement(SOURCE, made, {base: DIGEST}))
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == "https://slsa.dev/provenance/v1"
    assert said["subject"] == [
        {"name": name, "digest": {"sha256": hashlib.sha256(name.encode()).hexdigest()}}
        for name in ("a.tar.gz", "b.whl")
    ]
    definition = said["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["ref"] == "refs/tags/v1"
    assert definition["resolvedDependencies"] == [
        {
            "uri": "git+https://example.com/bwagent@refs/tags/v1",
            "digest": {"gitCommit": SOURCE.commit},
        },
        {"uri": base, "digest": {"sha256": DIGEST}},
    ]
    assert said["predicate"]["runDetails"]["builder"]["id"]
