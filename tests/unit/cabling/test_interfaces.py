"""Which interface a row names, and why it may have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cabling.interfaces import names_of, read_map
from agent.cabling.judge import VerifyOptions, verify
from agent.cabling.seen import SeenNode
from agent.errors import Malformed
from agent.output.report import UNVERIFIED, outcome
from tests.support.cabling import NODE, cable, hca_map, labels, node, plan, rails

ON_BUS = frozenset(f"0000:{0x10 + number:02x}:00.0" for number in range(8))


def two_ports() -> SeenNode:
    """A node with a NIC of two ports in one PCI function, and another NIC."""
    first, second, third = node(rails(3)).ports.values()
    ports = (
        first._replace(interface="mlx5_0-1"),
        second._replace(interface="mlx5_0-2", device="mlx5_0", number=2, pci=first.pci),
        third,
    )
    return SeenNode(NODE, {one.interface: one for one in ports})


@pytest.mark.parametrize("text", ["mlx5_0", "0000:10:00.0", "10:00.0"])
def test_a_name_of_several_ports_is_not_missing(text: str) -> None:
    """The NIC is there; the row does not say which of its ports it means."""
    rows = {text: rails()[0], "mlx5_2": rails()[2]}
    [found] = verify(plan(rows), two_ports()._replace(on_bus=ON_BUS)).findings
    assert (found.code, found.severity) == ("unverifiable", "unknown")
    assert "names several ports of this node" in found.text


@pytest.mark.parametrize("second", ["mlx5_0-2", "mlx5_0/2", "mlx5_0 port 2"])
def test_a_bare_name_is_port_1_beside_port_2(second: str) -> None:
    """UFM's network definition has `mlx5_0` and `mlx5_0-2`; two bare rows would be one too many."""
    rows = {"mlx5_0": rails()[0], second: rails()[1], "mlx5_2": rails()[2]}
    result = verify(plan(rows), two_ports())
    assert (result.findings, result.as_planned) == ((), 3)
    only_first = {"mlx5_0": rails()[0], "mlx5_0-1": rails()[0], "mlx5_2": rails()[2]}
    texts = [one.text for one in verify(plan(only_first), two_ports()).findings]
    assert any("names several ports" in text for text in texts)


@pytest.mark.parametrize("text", ["0000:1F:00.0", "1f:00.0", "0000:1f:00.0", "00000000:1F:00.0"])
def test_an_address_is_compared_in_its_usual_form(text: str) -> None:
    """A function on the bus is not to be replaced because the plan writes it otherwise."""
    rows = {"mlx5_0": rails()[0], text: ("leaf09", "1")}
    seen = node(rails(1), on_bus=ON_BUS | {"0000:1f:00.0"})
    [found] = verify(plan(rows), seen).findings
    assert (found.code, dict(found.facts)["on-bus"]) == ("missing-interface", "True")


@pytest.mark.parametrize("unread", ["unread", "excluded"])
def test_an_address_may_be_of_a_device_that_is_not_read(unread: str) -> None:
    """While one is not read, or excluded, an address of the bus is not that of a missing NIC."""
    seen = node(rails(7), **{unread: frozenset({"mlx5_7"})}, on_bus=ON_BUS)
    rows = {f"0000:{0x10 + number:02x}:00.0": end for number, end in enumerate(rails())}
    result = verify(plan(rows), seen)
    assert [(one.code, one.severity) for one in result.findings] == [("unverifiable", "unknown")]
    gone = verify(plan(rows), seen._replace(on_bus=ON_BUS - {"0000:17:00.0"}))
    assert [one.code for one in gone.findings] == ["missing-interface"]


def test_labels_of_an_unread_device_with_several_ports() -> None:
    """`mlx5_7-2` is a port of mlx5_7, which could not be read."""
    expected = labels({"neighbors.expected.mlx5_7-2.device": "leaf07"})
    seen = node(rails(7), unread=frozenset({"mlx5_7"}))
    found = verify(expected, seen).findings
    assert [one.code for one in found if one.code != "unexpected"] == ["unverifiable"]


