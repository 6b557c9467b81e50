"""The annotation: its contents, and what is rejected when it is parsed."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.annotation import (
    MAX_INTERFACES,
    MAX_LENGTH,
    RESYNC,
    Annotation,
    OtherPort,
    Report,
    annotation_of,
    fitted,
    is_cut,
    is_stale,
    parse,
    render,
    without_future,
)
from agent.kube.managed_fields import state_of
from agent.kube.remembered import annotate
from agent.labels.encode import hashed
from agent.memory import Fact, FarEnd
from agent.model import (
    Absent,
    Failed,
    IbNeighbor,
    Link,
    LldpNeighbor,
    Neighbor,
    Problem,
    RdmaDevice,
    Seen,
)
from agent.sources.pci import Place
from tests.support.nodes import ANNOTATED, BOOT, KEYS, NOW, node, rows
from tests.support.observations import PORT, observation
from tests.support.remembering import completed

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = KEYS.annotation


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
    assert render(Annotation(NOW, BOOT, rows(("ibp0", "0000:18:00.0")), "0.1.0")) == (
        '{"schema":2,"agent":"0.1.0",'
        f'"boot_id":"{BOOT}","time":"2027-01-15T08:00:00Z",'
        '"ports":[{"interface":"ibp0","pci":"0000:18:00.0","port":null,"netdev":null}]}'
    )


def test_both_ways() -> None:
    """Rendering and parsing are inverse."""
    assert parse(render(ANNOTATED), KEY) == (ANNOTATED, None)
    empty = Annotation(None, None)
    assert parse(render(empty), KEY) == (empty, None)
    assert parse(None, KEY) == (None, None)
    assert parse('{"schema": 1}', KEY) == (Annotation(None, None, agent=""), None)


def test_a_full_observation() -> None:
    """Time, boot ID and PCI addresses of the backend are those of the observation."""
    found = annotate(observation(("ibp1", "0000:2a:00.0"), ("ibp0", "0000:18:00.0")))
    assert (found.time, found.boot_id) == (NOW, BOOT)
    assert [*found.addresses.items()] == [("ibp0", "0000:18:00.0"), ("ibp1", "0000:2a:00.0")]


@pytest.mark.parametrize(
    "change", [{"ib": Failed("x")}, {"rdma": Failed("x")}, {"off": frozenset({"lldp"})}]
)
def test_an_observation_that_is_not_full(change: dict[str, Any]) -> None:
    """Time and boot ID stay those of the last full observation, together."""
    before = Annotation(NOW - 60, "another-boot")
    found = annotate(observation(boot_id=BOOT, **change), before)
    assert (found.time, found.boot_id) == (NOW - 60, "another-boot")
    assert found.reported == (NOW, BOOT)
    found = annotate(observation(**change))
    assert (found.time, found.boot_id) == (None, None)
    assert found.reported == (NOW, BOOT)
    assert parse(render(found), KEY) == (found, None)


def test_a_full_observation_after_another() -> None:
    """One time is enough then."""
    before = annotate(observation(ib=Failed("x")))
    found = annotate(observation(), before)
    assert found.partial is None
    assert found.reported == (found.time, found.boot_id) == (NOW, BOOT)


@pytest.mark.parametrize(
    ("partial", "fault"),
    [
        ([], "partial"),
        ("x", "partial"),
        ({"time": 7, "boot_id": BOOT}, "time of partial"),
        ({"time": "soon"}, "time of partial"),
        ({"boot_id": "a b"}, "boot_id of partial"),
    ],
)
def test_a_malformed_report(partial: object, fault: str) -> None:
    """What is malformed is unknown, and said."""
    found, problem = parse(json.dumps({"schema": 1, "partial": partial}), KEY)
    assert found
    assert found.reported.time is None
    assert problem
    assert problem.text == f"malformed facts, ignored: {fault}"


def test_a_report_of_the_future() -> None:
    """Its time is unknown."""
    found = Annotation(NOW, BOOT, partial=Report(NOW + 301, BOOT))
    assert without_future(found, NOW) == replace(found, partial=Report(None, BOOT))


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
    assert annotate(completed(observation(rdma=rdma), annotation=before)).addresses == kept


def test_interfaces_of_a_device_that_fails_or_is_gone() -> None:
    """The addresses of its ports stay without labels, those of no other device."""
    held = tuple((name, "0000:18:00.0") for name in ("mlx5_1", "mlx5_1-3", "mlx5_2"))
    others = tuple((name, "0000:19:00.0") for name in ("mlx5_3-1", "mlx5_3"))
    read = RdmaDevice("mlx5_3", pci="0000:19:00.0", ports=(PORT,))
    seen = observation(rdma=Seen((RdmaDevice("mlx5_1", failure="blocks"), read)))
    before = Annotation(NOW - 60, BOOT, rows(*held, *others))
    found = annotate(completed(seen, annotation=before, place=Place.BUS))
    assert [(row.interface, row.function) for row in found.interfaces] == [*held]


def test_many_interfaces() -> None:
    """What is written fits and is parsed again."""
    many = [(f"ibp{number:04}", "0000:18:00.0") for number in range(MAX_INTERFACES + 1)]
    found = fitted(annotate(observation(*many)))
    assert 0 < len(found.interfaces) <= MAX_INTERFACES
    assert parse(render(found), KEY) == (found, None)


def test_malformed_facts() -> None:
    """Malformed names and addresses are left out, so that the annotation can be parsed."""
    found = annotate(
        observation(("ibp0", None), ("a b", "0000:18:00.0"), ("ibp1", "x"), boot_id="a b")
    )
    assert found == Annotation(NOW, None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("7", "not a JSON object"),
        ("x" * 70_000, "70000 characters, at most 65536 are allowed"),
        (
            '{"schema": 1, "interfaces": [7]}',
            "a row of interfaces lacks the interface or its PCI address",
        ),
    ],
)
def test_not_an_annotation(text: str, fault: str) -> None:
    """Text that is not a JSON object, or longer than 64 KiB, is a problem."""
    problem = Problem("node", KEY, None, f"malformed annotation, ignored: {fault}")
    assert parse(text, KEY) == (None, problem)


def test_the_longest_annotation() -> None:
    """64 KiB are parsed, white space included."""
    assert parse(render(ANNOTATED).ljust(MAX_LENGTH), KEY) == (ANNOTATED, None)


def test_the_annotation_of_a_node() -> None:
    """A Node may have none, or a malformed one."""
    assert annotation_of(state_of(node()), KEYS) == (ANNOTATED, None)
    assert annotation_of(state_of(node(observed=None)), KEYS) == (None, None)
    found, problem = annotation_of(state_of(node(observed="{")), KEYS)
    assert found is None
    assert problem is not None
    assert problem.subject == KEY


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"schema": 3}, "schema"),
        ({"schema": None}, "schema"),
        ({"ports": {"a": 1}}, "ports"),
        ({"ports": [7]}, "row"),
        ({"ports": [{"interface": "ibp0"}]}, "row"),
        ({"ports": [{"interface": "../..", "pci": "0000:18:00.0"}]}, "interface"),
        ({"ports": [{"interface": "ibp0", "pci": "../../etc"}]}, "pci"),
        ({"ports": [{"interface": "a", "pci": "0000:18:00.0"}] * 577}, "ports"),
    ],
)
def test_malformed_annotations(change: dict[str, Any], word: str) -> None:
    """A malformed list or row makes the whole annotation malformed, and the problem names it."""
    found, problem = parse(json.dumps(json.loads(render(ANNOTATED)) | change), KEY)
    assert found is None
    assert problem is not None
    assert word in problem.text
    assert problem.subject == KEY


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
    found, problem = parse(json.dumps(json.loads(render(ANNOTATED)) | {name: value}), KEY)
    unknown: Any = {name: "" if name == "agent" else None}
    assert found == replace(ANNOTATED, **unknown)
    assert problem == Problem("node", KEY, None, f"malformed facts, ignored: {name}")


@pytest.mark.usefixtures("tokyo")
def test_times() -> None:
    """Any RFC 3339 time is parsed; without a zone it is UTC, and so is a rendered one, whatever the
    zone of the host.
    """
    assert '"time":"2027-01-15T08:00:00Z"' in render(ANNOTATED)
    for text in ("2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", "2027-01-15T08:00:00"):
        found, _ = parse(json.dumps(json.loads(render(ANNOTATED)) | {"time": text}), KEY)
        assert found == ANNOTATED


@pytest.mark.parametrize(("ahead", "is_known"), [(-1, True), (300, True), (301, False)])
def test_times_in_the_future(ahead: int, *, is_known: bool) -> None:
    """They are unknown, but for a few minutes by which two clocks may differ."""
    time = NOW + ahead
    lost = ANNOTATED.interfaces[0]._replace(lost_since=time)
    found = without_future(Annotation(time, BOOT, lost=(lost,)), NOW)
    after = time if is_known else None
    assert found == Annotation(after, BOOT, lost=(lost._replace(lost_since=after or 0),))
    assert without_future(None, NOW) is None


@pytest.mark.parametrize(
    ("time", "stale"),
    [(NOW, False), (NOW - 3599, False), (NOW - 3600, True), (NOW + 5, True), (None, True)],
)
def test_age(time: int | None, *, stale: bool) -> None:
    """The annotation is stale after an hour, without a time, and with a time in the future."""
    assert is_stale(Annotation(time, BOOT), NOW) == stale
    assert is_stale(Annotation(NOW, BOOT, partial=Report(time, BOOT)), NOW) == stale


def test_no_annotation() -> None:
    """A missing annotation is stale; the greatest age is the caller's choice."""
    assert is_stale(None, NOW)
    assert is_stale(Annotation(NOW - 60, BOOT), NOW, 60)
    assert not is_stale(Annotation(NOW - 60, BOOT), NOW, RESYNC)


