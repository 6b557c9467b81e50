"""Rows and sheets beside those of cables: titles, repeated headers, free ports, places of nodes."""

from __future__ import annotations

import pytest

from agent.errors import Malformed
from agent.plans.reader import read_source
from agent.plans.source import Source
from tests.support import plans

LINKS = plans.rows([plans.cable("gpu-017 eth0", "leaf-5 1")], "bare")


def read(text: str) -> list[object]:
    """Return the meaning of a CSV file."""
    return plans.of(read_source(Source("p", text.encode())))


def test_titles_and_repeated_headers() -> None:
    """A title above, empty rows and a repetition of the header are no cables."""
    text = "Hall 3\nSource,,Destination,\nHost,HCA,Switch,Port\n\na,1,b,2\n"
    text += "HOST,HCA,Switch,Port\nc,3,b,4\n"
    assert read(text) == plans.meaning([plans.cable("a 1", "b 2"), plans.cable("c 3", "b 4")])


def test_a_header_below_the_tenth_row_is_none() -> None:
    """The header is one of the first ten rows."""
    text = "A-Node,A-Port,Z-Node,Z-Port\na,1,b,2\n"
    assert read("title\n" * 9 + text) == plans.meaning([plans.cable("a 1", "b 2")])
    with pytest.raises(Malformed, match=r"^p: no header such as"):
        read("title\n" * 10 + text)


def test_rows_that_are_no_cables() -> None:
    """Free ports and rows of notes are counted by their reasons."""
    text = "A-Node,A-Port,Z-Node,Z-Port,Note\na,1,b,2,\na,3,,,\n,,,,end of hall\na,4,,,\n"
    (plan,) = read_source(Source("p", text.encode()))
    assert plan.notes == (
        "2 rows skipped, without a far end (the first: p, row 3)",
        "1 row skipped, not a cable (the first: p, row 4)",
    )


def test_columns_of_one_name() -> None:
    """Unknown columns of one name, or of none, are carried through by a name of their own."""
    text = "A-Node,A-Port,Z-Node,Z-Port,Note,Note,\na,1,b,2,x,y,z\n"
    assert read(text) == plans.meaning(
        [plans.cable("a 1", "b 2", fields={"Note": "x", "Note (2)": "y", "column G": "z"})]
    )


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([["Node Name", "Rack", "U"], ["GPU-017", "R1", "2"]], ("R1", "2")),
        ([["List"], ["Name", "Cabinet"], ["gpu-017", "R1"], ["gpu-017", "R1"]], ("R1", None)),
        ([["Name", "Rack"], ["gpu-017", "R1"], ["gpu-017", "R2"]], (None, None)),
        ([["Name", "Host", "Rack"], ["gpu-017", "gpu-017", "R1"]], (None, None)),
        ([["Name", "Model"], ["gpu-017", "R1"]], (None, None)),
        ([["Name", "Rack"], ["gpu-017"]], (None, None)),
    ],
)
def test_places_of_nodes(nodes: plans.Rows, expected: tuple[str | None, str | None]) -> None:
    """A sheet of nodes gives rack and unit where it is not ambiguous."""
    (plan,) = read_source(Source("p", plans.workbook({"Nodes": nodes, "Links": LINKS})))
    assert (plan.cables[0].a.rack, plan.cables[0].a.unit) == expected
    assert plan.notes[0].startswith("sheet 'Nodes' ")


def test_the_row_itself_comes_first() -> None:
    """A place in the row of the cable is not overruled."""
    one = plans.cable("gpu-017 eth0", "leaf-5 1")
    one = one._replace(a=one.a._replace(rack="R9"))
    book = plans.workbook(
        {"L": plans.rows([one], "sided"), "N": [["Node", "Rack"], ["gpu-017", "R1"]]}
    )
    (plan,) = read_source(Source("p", book))
    assert plan.cables[0].a.rack == "R9"


@pytest.mark.parametrize(
    ("header", "cell", "rate"),
    [("Speed", "400G", 400.0), ("BandWidth", "400000", 400.0), ("Link Speed", "fast", None)],
)
def test_rates(header: str, cell: str, rate: float | None) -> None:
    """What is no rate is carried through as text."""
    text = f"A-Node,A-Port,Z-Node,Z-Port,{header}\na,1,b,2,{cell}\n"
    fields = {} if rate else {header: cell}
    assert read(text) == plans.meaning([plans.cable("a 1", "b 2", rate_gbps=rate, fields=fields)])


@pytest.mark.parametrize(
    ("port", "refused"),
    [
        *(("2-Jan", True), ("Jan-02", True), ("02. Jan", True), ("01:02:00", True)),
        *(("2026-01-02", True), ("1/2/2026", True), ("02.01.2026", True)),
        *(("1/2", False), ("1/2/26", False), ("1:2", False), ("Eth1-1", False), ("1a:00.0", False)),
    ],
)
def test_ports_that_became_dates(port: str, refused: bool) -> None:
    """What a spreadsheet program makes of the ports 1/2 and 1:2 is refused, the ports are not."""
    text = f"A-Node,A-Port,Z-Node,Z-Port\na,1,b,{port}\n"
    if not refused:
        assert read(text) == plans.meaning([plans.cable("a 1", f"b {port}")])
        return
    with pytest.raises(Malformed, match=r"^p, row 2, column Z-Port: the date "):
        read(text)


def test_a_network_definition_without_an_hca() -> None:
    """A description that names no HCA is the name of the node; a port keeps its text, too."""
    text = "#Fields:StartDevice,StartPort,EndDevice,EndPort,State,Domain\n"
    text += "sw-1,Port 2,gpu 5 x,1,Active,In\n"
    (plan,) = read_source(Source("p", text.encode()))
    assert [tuple(end[:3]) for end in (plan.cables[0].a, plan.cables[0].b)] == [
        ("sw-1", "2", "Port 2"),
        ("gpu 5 x", "1", "1"),
    ]
