"""The page as HTML: its structure, its text against the data, and what hostile names become."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from agent.cabling.finding import INFO, Ends, Finding, Move, PortRef, finding
from agent.errors import Unavailable
from agent.fleet.model import Judged
from agent.fleet.page.render import page
from agent.fleet.page.worklist import SHOWN
from agent.text import visible
from tests.support import judged
from tests.support.documents import NODE_CODES

VOID = {"meta", "link", "input", "br", "img"}
FLEETS = {
    "faulty": judged.faulty(),
    "folded": judged.faulty(64, 32),
    "hostile": judged.hostile(),
    "clean": judged.fleet(24, 8),
    "empty": judged.fleet(0, 8),
}
CHECKBOX = ".//input[@type='checkbox']"


class Tree(HTMLParser):
    """Builds a tree of the elements; fails where one is not closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = ET.Element("root")
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), names
        element = ET.SubElement(self._open[-1], tag, {name: value or "" for name, value in attrs})
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        ET.SubElement(self._open[-1], tag, {name: value or "" for name, value in attrs})

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        parent = self._open[-1]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + data
        else:
            parent.text = (parent.text or "") + data


@cache
def root_of(name: str) -> ET.Element:
    return tree(FLEETS[name])


def tree(fleet: Judged) -> ET.Element:
    return Tree(page(fleet)).root