@pytest.mark.slow
@given(
    st.text()
    | st.recursive(st.none() | st.floats() | st.text(), st.lists, max_leaves=20).map(json.dumps)
)
def test_any_text(text: str) -> None:
    """No text raises anything."""
    found, problem = parse(text, KEY)
    assert (found is None) == (problem is not None)


@pytest.mark.parametrize("value", [["x"], {"a": 1}, 7, True, ""])
@pytest.mark.parametrize("fact", ["id", "name", "port_id"])
def test_a_neighbor_that_is_no_text(fact: str, value: object) -> None:
    """Another JSON value makes the neighbor malformed, and raises nothing."""
    row = {"interface": "ibp0", "pci": "0000:18:00.0", "neighbor": {"id": "a", fact: value}}
    text = json.dumps({"schema": 1, "boot_id": BOOT, "interfaces": [row]})
    found, problem = parse(text, KEY)
    assert problem
    assert found is None or not any(one.last_far for one in found.interfaces)


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


def whole(count: int) -> tuple[Fact, ...]:
    """Return rows with every fact: ibp0, ibp1, ..."""
    return tuple(WHOLE._replace(interface=f"ibp{number}") for number in range(count))


def test_facts_both_ways() -> None:
    """Rendering and parsing are inverse for each fact of an interface, known or not."""
    some = (
        Fact("a", "0000:18:00.0", gbps=0.0),
        Fact("b", "0000:18:00.0", last_far=FarEnd(name="Größe\n\x00")),
        Fact("c", "0000:18:00.0", last_far=FarEnd()),
    )
    unread = WHOLE._replace(interface="d", state_since=0, role_since=81200)
    found = Annotation(NOW, BOOT, (*whole(2), *some, unread), dropped=2, texts_since=7)
    assert parse(render(found), KEY) == (found, None)


