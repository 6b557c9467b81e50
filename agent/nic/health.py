"""The health of NICs as their drivers report it: devlink health reporters and devlink info.

Attributes are those of include/uapi/linux/devlink.h; states are enum devlink_health_reporter_state
of include/net/devlink.h. The kernel has no time of a recovery, but that of the last dump,
which an error writes: DEVLINK_ATTR_HEALTH_REPORTER_DUMP_TS_NS.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agent.errors import Malformed
from agent.nic.link_state import LinkState, number
from agent.nic.link_state import decode as link_state
from agent.text import Json, listed, many, visible

HEALTHY, ERROR = STATES = ("healthy", "error")  # DEVLINK_HEALTH_REPORTER_STATE_*
MAX_REPORTERS = 64  # of a NIC, and versions
MAX_NAME = 64


class HealthReporter(NamedTuple):
    """A health reporter of a NIC or of one of its ports; None is unknown."""

    name: str  # DEVLINK_ATTR_HEALTH_REPORTER_NAME: "fw", "fw_fatal", "tx", ...
    state: str  # _STATE: "healthy" | "error" | "unnamed-2"
    errors: int | None = None  # _ERR_COUNT
    recoveries: int | None = None  # _RECOVER_COUNT
    last_dump: float | None = None  # _DUMP_TS_NS, in seconds since the epoch
    port: int | None = None  # DEVLINK_ATTR_PORT_INDEX; None: a reporter of the NIC


class Firmware(NamedTuple):
    """A version of DEVLINK_ATTR_INFO_VERSION_RUNNING and _STORED; None: not told."""

    name: str  # "fw.version", "fw.mgmt", ...
    running: str | None
    stored: str | None

    @property
    def is_pending(self) -> bool:
        """True if another version runs than is stored."""
        return None not in (self.running, self.stored) and self.running != self.stored


class NicHealth(NamedTuple):
    """The answer of one NIC's driver."""

    pci: str  # DEVLINK_ATTR_DEV_NAME; of another bus than "pci": BUS/NAME
    driver: str | None = None  # DEVLINK_ATTR_INFO_DRIVER_NAME
    reporters: tuple[HealthReporter, ...] = ()
    firmware: tuple[Firmware, ...] = ()

    @property
    def in_error(self) -> list[HealthReporter]:
        """The reporters in error."""
        return [reporter for reporter in self.reporters if reporter.state == ERROR]

    @property
    def fault(self) -> str | None:
        """The reporters in error as a sentence; None: none is."""
        if not self.in_error:
            return None
        names = dict.fromkeys(visible(reporter.name, MAX_NAME) for reporter in self.in_error)
        errors = sum(reporter.errors or 0 for reporter in self.in_error)
        count = f" ({many(errors, 'error')})" if errors else ""
        return f"its driver reports {listed([*names])} in error{count}"


class Nics(NamedTuple):
    """All that the drivers told."""

    links: dict[str, LinkState]  # by netdev
    health: dict[str, NicHealth]  # by PCI address


def device_row(rows: dict[str, Json], bus: str, name: str) -> Json:
    """Return the row of a device among those of an answer, by `NicHealth.pci`."""
    device = name if bus == "pci" else f"{bus}/{name}"
    row: Json = {"device": device, "driver": None, "reporters": [], "running": [], "stored": []}
    return rows.setdefault(device, row)


def decode(answer: Any) -> tuple[Nics, list[tuple[str, str]]]:
    """Decode the helper's answer (agent/nic/query.py).

    Returns also the subject and text of each part that is malformed or was refused. Raises
    Malformed if it is no answer.
    """
    if not isinstance(answer, dict) or not all(
        isinstance(answer.get(key, []), list) for key in ("links", "devices", "errors")
    ):
        raise Malformed("the answer about the NICs is no object of lists")
    nics, faults = Nics({}, {}), []
    for row in answer.get("links", []):
        try:
            state = link_state(row)
            nics.links[state.netdev] = state
        except Malformed as error:
            faults.append(("links", str(error)))
    for row in answer.get("devices", []):
        try:
            nic = _nic(row, faults)
        except Malformed as error:
            faults.append(("devlink", str(error)))
        else:
            nics.health[nic.pci] = nic
    for row in answer.get("errors", []):
        subject, text = row if isinstance(row, list) and len(row) == 2 else ("nics", row)
        faults.append((visible(str(subject), MAX_NAME), visible(str(text), 200)))
    return nics, faults


def _nic(row: Any, faults: list[tuple[str, str]]) -> NicHealth:
    if not isinstance(row, dict) or not isinstance(pci := row.get("device"), str):
        raise Malformed("a devlink device without a name")
    reporters = []
    for item in _items(row, "reporters", pci):
        try:
            reporters.append(_reporter(item, pci))
        except Malformed as error:
            faults.append((visible(pci, MAX_NAME), str(error)))
    running, stored = (_versions(row, key, pci) for key in ("running", "stored"))
    firmware = [
        Firmware(name, running.get(name), stored.get(name)) for name in {**running, **stored}
    ]
    return NicHealth(pci, _text(row, "driver", pci), tuple(reporters), tuple(firmware))


def _reporter(item: Any, pci: str) -> HealthReporter:
    name = _text(item, "name", pci) if isinstance(item, dict) else None
    if not name:
        raise Malformed("a health reporter without a name")
    subject = f"{pci}: health reporter {name}"
    state, errors, recoveries, dumped, port = (
        number(item, key, subject) for key in ("state", "errors", "recoveries", "dump_ns", "port")
    )
    if state is None:
        raise Malformed(f"health reporter {visible(name, MAX_NAME)}: the state is missing")
    word = STATES[state] if state < len(STATES) else f"unnamed-{state}"
    return HealthReporter(name, word, errors, recoveries, dumped / 1e9 if dumped else None, port)


def _versions(row: dict[str, Any], key: str, pci: str) -> dict[str, str]:
    return {
        name: value
        for name, value in (
            (_text(item, "name", pci), _text(item, "value", pci))
            for item in _items(row, key, pci)
            if isinstance(item, dict)
        )
        if name and value
    }


def _items(row: dict[str, Any], key: str, pci: str) -> Iterable[Any]:
    items = row.get(key) or []
    if not isinstance(items, list) or len(items) > MAX_REPORTERS:
        raise Malformed(f"{visible(pci, MAX_NAME)}: {key!r} is no list of at most {MAX_REPORTERS}")
    return items


def _text(row: dict[str, Any], key: str, pci: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise Malformed(f"{visible(pci, MAX_NAME)}: {key!r} is no text")
    return value
