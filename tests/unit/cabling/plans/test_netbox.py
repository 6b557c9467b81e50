"""NetBox: cables that end at no interface are skipped, choices and plain values are carried."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import plans


def end(kind: str = "dcim.interface", device: object = "gpu", name: object = "eth0") -> Any:
    return {"object_type": kind, "object": {"device": {"name": device}, "name": name}}


def entry(*ends: Any, **more: Any) -> dict[str, Any]:
    return {"a_terminations": [ends[0]], "b_terminations": list(ends[1:]), **more}


LEAF = end(device="leaf", name="1/1")


def test_cables_that_are_skipped() -> None:
    """Power, patch panels, breakouts and free ends are counted in notes."""
    entries = [
        entry(end(), LEAF, status={"value": "connected", "label": "Connected"}, id=7, length=None),
        entry(end("dcim.powerport"), end("dcim.poweroutlet")),
        entry(end(), end("dcim.frontport")),
        entry(end(), LEAF, end(name="eth1")),
        entry(end()),
    ]
    plan = plans.read_one(json.dumps(entries))
    expected = plans.cable("gpu eth0", "leaf 1/1", fields={"status": "connected", "id": "7"})
    assert plans.of([plan]) == plans.meaning([expected])
    assert plan.notes == (
        "2 rows skipped, not between interfaces (the first: p, row 2)",
        "1 row skipped, with several ends on a side (the first: p, row 4)",
        "1 row skipped, without a far end (the first: p, row 5)",
    )


@pytest.mark.parametrize(
    "broken",
    [
        end(device=None),
        end(name=5),
        {"object_type": "dcim.interface", "object": None},
        end(name=" "),
    ],
)
def test_an_end_without_names(broken: Any) -> None:
    fault = "no names of device and interface"
    document = json.dumps([entry(LEAF, broken)])
    assert plans.refusal(document) == f"p, row 1, column b_terminations: {fault}"


@pytest.mark.parametrize("kind", ["netbox", None])
def test_tables(kind: str | None) -> None:
    """Power cables and breakouts are skipped in tables, too; `--plan-format netbox` reads both."""
    text = (
        "Device A,Termination A,Device B,Termination B,Type\n"
        'gpu,eth0,leaf,1/1,SMF\ngpu,PSU1,pdu,7,Power\nleaf,1/2,gpu,"eth1,eth2",SMF\n'
    )  # fmt: skip
    plan = plans.read_one(text, kind)
    assert plan.kind == "netbox"
    assert [one.place.row for one in plan.cables] == [2]
    assert plan.notes == (
        "1 row skipped, not between interfaces (the first: p, row 3)",
        "1 row skipped, with several ends on a side (the first: p, row 4)",
    )


def test_a_long_line() -> None:
    """REST answers are one line, however many cables they have."""
    cables = [plans.cable(f"gpu-{number} eth0", f"leaf swp{number}") for number in range(1000)]
    text = plans.netbox(cables)
    assert len(text) > 1 << 17
    assert "\n" not in text
    assert plans.of(plans.read(text)) == plans.meaning(cables)


@pytest.mark.parametrize("paged", [True, False])
@pytest.mark.parametrize("typed", ["__typename", "class_type", ""])
def test_graphql(typed: str, paged: bool) -> None:
    """Ends are the objects themselves; one of another type is empty, or has its type.

    From NetBox 4.5 on, API version 2 has the list in `results`.
    """
    kind = {typed: "InterfaceType"} if typed else {}
    power = {typed: "PowerPortType", "device": {"name": "gpu"}} if typed else {}
    nic = {**kind, "name": "eth0", "device": {"name": "gpu"}}
    leaf = {**kind, "name": "1/1", "device": {"name": "leaf"}}
    cable = {"id": "7", "status": "connected", "a_terminations": [nic], "b_terminations": [leaf]}
    other = {"a_terminations": [power], "b_terminations": [power]}
    found: Any = [cable, other]
    found = {"results": found, "total_count": 2} if paged else found
    text = json.dumps({"data": {"cable_list": found}})
    plan = plans.read_one(text)
    assert plans.of([plan]) == plans.meaning(
        [plans.cable("gpu eth0", "leaf 1/1", fields={"id": "7", "status": "connected"})]
    )
    assert plan.notes == ("1 row skipped, not between interfaces (the first: p, row 2)",)


def test_a_page_of_graphql() -> None:
    """A list that has more is refused, as one of REST is."""
    answer = {"data": {"cable_list": {"results": [entry(end(), LEAF)], "total_count": 9}}}
    assert plans.refusal(json.dumps(answer)).startswith("p: one page of several (1 of 9 cables)")


def test_a_list_of_numbers_is_refused() -> None:
    """Where the kind is given; nothing of it is recognized."""
    assert plans.refusal("[5]", "netbox") == "p, row 1: no cable: int"


def test_an_error_of_graphql() -> None:
    """It is the message, though the answer has no list."""
    answer = {"data": None, "errors": [{"message": "Cannot query field 'x'"}]}
    message = plans.refusal(json.dumps(answer))
    assert message.startswith('p: GraphQL answered with an error: "Cannot query field')


@pytest.mark.parametrize("answer", ["rest", "before 3.3", "graphql"])
def test_connected_interfaces(answer: str) -> None:
    """Each cable is in the answer twice; what is connected to a circuit is no cable."""

    def interface(node: str, name: str, *far: tuple[str, str], kind: str = "interface") -> Any:
        ends = [{"name": port, "device": {"name": device}} for device, port in far]
        own = {"name": name, "device": {"name": node}}
        if answer == "before 3.3":
            found = ends[0] if ends else None
            return own | {"connected_endpoint": found, "connected_endpoint_type": f"dcim.{kind}"}
        known = {"connected_endpoints_type": f"dcim.{kind}"} if answer == "rest" else {}
        return own | {"connected_endpoints": ends or None} | known

    entries = [
        interface("gpu", "eth0", ("leaf", "1/1")),
        interface("leaf", "1/1", ("gpu", "eth0")),
        interface("gpu", "eth1"),
    ]
    if answer != "graphql":
        entries.append(interface("gpu", "eth2", ("x", "y"), kind="circuit"))
    key = {"data": {"interface_list": entries}} if answer == "graphql" else {"results": entries}
    plan = plans.read_one(json.dumps(key))
    assert plans.of([plan]) == plans.meaning([plans.cable("gpu eth0", "leaf 1/1")])
    assert len(plan.notes) == (1 if answer == "graphql" else 2)
