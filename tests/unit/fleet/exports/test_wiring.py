"""The wiring as CSV and DOT, read back by our own plans."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cabling.plans.reader import read_plan
from agent.cabling.seen import SeenEnd
from agent.fleet.exports.wiring import csv_rows, graph, plain
from agent.fleet.model import Fleet, FleetPort, wires
from tests.support.wired_fleets import NAMING, flat, fleet, node, tall


def cables(found: Fleet) -> set[tuple[str, str, str, str | None]]:
    return {(*wire.ref, wire.end.device, wire.end.port_id) for wire in wires(found.nodes)}


@pytest.mark.parametrize("found", [flat(), tall()], ids=["flat", "tall"])
@pytest.mark.parametrize(("suffix", "export"), [("csv", csv_rows), ("dot", graph)])
def test_it_is_a_plan(tmp_path: Path, found: Fleet, suffix: str, export: object) -> None:
    """`verify --plan` reads the CSV and the DOT: the golden picture of a good day."""
    path = tmp_path / f"wiring.{suffix}"
    path.write_text(export(found, NAMING).text)  # type: ignore[operator]
    (plan,) = read_plan(str(path))
    ends = {frozenset([one.a[:2], one.b[:2]]) for one in plan.cables}
    assert ends == {
        frozenset([(name, interface), (device, port)])
        for name, interface, device, port in cables(found)
    }


def test_no_cell_is_a_formula() -> None:
    """A switch that calls itself a formula is a text to a spreadsheet program."""
    port = FleetPort("ibp0", far_end=SeenEnd("evil", "1", name="=cmd()"))
    text = csv_rows(fleet([node("gpu-1", "leaf1", ports=[port])]), NAMING).text
    assert next(csv.DictReader(io.StringIO(text)))["device"] == "'=cmd()"


def test_two_switches_of_one_name() -> None:
    """Switches with one name and two identities are two, and said to be."""
    ends = [SeenEnd("leaf", "1", id=f"000000000000000{at}", name="leaf") for at in (1, 2)]
    ports = [FleetPort(f"ibp{at}", far_end=end) for at, end in enumerate(ends)]
    text = graph(fleet([node("gpu-1", "leaf", ports=ports)]), NAMING).text
    assert '"leaf 0000000000000001":"1" -- "gpu-1":"ibp0"' in text
    assert '"leaf 0000000000000002":"1" -- "gpu-1":"ibp1"' in text


def test_ports_without_a_neighbor_are_said() -> None:
    """A port that sees nobody is in no graph, but in a note; so is a Node without ports."""
    nodes = [*flat().nodes, node("cpu-1", None)]
    for export in (csv_rows, graph):
        notes = export(fleet(nodes), NAMING).notes
        assert notes == (
            "without a neighbor: 1 port: gpu-009/ibp0",
            "without a port: 1 Node: cpu-1",
        )


@given(st.text(), st.text())
def test_different_texts_stay_different(one: str, other: str) -> None:
    assert (plain(one) == plain(other)) == (one == other)
    assert plain(one).isprintable()
