"""The license of each part, and the check that it may be shipped (licenses.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from license_expression import ExpressionError, LicenseWithExceptionSymbol, get_spdx_licensing

from release.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from release.parts import Part

POLICY = Path(__file__).with_name("licenses.toml")
_SPDX = get_spdx_licensing()


class Licensed(NamedTuple):
    """A part, its SPDX expression, and the reason of an exception."""

    part: Part
    expression: str
    reason: str = ""


def policy() -> dict[str, Any]:
    """Read licenses.toml."""
    return tomllib.loads(POLICY.read_text())


def checked(parts: Iterable[Part], rules: dict[str, Any] | None = None) -> list[Licensed]:
    """Return the parts with their licenses; raises Refused, naming all that may not be shipped."""
    rules = rules or policy()
    found, faults = [], []
    for part in parts:
        try:
            found.append(_licensed(part, rules))
        except Refused as fault:
            faults.append(str(fault))
    if faults:
        raise Refused(f"licenses: {'; '.join(faults)} (release/licenses.toml)")
    return found


def _licensed(part: Part, rules: dict[str, Any]) -> Licensed:
    if part.kind == "deb":
        known = rules["debian"].get(part.name)
        if not known:
            raise Refused(f"{part.name}: a Debian package without an entry")
        return Licensed(part, known["license"], known["reason"])
    named = rules["exceptions"].get(part.name)
    if part.kind == "generic" and named:
        return Licensed(part, named["license"], named["reason"])
    expression = rules["declared"].get(part.name) or _stated(part)
    if named and expression == named["license"]:
        return Licensed(part, expression, named["reason"])
    if not is_allowed(expression, rules["allow"]):
        raise Refused(f"{part.name}: {expression} is not allowed")
    return Licensed(part, expression)


def _stated(part: Part) -> str:
    """Return the SPDX expression of a part's metadata; raises Refused if it has none."""
    stated = (part.stated or "").strip()
    try:
        parsed = _SPDX.parse(stated, validate=True, strict=True)
    except ExpressionError as error:
        word = stated.splitlines()[0][:40]
        raise Refused(f"{part.name}: {word!r} is no SPDX expression") from error
    if parsed is None:
        raise Refused(f"{part.name}: its metadata states no license")
    return str(parsed)


def is_allowed(expression: str, allow: Iterable[str]) -> bool:
    """Return True if every license of AND and one of OR is allowed; WITH makes another license."""
    return _is_allowed(_SPDX.parse(expression, validate=True, strict=True), set(allow))


def _is_allowed(node: Any, allow: set[str]) -> bool:
    if isinstance(node, _SPDX.AND):
        return all(_is_allowed(part, allow) for part in node.args)
    if isinstance(node, _SPDX.OR):
        return any(_is_allowed(part, allow) for part in node.args)
    if isinstance(node, LicenseWithExceptionSymbol):
        return str(node) in allow
    return node.key in allow


def listing(found: Iterable[Licensed]) -> str:
    """Return the list for people: name, version, license, reason of an exception; by tabs."""
    rows = (f"{part.name}\t{part.version}\t{text}\t{why}".rstrip() for part, text, why in found)
    return "".join(f"{row}\n" for row in rows)