@pytest.mark.parametrize("since", [7, "7", {}, [1, 2, 3, 4], [-1], [True], ["1"], [1e300]])
def test_a_malformed_time_since_which_a_port_is_unread(since: object) -> None:
    """It is unknown, and the row counts."""
    document = json.loads(render(Annotation(NOW, BOOT, whole(1))))
    document["ports"][0]["unread"] = since
    problem = Problem("node", KEY, None, "malformed facts, ignored: unread of ibp0")
    assert parse(json.dumps(document), KEY) == (Annotation(NOW, BOOT, whole(1)), problem)


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
        )
        for number, row in enumerate(whole(64))
    )
    found = Annotation(NOW, BOOT, rows)
    assert fitted(found) == found
    assert parse(render(found), KEY) == (found, None)


def test_facts_of_an_observation() -> None:
    """GUIDs, the counted rate and the selected neighbor are those of the backend port."""
    facts = IbNeighbor("switch", SWITCH.id or "", None, 3, SWITCH.name, "sa")
    links = Seen((Link("ibp0", None, (Neighbor("L90.1.3", "3", None, facts),)),))
    (role,) = observation(("ibp0", "0000:18:00.0")).ports
    role = role._replace(
        device=replace(role.device, node_guid="b" * 16),
        port=replace(role.port, port_guid="a" * 16),
    )
    seen = observation(ports=(role,), ib=links)
    assert annotate(seen).interfaces == (WHOLE,)


