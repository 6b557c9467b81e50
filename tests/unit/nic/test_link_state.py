"""The extended link state: every number of the kernel's ABI, unknown ones, malformed rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyroute2.netlink.generic.ethtool import ethtool_linkstate_msg  # type: ignore[import-untyped]

from agent.errors import Malformed
from agent.nic import query
from agent.nic.link_state import STATES, SUBSTATES, LinkState, decode
from agent.nic.query import link_request, link_row

HEADER = Path("/usr/include/linux/ethtool.h")
# ETHTOOL_MSG_LINKSTATE_GET_REPLY of eth0, in the layout of net/ethtool/linkstate.c: down, no cable,
# three times down before; then link training failed, for a fault of the far end.
NO_CABLE = bytes.fromhex(
    "44000000150000000100000000000000"
    "0b010000"
    "180001800800010002000000090002006574683000000000"
    "0500020000000000"
    "0500050004000000"
    "0800070003000000"
)  # fmt: skip
REMOTE_FAULT = bytes.fromhex(
    "44000000150000000100000000000000"
    "0b010000"
    "180001800800010002000000090002006574683000000000"
    "0500020000000000"
    "0500050001000000"
    "0500060004000000"
)  # fmt: skip


def message(data: bytes) -> Any:
    decoded = query.LinkStateMessage(data)
    decoded.decode()
    return decoded


def test_a_reply_of_the_kernel() -> None:
    """A message class of our own has the attributes, also after pyroute2's was used."""
    ethtool_linkstate_msg(NO_CABLE).decode()
    assert decode(link_row("eth0", message(NO_CABLE))) == LinkState(
        "eth0", is_up=False, state="no-cable", text="no cable is plugged in", downs=3
    )
    assert decode(link_row("eth0", message(REMOTE_FAULT))) == LinkState(
        *("eth0", False, "link-training-failure", "remote-fault"),
        "link training failed: the far end reports a fault",
    )


def test_the_request() -> None:
    """It names the netdev."""
    request = link_request("eth0")
    request.encode()
    assert request["cmd"] == 6
    assert b"eth0\0" in request.data


def test_a_driver_that_tells_nothing() -> None:
    """Absent is absent: link up or not, and no more."""
    assert decode({"netdev": "eth0", "link": 1}) == LinkState("eth0", is_up=True)
    assert decode({"netdev": "eth0", "link": None}) == LinkState("eth0", None)


def test_numbers_that_a_newer_kernel_added() -> None:
    """They have no name and no guess."""
    state = decode({"netdev": "eth0", "link": 0, "ext_state": 99, "ext_substate": 7})
    assert (state.state, state.substate) == ("unnamed-99", "unnamed-7")
    assert state.text == (
        "state 99, which this version of bwagent does not know: "
        "substate 7, which this version of bwagent does not know"
    )


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (None, "link state: no netdev"),
        ({"link": 0}, "link state: no netdev"),
        ({"netdev": "eth0", "ext_state": "4"}, "eth0: 'ext_state' is no unsigned number"),
        ({"netdev": "eth0", "ext_down_cnt": -1}, "eth0: 'ext_down_cnt' is no unsigned number"),
        ({"netdev": "eth0", "link": True}, "eth0: 'link' is no unsigned number"),
    ],
)
def test_malformed_rows(row: Any, error: str) -> None:
    """One line that names the netdev."""
    with pytest.raises(Malformed, match=f"^{re.escape(error)}$"):
        decode(row)


@pytest.mark.skipif(not HEADER.exists(), reason="no kernel headers")
def test_the_names_are_those_of_the_header() -> None:
    """In the order of its enums."""
    text = HEADER.read_text()

    def numbers(enum: str) -> list[str]:
        body = text.partition(f"enum {enum} {{")[2].partition("}")[0]
        return re.findall(r"ETHTOOL_LINK_EXT_\w+", body)

    states = numbers("ethtool_link_ext_state")
    prefix = "ETHTOOL_LINK_EXT_STATE_"
    known = [prefix + name.upper().replace("-", "_") for name, _ in STATES.values()]
    assert known[: len(states)] == states
    enums = {
        0: ("autoneg", "AN"),
        1: ("link_training", "LT"),
        2: ("link_logical_mismatch", "LLM"),
        3: ("bad_signal_integrity", "BSI"),
        5: ("cable_issue", "CI"),
        10: ("module", "MODULE"),
    }
    assert SUBSTATES.keys() == enums.keys()
    for state, (enum, short) in enums.items():
        prefix = f"ETHTOOL_LINK_EXT_SUBSTATE_{short}_"
        named = [prefix + name.upper().replace("-", "_") for name, _ in SUBSTATES[state].values()]
        assert named == numbers(f"ethtool_link_ext_substate_{enum}")
        assert [*SUBSTATES[state]] == [*range(1, len(named) + 1)]
