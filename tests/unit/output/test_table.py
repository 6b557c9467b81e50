"""The table: its cells, the reasons below it, and lines that fit a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from agent.output.layout import WIDTH
from agent.output.table import MAX_NAMES, render
from agent.reasons import NeighborReason

PORT: dict[str, Any] = {
    "interface": "ibp0",
    "leg": None,
    "pci": "0000:18:00.0",
    "link_layer": "InfiniBand",
    "state": "ACTIVE",
    "phys_state": "LinkUp",
    "rate_gbps": 400.0,
    "counted_gbps": 400.0,
    "role": "backend",
    "reason": "InfiniBand",
    "link_state": None,
}
NEIGHBOR: dict[str, Any] = {
    "interface": "ibp0",
    "device": "leaf-1",
    "port_id": "3",
    "port_name": None,
    "selected": True,
}


def table(*ports: dict[str, Any], **parts: Any) -> list[str]:
    """The lines of the table of a document with these ports and parts."""
    document = {
        "node": "gpu-7",
        "flavor": "infiniband",
        "speed_gbps": 400.0,
        "labels": {},
        "ports": list(ports),
        "neighbors": [],
        "missing_neighbors": [],
        "accelerator": {"value": None, "reason": "not-found", "text": None, "gpus": []},
        "position": None,
        "tiers": None,
        "link_errors": [],
        "nics": None,
        "problems": [],
    }
    return render(document | parts, color=False).splitlines()


def below(title: str, lines: list[str]) -> list[str]:
    if title not in lines:
        return []
    body = lines[lines.index(title) + 1 :]
    return [line.strip() for line in body[: body.index("") if "" in body else None]]


def missing(*reasons: str) -> list[dict[str, str]]:
    return [{"interface": f"ibp{n}", "reason": reason} for n, reason in enumerate(reasons)]


def test_a_port_is_a_line() -> None:
    """Interface, role, link, state, rate, neighbor and the port there."""
    assert table(PORT, neighbors=[NEIGHBOR])[2:4] == [
        "INTERFACE  ROLE     LINK  STATE   RATE  NEIGHBOR  PORT",
        "ibp0       backend  IB    ACTIVE  400G  leaf-1    3",
    ]
    named = NEIGHBOR | {"port_name": "swp1"}
    assert table(PORT, neighbors=[named])[3].endswith("leaf-1    swp1")


@pytest.mark.parametrize(
    ("facts", "state", "rate", "reason"),
    [
        ({}, "ACTIVE", "400G", None),
        ({"counted_gbps": None, "rate_gbps": None}, "ACTIVE", "-", "its rate is unknown"),
        (
            {"leg": "eth2", "counted_gbps": 0},
            "standby",
            "-",
            "this leg of the bond is down or on standby",
        ),
        (
            {"state": "DOWN", "phys_state": "Polling", "counted_gbps": 0},
            "DOWN",
            "-",
            "no signal from the far end: cable, transceiver, or the port over there",
        ),
        (
            {"state": "DOWN", "link_layer": "Ethernet", "counted_gbps": 0},
            "DOWN",
            "-",
            "no link: cable, transceiver, the port over there, or the interface is not up",
        ),
        ({"state": None, "phys_state": None, "counted_gbps": None}, "?", "-", "state unknown"),
    ],
)
def test_a_port_without_rate_has_a_reason(
    facts: dict[str, Any], state: str, rate: str, reason: str | None
) -> None:
    """A port that counts is not in that section."""
    lines = table(PORT | facts)
    assert lines[3].split()[3:5] == [state, rate]
    found = " ".join(below("Backend ports that do not count", lines))
    assert found.endswith(reason) if reason else not found


def test_the_driver_tells_why_there_is_no_link() -> None:
    """Which end, where the driver knows it, instead of all that it may be."""
    down = {"link_layer": "Ethernet", "state": "DOWN", "phys_state": "Disabled", "counted_gbps": 0}
    told = {"link_state": {"state": "no-cable", "substate": None, "text": "no cable is plugged in"}}
    assert " ".join(below("Backend ports that do not count", table(PORT | down | told))) == (
        "ibp0 (0000:18:00.0): DOWN, Disabled: no link; its driver: no cable is plugged in"
    )


def test_a_nic_that_is_dead_while_its_link_is_up() -> None:
    """The reporters in error, and firmware that waits for a reset."""
    fault = "its driver reports fw_fatal in error (3 errors)"
    versions = {"name": "fw.version", "running": "28.39", "stored": "28.42", "pending": True}
    nic = {"pci": PORT["pci"], "driver": "mlx5_core", "fault": fault, "reporters": []}
    lines = table(PORT, nics=[nic | {"firmware": [versions]}])
    assert " ".join(below("NICs", lines)) == (
        f"0000:18:00.0 (ibp0): {fault}, although its link is up "
        "0000:18:00.0 (ibp0): fw.version 28.39 runs, 28.42 is stored: a reset of the NIC loads it"
    )
    healthy = nic | {"fault": None, "firmware": [versions | {"pending": False}]}
    assert below("NICs", table(PORT, nics=[healthy])) == []


def test_ports_of_one_state_are_one_line() -> None:
    """Eight dead ports are one sentence, with the address of each."""
    down = PORT | {"state": "DOWN", "phys_state": "Polling", "counted_gbps": 0.0}
    ports = [down | {"interface": f"ibp{n}", "pci": f"0000:{n}8:00.0"} for n in range(8)]
    ports[3] |= {"phys_state": "Disabled"}
    lines = below("Backend ports that do not count", table(*ports))
    text = " ".join(lines)
    assert text.count("no signal from the far end") == 1
    assert text.startswith("ibp0 (0000:08:00.0), ibp1 (0000:18:00.0), ibp2 (0000:28:00.0), ibp4 ")
    assert text.endswith(
        "ibp3 (0000:38:00.0): DOWN, Disabled: administratively disabled on this side"
    )


def test_a_lent_port_is_among_the_neighbors_only() -> None:
    """Its cable is not the reason for the missing rate."""
    down = PORT | {"state": "DOWN", "counted_gbps": 0}
    lines = table(down, missing_neighbors=missing("no-netdev"))
    assert below("Backend ports that do not count", lines) == []
    assert below("Neighbors", lines)[0].startswith("ibp0: ")


def test_a_port_without_recorded_netdev_is_in_both_sections() -> None:
    """Nothing is known of its netdev, so its state is the reason for the missing rate."""
    down = PORT | {"state": "DOWN", "phys_state": "Polling", "counted_gbps": 0}
    lines = table(down, missing_neighbors=missing("netdev-not-recorded"))
    assert "no signal from the far end" in " ".join(below("Backend ports that do not count", lines))
    assert below("Neighbors", lines) == ["ibp0: no netdev recorded"]


def test_missing_neighbors_are_grouped_by_reason() -> None:
    """Links that are down are left out, and an unknown reason is shown as it is."""
    reasons = missing("silent", "no-answer", "silent", "link-down", "of-a-later-version")
    lines = below("Neighbors", table(missing_neighbors=reasons))
    assert [line.partition(":")[0] for line in lines] == ["ibp1", "ibp4", "ibp0, ibp2"]
    assert lines[1] == "ibp4: of-a-later-version"


@pytest.mark.parametrize("reason", NeighborReason)
def test_every_reason_has_its_text(reason: NeighborReason) -> None:
    """A link that is down is among the ports that do not count."""
    text = " ".join(below("Neighbors", table(missing_neighbors=missing(reason))))
    assert text == ("" if reason is NeighborReason.LINK_DOWN else f"ibp0: {reason.text}")


def test_a_strangers_text_is_made_printable() -> None:
    """Names of neighbors, reasons of snapshots, the host name: no escape sequence, one line."""
    evil = "a\x1b[2J\n\u202eb"
    lines = table(
        PORT,
        node=evil,
        neighbors=[NEIGHBOR | {"device": evil}],
        missing_neighbors=missing(evil),
        problems=[{"source": "rdma", "subject": evil, "error": None, "text": evil}],
        labels={"key": evil},
    )
    assert all(line.isprintable() for line in lines)
    assert sum(r"a\x1b[2J\n\u202eb" in line for line in lines) == 5


def test_long_lists_of_interfaces_are_cut() -> None:
    reasons = missing(*["silent"] * (MAX_NAMES + 3))
    text = " ".join(below("Neighbors", table(missing_neighbors=reasons)))
    assert "ibp11 and 3 more: " in text


def test_of_several_neighbors_the_selected_one_is_named_first() -> None:
    """The others follow with their ports."""
    others = [NEIGHBOR | {"device": "bmc", "port_id": "1", "selected": False}]
    lines = below("Neighbors", table(PORT, neighbors=[NEIGHBOR, *others]))
    assert lines == ["ibp0: several neighbors: leaf-1 selected, also bmc 1"]


def test_long_cells_are_cut_in_the_middle() -> None:
    """The names of a site are alike at the start; no line is wider than the terminal."""
    device = "leaf-switch-of-a-very-long-site-name-in-a-very-long-row-rack-17"
    line = table(PORT, neighbors=[NEIGHBOR | {"device": device}])[3]
    assert len(line) <= WIDTH
    assert line.split()[5].startswith("leaf-switch")
    assert line.split()[5].endswith("rack-17")
    assert "~" in line


def test_the_names_of_legs_are_not_cut() -> None:
    """The far end's columns shrink instead: the interface is the name in the label keys."""
    leg = PORT | {"interface": "mlx5_bond_0-enp152s0f0np0", "leg": "enp152s0f0np0"}
    far = NEIGHBOR | {
        "interface": leg["interface"],
        "device": "leaf-switch-17-of-a-site",
        "port_id": "HundredGigE1/0/17",
    }
    line = table(leg, neighbors=[far])[3]
    assert line.split()[0] == "mlx5_bond_0-enp152s0f0np0"
    assert len(line) <= WIDTH
    assert line.count("~") == 2