def test_the_way_to_a_neighbor() -> None:
    """`via` is that of the last far end, also while it is unknown; only `sa` is written."""
    (role,) = observation(("ibp0", "0000:18:00.0")).ports
    before = Annotation(NOW, BOOT, (WHOLE,))
    unknown = annotate(completed(observation(ports=(role,)), {}, before))
    assert [row.via for row in unknown.interfaces] == ["sa"]
    facts = IbNeighbor("switch", SWITCH.id or "", None, 3, SWITCH.name)
    links = Seen((Link("ibp0", None, (Neighbor("L90.1.3", "3", None, facts),)),))
    seen = annotate(completed(observation(ports=(role,), ib=links), {}, before))
    assert [row.via for row in seen.interfaces] == [None]
    assert '"via":"sa"' in render(unknown)
    assert '"via"' not in render(seen)


@pytest.mark.parametrize("description", [None, "Quantum Mellanox Technologies"])
def test_a_switch_that_does_not_give_its_name(description: str | None) -> None:
    """The NodeDescription with its name stays in the annotation."""
    facts = IbNeighbor("switch", SWITCH.id or "", None, 3, description)
    neighbor = Neighbor("L90.1.3", "3", None, facts, last_description=SWITCH.name)
    links = Seen((Link("ibp0", None, (neighbor,)),))
    [row] = annotate(observation(("ibp0", "0000:18:00.0"), ib=links)).interfaces
    assert row.last_far == SWITCH


def test_an_lldp_neighbor_of_an_interface() -> None:
    """An LLDP neighbor is its Chassis ID, System Name and Port ID; an overlong text is left out."""
    facts = LldpNeighbor("m", "m", "00:1c:73:aa:bb:cc", 4, "Ethernet1/1", 5, 120, None, "x" * 1025)
    links = Seen((Link("mlx5_0", "eth0", (Neighbor("x", "y", None, facts),)),))
    found = annotate(observation(("mlx5_0", "0000:18:00.0"), lldp=links))
    expected = FarEnd("00:1c:73:aa:bb:cc", None, "Ethernet1/1")
    assert [row.last_far for row in found.interfaces] == [expected]


def test_no_counts_without_the_speed_label() -> None:
    """With --source and without `rdma` a changed count is no reason for a request."""
    seen = observation(("ibp0", "0000:18:00.0"), off=frozenset({"rdma"}))
    found = annotate(completed(seen, annotation=Annotation(NOW, BOOT, (WHOLE,))))
    assert found.interfaces == (WHOLE._replace(gbps=None),)


def test_facts_that_are_unknown_now() -> None:
    """Facts that are unknown now are the previous ones of the same PCI function."""
    (role,) = observation(("ibp0", "0000:18:00.0")).ports
    seen = observation(ports=(role._replace(counted_gbps=None),))
    labels = {KEYS.speed: "400G"}
    before = Annotation(NOW, BOOT, (WHOLE,))
    unread = WHOLE._replace(state_since=0)
    assert annotate(completed(seen, labels, before)).interfaces == (unread,)
    moved = Annotation(NOW, BOOT, (WHOLE._replace(function="0000:99:00.0"),))
    found = annotate(completed(seen, labels, moved))
    (row,) = found.interfaces
    assert (row.function, row.gbps, row.last_far) == ("0000:18:00.0", None, None)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("port_guid", ["", "A" * 16, "a" * 15, 7]),
        ("node_guid", ["a" * 17, [], {}]),
        ("gbps", ["400", True, -1, 10_000.5, math.nan, math.inf, 10**400, []]),
        ("layer", ["InfiniBand", 7, []]),
        ("via", ["smp", "x", 7, []]),
        (
            "far",
            ["L90", [], {}, 7, [7], [-1], [True, "1", "2", "3"], [0, 7], [0, ""], [0, "\ud800"]],
        ),
    ],
)
def test_malformed_facts_of_an_interface(name: str, values: list[Any]) -> None:
    """A malformed fact is dropped with a problem that names it; the row stays."""
    for value in values:
        document = json.loads(render(Annotation(NOW, BOOT, whole(2))))
        document["ports"][0][name] = value
        found, problem = parse(json.dumps(document), KEY)
        without: Any = {{"far": "last_far"}.get(name, name): None}
        assert found == Annotation(NOW, BOOT, (WHOLE._replace(**without), whole(2)[1]))
        assert problem is not None
        assert f"{name} of ibp0" in problem.text


