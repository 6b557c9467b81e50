"""Rows and sheets beside those of cables: titles, repeated headers, free ports, places of nodes."""

from __future__ import annotations

import re

import pytest

from agent.cabling.plans.model import End
from agent.cabling.plans.reader import KINDS
from tests.support import plans
from tests.support.plans import read_one, refusal

LINKS = plans.rows([plans.cable("gpu-017 eth0", "leaf-5 1")], "bare")


def read(text: str) -> list[object]:
    return plans.of(plans.read(text))


def test_titles_and_repeated_headers() -> None:
    """A title above, empty rows and a repetition of the header are no cables."""
    text = "Hall 3\nSource,,Destination,\nHost,HCA,Switch,Port\n\na,1,b,2\n"
    text += "HOST,HCA,Switch,Port\nc,3,b,4\n"
    assert read(text) == plans.meaning([plans.cable("a 1", "b 2"), plans.cable("c 3", "b 4")])


def test_a_header_below_the_twentieth_row_is_none() -> None:
    """The header is one of the first twenty rows: a title, a legend and a list of changes fit."""
    text = "A-Node,A-Port,Z-Node,Z-Port\na,1,b,2\n"
    assert read("title\n" * 19 + text) == plans.meaning([plans.cable("a 1", "b 2")])
    assert refusal("title\n" * 20 + text).startswith("p: no header such as ")


@pytest.mark.parametrize(
    "header",
    [
        "Source,Source Port,Destination,Destination Port",
        "Source,Port,Destination,Port",
        "Source,Interface,Destination,Interface",
        "Source Host,Source Interface Name,Destination Switch,Destination Port Number",
        "Source Server,Source NIC,Destination Leaf,Destination Port",
        "Node,Port,Peer Node,Peer Port",
        "Hostname,Interface,Neighbor,Neighbor Interface",
        "Local Device,Local Port,Remote Device,Remote Port ID",
        "A-End,A-End Port,B-End,B-End Port",
        "A-End Device,A-End Interface,Z-End Device,Z-End Interface",
        "Side A,Side A Port,Side B,Side B Port",
        "Side A Device,Side A Interface,Side B Device,Side B Interface",
        "Device (Side A),Port (Side A),Device (Side B),Port (Side B)",
        "Device 1,Port 1,Device 2,Port 2",
        "Host,HCA,Switch,Switch Port",
        "Host,Port,Switch,Switch Port",
        "Server,NIC,Leaf,Port",
        "Server Name,NIC Port,ToR,Port",
        "Endpoint A,Endpoint A Port,Endpoint B,Endpoint B Port",
        "source_device,source_port,target_device,target_port",
        "Near Device,Near Port,Far Device,Far Port",
        "Near End,Near End Port,Far End,Far End Port",
        "A Side Device,A Side Port,Z Side Device,Z Side Port",
        "Compute Node,HCA,IB Leaf,IB Port",
        "Node,Node Interface,Peer Node,Peer Interface",
        '"A-Node\nName","A-\r\nPort","Z-Node\nName","Z-Port\n(swp)"',
    ],
)
def test_headers_of_sites(header: str) -> None:
    """Each has a node and a port for both ends; a column beside them is carried."""
    text = f"{header},Remark\na,1,b,2,x\n"
    if "(swp)" in header:
        text = text.replace("\n(swp)", "")
    assert read(text) == plans.meaning([plans.cable("a 1", "b 2", fields={"Remark": "x"})])


@pytest.mark.parametrize(
    ("header", "carried"),
    [
        ("A-Node,A-Port,Z-Node,Z-Port,Source", "Source"),
        ("A-Node,A-Port,Z-Node,Z-Port,A-Port ID", "A-Port ID"),
        ("Host,HCA,Switch,Port,Leaf", "Leaf"),
    ],
)
def test_a_stricter_header_comes_first(header: str, carried: str) -> None:
    """A looser name is that of an end only where the header lacks it."""
    assert read(f"{header}\na,1,b,2,x\n") == plans.meaning(
        [plans.cable("a 1", "b 2", fields={carried: "x"})]
    )


@pytest.mark.parametrize(
    "header",
    ["Leaf A,Port A,Leaf B,Port B,Server", "Node,Port 1,Switch 1,Switch Port 1,Port 2,Switch 2"],
)
def test_two_cables_a_row(header: str) -> None:
    """A node beside two ends has a cable to each; none is of two switches."""
    message = refusal(f"{header}\na,1,b,2,c,d\n")
    assert re.match(r"p, row 1: a node \('(Server|Node)'\) beside two ends: ", message)


@pytest.mark.parametrize("name", ["gpu-[001-004]", "gpu-{1..4}", "gpu-[1..4]"])
@pytest.mark.parametrize("header", ["node,interface,device,port-id", "Node,Port,Peer,Peer Port"])
def test_a_range_is_no_name(header: str, name: str) -> None:
    """A row is one cable: nothing says how the ports of a range are counted."""
    message = refusal(f"{header}\n{name},mlx5_0,leaf1,1\n")
    assert re.match("p, row 2, column [Nn]ode: the range ", message)


