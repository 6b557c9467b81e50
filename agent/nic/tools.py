"""The answer about NICs from what ethtool(8) and devlink(8) printed: captures by capture.sh.

ethtool/IF.txt         the lines `Link detected` and `Link Down Events` of `ethtool IF`
devlink/health.json    of `devlink -j health show`
devlink/info.json      of `devlink -j dev info`

ethtool prints the extended state in words (its netlink/settings.c), nearly those of the kernel's
names. Words that are not known here are an error of that netdev, as a refusal is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed
from agent.nic.driver import HEALTH_STATES, LINK_STATES, LINK_SUBSTATES, device_row
from agent.text import Json

if TYPE_CHECKING:
    from agent.snapshot.tree import SnapshotFiles

ETHTOOL, HEALTH, INFO = "ethtool", "devlink/health.json", "devlink/info.json"
# ethtool's words that are not those of the kernel's name
OTHER_WORDS = {
    "logical-mismatch": "link-logical-mismatch",
    "no-partner-detected-during-force-mode": "no-partner-detected-force-mode",
    "remote-side-is-not-ready-yet": "remote-fault",
    "cmis-module-is-not-in-moduleready-state": "cmis-not-ready",
}
_LINK = re.compile(r"Link detected: (yes|no)(?: \(([^,()]+)(?:, ([^()]+))?\))?$", re.MULTILINE)
_DOWNS = re.compile(r"Link Down Events: (\d{1,10})$", re.MULTILINE)


def answer(files: SnapshotFiles) -> Json | None:
    """Return the answer as the helper gives it (agent/nic/query.py); None if nothing was printed.

    Raises Malformed.
    """
    errors: list[list[str]] = []
    names = [name for name in files.names(ETHTOOL) if name.endswith(".txt")]
    links = [_link(name, files.read(f"{ETHTOOL}/{name}"), errors) for name in names]
    printed = {file: files.json(file) for file in (HEALTH, INFO)}
    if not links and not any(printed.values()):
        return None
    rows: dict[str, Json] = {}
    for file, key, fill in ((HEALTH, "health", _add_reporters), (INFO, "info", _add_versions)):
        try:
            for handle, value in (printed[file] or {}).get(key, {}).items():
                bus, name, *port = handle.split("/")  # pci/0000:18:00.0, or with /1, a port
                fill(device_row(rows, bus, name), int(port[0]) if port else None, value)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Malformed(f"{file}: not as devlink -j prints it: {error!r:.80}") from None
    return {"links": links, "devices": [*rows.values()], "errors": errors}


def _link(name: str, text: bytes, errors: list[list[str]]) -> Json:
    netdev, lines = name.removesuffix(".txt"), text.decode("ascii", "replace")
    link, downs = _LINK.search(lines), _DOWNS.search(lines)
    row: Json = {"netdev": netdev, "link": None, "ext_state": None, "ext_substate": None}
    if link:
        row["link"] = int(link[1] == "yes")
        try:
            if link[2]:
                state = row["ext_state"] = _number(link[2], LINK_STATES)
                row["ext_substate"] = link[3] and _number(link[3], LINK_SUBSTATES.get(state, {}))
        except ValueError as error:
            errors.append([netdev, f"ethtool says {error}, which is not known here"])
    elif lines.strip():
        errors.append([netdev, f"{ETHTOOL}/{name} is not as ethtool prints it"])
    return row | {"ext_down_cnt": int(downs[1]) if downs else None}


def _number(words: str, names: Mapping[int, tuple[str, str]]) -> int:
    """Return the kernel's number of a state; ethtool prints the number of one without words."""
    if words.isdecimal():
        return int(words)
    name = re.sub("[ _]", "-", words.lower())
    name = OTHER_WORDS.get(name, name)
    for number, (known, _) in names.items():
        if known == name:
            return number
    raise ValueError(repr(words[:64]))


def _add_reporters(row: Json, port: int | None, reporters: Any) -> None:
    row["reporters"] += [
        {
            "name": reporter["reporter"],
            "state": HEALTH_STATES.index(reporter["state"]),
            "errors": reporter.get("error"),
            "recoveries": reporter.get("recover"),
            "dump_ns": None,  # printed in the local time of the node
            "port": port,
        }
        for reporter in reporters
    ]


def _add_versions(row: Json, _port: int | None, info: Any) -> None:
    row["driver"] = info.get("driver")
    versions = info.get("versions", {})
    for key in ("running", "stored"):
        items = versions.get(key, {}).items()
        row[key] = [{"name": name, "value": value} for name, value in items]
