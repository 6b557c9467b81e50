"""The findings `slow` and `speed`."""

from __future__ import annotations

import pytest

from agent.cabling.expected import Expected
from agent.cabling.judge import VerifyOptions, verify
from tests.support.cabling import cable, changed, codes, labels, lldp, node, plan, rails

OTHER_KIND = ("MT4123", "storage")


def rated(rate: float, **rates: float) -> Expected:
    """The plan of eight cables at one rate, but for the ports named."""
    return plan(
        {},
        *(
            cable(f"mlx5_{number}", *end, rate_gbps=rates.get(f"mlx5_{number}", rate))
            for number, end in enumerate(rails())
        ),
    )


def with_speed(text: str, *interfaces: str) -> Expected:
    """Labels of a speed, and of the first leaf for these interfaces."""
    devices = {f"neighbors.expected.{name}.device": "leaf00" for name in interfaces}
    return labels({"speed.expected": text, **devices})


def test_a_slow_port_beside_rates_of_cables() -> None:
    """800G cables with two ports of 400G each; the port at 200G is below its peers."""
    seen = changed(node(rails()), "mlx5_3", rate_gbps=200.0)
    result = verify(rated(800.0), seen)
    assert codes(result) == [("slow", ("mlx5_3",)), ("unverifiable", tuple(seen.ports))]
    assert "200G instead of 400G (as its peers do)" in result.findings[0].text


def test_an_unknown_speed_hides_no_slow_port() -> None:
    """One port shows the 10G of a speed that the kernel does not know, another is slow."""
    seen = changed(node(rails()), "mlx5_1", rate_gbps=10.0, is_suspect=True)
    seen = changed(seen, "mlx5_3", rate_gbps=200.0)
    for expected in (rated(400.0), plan(rails())):
        result = verify(expected, seen)
        assert codes(result) == [("slow", ("mlx5_3",)), ("unverifiable", ("mlx5_1",))]
        assert "it runs at 200G instead of 400G" in result.findings[0].text


def test_an_unknown_speed_that_the_plan_does_not_have_is_a_remark() -> None:
    """Nothing that was expected could not be compared; with a planned rate, that could not."""
    seen = changed(node(rails()), "mlx5_1", rate_gbps=10.0, is_suspect=True)
    for expected, severity in ((plan(rails()), "info"), (rated(400.0), "unknown")):
        [found] = verify(expected, seen).findings
        assert (found.code, found.severity) == ("unverifiable", severity)


@pytest.mark.parametrize("suspects", [1, 8])
def test_a_sum_of_unknown_speeds_is_not_verified(suspects: int) -> None:
    """An old kernel does not make a node slow; a port that is down does."""
    seen = node(rails())
    for number in range(suspects):
        seen = changed(seen, f"mlx5_{number}", rate_gbps=10.0, is_suspect=True)
    expected = with_speed("3200G")
    assert {one.code for one in verify(expected, seen).findings} == {"unverifiable"}
    if suspects == 1:
        down = changed(seen, "mlx5_7", state="DOWN", rate_gbps=0.0)
        assert "speed" in {one.code for one in verify(expected, down).findings}


def test_a_sum_names_no_port_at_the_rate_of_its_kind() -> None:
    """Two storage NICs of 200G do not account for the cable that is out."""
    seen = changed(node(rails()), "mlx5_5", state="DOWN", rate_gbps=0.0)
    for name in ("mlx5_0", "mlx5_7"):
        seen = changed(seen, name, rate_gbps=200.0, kind=OTHER_KIND)
    [found] = verify(with_speed("2800G"), seen).findings
    assert (found.interfaces, found.code) == (("mlx5_5",), "speed")


def test_a_sum_names_the_interfaces_that_are_not_there() -> None:
    """A NIC fell off the bus: no port is low."""
    expected = with_speed("3200G", "mlx5_0", "mlx5_7")
    found = verify(expected, node(rails()[:7])).findings
    [text] = [one.text for one in found if one.code == "speed"]
    assert "2800G of 3200G: mlx5_7 (not on this node)" in text


def test_the_sum_is_one_ticket() -> None:
    """Whichever ports are low, its ID stays."""
    ids = set()
    for name in ("mlx5_1", "mlx5_2"):
        seen = changed(node(rails()), name, state="DOWN", rate_gbps=0.0)
        ids |= {one.id for one in verify(with_speed("3200G"), seen).findings}
    assert len(ids) == 1


def test_a_slow_cable_is_named_by_where_it_is() -> None:
    seen = changed(node(rails()), "mlx5_3", rate_gbps=200.0, far_ends=(lldp("leaf09", "swp1"),))
    [text] = [one.text for one in verify(plan(rails()), seen).findings if one.code == "slow"]
    assert text.startswith("Reseat or replace the cable of mlx5_3 to leaf09 port swp1:")


def test_nics_of_an_unknown_kind_have_no_peers() -> None:
    """Some drivers tell neither type nor board: a NIC of 25G beside those of 100G is a remark."""
    seen = node(rails())
    for number, name in enumerate(seen.ports):
        seen = changed(seen, name, kind=(None, None), rate_gbps=100.0 if number else 25.0)
    found = verify(plan(rails()), seen).findings
    assert [(one.code, one.severity, one.interfaces) for one in found] == [
        ("unverifiable", "info", ("mlx5_0",))
    ]
    assert {one.code for one in verify(rated(100.0), seen).findings} == {"slow"}


def test_an_ignored_port_does_not_lower_the_sum() -> None:
    """It is out for repair; a second port that is down is a finding, which does not name it."""
    seen = changed(node(rails()), "mlx5_3", state="DOWN", rate_gbps=0.0)
    options = VerifyOptions(ignore=("mlx5_3",))
    assert verify(with_speed("3200G"), seen, options).findings == ()
    seen = changed(seen, "mlx5_4", state="DOWN", rate_gbps=0.0)
    [found] = verify(with_speed("3200G"), seen, options).findings
    assert found.interfaces == ("mlx5_4",)