@pytest.mark.parametrize(
    ("header", "lacks"),
    [
        ("Host,HCA,Switch", "row 1: no column for the port of the second end"),
        ("Hostname,Adapter,Leaf,Leaf Port", "row 1: no column for the port of the first end"),
        ("Node,Port,Peer Port", "row 1: no column for the node of the second end"),
        (
            "Server,Leaf\nSource,Source Port,Destination",
            "row 2: no column for the port of the second",
        ),
    ],
)
def test_a_header_that_lacks_a_column(header: str, lacks: str) -> None:
    """Of the form of header, and of the row, that is nearest to one."""
    assert refusal(f"{header}\ngpu-1,mlx5_0,leaf01\n").startswith(f"p, {lacks}")


def test_a_table_in_markdown() -> None:
    """The line below the header is none of the table."""
    text = "| Node | Port | Peer | Peer Port |\n|:---|---|---|---:|\n| gpu-1 | ib0 | leaf | 1 |\n"
    assert read(text) == plans.meaning([plans.cable("gpu-1 ib0", "leaf 1")])


def test_a_title_above_is_no_yaml() -> None:
    """The row that is nearest to a header is named, whatever stands above it."""
    message = refusal("Hall: 3\nA-Node,A-Port,Z-Node\n")
    assert message.startswith("p, row 2: no column for the port of the second end; --")


COLUMNS = {"node": "Server", "interface": "NIC", "device": "Leaf", "port-id": "Port"}


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_any_table_by_its_columns(separator: str) -> None:
    """--columns names them; its header may be ambiguous, or of another language."""
    names = {"node": "Rechner", "interface": "Karte", "device": "Leaf\nName", "port-id": "Port (2)"}
    more = {"rate": "Tempo", "mark": "Vermerk", "far-rack": "Schrank", "port-name": "Text"}
    text = (
        'Halle 3\nRechner;Karte;Port;"Leaf\nName";Port;Tempo;Vermerk;Schrank;Text;Node\n'
        "gpu-1;mlx5_0;x;leaf01;swp1;400G;ignore;R4;to gpu-1;y\n"
    ).replace(";", separator)
    [one] = read_one(text, columns=names | more).cables
    assert one.a[:2] == ("gpu-1", "mlx5_0")
    assert one.b == End("leaf01", "swp1", "to gpu-1", rack="R4")
    assert (one.rate_gbps, one.mark, dict(one.fields)) == (
        400,
        "ignore",
        {"Port": "x", "Node": "y"},
    )


def test_columns_of_a_workbook() -> None:
    """Sheets without the titles are named, as sheets without a header are."""
    table = [["Server", "NIC", "Leaf", "Port"], ["gpu-1", "mlx5_0", "leaf01", "1"]]
    book = plans.workbook({"L": table, "Old": plans.rows([plans.cable("a 1", "b 2")], "bare")})
    plan = read_one(book, columns=COLUMNS)
    assert (plan.sheet, len(plan.cables)) == ("L", 1)
    assert plan.notes == ("sheet 'Old' has no header of cables: skipped",)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("Server,NIC,Leaf\n", None, "p, row 1: no column 'Port'"),
        ("Server,A\n", None, "p: no row with all of Server, NIC, Leaf, Port in the first 20 rows"),
        ("Server,NIC,Leaf,Port,port\na,1,b,2,3\n", None, "p, row 1: two columns 'Port'"),
        ("graph {}", "dot", "p: --columns is for tables, not for the kind dot"),
    ],
)
def test_columns_that_are_not_there(text: str, kind: str | None, message: str) -> None:
    """The titles that are looked for are named."""
    assert refusal(text, kind, COLUMNS).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: dgx\ntopology:\n  nodes:\n    l1:\n  links:\n    - endpoints: [a:b, c:d]\n",
         "looks like YAML of containerlab: not read; nearest: dot"),
        ("MQM8700 sw-01\n   P2 -4x-50G-> HCA_1 gpu-017 mlx5_0/P1\n",
         "looks like a topology file of ibdm or UFM: not read; nearest: ibnetdiscover (what"),
        ("SwitchName=s0 Nodes=n[0-3]\n", "looks like topology.conf of Slurm, which has no ports"),
        ("START_NODES\nNodeDesc,NumPorts\n", "looks like ibdiagnet2.db_csv of ibdiagnet"),
        ("{ CA Ports:01 SystemGUID:0002c903 {gpu HCA-1} LID:0005 PN:01 } { SW Ports:24 }\n",
         "looks like a .lst file of ibdiagnet: not read; nearest: iblinkinfo"),
        ('Ca\t: 0x0002c903 ports 1 "gpu-1 mlx5_0"\n', "looks like a list of nodes (ibhosts,"),
        ("Local Intf  Neighbor\nEth1  leaf\n", "looks like LLDP of a switch: not read"),
        ("<?xml version='1.0'?><graphml/>", "looks like XML or HTML: not read"),
        ("name: t\ntopology:\n  kinds:\n    x:\n", "looks like YAML of containerlab: not read"),
        ("kind: ConfigMap\ndata:\n", "looks like YAML: not read; nearest: labels"),
        ("---\n# a\n- name: x\n  state: y\n", "looks like YAML: not read; nearest: labels"),
        ('{"vertices": [], "edges": []}', "JSON with the keys vertices, edges: no cables of"),
        ("[1]", "JSON: no cables of NetBox"),
        ("hello\n", "no header such as A-Node Name, A-Port, Z-Node Name, Z-Port in the first 20"),
    ],
)  # fmt: skip
def test_a_file_of_no_kind(text: str, message: str) -> None:
    """What it looks like, and which kinds there are."""
    assert refusal(text).startswith(f"p: {message}")
    assert refusal(text).endswith(" (kinds: " + ", ".join(KINDS) + ")")


