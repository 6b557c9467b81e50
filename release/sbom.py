"""CycloneDX documents, by the OWASP library; the same parts give the same bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL

from release.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from release.licenses import Licensed


PYTHON = {"wheel", "plugin"}  # kinds of files; the others are images


def document(kind: str, version: str, sha256: str, epoch: int, found: Iterable[Licensed]) -> str:
    """Return the SBOM of what has this digest; raises Refused if the schema is violated."""
    subject = Component(
        name="bwagent",
        version=version,
        type=ComponentType.APPLICATION if kind in PYTHON else ComponentType.CONTAINER,
        bom_ref=f"bwagent-{kind}",
        purl=_purl(kind, version, sha256),
        licenses=[LicenseExpression("Apache-2.0")],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
    )
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"sha256:{sha256}"))
    bom.metadata.component = subject
    bom.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    components = [_component(one) for one in found]
    for component in components:
        bom.components.add(component)
    bom.register_dependency(subject, components)
    return _valid(JsonV1Dot6(bom).output_as_string(indent=2))


def _purl(kind: str, version: str, sha256: str) -> PackageURL:
    if kind in PYTHON:
        return PackageURL("pypi", None, "bwagent", version)
    return PackageURL("oci", None, "bwagent", f"sha256:{sha256}")


def _component(one: Licensed) -> Component:
    part = one.part
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        bom_ref=part.purl,
        purl=PackageURL.from_string(part.purl),
        licenses=[LicenseExpression(one.expression)],
    )


def _valid(text: str) -> str:
    from cyclonedx.validation.json import JsonStrictValidator  # a second, if there is a document

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error:
        raise Refused(f"SBOM: {str(error).splitlines()[0][:200]}")
    return f"{text}\n"
