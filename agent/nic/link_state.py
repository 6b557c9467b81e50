"""Why a link is down, as the driver of its netdev says: ETHTOOL_MSG_LINKSTATE_GET.

The numbers are those of include/uapi/linux/ethtool.h, enum ethtool_link_ext_state and the enums
ethtool_link_ext_substate_*; the texts follow Documentation/networking/ethtool-netlink.rst. A number
that a newer kernel added has no name here, and its text says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agent.errors import Malformed
from agent.text import Json, visible

NO_CABLE = 4
# state -> name, text; ETHTOOL_LINK_EXT_STATE_*
STATES: Mapping[int, tuple[str, str]] = {
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
SUBSTATES: Mapping[int, Mapping[int, tuple[str, str]]] = {
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


def decode(row: Any) -> LinkState:
    """Decode a row of the helper's answer (agent/nic/query.py); raises Malformed."""
    if not isinstance(row, dict) or not isinstance(netdev := row.get("netdev"), str):
        raise Malformed("link state: no netdev")
    link, state, substate, downs = (
        number(row, key, netdev) for key in ("link", "ext_state", "ext_substate", "ext_down_cnt")
    )
    name, text = (None, None) if state is None else STATES.get(state, _unknown("state", state))
    inner: str | None = None
    if state is not None and substate:
        known = SUBSTATES.get(state, {})
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