def test_rows_that_are_no_cables() -> None:
    """Free ports and rows of notes are counted by their reasons."""
    text = "A-Node,A-Port,Z-Node,Z-Port,Note\na,1,b,2,\na,3,,,\n,,,,end of hall\na,4,,,\n"
    plan = read_one(text)
    assert plan.notes == (
        "2 rows skipped, without a far end (the first: p, row 3)",
        "1 row skipped, not a cable (the first: p, row 4)",
    )


@pytest.mark.parametrize("blank", ["-", " -- ", "\u2013", "n/a", "N/A"])
def test_cells_that_stand_for_nothing(blank: str) -> None:
    """They are a free port, or a place that is not known; they are no name."""
    text = f"A-Node,A-Port,A-Rack,Z-Node,Z-Port\na,1,{blank},b,2\na,3,R1,{blank},{blank}\n"
    plan = read_one(text)
    assert plans.of([plan]) == plans.meaning([plans.cable("a 1", "b 2")])
    assert plan.notes == ("1 row skipped, without a far end (the first: p, row 3)",)
    assert refusal(f"{text}a,4,R1,b,{blank}\n").startswith("p, row 4, column Z-Port: empty ")


def test_columns_of_one_name() -> None:
    """Unknown columns of one name, or of none, are carried through by a name of their own."""
    text = "A-Node,A-Port,Z-Node,Z-Port,Note,Note,\na,1,b,2,x,y,z\n"
    assert read(text) == plans.meaning(
        [plans.cable("a 1", "b 2", fields={"Note": "x", "Note (2)": "y", "column G": "z"})]
    )


@pytest.mark.slow
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
    plan = read_one(plans.workbook({"Nodes": nodes, "Links": LINKS}))
    assert (plan.cables[0].a.rack, plan.cables[0].a.unit) == expected
    assert plan.notes[0].startswith("sheet 'Nodes' ")


def test_the_row_itself_comes_first() -> None:
    links = [["A-Node", "A-Port", "A-Rack", "Z-Node", "Z-Port"], ["g", "1", "R9", "leaf", "1"]]
    book = plans.workbook({"L": links, "N": [["Node", "Rack"], ["g", "R1"]]})
    assert read_one(book).cables[0].a.rack == "R9"


@pytest.mark.parametrize(
    ("header", "cell", "rate"),
    [("Speed", "400G", 400.0), ("BandWidth", "400000", 400.0), ("Link Speed", "fast", None)],
)
def test_rates(header: str, cell: str, rate: float | None) -> None:
    """What is no rate is carried through as text."""
    text = f"A-Node,A-Port,Z-Node,Z-Port,{header}\na,1,b,2,{cell}\n"
    fields = {} if rate else {header: cell}
    assert read(text) == plans.meaning([plans.cable("a 1", "b 2", rate_gbps=rate, fields=fields)])


def test_a_network_definition_that_repeats_its_hosts() -> None:
    """As UFM's examples of hosts have it: `gpu-1 ibp11s0f0` is the port of gpu-1."""
    text = "#StartDevice,StartPort,EndDevice,EndPort,LinkType\n"
    text += "gpu-1,gpu-1 ibp11s0f0,leaf-1,Port 7, Data\n"
    plan = read_one(text)
    ends = [tuple(end[:3]) for end in (plan.cables[0].a, plan.cables[0].b)]
    assert ends == [("gpu-1", "ibp11s0f0", "ibp11s0f0"), ("leaf-1", "7", "Port 7")]


def test_a_network_definition_without_an_hca() -> None:
    """A description that names no HCA is the name of the node; a port keeps its text, too."""
    text = "#Fields:StartDevice,StartPort,EndDevice,EndPort,State,Domain\n"
    text += "sw-1,Port 2,gpu 5 x,1,Active,In\n"
    plan = read_one(text)
    assert [tuple(end[:3]) for end in (plan.cables[0].a, plan.cables[0].b)] == [
        ("sw-1", "2", "Port 2"),
        ("gpu 5 x", "1", "1"),
    ]