def test_a_long_label_continues_behind_its_equals_sign() -> None:
    """The value stays one word, so that it can be copied."""
    lines = below("Labels", table(labels={"k" * 50: "v" * 60, "a": "b"}))
    assert lines == ["k" * 50 + "=", "v" * 60, "a=b"]


def test_equal_problems_are_one_line() -> None:
    """The line has the first subject and the number of the others, but every flag."""
    problems: list[dict[str, Any]] = [
        {"source": "rdma", "subject": name, "error": "EIO", "text": "I/O error"} for name in "abc"
    ]
    problems.append({"source": "rdma", "subject": "d", "error": None, "text": "odd"})
    problems += [
        {"source": "ib", "subject": name, "error": None, "text": f"{name} port 1: odd"}
        for name in "efg"
    ]
    problems.append({"source": "ib", "subject": "h", "error": None, "text": "h port 2: odd"})
    problems += [
        {"source": "rdma", "subject": f"--exclude-device {name}", "error": None, "text": "idle"}
        for name in "ij"
    ]
    lines = below("Problems", table(problems=problems))
    assert lines == [
        *("a and 2 more: I/O error (EIO)", "d: odd", "e and 2 more: port 1: odd", "h port 2: odd"),
        "--exclude-device i, --exclude-device j: idle",
    ]


