"""What the driver of a NIC tells: why a link is down, its health reporters, its firmware.

Link states are the answer to ETHTOOL_MSG_LINKSTATE_GET. The numbers are those of
include/uapi/linux/ethtool.h, enum ethtool_link_ext_state and the enums
ethtool_link_ext_substate_*; the texts follow Documentation/networking/ethtool-netlink.rst. A number
that a newer kernel added has no name here, and its text says so.

Health is that of devlink health reporters and devlink info. Attributes are those of
include/uapi/linux/devlink.h; states are enum devlink_health_reporter_state of
include/net/devlink.h. The kernel has no time of a recovery, but that of the last dump, which an
error writes: DEVLINK_ATTR_HEALTH_REPORTER_DUMP_TS_NS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agent.errors import Malformed
from agent.text import Json, listed, many, visible

NO_CABLE = 4
# state -> name, text; ETHTOOL_LINK_EXT_STATE_*
LINK_STATES: Mapping[int, tuple[str, str]] = {
    0: ("autoneg", "autonegotiation failed"),
    1: ("link-training-failure", "link training failed"),
    2: ("link-logical-mismatch", "PCS or FEC of the two ends do not match"),
    3: ("bad-signal-integrity", "bad signal integrity"),
    NO_CABLE: ("no-cable", "no cable is plugged in"),
    5: ("cable-issue", "a fault of the cable"),
    6: ("eeprom-issue", "the EEPROM of the module cannot be read"),
    7: ("calibration-failure", "calibration failed"),
    8: ("power-budget-exceeded", "the cable or module needs more power than the port provides"),
    9: ("overheat", "the module is overheated"),
    10: ("module", "a fault of the module"),
}
# state -> substate -> name, text; ETHTOOL_LINK_EXT_SUBSTATE_*
LINK_SUBSTATES: Mapping[int, Mapping[int, tuple[str, str]]] = {
    0: {  # AN_*
        1: ("no-partner-detected", "no partner detected: the far end is down"),
        2: ("ack-not-received", "no acknowledgment from the far end"),
        3: ("next-page-exchange-failed", "the exchange of pages failed"),
        4: (
            "no-partner-detected-force-mode",
            "no partner detected at a forced speed: the far end is down or has another speed",
        ),
        5: ("fec-mismatch-during-override", "the two ends have different FEC modes"),
        6: ("no-hcd", "the two ends have no mode in common"),
    },
    1: {  # LT_*
        1: ("kr-frame-lock-not-acquired", "no frame lock"),
        2: ("kr-link-inhibit-timeout", "no lock in time"),
        3: (
            "kr-link-partner-did-not-set-receiver-ready",
            "the far end did not signal that its receiver is ready",
        ),
        4: ("remote-fault", "the far end reports a fault"),
    },
    2: {  # LLM_*
        1: ("pcs-did-not-acquire-block-lock", "no block lock of the PCS"),
        2: ("pcs-did-not-acquire-am-lock", "no lock on the alignment markers"),
        3: ("pcs-did-not-get-align-status", "the PCS is not aligned"),
        4: ("fc-fec-is-not-locked", "the FC-FEC is not locked"),
        5: ("rs-fec-is-not-locked", "the RS-FEC is not locked"),
    },
    3: {  # BSI_*
        1: ("large-number-of-physical-errors", "a large number of physical errors"),
        2: ("unsupported-rate", "the cable does not support the rate"),
        3: ("serdes-reference-clock-lost", "the reference clock of the SerDes is lost"),
        4: ("serdes-alos", "loss of signal at the SerDes"),
    },
    5: {  # CI_*
        1: ("unsupported-cable", "the cable is not supported"),
        2: ("cable-test-failure", "the test of the cable failed"),
    },
    10: {1: ("cmis-not-ready", "the CMIS state machine is not in ModuleReady")},
}
HEALTHY, ERROR = HEALTH_STATES = ("healthy", "error")  # DEVLINK_HEALTH_REPORTER_STATE_*
MAX_REPORTERS = 64  # of a NIC, and versions
MAX_NAME = 64


class LinkState(NamedTuple):
    """The answer of a netdev's driver; None: the driver, or the kernel, does not tell."""

    netdev: str
    is_up: bool | None  # ETHTOOL_A_LINKSTATE_LINK
    state: str | None = None  # ETHTOOL_A_LINKSTATE_EXT_STATE, only while the link is down
    substate: str | None = None  # ETHTOOL_A_LINKSTATE_EXT_SUBSTATE
    text: str | None = None  # both in words
    downs: int | None = None  # ETHTOOL_A_LINKSTATE_EXT_DOWN_CNT, kernel 6.3 and newer

    def as_json(self) -> Json:
        """Return the extended state and its words."""
        return {"state": self.state, "substate": self.substate, "text": self.text}


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
    running, stored = (
        {
            name: value
            for item in _items(row, key, pci)
            if isinstance(item, dict)
            for name, value in [(_text(item, "name", pci), _text(item, "value", pci))]
            if name and value
        }
        for key in ("running", "stored")
    )
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
    word = HEALTH_STATES[state] if state < len(HEALTH_STATES) else f"unnamed-{state}"
    return HealthReporter(name, word, errors, recoveries, dumped / 1e9 if dumped else None, port)


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


def link_state(row: Any) -> LinkState:
    """Decode a row of the helper's answer (agent/nic/query.py); raises Malformed."""
    if not isinstance(row, dict) or not isinstance(netdev := row.get("netdev"), str):
        raise Malformed("link state: no netdev")
    link, state, substate, downs = (
        number(row, key, netdev) for key in ("link", "ext_state", "ext_substate", "ext_down_cnt")
    )
    name, text = (None, None) if state is None else LINK_STATES.get(state, _unknown("state", state))
    inner: str | None = None
    if state is not None and substate:
        known = LINK_SUBSTATES.get(state, {})
        inner, more = known.get(substate, _unknown("substate", substate))
        text = f"{text}: {more}"
    is_up = None if link is None else bool(link)
    return LinkState(netdev, is_up, name, inner, text, downs)


def number(row: Mapping[str, Any], key: str, subject: str) -> int | None:
    """Return a number of a row, None without it; raises Malformed for anything else."""
    value = row.get(key)
    if value is not None and (type(value) is not int or not 0 <= value < 1 << 64):
        raise Malformed(f"{visible(subject, 64)}: {key!r} is no unsigned number")
    return value


def _unknown(what: str, value: int) -> tuple[str, str]:
    """Return name and text of a number that this agent does not know."""
    return f"unnamed-{value}", f"{what} {value}, which this version of bwagent does not know"