def words(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def flat(text: str) -> str:
    """Return a text of the data as `words` shows it."""
    return " ".join(visible(text, 2000).split())


def classed(root: ET.Element, name: str) -> Iterator[ET.Element]:
    return (one for one in root.iter() if name in one.get("class", "").split())


def only(root: ET.Element, path: str) -> ET.Element:
    (found,) = root.findall(path)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", FLEETS)
def test_ids_and_links(name: str) -> None:
    """Every ID is there once, and every reference within the page leads to one."""
    root = root_of(name)
    ids = [one.get("id", "") for one in root.iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    assert {one.get("href", "")[1:] for one in root.iter("a")} <= set(ids)
    for one in root.iter():
        assert set(one.get("aria-labelledby", "").split()) <= set(ids)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLEETS)
def test_loads_nothing(name: str) -> None:
    """No attribute names an address, no element is of a kind that loads."""
    root = root_of(name)
    for one in root.iter():
        assert one.tag not in {"img", "iframe", "object", "embed", "base", "form", "image", "use"}
        assert not {"src", "srcset", "style", "xlink:href"} & set(one.attrib)
        assert not any(key.startswith("on") for key in one.attrib)
        assert one.get("href", "#")[0] == "#" or one.get("href") == "data:,"
    assert not re.search(r"url\(|@import", page(FLEETS["clean"]))


@pytest.mark.parametrize("name", FLEETS)
def test_the_policy_has_the_hashes(name: str) -> None:
    """The style and the script are the ones whose hashes the policy permits."""
    root = root_of(name)
    policy = only(root, ".//meta[@http-equiv='Content-Security-Policy']").get("content", "")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind in ("style", "script"):
        text = only(root, f".//{kind}").text or ""
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("name", FLEETS)
def test_tables_have_captions_and_scopes(name: str) -> None:
    """Each table says what it is, each heading what it is the heading of."""
    root = root_of(name)
    for table in root.iter("table"):
        assert table[0].tag == "caption"
        assert all(one.get("scope") == "col" for one in table.findall("thead/tr/th"))
        headings = table.findall("tbody/tr/th")
        assert all(one.get("scope") in {"row", "rowgroup"} for one in headings)
        width = len(table.findall("thead/tr/th"))
        for row in table.findall("tbody/tr"):
            assert sum(int(one.get("colspan", "1")) for one in row) == width


@pytest.mark.parametrize("name", FLEETS)
def test_pictures_have_words(name: str) -> None:
    fleet = FLEETS[name]
    found = list(root_of(name).iter("svg"))
    assert len(found) >= len(fleet.groups)
    for one in found:
        assert (one.get("role"), one[0].tag, one[1].tag) == ("img", "title", "desc")
        assert words(one[0])
        assert words(one[1])


@pytest.mark.parametrize("name", FLEETS)
def test_every_finding_is_on_the_page(name: str) -> None:
    """Each finding has one place with its number, a box to tick, its words, nodes and moves."""
    fleet, root = FLEETS[name], root_of(name)
    for number, one in enumerate(fleet.findings, 1):
        row = only(root, f".//tr[@id='f{number}']")
        text = words(row)
        assert row.findall(CHECKBOX)
        assert flat(one.text) in text
        if one.code == "silent":
            continue
        for port in one.ports:
            assert port.node in text or len(one.ports) > SHOWN
            assert port.interface in text
        for move in one.moves:
            expected = "/".join(flat(part) for part in move.wanted if part)
            assert f"{move.port.interface}: " in text
            assert expected in text
        assert one.majority is None or flat(one.majority) in text
        assert one.id in text
        assert len(row.findall(CHECKBOX)) == 1 + len(one.moves)


@pytest.mark.parametrize("name", FLEETS)
def test_every_node_is_in_the_matrix(name: str) -> None:
    """Each node of a group has a row, or is in the list of a shared one, with all its ports."""
    fleet, root = FLEETS[name], root_of(name)
    nodes = {node.name: node for node in fleet.fleet.nodes}
    for number, group in enumerate(fleet.groups, 1):
        details = only(root, f".//details[@id='g{number}']")
        headings = [words(one) for one in details.findall(".//tbody/tr/th")]
        listed = [words(one) for one in details.findall(".//li")]
        for node in group.nodes:
            shown = flat(node)
            assert any(text.startswith(shown) for text in [*headings, *listed]), node
            ports = [port.far_end.port or "" for port in nodes[node].ports if port.far_end]
            for text in listed:
                if text.startswith(f"{shown}: "):
                    assert set(text.partition(": ")[2].split()) - {"-"} == set(ports)


def test_the_matrix_is_the_wiring() -> None:
    """Each cell has leaf and port of its node's interface, or says that there is no neighbor."""
    fleet = judged.faulty()
    nodes = {node.name: node for node in fleet.fleet.nodes}
    rows = [row for table in classed(tree(fleet), "matrix") for row in table.findall("tbody/tr")]
    assert len(rows) == 24
    for row in rows:
        node = nodes[words(row[0]).split()[0]]
        assert words(row[1]) == "3200G"
        for cell, port in zip(row[2:], node.ports, strict=True):
            end = port.far_end
            expected = f"{end.device} {end.port}" if end else "no neighbor"
            assert expected in words(cell)


def test_wrong_cells_are_marked_by_more_than_color() -> None:
    """Exactly the ports of findings have a class with a border, a sign, its word and a number."""
    fleet = judged.faulty()
    expected = {port for one in fleet.findings for port in one.ports}
    marked = set()
    for table in classed(tree(fleet), "matrix"):
        for row in table.findall("tbody/tr"):
            for rail, cell in enumerate(row[2:]):
                if {"error", "warning"} & set(cell.get("class", "").split()):
                    marked.add(PortRef(words(row[0]).split()[0], f"mlx5_{rail}"))
                    assert re.match(r"[✗!](error|warning) #\d", words(cell))
                else:
                    assert "#" not in words(cell)
    assert marked == expected


def test_groups_without_findings_are_closed() -> None:
    groups = list(classed(tree(judged.faulty()), "group"))
    assert [one.get("open") is not None for one in groups] == [True, True, False]


def test_hostile_names_are_text() -> None:
    """The elements are those of the template; every name is there as text, made printable."""
    text = page(judged.hostile())
    root = Tree(text).root
    assert not [one for one in root.iter() if one.tag == "img" or one.get("onload")]
    assert len(list(root.iter("script"))) == len(list(root.iter("style"))) == 1
    shown = words(root)
    for name in judged.HOSTILE:
        assert flat(name) in shown
    assert "{{ 7 * 7 }}" in shown
    assert all(character.isprintable() or character == "\n" for character in text)
    text.encode()


def test_wide_matrices_are_printed_in_landscape() -> None:
    fleet = judged.fleet(2, 2)
    more = tuple(
        replace(
            node,
            ports=node.ports
            + tuple(port._replace(interface=f"x{port.interface}", pci=None) for port in node.ports),
        )
        for node in fleet.fleet.nodes
    )
    wide = fleet._replace(fleet=replace(fleet.fleet, nodes=more))
    assert list(classed(tree(wide), "wide"))
    assert not list(classed(tree(fleet), "wide"))


@pytest.mark.parametrize(
    ("actual", "wanted", "text"),
    [
        (("a", "1"), ("b", "2"), "from a/1 to b/2"),
        ((None, None), ("b", "2"), "into b/2"),
        (("a", "1"), (None, None), "out of a/1"),
    ],
)
def test_moves(actual: Ends, wanted: Ends, text: str) -> None:
    ref = PortRef("gpu-001", "mlx5_0")
    one = finding("miscabled", [ref], "look", moves=(Move(ref, actual, wanted),))
    root = tree(judged.found(judged.fleet(4, 4), one))
    assert f"gpu-001 mlx5_0: {text}" in words(only(root, ".//tr[@id='f1']"))
    ends = [words(one) for one in classed(root, "wanted-end")]
    assert ends == (["○ wanted b 2"] if wanted[0] else [])


def test_notes() -> None:
    """Notes, problems of the fleet and of nodes, and the number of other Nodes."""
    fleet = judged.fleet(2, 2)
    nodes = (replace(fleet.fleet.nodes[0], problems=("cannot be read",)), fleet.fleet.nodes[1])
    read = replace(fleet.fleet, nodes=nodes, others=1200, problems=("half of it",))
    text = words(tree(fleet._replace(fleet=read, notes=("a note",))))
    for note in ("a note", "half of it", "gpu-001: cannot be read"):
        assert note in text
    assert "1,200 Nodes without labels of the agent are left out" in text


@pytest.mark.slow
@pytest.mark.parametrize("code", NODE_CODES)
def test_findings_of_a_plan(code: str) -> None:
    """The codes of `verify` are shown, also of an interface or a node that is not there."""
    one = Finding(code, INFO, ("gone",), (PortRef("gpu-001", "ibp9"),), "look")
    fleet = judged.found(judged.fleet(4, 4), one)._replace(by_pattern=False)
    text = words(only(tree(fleet), ".//tr[@id='f1']"))
    assert all(part in text for part in ("i info", "gone", "gpu-001 ibp9"))


def test_two_findings_of_one_port() -> None:
    """A cell with several findings has the sign of the worst and all numbers."""
    fleet = judged.fleet(4, 4)
    ref = PortRef("gpu-001", "mlx5_0")
    for code in ("slow", "claimed"):
        fleet = judged.found(fleet, finding(code, [ref], "look"))
    cells = next(classed(tree(fleet), "matrix")).findall("tbody/tr/td")
    (cell,) = (one for one in cells if "error" in one.get("class", "").split())
    assert words(cell).startswith("✗error #1 #2 ")


def test_without_jinja2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(Unavailable, match=r"needs Jinja2: pip install '\.\[page\]' in the ch"):
        page(judged.fleet(1, 1))


@pytest.mark.slow
def test_a_thousand_nodes() -> None:
    """Less than 3 MB, also where no two rows are equal."""
    fleet = judged.faulty(1000, 32)
    odd = tuple(
        replace(node, ports=tuple(port._replace(gbps=number * 10.0 + 1) for port in node.ports))
        for number, node in enumerate(fleet.fleet.nodes)
    )
    for one in (fleet, fleet._replace(fleet=replace(fleet.fleet, nodes=odd))):
        assert len(page(one).encode()) < 3_000_000
