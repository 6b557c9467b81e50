"""What drivers tell: every number of the kernel's ABI, its messages, malformed answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.devlink import devlinkcmd  # type: ignore[import-untyped]
from pyroute2.netlink.generic.ethtool import ethtool_linkstate_msg  # type: ignore[import-untyped]

from agent.errors import Malformed
from agent.nic import query
from agent.nic.driver import (
    LINK_STATES,
    LINK_SUBSTATES,
    Firmware,
    HealthReporter,
    LinkState,
    NicHealth,
    decode,
    link_state,
)
from agent.nic.query import device_rows, link_request, link_row

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
# Recorded from netdevsim of Linux 6.1 (drivers/net/netdevsim/health.c), whose reporter `dummy` was
# broken three times by `break_health`, the last two times with `fail_recover`.
EMPTY = (
    "6c0000001500020001000000d30f8588340100000e0001006e657464657673696d0000000f0002006e657464657673"
    "696d310000380072000a007300656d70747900000005007400000000000c00750000000000000000000c0076000000"
    "00000000000005008d0001000000"
)
DUMMY = (
    "980000001500020001000000d30f8588340100000e0001006e657464657673696d0000000f0002006e657464657673"
    "696d310000640072000a00730064756d6d7900000005007400010000000c00750003000000000000000c0076000100"
    "0000000000000c007800000000000000000005007900010000000c007700b419fcff000000000c00890090456f7e8a"
    "6aec1805008d0001000000"
)
INFO = (
    "840000001500020001000000e33967a7330100000e0001006e657464657673696d0000000f0002006e657464657673"
    "696d3100000e0062006e657464657673696d000000200066000c00670066772e6d676d74000d00680031302e32302e"
    "333000000000200065000c00670066772e6d676d74000d00680031302e32302e333000000000"
)
PCI = "0000:18:00.0"


def link_message(data: bytes) -> Any:
    decoded = query.LinkStateMessage(data)
    decoded.decode()
    return decoded


def test_a_reply_of_the_kernel() -> None:
    """A message class of our own has the attributes, also after pyroute2's was used."""
    ethtool_linkstate_msg(NO_CABLE).decode()
    assert link_state(link_row("eth0", link_message(NO_CABLE))) == LinkState(
        "eth0", is_up=False, state="no-cable", text="no cable is plugged in", downs=3
    )
    assert link_state(link_row("eth0", link_message(REMOTE_FAULT))) == LinkState(
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
    assert link_state({"netdev": "eth0", "link": 1}) == LinkState("eth0", is_up=True)
    assert link_state({"netdev": "eth0", "link": None}) == LinkState("eth0", None)


def test_numbers_that_a_newer_kernel_added() -> None:
    """They have no name and no guess."""
    state = link_state({"netdev": "eth0", "link": 0, "ext_state": 99, "ext_substate": 7})
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
        link_state(row)


@pytest.mark.skipif(not HEADER.exists(), reason="no kernel headers")
def test_the_names_are_those_of_the_header() -> None:
    """In the order of its enums."""
    text = HEADER.read_text()

    def numbers(enum: str) -> list[str]:
        body = text.partition(f"enum {enum} {{")[2].partition("}")[0]
        return re.findall(r"ETHTOOL_LINK_EXT_\w+", body)

    states = numbers("ethtool_link_ext_state")
    prefix = "ETHTOOL_LINK_EXT_STATE_"
    known = [prefix + name.upper().replace("-", "_") for name, _ in LINK_STATES.values()]
    assert known[: len(states)] == states
    enums = {
        0: ("autoneg", "AN"),
        1: ("link_training", "LT"),
        2: ("link_logical_mismatch", "LLM"),
        3: ("bad_signal_integrity", "BSI"),
        5: ("cable_issue", "CI"),
        10: ("module", "MODULE"),
    }
    assert LINK_SUBSTATES.keys() == enums.keys()
    for state, (enum, short) in enums.items():
        prefix = f"ETHTOOL_LINK_EXT_SUBSTATE_{short}_"
        named = [
            prefix + name.upper().replace("-", "_") for name, _ in LINK_SUBSTATES[state].values()
        ]
        assert named == numbers(f"ethtool_link_ext_substate_{enum}")
        assert [*LINK_SUBSTATES[state]] == [*range(1, len(named) + 1)]


def message(text: str) -> Any:
    decoded = devlinkcmd(bytes.fromhex(text))
    decoded.decode()
    return decoded


def device(**parts: Any) -> dict[str, Any]:
    return {"device": PCI} | parts


def faults(*devices: Any, **parts: Any) -> list[str]:
    return [text for _, text in decode({"devices": [*devices]} | parts)[1]]


def test_messages_of_a_kernel() -> None:
    """A reporter in error, one that is healthy, the time of the last dump, one firmware."""
    rows = device_rows([message(EMPTY), message(DUMMY)], [message(INFO)])
    nics, problems = decode({"links": [], "devices": rows, "errors": []})
    assert problems == []
    assert nics.health == {
        "netdevsim/netdevsim1": NicHealth(
            "netdevsim/netdevsim1",
            "netdevsim",
            (
                HealthReporter("empty", "healthy", 0, 0),
                HealthReporter("dummy", "error", 3, 1, 1795927494.473238),
            ),
            (Firmware("fw.mgmt", "10.20.30", "10.20.30"),),
        )
    }
    fault = nics.health["netdevsim/netdevsim1"].fault
    assert fault == "its driver reports dummy in error (3 errors)"


def test_a_truncated_message() -> None:
    """What is cut off is missing, and one line says so."""
    cut = DUMMY.replace("980000001500", "340000001500")[:104]
    rows = device_rows([message(cut)], [])
    assert faults(*rows) == ["a health reporter without a name"]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"driver": "mlx5_core"}, "a devlink device without a name"),
        (device(reporters=[{"state": 0}]), "a health reporter without a name"),
        (device(reporters=[{"name": "fw"}]), "health reporter fw: the state is missing"),
        (device(reporters=["fw"]), "a health reporter without a name"),
        (
            device(reporters=[{"name": "fw", "state": 0, "errors": -1}]),
            f"{PCI}: health reporter fw: 'errors' is no unsigned number",
        ),
        (device(reporters=[{}] * 65), f"{PCI}: 'reporters' is no list of at most 64"),
        (device(driver=5), f"{PCI}: 'driver' is no text"),
    ],
)
def test_malformed_devices(row: Any, error: str) -> None:
    """One line each."""
    assert faults(row)[:1] == [error]


