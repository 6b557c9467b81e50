"""The finding `pcie`: links below what both ends permit, and paths that are not known."""

from __future__ import annotations

from typing import Any

import pytest

from agent.cabling.finding import Finding
from agent.cabling.judge import verify
from agent.cabling.seen import PcieEnd, PcieEnds
from tests.support.cabling import node, plan, rails

NICS = "0000:10:00.0", "0000:11:00.0"  # of mlx5_0 and mlx5_1
MELLANOX, RED_HAT, VIRTIO = "15b3", "1b36", "1af4"


def function(address: str, **facts: Any) -> PcieEnd:
    """One end of a link at 32 GT/s x16, as fast as it can be."""
    facts = {"vendor": MELLANOX, "speed": 32.0, "max_speed": 32.0, "width": 16, **facts}
    return PcieEnd(address, **{"max_width": 16, **facts})


def findings(*paths: PcieEnds) -> list[Finding]:
    """Return the findings of a node as planned with these paths of its NICs."""
    count = len(paths)
    known = dict(zip(NICS, paths, strict=False))
    return list(verify(plan(rails(count)), node(rails(count), paths=known)).findings)


def link(upper: str, lower: str, **facts: Any) -> PcieEnds:
    return function(upper, **facts), function(lower, **facts)


def test_a_link_as_fast_as_both_ends_permit() -> None:
    """A card of eight lanes in a slot of sixteen is as it should be, and the other way round; so is
    an older one.
    """
    narrow = function("root", width=8), function(NICS[0], width=8, max_width=8)
    older = function("root", speed=16.0), function(NICS[1], speed=16.0, max_speed=16.0)
    assert findings(narrow, older) == []
    slot = function("root", width=8, max_width=8), function(NICS[0], width=8)
    assert findings(slot) == []


@pytest.mark.parametrize(("speed", "width"), [(16.0, 16), (32.0, 8), (2.5, 1)])
def test_a_slow_link(speed: float, width: int) -> None:
    [slow] = findings(link("root", NICS[0], speed=speed, width=width))
    assert (slow.code, slow.severity) == ("pcie", "warning")


def test_a_link_that_two_nics_share_is_one_finding() -> None:
    """Above the switch of both."""
    shared = link("root", "switch", width=8)
    [found] = findings(shared + link("port1", NICS[0]), shared + link("port2", NICS[1]))
    assert (found.code, found.interfaces) == ("pcie", ("mlx5_0", "mlx5_1"))
    assert "32.0 GT/s x8 instead of 32.0 GT/s x16" in found.text


def test_a_slow_link_below_one_that_is_not_read() -> None:
    """The attributes of one link say nothing about another."""
    path = (*link("root", "switch", max_width=None), *link("port1", NICS[0], speed=16.0))
    assert [(one.code, one.severity) for one in findings(path)] == [
        ("pcie", "warning"),
        ("unverifiable", "info"),
    ]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ((), "was not recorded"),
        ((function(NICS[0]),), "no root port"),
        (link("root", NICS[0], speed=None), "was not recorded"),
        *(
            ((function("root", vendor=vendor, width=1), function(NICS[0])), "this is a guest")
            for vendor in (RED_HAT, VIRTIO)
        ),
        ((function("root", width=8), function(NICS[0])), "no plain PCIe path"),
        ((*link("root", "bridge"), function(NICS[0], width=1)), "no plain PCIe path"),
    ],
)
def test_a_path_that_is_not_known(path: PcieEnds, reason: str) -> None:
    """It is a remark, never a finding."""
    [found] = findings(path)
    assert (found.code, found.severity) == ("unverifiable", "info")
    assert reason in found.text