@pytest.mark.parametrize(
    ("accelerator", "line"),
    [
        ({"value": "u.1", "gpus": [{}]}, "1 GPU: u.1"),
        ({"reason": "unhealthy", "gpus": [{}] * 2}, "2 GPUs: no domain (unhealthy)"),
        (
            {"reason": "unsupported", "text": "no fabric", "gpus": [{}] * 2},
            "2 GPUs: no domain (unsupported): no fabric",
        ),
        ({"reason": "failed"}, "the GPUs could not be queried"),
        ({"reason": "failed", "text": "switched off by --source"}, None),
        ({"reason": "not-found"}, None),
    ],
)
def test_the_nvlink_domain_is_a_line(accelerator: dict[str, Any], line: str | None) -> None:
    """A node without GPUs has none, nor does one whose GPUs are not queried."""
    empty: dict[str, Any] = {"value": None, "reason": None, "text": None, "gpus": []}
    assert below("NVLink", table(accelerator=empty | accelerator)) == ([line] if line else [])


def test_the_platform_position_is_a_line() -> None:
    """A node whose driver tells none has no such section."""
    position = {"chassis": "1823825185529", "slot": 5, "tray": 4, "host": 1}
    line = "tray 4 of chassis 1823825185529, slot 5, host 1"
    assert below("Platform", table(position=position)) == [line]
    assert below("Platform", table()) == []


def test_an_unread_class_is_the_headline() -> None:
    """Without a node name, too."""
    assert table(speed_gbps=None)[0] == "gpu-7: the RDMA devices could not be read"
    unknown = {"source": "rdma", "subject": "rdma", "text": "front-end-unknown: why", "error": None}
    assert table(speed_gbps=None, problems=[unknown])[0] == "gpu-7: the front end is not known"
    assert table(node=None)[0] == "This node: infiniband, 400G, 0 of 0 backend ports ACTIVE"


def test_a_port_that_left_the_bus_is_counted() -> None:
    """The headline counts it, and the reason is with the ports that do not count."""
    gone: dict[str, Any] = {"interface": "ibp3", "pci": "0000:5e:00.0", "state": "absent"}
    gone |= {"link_layer": None, "phys_state": None, "rate_gbps": None, "counted_gbps": 0.0}
    text = "ibp3 (0000:5e:00.0) is gone from the bus"
    problem = {"source": "rdma", "subject": "ibp3", "error": None, "text": text}
    lines = table(PORT, PORT | gone | {"reason": "gone from the bus"}, problems=[problem])
    assert lines[0].endswith("1 of 2 backend ports ACTIVE")
    assert "ibp3       backend  ?     absent  -     -" in lines
    title = "Backend ports that do not count"
    assert below(title, lines) == ["ibp3 (0000:5e:00.0): absent: gone from the bus"]
    assert below("Problems", lines) == [text]


def tiers(*values: str, reason: str | None = None, text: str | None = None) -> dict[str, Any]:
    rows = [
        {"tier": tier, "value": value, "switches": [{}] * (5 - 4 * (tier - 1))}
        for tier, value in enumerate(values, 1)
    ]
    return {"reason": reason, "text": text, "tiers": rows, "uplinks": [], "paths": []}


@pytest.mark.parametrize(
    ("above", "lines"),
    [
        (None, []),
        (tiers("spine1", "core1"), ["tier 1: spine1 and 4 more", "tier 2: core1"]),
        (
            tiers("spine1", reason="top", text="no switch is above"),
            ["tier 1: spine1 and 4 more", "tier 2: none, no switch is above"],
        ),
        (tiers(reason="no-tiers", text="no tree"), ["tier 1: none, no tree"]),
        (tiers(reason="failed", text="no answer"), []),
    ],
)
def test_the_switches_above_have_a_line_a_tier(above: Any, lines: list[str]) -> None:
    """A failure is a problem."""
    assert below("Switches above", table(PORT, tiers=above)) == lines