def test_a_labeled_interface_that_is_no_backend_port() -> None:
    """A label says that it is one: this is not a management port, so the result is not OK."""
    expected = labels({"neighbors.expected.mlx5_9.device": "leaf07"})
    result = verify(expected, node([], others=frozenset({"mlx5_9"})))
    assert [one.severity for one in result.findings] == ["unknown"]


def test_a_plan_for_a_node_without_backend_ports() -> None:
    """No row is as planned, so the result is not OK."""
    result = verify(plan(rails()), node([]))
    assert (outcome(result.findings), result.as_planned, result.planned) == (UNVERIFIED, 0, 8)


def test_another_netdev_of_the_node_is_not_missing() -> None:
    """The plan also has the management port eth9, which is no RDMA device: not verified."""
    rows = {f"eth{number}": end for number, end in enumerate(rails())} | {"eth9": ("oob", "7")}
    seen = node(rails(), netdevs=frozenset(f"eth{number}" for number in range(10)))
    [found] = verify(plan(rows), seen).findings
    assert (found.code, found.severity) == ("unverifiable", "unknown")
    [found] = verify(plan(rows), node(rails())).findings
    assert found.code == "missing-interface"


def test_a_row_to_ignore_is_never_a_finding() -> None:
    """Its interface is not on the node, or has no known number."""
    rows = [cable("mlx5_0", *rails()[0])]
    rows += [cable(name, "x", "1", mark="ignore") for name in ("mlx5_5", "HCA 3", "BMC")]
    result = verify(plan({}, *rows), node(rails(1)))
    assert (result.findings, result.planned) == ((), 1)


@pytest.mark.parametrize("text", ["HCA {}", "{}"])
def test_an_ignored_number_is_counted(text: str) -> None:
    """--ignore leaves out a cable, not a device of the PCI order."""
    rows = {text.format(number + 1): end for number, end in enumerate(rails())}
    result = verify(plan(rows), node(rails()), VerifyOptions(ignore=(text.format(8),)))
    assert (result.findings, result.as_planned, result.planned) == ((), 7, 7)


@pytest.mark.parametrize("base", [0, 1])
def test_numbers_do_not_count_more_devices_than_the_plan_has(base: int) -> None:
    """Two devices are for storage, so nobody knows which ones the numbers leave out."""
    rows = {f"HCA {number + base}": end for number, end in enumerate(rails())}
    result = verify(plan(rows), node([*rails(), ("s1", "swp1"), ("s2", "swp1")]))
    [found] = result.findings
    assert "numbering unknown, give --hca-map" in found.text


@pytest.mark.parametrize(
    ("mapped", "reason"),
    [
        ("mlx5_7", "could not be read"),
        ("0000:17:00.0", "perhaps a device that"),
        ("mlx5_9", "not a backend port"),
    ],
)
def test_a_mapped_name_may_be_of_a_device_that_is_not_read(mapped: str, reason: str) -> None:
    """--hca-map names it, so it is looked for as if the plan did."""
    others = frozenset({"mlx5_9"})
    seen = node(rails(7), unread=frozenset({"mlx5_7"}), others=others, on_bus=ON_BUS)
    options = VerifyOptions(hca_map=hca_map({"HCA 7": mapped}))
    found = verify(plan({"HCA 7": rails()[7]}), seen, options).findings
    [text] = [one.text for one in found if one.code == "unverifiable"]
    assert reason in text
    assert "missing-interface" not in {one.code for one in found}


def test_an_address_on_a_bus_that_was_not_read() -> None:
    """Nothing shows that the NIC is gone while a device could not be read."""
    seen = node(rails(7), unread=frozenset({"mlx5_7"}))
    found = verify(plan({"0000:17:00.0": rails()[7]}), seen).findings
    assert [one.code for one in found] == ["unverifiable"]


