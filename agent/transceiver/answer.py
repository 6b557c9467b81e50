"""The helper's answer about transceiver modules (agent/helper/main.py, modules)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agent.errors import Malformed
from agent.facts import TEXT, Kind, Schema, array, record

MAX_MODULES = 64


class Module(NamedTuple):
    """The helper's answer about one module."""

    netdev: str
    pages: Mapping[str, bytes]  # by name
    error: str | None = None


PAGES = Kind(
    lambda pages: {name: bytes.fromhex(octets) for name, octets in dict(pages).items()},
    lambda pages: {name: octets.hex() for name, octets in pages.items()},
)
MODULE: Schema = {"netdev": TEXT, "pages": PAGES, "error": TEXT}
MODULES = array(record(Module, MODULE, ("netdev", "pages")), MAX_MODULES)


def loaded(answer: Any) -> tuple[Module, ...]:
    """Return the modules of an answer; raises Malformed: it may be of a stranger's snapshot."""
    try:
        modules: tuple[Module, ...] = MODULES.parse(answer.get("modules", []))
    except (ValueError, TypeError, AttributeError):
        text = f"no list of at most {MAX_MODULES} modules with netdev, pages in hex, error"
        raise Malformed(f"modules.json: {text}") from None
    return modules