@pytest.mark.parametrize("value", ["x", -1, True, 10**9])
def test_a_malformed_number_of_dropped_interfaces(value: object) -> None:
    """A malformed number of dropped interfaces counts as none or one."""
    found, _ = parse(json.dumps(json.loads(render(ANNOTATED)) | {"dropped": value}), KEY)
    assert found is not None
    assert found.dropped in {0, 1}


def test_an_interface_with_two_rows() -> None:
    """The last row of an interface is used."""
    twice = Annotation(NOW, BOOT, (*rows(("ibp0", "0000:99:00.0")), WHOLE))
    found, _ = parse(render(twice), KEY)
    assert found == Annotation(NOW, BOOT, (WHOLE,))


@pytest.mark.parametrize("name", ["x", "ö", "\x00", "\U0001f600"])
def test_room(name: str) -> None:
    """At most 16 KiB of ASCII are written; the last interfaces are left out whole, and counted."""
    odd = WHOLE._replace(last_far=FarEnd(*[name * 16] * 3))
    odds = (odd._replace(interface=f"a{number}") for number in range(4))
    large = Annotation(NOW, BOOT, (*odds, *whole(211)))
    found = fitted(large)
    kept = len(found.interfaces)
    assert len(render(found).encode("ascii")) <= 16_384
    assert found == replace(large, interfaces=large.interfaces[:kept], dropped=215 - kept)
    more = replace(found, interfaces=large.interfaces[: kept + 1])
    assert len(render(more)) > 16_384
    assert parse(render(found), KEY) == (found, None)


def test_a_long_text_is_cut() -> None:
    """It ends in the hash of the whole, so two of them are two."""
    ends = [FarEnd("c", "é" * 40 + end, None, "x" * 64) for end in "ab"]
    written = Annotation(NOW, BOOT, tuple(WHOLE._replace(last_far=end) for end in ends))
    names = [name for _, name in json.loads(render(written))["switches"]]
    assert len({*names}) == 2
    for end, name in zip(ends, names, strict=True):
        assert name.endswith(f"~{hashed(end.name or '')}")
        assert len(name.encode()) <= 64
        assert is_cut(name)
    assert not is_cut(SWITCH.name)


def test_schema_1_is_read() -> None:
    """That of 0.1 and 0.2."""
    row = {
        "interface": "ibp0", "pci": "0000:18:00.0", "port_guid": "a" * 16, "node_guid": "b" * 16,
        "counted_gbps": 400.0, "neighbor": {"id": SWITCH.id, "name": SWITCH.name, "port_id": "3"},
    }  # fmt: skip
    gone = {**row, "interface": "ibp1", "since": "2027-01-15T08:00:00Z"}
    text = json.dumps({"schema": 1, "boot_id": BOOT, "interfaces": [row], "lost": [gone]})
    found, problem = parse(text, KEY)
    assert problem is None
    assert found
    old = WHOLE._replace(port=None, layer=None, via=None)
    assert found.interfaces == (old,)
    assert found.lost == (old._replace(interface="ibp1", lost_since=NOW),)


def test_interfaces_in_natural_order() -> None:
    """ibp9 comes before ibp10, so that the same interfaces are left out each time."""
    seen = observation(*((f"ibp{number}", "0000:18:00.0") for number in (10, 9, 1)))
    assert [*annotate(seen).addresses] == ["ibp1", "ibp9", "ibp10"]


def test_the_ports_that_rules_took_out_are_read_back() -> None:
    """Address, number and rule; an entry of another form drops all of them."""
    others = (OtherPort("0000:5e:00.0", 1, "front-end"), OtherPort("0000:5e:00.1", 2, "kind"))
    told = Annotation(1_800_000_000, BOOT, rules="1-x3f", others=others)
    assert parse(render(told), KEY) == (told, None)
    for row in ([["x", 1, "kind"]], [["0000:5e:00.0", 1]], [["0000:5e:00.0", [], "kind"]], 7, [7]):
        document = json.loads(render(told)) | {"others": row}
        found, problem = parse(json.dumps(document), KEY)
        assert found is not None
        assert problem is not None
        assert found.others == ()