FORMS = ("HCA ", "HCA-", "rail", "hca-", "")
CAGES = [f"OSFP{cage}/{port}" for cage in range(1, 5) for port in (1, 2)]


@pytest.mark.parametrize(
    "texts",
    [
        [f"GPU{number} NIC" for number in range(8)],
        [f"gpu-{number + 1}-HCA" for number in range(8)],
        [f"NIC 0{number}" for number in range(8)],
        *([f"{form}{n + base}" for n in range(8)] for form in FORMS for base in (0, 1)),
        [f"HCA {number}/1" for number in range(8)],
        CAGES,
        [text.replace("/", " P").replace("OSFP", "osfp ") for text in CAGES],
    ],
)
def test_numbers_as_sites_write_them(texts: list[str]) -> None:
    """They count the backend devices in PCI order, which is said."""
    rows = dict(zip(texts, rails(), strict=True))
    result = verify(plan(rows), node(rails()))
    assert (result.findings, result.as_planned) == ((), 8)
    base = 0 if any("0" in text for text in texts) else 1
    assert "count the backend devices in PCI order" in (result.assumption or "")
    assert f"{base} is mlx5_0" in (result.assumption or "")


@pytest.mark.parametrize("form", ["HCA {}", "{}", "nic-{}", "rail0{}"])
def test_numbers_of_the_map_are_those_of_any_spelling(form: str) -> None:
    """The map has `1`, the plan `HCA 1`; one that it lacks is not counted in PCI order."""
    rows = {form.format(number): rails()[(number + 2) % 8] for number in range(8)}
    names = {str(number): f"mlx5_{(number + 2) % 8}" for number in range(8)}
    result = verify(plan(rows), node(rails()), VerifyOptions(hca_map=hca_map(names)))
    assert (result.findings, result.as_planned, result.assumption) == ((), 8, None)
    del names["5"]
    result = verify(plan(rows), node(rails()), VerifyOptions(hca_map=hca_map(names)))
    [text] = [one.text for one in result.findings if one.code == "unverifiable"]
    assert "not in --hca-map" in text
    assert "give --hca-map" not in text


@pytest.mark.parametrize("text", ["{}", "\n;\n{}"])
def test_a_map_of_any_separator(tmp_path: Path, text: str) -> None:
    """Below blank rows, too; its numbers are those of the plan in any spelling."""
    path = tmp_path / "map.csv"
    path.write_text(text.format("port;hca-name\nhca3;mlx5_0\nHCA 04;mlx5_1\n"))
    assert names_of(read_map(str(path)), "n") == {"hca3": "mlx5_0", "hca04": "mlx5_1"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("port,hca-name,port\n1,a\n", "row 1: two columns port"),
        ("port,hca-name\nHCA 1\n", "row 2: an empty cell"),
        ("port,hca-name\n1,a\n1,b\n", "row 3: 1 is b, but a above"),
        ("port,hca-name\n", "no row below the header"),
    ],
)
def test_a_malformed_map(tmp_path: Path, text: str, named: str) -> None:
    """One line that names the file, and the row."""
    path = tmp_path / "map.csv"
    path.write_text(text)
    with pytest.raises(Malformed, match=named):
        read_map(str(path))


def test_a_map_for_several_machine_types(tmp_path: Path) -> None:
    """Rows with a glob are for the nodes of that name, and go before those for all."""
    path = tmp_path / "map.csv"
    path.write_text("port,hca-name,node\n1,x,\n1,a,gpu-h1*\n2,y,\n1,b,GPU-B2*\n1,c,gpu-b*\n")
    entries = read_map(str(path))
    assert names_of(entries, "gpu-h100-1.site.example") == {"1": "a", "2": "y"}
    assert names_of(entries, "gpu-b200-1") == {"1": "b", "2": "y"}
    assert names_of(entries, "login-1") == {"1": "x", "2": "y"}
    path.write_text("port,hca-name,node\n1,a,g*\n01,b,G*\n")
    with pytest.raises(Malformed, match=r"row 3: 01 is b, but a above"):
        read_map(str(path))
