"""The annotation: its contents, and what is rejected when it is parsed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.encode import hashed
from agent.kube.annotation import (
    MAX_BYTES,
    MAX_LENGTH,
    Annotation,
    OtherPort,
    Report,
    fitted,
    is_cut,
    is_stale,
    parse,
    render,
    without_future,
)
from agent.kube.remembered import annotate
from agent.memory import Fact, FarEnd, Known
from agent.model import (
    Absent,
    Failed,
    Gpu,
    IbNeighbor,
    Link,
    LldpNeighbor,
    Neighbor,
    PlatformPosition,
    Problem,
    Seen,
)
from agent.reasons import BadLink, HoldReason, Remembered, Verdict
from tests.support.nodes import ANNOTATED, BOOT, KEYS, NOW, rows
from tests.support.observations import observation
from tests.support.remembering import alone, completed

KEY = KEYS.annotation
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)
PCI = "0000:18:00.0"
TOLD = "2027-01-15T08:00:00Z"


def malformed(text: str) -> Problem:
    """Return the problem of an annotation that does not count."""
    return Problem("node", KEY, None, f"malformed annotation, ignored: {text}")


def ignored(facts: str) -> Problem:
    """Return the problem of these facts."""
    return Problem("node", KEY, None, f"malformed facts, ignored: {facts}")


def told(**changes: Any) -> str:
    """Return the text of an annotation with other parts."""
    return json.dumps(json.loads(render(ANNOTATED)) | changes)


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host whose local time is not UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_text() -> None:
    """It is JSON without white space."""
    assert render(Annotation(NOW, BOOT, rows(("ibp0", PCI)), "0.1.0")) == (
        '{"schema":3,"agent":"0.1.0",'
        f'"boot_id":"{BOOT}","time":"2027-01-15T08:00:00Z",'
        '"ports":[{"interface":"ibp0","pci":"0000:18:00.0"}]}'
    )


def test_both_ways() -> None:
    """Rendering and parsing are inverse."""
    assert parse(render(ANNOTATED), KEY) == (ANNOTATED, None)
    empty = Annotation(None, None)
    assert parse(render(empty), KEY) == (empty, None)
    assert parse(None, KEY) == (None, None)
    assert parse('{"schema": 2}', KEY) == (Annotation(None, None, agent=""), None)


def test_a_full_observation() -> None:
    """Time, boot ID and PCI addresses of the backend are those of the observation. One time is
    enough. In natural order the same interfaces are left out each time.
    """
    ports = ("ibp10", "0000:2a:00.0"), ("ibp9", PCI)
    for before in (None, annotate(*alone(observation(ib=Failed("x"))))):
        found = annotate(*alone(observation(*ports)), before)
        assert (found.time, found.boot_id, found.partial) == (NOW, BOOT, None)
        assert [*found.addresses.items()] == [*reversed(ports)]


def test_since_when_far_ends_are_awaited_is_a_time_of_this_boot() -> None:
    """It stays while one is awaited; of another boot only the wall clock tells."""
    fact = Fact("mlx5_0", PCI, far=FarEnd(None, "leaf-1"))
    fact = fact._replace(far_since=5.0, far_why=HoldReason.NO_NEIGHBOR)
    known = Known((fact,), now=100.0, started=5.0)
    before = Annotation(NOW - 60, BOOT, uptime=40)
    assert annotate(observation(), known, before).uptime == 40
    assert annotate(observation(), known, replace(before, boot_id="another")).uptime is None
    assert annotate(observation(), known._replace(facts=()), before).uptime == 100


@pytest.mark.parametrize(
    "change", [{"ib": Failed("x")}, {"rdma": Failed("x")}, {"off": frozenset({"lldp"})}]
)
def test_an_observation_that_is_not_full(change: dict[str, Any]) -> None:
    """Time and boot ID stay those of the last full observation, together."""
    before = Annotation(NOW - 60, "another-boot")
    found = annotate(*alone(observation(boot_id=BOOT, **change)), before)
    assert (found.time, found.boot_id) == (NOW - 60, "another-boot")
    assert found.reported == (NOW, BOOT)
    found = annotate(*alone(observation(**change)))
    assert (found.time, found.boot_id) == (None, None)
    assert found.reported == (NOW, BOOT)
    assert parse(render(found), KEY) == (found, None)


@pytest.mark.parametrize(
    ("partial", "report", "fault"),
    [
        ([], None, "partial"),
        ("x", None, "partial"),
        ({"time": 7, "boot_id": BOOT}, Report(None, BOOT), "time of partial"),
        ({"time": "soon"}, Report(None, None), "time of partial"),
        ({"boot_id": "a b"}, Report(None, None), "boot_id of partial"),
    ],
)
def test_a_malformed_report(partial: object, report: Report | None, fault: str) -> None:
    """What is malformed is unknown, and said."""
    found = replace(ANNOTATED, partial=report)
    assert parse(told(partial=partial), KEY) == (found, ignored(fault))


def test_a_report_of_another_boot_is_a_fact() -> None:
    """A request is due at once after a boot; the time alone is none."""
    before = Annotation(NOW, "one", partial=Report(NOW, "one"))
    assert before.facts == replace(before, partial=Report(NOW + 60, "one")).facts
    assert before.facts == Annotation(NOW, "one").facts
    assert before.facts != replace(before, partial=Report(NOW, "two")).facts


@pytest.mark.parametrize(
    ("rdma", "kept"), [(Failed("x"), {"ibp9": "0000:99:00.0"}), (Absent("no device"), {})]
)
def test_interfaces_without_devices(rdma: Any, kept: dict[str, str]) -> None:
    """The addresses stay if the RDMA devices cannot be read; they go with the last device."""
    before = Annotation(NOW - 60, BOOT, rows(("ibp9", "0000:99:00.0")))
    assert annotate(*completed(observation(rdma=rdma), annotation=before)).addresses == kept


def test_malformed_facts() -> None:
    """Malformed names and addresses are left out, so that the annotation can be parsed."""
    found = annotate(
        *alone(observation(("ibp0", None), ("a b", "0000:18:00.0"), ("ibp1", "x"), boot_id="a b"))
    )
    assert found == Annotation(NOW, None)


NO_ROW = "a row of ports lacks the interface or its PCI address"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("7", "not a JSON object"),
        ("x" * 70_000, "70000 characters, at most 65536 are allowed"),
        (told(schema=4), "schema 4 instead of 3"),
        (told(schema=1), "schema 1 instead of 3"),
        (told(schema=None), "schema None instead of 3"),
        (told(ports={"a": 1}), "ports is not a list of up to 576 rows"),
        (
            told(ports=[{"interface": "a", "pci": PCI}] * 577),
            "ports is not a list of up to 576 rows",
        ),
        (told(ports=[7]), NO_ROW),
        (told(ports=[{"interface": "ibp0"}]), NO_ROW),
        (told(ports=[{"interface": "../..", "pci": PCI}]), "interface is '../..'"),
        (told(ports=[{"interface": "ibp0", "pci": "../../etc"}]), "pci is '../../etc'"),
        ('{"schema": 2, "ports": [7]}', NO_ROW),
        ('{"schema": 2, "ports": 7}', "ports is not a list of up to 576 rows"),
    ],
)
def test_malformed_annotations(text: str, fault: str) -> None:
    """A malformed list or row makes the whole annotation malformed; no more than 64 KiB are parsed,
    white space included.
    """
    assert parse(text, KEY) == (None, malformed(fault))
    assert parse(render(ANNOTATED).ljust(MAX_LENGTH), KEY) == (ANNOTATED, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time", 7),
        ("time", "yesterday"),
        ("time", "\ud800"),
        ("time", "0001-01-01T00:00:00+14:00"),
        ("boot_id", 7),
        ("boot_id", "a b"),
        ("agent", "\n"),
    ],
)
def test_a_malformed_fact_is_unknown(name: str, value: object) -> None:
    """The rest of the annotation counts, and the problem names the fact."""
    unknown: Any = {name: "" if name == "agent" else None}
    found = replace(ANNOTATED, **unknown)
    assert parse(told(**{name: value}), KEY) == (found, ignored(name))


@pytest.mark.usefixtures("tokyo")
def test_times() -> None:
    """Any RFC 3339 time is parsed; without a zone it is UTC, and so is a rendered one, whatever the
    zone of the host.
    """
    assert '"time":"2027-01-15T08:00:00Z"' in render(ANNOTATED)
    for text in ("2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", "2027-01-15T08:00:00"):
        assert parse(told(time=text), KEY) == (ANNOTATED, None)


@pytest.mark.parametrize(("ahead", "is_known"), [(-1, True), (300, True), (301, False)])
def test_times_in_the_future(ahead: int, *, is_known: bool) -> None:
    """They are unknown, but for a few minutes by which two clocks may differ."""

    def found(time: int | None) -> Annotation:
        row = ANNOTATED.interfaces[0]
        bad = row._replace(bad_link=BadLink("near", time) if time else None)
        lost = row._replace(lost_since=time or 0)
        return Annotation(time, BOOT, (bad,), lost=(lost,), partial=Report(time, BOOT))

    after = NOW + ahead if is_known else None
    assert without_future(found(NOW + ahead), NOW) == found(after)
    assert without_future(None, NOW) is None


@pytest.mark.parametrize(
    ("time", "stale"),
    [(NOW, False), (NOW - 3599, False), (NOW - 3600, True), (NOW + 5, True), (None, True)],
)
def test_age(time: int | None, *, stale: bool) -> None:
    """It is stale after an hour, without a time, with one in the future, and if it is missing."""
    assert is_stale(Annotation(time, BOOT), NOW) == stale
    assert is_stale(Annotation(NOW, BOOT, partial=Report(time, BOOT)), NOW) == stale
    assert is_stale(None, NOW)


@pytest.mark.slow
@given(
    st.text()
    | st.recursive(st.none() | st.floats() | st.text(), st.lists, max_leaves=20).map(json.dumps)
)
def test_any_text(text: str) -> None:
    """No text raises anything."""
    found, problem = parse(text, KEY)
    assert (found is None) == (problem is not None)


SWITCH = FarEnd("b0cf0e0300d4ee40", "MF0;L90.1.3:MQM9700/U1", "3")
WHOLE = Fact(
    *("ibp0", "0000:18:00.0", 1),
    port_guid="a" * 16,
    node_guid="b" * 16,
    layer="InfiniBand",
    gbps=400.0,
    last_far=SWITCH,
    via="sa",
)


def whole(count: int, row: Fact = WHOLE) -> tuple[Fact, ...]:
    """Return rows with every fact: ibp0, ibp1, ..."""
    return tuple(row._replace(interface=f"ibp{number}") for number in range(count))


def test_facts_both_ways() -> None:
    """Rendering and parsing are inverse for each fact of an interface, known or not."""
    some = (
        Fact("a", "0000:18:00.0", gbps=0.0),
        Fact("b", "0000:18:00.0", last_far=FarEnd(name="Größe\n\x00")),
        Fact("c", "0000:18:00.0", last_far=FarEnd()),
        WHOLE._replace(interface="f", is_earlier=True),
        WHOLE._replace(interface="g", bad_link=BadLink("near", NOW)),
    )
    unread = WHOLE._replace(interface="d", state_since=0, role_since=81200)
    lost = WHOLE._replace(interface="e", gbps=None, lost_since=NOW)
    present = *whole(2), *some, unread
    found = Annotation(NOW, BOOT, present, left_out=1, lost=(lost,), unknown_since=7)
    assert parse(render(found), KEY) == (found, None)


@pytest.mark.parametrize(
    "since", [7, "7", [1, 2], {"state": -1}, {"far": True}, {"role": "1"}, {"state": 1e300}]
)
def test_a_malformed_time_since_which_a_port_is_unread(since: object) -> None:
    """It is unknown, and the row counts."""
    document = json.loads(render(Annotation(NOW, BOOT, whole(1))))
    document["ports"][0]["unread"] = since
    found = Annotation(NOW, BOOT, whole(1))
    assert parse(json.dumps(document), KEY) == (found, ignored("unread of ibp0"))


def test_a_station_both_ways() -> None:
    """The last leaf of its port is there beside it; a long name is cut."""
    far = FarEnd("b0:7b:25:aa:00:01", "PowerEdge-R750", "p1", "iDRAC", is_station=True)
    leaf = FarEnd("00:1c:73:aa:bb:cc", "leaf-1", "swp1")
    row = Fact("eth0", PCI, port=1, netdev="eth0", far=far, last_far=leaf)
    annotation = Annotation(NOW, BOOT, (row, row._replace(interface="eth1", far=leaf)))
    written, other = parse(render(annotation), KEY)[0].interfaces  # type: ignore[union-attr]
    assert (written, other.far, other.last_far) == (row, None, leaf)
    long = far._replace(name="x" * 99)
    text = json.loads(render(Annotation(NOW, BOOT, (row._replace(far=long),))))
    assert is_cut(text["ports"][0]["station"]["name"])


@pytest.mark.parametrize("station", [[], "leaf", {"name": 1}, {"id": "\ud800"}])
def test_a_malformed_station(station: object) -> None:
    row = {"interface": "ibp0", "pci": PCI, "station": station}
    found, problem = parse(told(ports=[row]), KEY)
    assert found
    assert found.interfaces[0].far is None
    assert problem == ignored("station of ibp0")


def test_64_unread_ports_fit() -> None:
    """Each on a leaf of its own, with a name of 32 characters; that is more than any node has."""
    far = FarEnd("b0cf0e0300d4ee40", "MF0;" + "l" * 32 + ":MQM9700/U1", "31")
    rows = tuple(
        row._replace(
            interface=f"mlx5_{number}",
            netdev=f"mlx5_{number}",
            port_guid=f"{number:016x}",
            node_guid=f"{number:016x}",
            rule="near-gpu",
            last_far=far._replace(id=f"{number:016x}"),
            state_since=9999999,
            far_since=9999999,
            role_since=9999999,
            bad_link=BadLink("cannot-tell", NOW),
        )
        for number, row in enumerate(whole(64))
    )
    found = Annotation(NOW, BOOT, rows)
    assert fitted(found) == found
    assert parse(render(found), KEY) == (found, None)


def linked(name: str | None, via: str = "smp", **changes: Any) -> dict[str, Any]:
    """Return the InfiniBand links of an observation in which ibp0 has a switch of this name."""
    facts = IbNeighbor("switch", SWITCH.id or "", None, 3, name, via)
    neighbor = Neighbor("L90.1.3", "3", None, facts, **changes)
    return {"ib": Seen((Link("ibp0", None, (neighbor,)),))}


def test_facts_of_an_observation() -> None:
    """GUIDs, the counted rate and the selected neighbor are those of the backend port."""
    (role,) = observation(("ibp0", PCI)).ports
    role = role._replace(
        device=role.device._replace(node_guid="b" * 16),
        port=role.port._replace(port_guid="a" * 16),
    )
    seen = observation(ports=(role,), **linked(SWITCH.name, "sa"))
    assert annotate(*alone(seen)).interfaces == (WHOLE,)


def test_the_way_to_a_neighbor() -> None:
    """`via` is that of the last far end, also while it is unknown; only `sa` is written."""
    before = Annotation(NOW, BOOT, (WHOLE,))
    unknown = annotate(*completed(observation(("ibp0", PCI)), {}, before))
    seen = annotate(*completed(observation(("ibp0", PCI), **linked(SWITCH.name)), {}, before))
    assert [row.via for row in (*unknown.interfaces, *seen.interfaces)] == ["sa", None]
    assert '"via":"sa"' in render(unknown)
    assert '"via"' not in render(seen)


@pytest.mark.parametrize("description", [None, "Quantum Mellanox Technologies"])
def test_a_switch_that_does_not_give_its_name(description: str | None) -> None:
    """The NodeDescription with its name stays in the annotation."""
    links = linked(description, last_description=SWITCH.name)
    [row] = annotate(*alone(observation(("ibp0", PCI), **links))).interfaces
    assert row.last_far == SWITCH


def test_an_lldp_neighbor_of_an_interface() -> None:
    """It is its Chassis ID, System Name, and port; an overlong text is left out."""
    facts = LldpNeighbor("m", "m", "00:1c:73:aa:bb:cc", 4, "Ethernet1/1", 5, 120, None, "x" * 1025)
    links = Seen((Link("mlx5_0", "eth0", (Neighbor("x", "y", "rack 7, spine", facts),)),))
    found = annotate(*alone(observation(("mlx5_0", PCI), lldp=links)))
    expected = FarEnd("00:1c:73:aa:bb:cc", None, "Ethernet1/1", "rack 7, spine")
    assert parse(render(found), KEY)[0] == found
    assert [row.last_far for row in found.interfaces] == [expected]


def test_no_counts_without_the_speed_label() -> None:
    """With --source and without `rdma` a changed count is no reason for a request."""
    seen = observation(("ibp0", PCI), off=frozenset({"rdma"}))
    found = annotate(*completed(seen, annotation=Annotation(NOW, BOOT, (WHOLE,))))
    assert found.interfaces == (WHOLE._replace(gbps=None),)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("port_guid", ["", "A" * 16, "a" * 15, 7]),
        ("node_guid", ["a" * 17, [], {}]),
        ("gbps", ["400", True, -1, 10_000.5, math.nan, math.inf, 10**400, []]),
        ("layer", ["ib", 7, []]),
        ("via", ["smp", "x", 7, []]),
        ("earlier", [False, 1, "true", []]),
        ("bad_link", ["near", [], {"end": "x", "time": TOLD}, {"end": "far"}, {"time": TOLD}]),
        ("far", ["L90", [], 7, {"id": 7}, {"name": ""}, {"port_id": "\ud800"}, {"id": "x" * 1025}]),
    ],
)
def test_malformed_facts_of_an_interface(name: str, values: list[Any]) -> None:
    """A malformed fact is dropped with a problem that names it; the row stays."""
    without: Any = {{"far": "last_far"}.get(name, name): None} if name != "earlier" else {}
    found = Annotation(NOW, BOOT, (WHOLE._replace(**without), whole(2)[1]))
    for value in values:
        document = json.loads(render(Annotation(NOW, BOOT, whole(2))))
        document["ports"][0][name] = value
        assert parse(json.dumps(document), KEY) == (found, ignored(f"{name} of ibp0"))


@pytest.mark.parametrize("value", ["x", -1, True, 10**9])
def test_a_malformed_number_of_what_is_left_out(value: object) -> None:
    """It counts as none or one."""
    found = replace(ANNOTATED, left_out=1 if value is True else 0)
    assert parse(told(left_out=value), KEY) == (found, None)


def test_an_interface_with_two_rows() -> None:
    """The last row of an interface is used."""
    twice = Annotation(NOW, BOOT, (*rows(("ibp0", "0000:99:00.0")), WHOLE))
    assert parse(render(twice), KEY) == (Annotation(NOW, BOOT, (WHOLE,)), None)


@pytest.mark.parametrize("name", ["x", "ö", "\x00", "\U0001f600"])
def test_room(name: str) -> None:
    """At most 32 KiB of ASCII are written; the last rows are left out whole, and counted: lost ones
    first.
    """
    odd = WHOLE._replace(last_far=FarEnd(name * 16, name * 16, name * 16))
    odds = (odd._replace(interface=f"a{number}") for number in range(4))
    lost = whole(64, WHOLE._replace(lost_since=NOW))
    large = Annotation(NOW, BOOT, (*odds, *whole(211)), lost=lost)
    found = fitted(large)
    kept = len(found.interfaces)
    assert 64 < kept < 215
    assert (found.left_out, found.lost) == (215 + 64 - kept, ())
    assert len(render(found).encode("ascii")) <= MAX_BYTES
    more = replace(found, interfaces=(*found.interfaces, found.interfaces[-1]))
    assert len(render(more)) > MAX_BYTES - 8
    assert parse(render(found), KEY) == (found, None)
    some = fitted(replace(large, interfaces=whole(36)))
    assert (len(some.interfaces), 0 < len(some.lost) == 64 - some.left_out) == (36, True)


def test_a_long_text_is_cut() -> None:
    """It ends in the hash of the whole, so two of them are two."""
    ends = [FarEnd("c", "é" * 40 + end, None, "x" * 64) for end in "ab"]
    written = Annotation(NOW, BOOT, tuple(WHOLE._replace(last_far=end) for end in ends))
    names = [row["far"]["name"] for row in json.loads(render(written))["ports"]]
    assert len({*names}) == 2
    for end, name in zip(ends, names, strict=True):
        assert name.endswith(f"~{hashed(end.name or '')}")
        assert len(name.encode()) <= 64
        assert is_cut(name)
    assert not is_cut(SWITCH.name)


SCHEMA_2 = {
    "schema": 2, "agent": "0.3.0", "boot_id": BOOT, "time": "2027-01-15T08:00:00Z",
    "switches": [[SWITCH.id, SWITCH.name], [None, "leaf-1"]],
    "ports": [
        {"interface": "ibp0", "pci": PCI, "port_guid": "a" * 16, "node_guid": "b" * 16,
         "netdev": None, "layer": "ib", "gbps": 400.0, "via": "sa", "far": [0, "3"]},
        {"interface": "eth0", "pci": PCI, "port": 2, "layer": "eth", "far": [1, "swp1", "swp1"],
         "unread": [7, None, 9]},
        {"interface": "ibp1", "pci": PCI, "port": None, "netdev": None, "lost": None},
    ],
    "texts_since": 5, "group_since": 6, "rules": "2", "others": [[PCI, 2, "kind"]],
    "gpus": [PCI], "verdict": {"boot_id": BOOT, "findings": []},
}  # fmt: skip


def test_schema_2_is_read() -> None:
    """That of 0.3: rows with a table of switches, facts left out that have their usual value."""
    leaf = FarEnd(None, "leaf-1", "swp1", "swp1")
    found = Annotation(
        NOW,
        BOOT,
        (
            WHOLE,
            Fact(
                "eth0", PCI, 2, netdev="eth0", layer="Ethernet", last_far=leaf, state_since=7
            )._replace(role_since=9),
        ),
        agent="0.3.0",
        lost=(Fact("ibp1", PCI, lost_since=0),),
        verdict=Remembered(BOOT, None, Verdict.PASS),
        unknown_since=5,
        group_since=6,
        rules="2",
        others=(OtherPort(PCI, 2, "kind"),),
        gpus=(PCI,),
    )
    assert parse(json.dumps(SCHEMA_2), KEY) == (found, None)
    failed = SCHEMA_2 | {"verdict": {"boot_id": BOOT, "findings": [{"code": "swapped"}]}}
    assert parse(json.dumps(failed), KEY) == (replace(found, verdict=None), None)
    full = SCHEMA_2 | {"dropped": 3}
    assert parse(json.dumps(full), KEY) == (replace(found, left_out=3), None)


@pytest.mark.parametrize(
    ("part", "value", "fault"),
    [
        ("far", [7, "3"], "far of ibp0"),
        ("far", [-1], "far of ibp0"),
        ("far", [True, "1", "2", "3"], "far of ibp0"),
        ("far", [0, ""], "far of ibp0"),
        ("far", "L90", "far of ibp0"),
        ("unread", [1, 2, 3, 4], "unread of ibp0"),
        ("unread", [-1], "unread of ibp0"),
        ("layer", "wifi", "layer of ibp0"),
        ("layer", [], "layer of ibp0"),
    ],
)
def test_a_malformed_row_of_schema_2(part: str, value: object, fault: str) -> None:
    """As in schema 3: the fact is dropped and named, the row stays."""
    row = {"interface": "ibp0", "pci": PCI, part: value}
    found, problem = parse(json.dumps(SCHEMA_2 | {"ports": [row]}), KEY)
    assert found
    assert [one.interface for one in found.interfaces] == ["ibp0"]
    assert problem == ignored(fault)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*SCHEMA_2]), JSON_VALUES))
def test_any_part_of_schema_2(parts: dict[str, Any]) -> None:
    """No document raises anything."""
    parse(json.dumps(SCHEMA_2 | parts | {"schema": 2}), KEY)


def test_the_ports_that_rules_took_out_are_read_back() -> None:
    """Address, number and rule; an entry of another form drops all of them."""
    others = (OtherPort("0000:5e:00.0", 1, "front-end"), OtherPort("0000:5e:00.1", 2, "kind"))
    found = replace(ANNOTATED, rules="1-x3f", others=others)
    assert parse(render(found), KEY) == (found, None)
    here = {"pci": "0000:5e:00.0", "port": 1}
    for row in ([here | {"pci": "x", "rule": "kind"}], [here], [{**here, "port": []}], 7, [7]):
        text = json.dumps(json.loads(render(found)) | {"others": row})
        assert parse(text, KEY) == (replace(found, others=()), ignored("others"))


VERDICT = Remembered(BOOT, NOW, Verdict.FAIL, 2)
JUDGED = replace(ANNOTATED, verdict=VERDICT)


def judged(**changes: Any) -> str:
    """Return an annotation with a verdict that has these parts."""
    document = json.loads(render(JUDGED))
    document["verdict"] |= changes
    return json.dumps(document)


def test_the_text_of_a_verdict() -> None:
    """It has boot ID, time, verdict and number of findings, without what is unknown."""
    assert json.loads(judged())["verdict"] == {
        "boot_id": BOOT,
        "time": "2027-01-15T08:00:00Z",
        "verdict": "fail",
        "findings": 2,
    }
    assert parse(judged(), KEY) == (JUDGED, None)


NO_VERDICTS: tuple[Any, ...] = ("pass", 1, [], True)
NO_BOOTS: tuple[Any, ...] = (None, 7, "two words")
NO_WORDS: tuple[Any, ...] = (None, "good", 7, [])


@pytest.mark.parametrize(
    "text",
    [
        *(told(verdict=value) for value in NO_VERDICTS),
        *(judged(boot_id=value) for value in NO_BOOTS),
        *(judged(verdict=value) for value in NO_WORDS),
    ],
)
def test_a_malformed_verdict_is_dropped_as_a_whole(text: str) -> None:
    """Half of it could pass where the whole fails; the rest of the annotation counts."""
    assert parse(text, KEY) == (ANNOTATED, ignored("verdict"))


def test_a_malformed_time_of_a_verdict() -> None:
    """The findings count without it, and without a time in the future."""
    timeless = replace(JUDGED, verdict=VERDICT._replace(time=None))
    assert parse(judged(time="yesterday"), KEY) == (timeless, ignored("time of verdict"))
    early = without_future(JUDGED, NOW - 3600)
    assert early
    assert early.verdict == timeless.verdict


@pytest.mark.parametrize("value", ["9", -1, [], 10**9])
def test_a_malformed_number_of_findings_is_none(value: object) -> None:
    """The verdict counts."""
    found = replace(JUDGED, verdict=VERDICT._replace(findings=0))
    assert parse(judged(findings=value), KEY) == (found, ignored("findings of verdict"))


def test_an_observation_keeps_the_verdict() -> None:
    """`probe` has none of its own, and leaves that of the agent."""
    assert annotate(*alone(observation(("ibp0", PCI))), JUDGED).verdict == VERDICT


@pytest.mark.parametrize(
    ("after", "due"),
    [
        (VERDICT._replace(time=NOW + 60), False),
        (VERDICT._replace(findings=1), True),
        (VERDICT._replace(verdict=Verdict.PASS), True),
        (VERDICT._replace(boot_id="another"), True),
        (None, True),
    ],
)
def test_a_change_of_the_verdict_makes_a_request_due(after: Remembered | None, due: bool) -> None:
    """A later time does not."""
    assert (replace(JUDGED, verdict=after).facts != JUDGED.facts) == due


def test_another_bad_end_makes_a_request_due() -> None:
    """A later time does not: it is written with the hourly request."""

    def facts(bad_link: BadLink | None) -> object:
        return Annotation(NOW, BOOT, (WHOLE._replace(bad_link=bad_link),)).facts

    near = facts(BadLink("near", NOW))
    assert near == facts(BadLink("near", NOW + 3600))
    assert len({repr(near), repr(facts(BadLink("far", NOW))), repr(facts(None))}) == 3


POSITION = PlatformPosition("1823825185529", slot=5, tray=4, host=1)


def test_the_platform_position_both_ways() -> None:
    """It is remembered while the GPUs are not read, and is a fact that makes a request due."""
    gpu = Gpu(0, position=POSITION)
    read = annotate(*alone(observation(nvml=Seen((gpu,)))))
    assert read.position == POSITION
    assert parse(render(read), KEY) == (read, None)
    assert read.facts != replace(read, position=None).facts
    for outcome, position in ((Failed("x"), POSITION), (Seen(()), None), (Absent("x"), None)):
        assert annotate(*alone(observation(nvml=outcome)), read).position == position


@pytest.mark.parametrize(
    "change",
    [
        {"chassis": ""},
        {"chassis": None},
        {"chassis": "a" * 17},
        {"chassis": "a\nb"},
        {"chassis": ["a"]},
        {"tray": -1},
        {"tray": 256},
        {"slot": "5"},
        {"host": None},
    ],
)
def test_a_malformed_platform_position_is_dropped_as_a_whole(change: dict[str, Any]) -> None:
    annotation, problem = parse(told(position=POSITION._asdict() | change), KEY)
    assert annotation == ANNOTATED
    assert problem == ignored("position")
