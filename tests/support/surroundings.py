"""Surroundings without a node, for the checks of `bwagent doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.check import Surroundings
from agent.model import Observation
from tests.support.observations import observation

Folders = Mapping[str, list[str]]


def around(
    seen: Observation | None = None,
    folders: Folders | None = None,
    files: Mapping[str, str] | None = None,
    **changes: Any,
) -> Surroundings:
    """Return surroundings with these folders and files, where nothing has a fault."""
    there, texts = folders or {}, files or {}
    plain = Surroundings(
        seen or observation(),
        names=lambda path: list(there.get(path, [])),
        text=texts.get,
        device_fault=lambda _path: None,
        lldp_fault=lambda _netdev: None,
        private_flags=lambda _netdev: {},
    )
    return replace(plain, **changes)
