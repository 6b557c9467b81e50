"""The work list, on screen and on paper, the silent nodes, the speeds and the summary, in
golden/worklist.txt.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.cabling.finding import Finding, Move, PortRef, Spot, finding
from agent.fleet.model import FleetPort, Gap, Judged
from agent.fleet.page.worklist import (
    Entry,
    entries,
    runs,
    silent,
    speeds,
    stops,
    summary,
    verdict,
)
from tests.support import judged
from tests.support.documents import Golden

DOMAIN = ".dc1.example.com"
REF, OTHER = PortRef("gpu-001", "mlx5_0"), PortRef("gpu-009", "mlx5_0")
ENDS = ("leaf01", "1"), ("leaf01", "9")
SPOTS = Spot("A1", "17", "C1"), Spot("A2", "3", "C9")
FAR = Spot("B3", "40")
SWAP = finding(
    "swapped",
    [REF, OTHER],
    "swap",
    moves=(
        Move(REF, ENDS[1], ENDS[0], SPOTS[0], FAR, FAR),
        Move(OTHER, ENDS[0], ENDS[1], SPOTS[1], FAR, Spot("B3", "41")),
    ),
    facts={"far-rack": "B3"},
)
PULLED = Move(REF, (None, None), ENDS[0], SPOTS[0], FAR)
ODD = [PortRef(f"gpu-{number:03}", f"mlx5_{number % 2}") for number in range(1, 9)]
EIGHT, CLEAN = judged.fleet(8, 8), judged.fleet(1, 1)
GAP = Gap(("gpu-007", "gpu-008"), (), ("gpu-7",), 48, 64)


def of_one(code: str, *moves: Move, **facts: object) -> Finding:
    return finding(code, [REF], "look", moves=moves, **facts)  # type: ignore[arg-type]


def sure(code: str, confidence: float | None, *, by_pattern: bool) -> Judged:
    found = of_one(code, confidence=confidence)
    return judged.found(EIGHT, found)._replace(by_pattern=by_pattern)


def forgetful() -> Judged:
    """Return a fleet with silent nodes: one without a report, and one that is not there."""
    fleet = judged.silent(EIGHT, "gpu-002", "gpu-003", "gone")
    nodes = [replace(one, time=None) if one.name == "gpu-003" else one for one in fleet.fleet.nodes]
    return fleet._replace(fleet=replace(fleet.fleet, nodes=tuple(nodes)))


def qualified() -> Judged:
    """Return a fleet in which all names have a domain."""

    def named(port: FleetPort) -> FleetPort:
        end = port.far_end
        return port._replace(far_end=end and end._replace(name=end.label + DOMAIN))

    fleet = judged.fleet(2, 2)
    nodes = tuple(replace(one, name=one.name + DOMAIN) for one in fleet.fleet.nodes)
    refs = [PortRef(one.name, port.interface) for one in nodes for port in one.ports]
    fleet = judged.changed(fleet._replace(fleet=replace(fleet.fleet, nodes=nodes)), refs, named)
    text = f"Look at leaf1{DOMAIN} and leaf1{DOMAIN}.au, {DOMAIN}."
    end = f"su01-leaf01{DOMAIN}", "1"
    fleet = judged.found(fleet, finding("leaf-down", refs[:3], text, expected=end))
    move = Move(refs[0], (None, None), end)
    return judged.found(fleet, finding("missing", refs[:1], "look", expected=end, moves=(move,)))


SHEETS = {
    "faults of several kinds": judged.faulty(),
    "cables of two groups": judged.swapped(judged.fleet(16, 8), REF, PortRef("gpu-009", "mlx5_1")),
    "ends without a move": judged.found(
        EIGHT, of_one("miscabled", expected=("leaf01", "1"), actual=("leaf02", None))
    ),
    "a share is 100 %": sure("swapped", 1.0, by_pattern=True),
    "a share is never rounded up to certainty": sure("swapped", 0.9999, by_pattern=True),
    "half of them": sure("swapped", 0.5, by_pattern=True),
    "what is no share by the pattern is a fact": sure("swapped", None, by_pattern=True),
    "by a plan it rests on that": sure("swapped", None, by_pattern=False),
    "unless it is a fact with a plan, too": sure("cloned", None, by_pattern=False),
    "nodes with the same interface are a run": judged.leaf_down(judged.fleet(64, 64), 0, 0),
    "many runs are folded": judged.found(
        judged.fleet(64, 64),
        finding("slow", ODD, "look", nodes=["gone", *(port.node for port in ODD)]),
    ),
    "silent nodes with the age of their last report": forgetful(),
    "a finding that names no node": judged.found(
        EIGHT, finding("unreadable", (), "look", key=["x"])
    ),
    "no findings by the pattern": CLEAN,
    "no findings with a plan": CLEAN._replace(by_pattern=False),
    "nothing to compare with is not good": CLEAN._replace(planned=0, as_planned=0),
    "what was not read is not good": CLEAN._replace(
        fleet=replace(CLEAN.fleet, problems=("node7: no JSON",))
    ),
    "what was not compared is not good": EIGHT._replace(by_pattern=False, has_plan=True, gap=GAP),
    "a silent node is unknown, and a slow one a warning": judged.slow(
        judged.silent(EIGHT, "gpu-001"), REF
    ),
    "a swap is two rows on paper with each place once": judged.found(judged.fleet(16, 16), SWAP),
    "a pulled cable goes from nowhere": judged.found(
        EIGHT, of_one("missing", PULLED, expected=ENDS[0])
    ),
    "a node that moved: the sentence is before the cables": judged.found(
        EIGHT, of_one("moved", Move(REF, ("leaf02", "1"), ENDS[0]))
    ),
    "a link with errors: the sentence is before the cables": judged.found(
        EIGHT, of_one("unstable", Move(REF, ENDS[0], ENDS[0]))
    ),
    "a slow cable stays": judged.found(EIGHT, of_one("slow", Move(REF, ENDS[0], ENDS[0]))),
    "a dead leaf has no cable to move": judged.leaf_down(judged.fleet(16, 8), 1, 7),
    "the domain that all have is cut, and a name that only begins with it stays": qualified(),
}


def told(name: str) -> str:
    fleet, keys = SHEETS[name], Entry._fields[2:-1]
    lines, listed = [f"== {name}", f"{verdict(fleet)}: {summary(fleet)}"], entries(fleet)
    for entry in listed:
        folded = ", folded" * entry.is_folded
        lines.append(f"#{entry.number} {entry.finding.code}, {entry.confidence}{folded}")
        facts = entry._asdict()
        lines += [f"   {key}: {facts[key]}" for key in keys if facts[key]]
    quiet = silent(fleet.fleet, listed)
    lines += [f"silent #{one.entry.number}, {one.is_first}: {one[2:]}" for one in quiet]
    for stop in stops(fleet):
        rows = [" | ".join(filter(None, map(str, line))) for line in stop.lines]
        lines += [f"on paper, {stop.title}", *(f"   {row}" for row in rows)]
    return "\n".join([*lines, ""])


GOLDEN = Golden(Path(__file__).parent / "golden/worklist.txt", told, SHEETS)


@pytest.mark.parametrize("title", SHEETS)
def test_sheet(title: str, update_golden: bool) -> None:
    GOLDEN.check(title, update=update_golden)


def test_the_golden_has_no_others(update_golden: bool) -> None:
    GOLDEN.check_all(update=update_golden)


def test_speeds() -> None:
    """Nodes and ports by rate, the most common first; runs of names as one."""
    fleet = judged.pulled(judged.fleet(16, 8), PortRef("gpu-003", "mlx5_0"))
    every = ("gpu-001 to gpu-016 (16)",)
    of_nodes, of_ports = speeds(fleet.fleet.nodes).values()
    assert of_nodes == [("3200G", 16, every)]
    assert of_ports == [("400G", 127, every), ("0G", 1, ("gpu-003",))]


def test_runs() -> None:
    """Two are named, three are a run."""
    nodes = judged.fleet(9, 9).fleet.nodes
    assert runs(nodes, [0, 1, 3, 5, 6, 7]) == [
        *("gpu-001", "gpu-002", "gpu-004"),
        "gpu-006 to gpu-008 (3)",
    ]
