"""The verdict over time: what moves it, and what does not."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cabling.finding import Finding, PortRef
from agent.cabling.judge import VerifyResult, verify
from agent.cabling.seen import SeenNode
from agent.cabling.verdict import MAX_FINDINGS, FindingChanges, ReportedFindings
from agent.reasons import NeighborReason, Remembered, Verdict
from tests.support.cabling import NODE, changed, labels, node, plan, rails
from tests.support.documents import NODE_CODES

DELAY = 60.0
ENDS = rails(4)
GOOD = verify(plan(ENDS), node(ENDS))
SWAPPED = verify(plan(ENDS), node([ENDS[1], ENDS[0], *ENDS[2:]]))
MOVED = verify(plan(ENDS), node([("leaf09", "swp5"), *ENDS[1:]]))
PULLED = verify(plan(ENDS), changed(node(ENDS), "mlx5_2", state="DOWN", far_ends=()))
SILENT = verify(
    plan(ENDS), changed(node(ENDS), "mlx5_0", far_ends=(), missing=NeighborReason.SILENT)
)
RESULTS = (GOOD, SWAPPED, MOVED, PULLED, SILENT)


def unread(device: str) -> SeenNode:
    """Return the node without the port of a device that could not be read."""
    seen = node(ENDS)
    ports = {name: port for name, port in seen.ports.items() if name != device}
    return seen._replace(ports=ports, unread=frozenset([device]))


def settled(result: VerifyResult = GOOD) -> ReportedFindings:
    state = ReportedFindings(DELAY)
    state.compared(result, 0.0)
    state.compared(result, DELAY)
    return state


def after(verdict: Verdict, findings: int) -> ReportedFindings:
    """Return the state of an agent whose predecessor had this verdict."""
    return ReportedFindings(DELAY, Remembered("b", None, verdict, findings))


def codes(findings: Iterable[Finding]) -> list[str]:
    return [one.code for one in findings]


def test_the_first_verdict_waits() -> None:
    state = ReportedFindings(DELAY)
    assert (state.verdict(), state.next_due(0.0)) == (Verdict.PENDING, math.inf)
    state.compared(GOOD, 0.0)
    assert (state.verdict(), state.next_due(0.0)) == (Verdict.PENDING, 60.0)
    state.compared(GOOD, 59.9)
    assert (state.verdict(), state.has_verdict) == (Verdict.PENDING, False)
    assert state.compared(GOOD, 60.0) == FindingChanges()
    assert (state.verdict(), state.next_due(60.0)) == (Verdict.PASS, math.inf)


def test_the_first_verdict_has_what_is_found_then() -> None:
    """A wrong cable whose neighbor was not known at the start is no pass for a minute."""
    state = ReportedFindings(DELAY)
    state.compared(SILENT, 0.0)
    state.compared(SWAPPED, 50.0)
    assert codes(state.compared(SWAPPED, 60.0).came) == ["swapped"]
    assert state.verdict() == Verdict.FAIL


@pytest.mark.parametrize(
    ("result", "code", "verdict"),
    [
        (SWAPPED, "swapped", Verdict.FAIL),
        (MOVED, "miscabled", Verdict.FAIL),
        (PULLED, "missing", Verdict.FAIL),
        (SILENT, "unverifiable", Verdict.UNVERIFIED),
    ],
)
def test_a_finding_that_comes_and_a_repair(result: VerifyResult, code: str, verdict: str) -> None:
    """Both count after the delay, and are told once."""
    state = settled()
    assert state.compared(result, 100.0) == FindingChanges()
    assert (state.verdict(), state.next_due(100.0)) == (Verdict.PASS, 160.0)
    assert state.compared(result, 159.0) == FindingChanges()
    assert codes(state.compared(result, 160.0).came) == [code]
    assert (state.verdict(), state.next_due(160.0)) == (verdict, math.inf)
    assert state.compared(result, 300.0) == FindingChanges()
    assert state.compared(GOOD, 400.0) == FindingChanges()
    assert (state.verdict(), state.next_due(400.0)) == (verdict, 460.0)
    assert codes(state.compared(GOOD, 460.0).gone) == [code]
    assert (state.verdict(), state.findings) == (Verdict.PASS, ())


@given(st.lists(st.tuples(st.sampled_from(RESULTS), st.floats(0.1, 50.0)), max_size=40))
def test_a_flap_moves_nothing(flaps: list[tuple[VerifyResult, float]]) -> None:
    """Whatever happens between comparisons that agree, each within less than the delay."""
    good, bad, now = settled(), settled(SWAPPED), DELAY
    for result, wait in flaps:
        now += wait / 2
        assert good.compared(result, now) == FindingChanges()
        assert not bad.compared(result, now).gone
        now += wait / 2
        good.compared(GOOD, now)
        bad.compared(SWAPPED, now)
    assert (good.verdict(), bad.verdict()) == (Verdict.PASS, Verdict.FAIL)


@given(st.lists(st.tuples(st.sampled_from(RESULTS), st.floats(0.0, 90.0)), min_size=1))
def test_no_pass_while_an_error_is_reported(history: list[tuple[VerifyResult, float]]) -> None:
    state, now, reported = ReportedFindings(DELAY), 0.0, dict[str, Finding]()
    for result, wait in history:
        now += wait
        changes = state.compared(result, now)
        reported |= {one.id: one for one in changes.came}
        for one in changes.gone:
            del reported[one.id]
        assert {one.id for one in state.findings} == reported.keys()
        errors = [one for one in reported.values() if one.severity == "error"]
        assert bool(errors) == (state.verdict() == Verdict.FAIL)
        assert state.next_due(now) > now


def test_a_cable_that_is_wrong_in_another_way() -> None:
    state = settled(SWAPPED)
    state.compared(MOVED, 100.0)
    changes = state.compared(MOVED, 160.0)
    assert (codes(changes.came), codes(changes.gone)) == (["miscabled"], ["swapped"])


def test_a_restart_moves_nothing() -> None:
    """The remembered verdict counts at once; the same number of findings is taken for those of
    before, others replace them after the delay.
    """
    state = after(Verdict.FAIL, 1)
    assert (state.verdict(), state.number, state.findings) == (Verdict.FAIL, 1, ())
    assert state.compared(SWAPPED, 0.0) == FindingChanges()
    assert (state.findings, state.before) == (SWAPPED.findings, None)
    repaired = after(Verdict.FAIL, 1)
    repaired.compared(GOOD, 0.0)
    assert repaired.verdict() == Verdict.FAIL
    assert repaired.compared(GOOD, 60.0) == FindingChanges()
    assert (repaired.verdict(), repaired.number) == (Verdict.PASS, 0)
    passing = after(Verdict.PASS, 0)
    passing.compared(SWAPPED, 0.0)
    assert (passing.verdict(), passing.verdict(in_doubt=True)) == (
        Verdict.PASS,
        Verdict.UNVERIFIED,
    )
    assert codes(passing.compared(SWAPPED, 60.0).came) == ["swapped"]
    assert passing.verdict() == Verdict.FAIL


@pytest.mark.parametrize("result", [SILENT, verify(plan(ENDS), unread("mlx5_0"))])
def test_neighbors_that_come_later_than_the_delay(result: VerifyResult) -> None:
    """A restart with LLDP every 30 s and a delay of less: what cannot be compared does not pass."""
    state = after(Verdict.FAIL, 1)
    for now in (0.0, 100.0, 1000.0):
        assert state.compared(result, now) == FindingChanges()
        assert state.verdict() == Verdict.FAIL
    state.compared(GOOD, 2000.0)
    assert state.verdict() == Verdict.FAIL
    state.compared(GOOD, 2060.0)
    assert state.verdict() == Verdict.PASS


def lent(device: str) -> SeenNode:
    """Return the node whose netdev is in a pod."""
    return changed(node(ENDS), device, netdev=None, far_ends=(), missing=NeighborReason.NO_NETDEV)


@pytest.mark.parametrize("seen", [unread("mlx5_0"), lent("mlx5_0")])
def test_a_device_that_cannot_be_compared(seen: SeenNode) -> None:
    """Its finding stays until the cable is compared again."""
    state = settled(MOVED)
    result = verify(plan(ENDS), seen)
    for now in (100.0, 200.0):
        assert not state.compared(result, now).gone
    assert state.verdict() == Verdict.FAIL


def test_a_netdev_in_a_pod() -> None:
    """A plan that names netdevs has no row for the port meanwhile."""
    ends = {f"eth{number}": end for number, end in enumerate(ENDS)}
    wrong = verify(plan(ends), node([("leaf09", "swp5"), *ENDS[1:]]))
    state = settled(wrong)
    assert state.verdict() == Verdict.FAIL
    for now in (100.0, 200.0, 300.0):
        assert not state.compared(verify(plan(ends), lent("mlx5_0")), now).gone
    state.compared(verify(plan(ends), node(ENDS)), 400.0)
    assert codes(state.compared(verify(plan(ends), node(ENDS)), 460.0).gone)[0] == "miscabled"


def test_a_speed_that_cannot_be_verified() -> None:
    """The finding `speed` stays while a device is unread, and goes when the sum is right."""
    expected = labels({"speed.expected": "1600G"})
    seen = node(ENDS)
    slow = verify(expected, changed(seen, "mlx5_1", state="DOWN", rate_gbps=0.0))
    state = settled(slow)
    assert codes(state.findings)[0] == "speed"
    for now in (100.0, 200.0):
        state.compared(verify(expected, unread("mlx5_1")), now)
    assert state.verdict() == Verdict.FAIL
    state.compared(verify(expected, seen), 300.0)
    state.compared(verify(expected, seen), 360.0)
    assert state.verdict() == Verdict.PASS


def test_an_interface_that_leaves_the_plan() -> None:
    """Its finding goes: nothing is expected of it any more."""
    state = settled(MOVED)
    for now in (100.0, 160.0):
        state.compared(
            verify(plan({f"mlx5_{number}": ENDS[number] for number in (1, 2, 3)}), node(ENDS)), now
        )
    assert "miscabled" not in codes(state.findings)


def test_comparisons_that_fail() -> None:
    """Nothing changes; without a verdict there is none, however long that lasts."""
    state = ReportedFindings(DELAY)
    for now in (0.0, DELAY, 86400.0):
        state.failed()
        assert (state.verdict(in_doubt=True), state.next_due(now)) == (Verdict.PENDING, math.inf)
    state.compared(GOOD, 86500.0)
    assert state.verdict() == Verdict.PENDING
    state.compared(GOOD, 86560.0)
    assert state.verdict() == Verdict.PASS
    state.failed()
    assert state.verdict(in_doubt=True) == Verdict.UNVERIFIED
    bad = settled(SWAPPED)
    bad.failed()
    assert bad.verdict(in_doubt=True) == Verdict.FAIL


def test_a_failure_begins_the_delay_anew() -> None:
    """What is away before and after it was not away without a break."""
    state = settled(SWAPPED)
    state.compared(GOOD, 100.0)
    state.failed()
    assert not state.compared(GOOD, 170.0).gone
    assert state.compared(GOOD, 230.0).gone


def test_a_delay_of_zero() -> None:
    state = ReportedFindings(0.0)
    assert codes(state.compared(SWAPPED, 0.0).came) == ["swapped"]
    assert codes(state.compared(GOOD, 1.0).gone) == ["swapped"]
    assert state.next_due(1.0) == math.inf


def test_remarks_are_no_part_of_a_verdict() -> None:
    """A guest has one about its PCIe path for ever."""
    remark = Finding("unverifiable", "info", (NODE,), (PortRef(NODE, "mlx5_0"),), "x", id="0f")
    state = settled(GOOD._replace(findings=(remark,)))
    assert (state.verdict(), state.findings) == (Verdict.PASS, ())


def test_a_plan_with_rows_without_end() -> None:
    """The most severe findings are kept, and never more than MAX_FINDINGS."""
    many = tuple(
        Finding("missing-interface", "error", (NODE,), (PortRef(NODE, f"x{n}"),), "x", id=f"{n:x}")
        for n in range(5000)
    )
    state = settled(VerifyResult(NODE, many, ()))
    assert len(state.findings) == MAX_FINDINGS
    for now in (100.0, 160.0):
        state.compared(VerifyResult(NODE, many[MAX_FINDINGS:], ()), now)
    assert len(state.findings) == MAX_FINDINGS


def test_every_code_has_a_severity() -> None:
    """The codes that fail are those of the contract of /verdict."""
    errors = {code for code, row in NODE_CODES.items() if row.severity == "error"}
    assert errors == {
        *("miscabled", "wrong-port", "swapped", "missing", "missing-interface", "speed")
    }