def test_a_malformed_reporter_leaves_the_others() -> None:
    """As a malformed device leaves the other devices."""
    rows = [None, device(reporters=[{"state": 1}, {"name": "fw_fatal", "state": 1, "errors": 1}])]
    nics, _ = decode({"devices": rows})
    assert nics.health[PCI].fault == "its driver reports fw_fatal in error (1 error)"


def test_a_state_that_a_newer_kernel_added() -> None:
    """It is neither healthy nor an error."""
    nics, problems = decode({"devices": [device(reporters=[{"name": "fw", "state": 2}])]})
    assert (nics.health[PCI].reporters[0].state, nics.health[PCI].fault) == ("unnamed-2", None)
    assert problems == []


def test_firmware_that_waits_for_a_reset() -> None:
    """Another version is stored than runs."""
    new = Firmware("fw.version", "28.39.1002", "28.42.1000")
    nics, _ = decode(
        {
            "devices": [
                device(
                    running=[{"name": new.name, "value": new.running}],
                    stored=[{"name": new.name, "value": new.stored}, {"name": "fw", "value": "1"}],
                )
            ]
        }
    )
    assert nics.health[PCI].firmware == (new, Firmware("fw", None, "1"))
    assert [version.is_pending for version in nics.health[PCI].firmware] == [True, False]


def test_refusals_are_faults() -> None:
    """The kernel's error of a netdev."""
    assert decode({"errors": [["eth0", "Operation not permitted"], "odd"]})[1] == [
        ("eth0", "Operation not permitted"),
        ("nics", "odd"),
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["links", "devices", "errors", "device", "reporters", "name"]),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_only_malformed_is_raised(answer: Any) -> None:
    """Whatever a recorded answer holds."""
    try:
        _, problems = decode(answer)
    except Malformed:
        return
    assert all("\n" not in text for _, text in problems)


def test_a_reporter_of_several_ports_is_named_once() -> None:
    reporters = tuple(HealthReporter("tx", "error", 2, port=port) for port in (0, 1))
    assert NicHealth(PCI, None, reporters).fault == "its driver reports tx in error (4 errors)"
