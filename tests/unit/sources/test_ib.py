"""The InfiniBand source over a simulated helper: each port has its neighbor or its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.infiniband.devices import DEFAULT_PREFIX, SubnetPort
from agent.infiniband.switch_names import SwitchNames
from agent.model import Absent, Failed, Link, Neighbor, Netdev, Problem, RdmaDevice, Seen
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources.observe import Memories
from agent.sysfs.worker import InlineWorker
from tests.support import sas
from tests.support.devices import PORT, assign, eth, ib
from tests.support.smps import LEAF, exchanges, helper
from tests.support.smps import answer as of_device
from tests.support.sources import read_ib

Ask = Callable[[Sequence[tuple[str, int]]], Any]


PORTS = tuple[tuple[str, int], ...]


def answer(device: str = "ibp0", port: int = 1, **changes: Any) -> dict[str, Any]:
    return of_device(device, port, **changes)


def reading(ask: Ask, *devices: RdmaDevice, names: SwitchNames | None = None) -> Any:
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0, ask_smp=ask)
    memories = Memories()
    memories.switch_names = names or memories.switch_names
    return read_ib(host, assign(devices), memories)


def look(ask: Ask, *devices: RdmaDevice) -> tuple[dict[str, Link], list[Problem]]:
    found = reading(ask, *devices)
    assert isinstance(found.outcome, Seen)
    return {link.interface: link for link in found.outcome.value}, list(found.problems)


def link_of(**changes: Any) -> tuple[Link, list[Problem]]:
    """Return the link of one port whose entry has these changes."""
    links, problems = look(helper(answer(**changes)), ib("ibp0", 0))
    return links["ibp0"], problems


def unasked(ports: Sequence[tuple[str, int]]) -> Any:
    pytest.fail(f"asked for {ports}")


@pytest.mark.parametrize(
    "devices", [(), (eth("mlx5_0", 0),), (eth("ibp0", 0), ib("ibp1", 1)._replace(ports=()))]
)
def test_without_infiniband_backend_ports_nobody_is_asked(devices: tuple[RdmaDevice, ...]) -> None:
    assert reading(unasked, *devices).outcome == Absent("no InfiniBand backend port")


def test_a_switch_is_known_by_its_name() -> None:
    """The port is its number there; there is no age, since it was queried just now."""
    link, problems = link_of()
    assert (link.missing, link.hold, problems) == (None, False, [])
    assert link.neighbors == (Neighbor("L90.1.3", "3", None, LEAF, None),)


@pytest.mark.parametrize(
    ("description", "kind", "device"),
    [
        (b"MF0;L90.1.3:MQM9700/U2", 2, "L90.1.3-U2"),
        (b"MF0;cs7500:IS5200/L01/U1", 2, "cs7500-L01"),
        (b"Quantum Mellanox Technologies", 2, "b0cf0e0300d66c81"),
        (b"", 2, "b0cf0e0300d66c81"),
        (None, 2, "b0cf0e0300d66c81"),
        (b"node-7 mlx5_3", 1, "node-7 mlx5_3"),
        (b"router-1", 3, "router-1"),
        (b"leaf\n\x1b[2J", 2, r"leaf\x0a\x1b[2J"),
    ],
)
def test_the_device_is_a_name_or_a_guid(description: bytes | None, kind: int, device: str) -> None:
    """Factory, empty or unanswered text leaves the node GUID; the far end may be no switch."""
    link, problems = link_of(exchanges=exchanges(description, kind))
    assert link.neighbors[0].device == device
    assert [problem.subject for problem in problems] == ["ibp0"] * (description is None)


def test_a_switch_that_does_not_give_its_name() -> None:
    """Its port has a neighbor under the node GUID; after an answer with the name it has that, and
    further answers without it change only the problem.
    """
    names, rows = SwitchNames(), []
    for time, description in enumerate([None, b"leaf1", None]):
        entry = answer(exchanges=exchanges(description), answered=float(time))
        for _ in range(2):
            found = reading(helper(entry), ib("ibp0", 0), names=names)
        [link] = found.outcome.value
        rows.append((link.missing, [one.device for one in link.neighbors], len(found.problems)))
    assert rows == [
        (None, ["b0cf0e0300d66c81"], 1),
        (None, ["leaf1"], 0),
        (None, ["leaf1"], 1),
    ]
    [neighbor] = link.neighbors
    assert (neighbor.facts.node_description, neighbor.last_description) == (None, "leaf1")


@pytest.mark.parametrize("time", [None, "0", True, [], 1])
def test_a_time_in_a_stranger_s_answer(time: Any) -> None:
    """Anything but a time is ignored."""
    link, problems = link_of(answered=time)
    assert (link.neighbors[0].device, problems) == ("L90.1.3", [])


@pytest.mark.parametrize("state", ["INIT", "ARMED", "ACTIVE", None])
def test_a_port_with_a_link_is_asked(state: str | None) -> None:
    """No subnet manager is needed, and a state that cannot be read is no reason not to ask."""
    links, _ = look(helper(answer()), ib("ibp0", 0, PORT._replace(state=state)))
    assert links["ibp0"].neighbors


def test_all_ports_are_asked_at_once_and_each_once() -> None:
    """One query has all ports, without those that are down or not in the backend."""
    asked: list[PORTS] = []

    def ask(ports: Sequence[tuple[str, int]]) -> Any:
        asked.append(tuple(ports))
        return {"ports": [answer("ibp0"), answer("ibp2", port=2)]}

    two = ib(
        "ibp2", 2, PORT._replace(number=1, port_guid="21"), PORT._replace(number=2, port_guid="22")
    )
    links, _ = look(
        ask, ib("ibp0", 0), ib("ibp1", 1, PORT._replace(state="DOWN")), two, eth("mlx5_9", 9)
    )
    assert asked == [(("ibp0", 1), ("ibp2", 1), ("ibp2", 2))]
    missing = {interface: link.missing for interface, link in links.items()}
    assert missing == {"ibp0": None, "ibp1": "link-down", "ibp2-1": "not-recorded", "ibp2-2": None}
    assert not links["ibp1"].hold


def planes(name: str, states: Sequence[str], **facts: Any) -> list[RdmaDevice]:
    """A multi-plane HCA and its SMI sub-devices, which share its PCI function and port GUID."""
    guid = "00000000000000aa"
    parent = ib(name, 1, PORT._replace(port_guid=guid, has_smi=False))
    subs = [
        ib(f"smi{number}", 1, PORT._replace(port_guid=guid, state=state))._replace(**facts)
        for number, state in enumerate(states)
    ]
    return [parent, *subs]


@pytest.mark.parametrize(
    ("states", "asked"),
    [
        (("ACTIVE", "ACTIVE"), "smi0"),
        (("DOWN", "INIT"), "smi1"),
        (("DOWN", "DOWN"), "ibp0"),
        ((), "ibp0"),
    ],
)
def test_a_multi_plane_hca_is_asked_through_its_first_living_sub_device(
    states: tuple[str, ...], asked: str
) -> None:
    """The HCA itself sends no SMPs; the reply is the HCA's neighbor."""
    seen: list[PORTS] = []

    def ask(ports: Sequence[tuple[str, int]]) -> Any:
        seen.append(tuple(ports))
        return {"ports": [answer(asked)]}

    links, _ = look(ask, *planes("ibp0", states))
    assert seen == [((asked, 1),)]
    assert list(links) == ["ibp0"]
    assert links["ibp0"].neighbors[0].device == "L90.1.3"


WORDS = ["no-answer", "not-permitted", "no-umad", "refused", "send-failed", "malformed", "new-word"]


@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_the_helper_is_a_reason(word: str) -> None:
    """None of them proves that there is no neighbor; the helper's text is a problem."""
    link, problems = link_of(exchanges=[], error=word, text="ibp0 port 1: what happened")
    assert (link.neighbors, link.missing, link.hold) == ((), word, True)
    assert [(one.subject, one.text) for one in problems] == [("ibp0", "ibp0 port 1: what happened")]


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ([exchanges()[0] | {"reply": None, "error": "no-answer"}], "no-answer"),
        ([exchanges()[0] | {"reply": None, "error": "send-failed"}], "send-failed"),
        ([exchanges()[0] | {"reply": None, "error": None}], "not-recorded"),
        ([], "not-recorded"),
    ],
)
def test_a_conversation_that_came_to_nothing_says_why(
    asked: list[dict[str, Any]], word: str
) -> None:
    """The reason stands with the request that has no reply."""
    link, _ = link_of(exchanges=asked)
    assert (link.missing, link.hold) == (word, True)


def test_the_same_trouble_is_told_once() -> None:
    """A missing library is a problem of the source; a device's own one is of its port."""
    trouble: dict[str, Any] = {"exchanges": [], "error": "no-umad", "text": "libibumad.so.3: no"}
    ask = helper(answer(**trouble), answer("ibp1", **trouble), answer("ibp2"))
    down = ib("ibp3", 3, PORT._replace(state="DOWN"))
    links, problems = look(ask, ib("ibp0", 0), ib("ibp1", 1), down)
    assert {link.missing for link in links.values()} == {"no-umad", "link-down"}
    assert [(problem.subject, problem.text) for problem in problems] == [
        ("ib", "libibumad.so.3: no")
    ]
    links, problems = look(ask, ib("ibp0", 0), ib("ibp1", 1), ib("ibp2", 2))
    assert [problem.subject for problem in problems] == ["ibp0", "ibp1"]


@pytest.mark.parametrize(
    "fault", [Unavailable("helper smp: no answer within 10 s"), Malformed("nonsense")]
)
def test_a_helper_that_fails_fails_the_source(fault: Exception) -> None:
    """Nothing is known of any port, and all labels are held."""

    def ask(_ports: Sequence[tuple[str, int]]) -> Any:
        raise fault

    assert reading(ask, ib("ibp0", 0)).outcome == Failed(str(fault))


ENTRIES: list[Any] = [None, "text", [], {}, {"device": "ibp0"}, {"port": 1}]
EXCHANGES: list[Any] = [None, 5, ["text"], [None], [{}]]


@pytest.mark.parametrize(
    "nonsense",
    [
        *(None, [], 5, "text", {}, {"ports": None}, {"ports": 5}),
        *({"ports": [one]} for one in ENTRIES),
        {"ports": [{"device": [], "port": 1}]},
        {"ports": [{"device": "ibp0", "port": {}}]},
    ],
    ids=str,
)
def test_an_answer_that_is_none_fails_the_source(nonsense: Any) -> None:
    outcome = reading(lambda _ports: nonsense, ib("ibp0", 0)).outcome
    assert isinstance(outcome, Failed)
    assert "malformed answer" in outcome.reason


@pytest.mark.parametrize(
    "changes",
    [
        *({"exchanges": one} for one in EXCHANGES),
        *(
            {"exchanges": [{"request": one, "reply": None, "error": None}]}
            for one in ("zz", "0", "", "00" * 256)
        ),
        *(
            {"exchanges": [exchanges()[0] | {"reply": one}]}
            for one in ("garbage", "", 5, "00" * 255)
        ),
        *(
            {"exchanges": [exchanges()[0] | {"reply": None, "error": one}]}
            for one in (5, "no answer\x1b[2J")
        ),
        *({"error": one} for one in ({"a": "b"}, "\x1b[2J", "x" * 1000)),
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_port_whose_answer_makes_no_sense_is_alone_with_it(changes: dict[str, Any]) -> None:
    """It is held, its problem is printable, and the other port has a neighbor."""
    links, problems = look(helper(answer(**changes), answer("ibp1")), ib("ibp0", 0), ib("ibp1", 1))
    assert (links["ibp0"].missing, links["ibp0"].hold) == ("malformed", True)
    assert links["ibp1"].neighbors
    (problem,) = problems
    assert problem.subject == "ibp0"
    assert problem.text.isprintable()
    assert len(problem.text) < 250


def test_the_sentence_of_a_stranger_is_shown_not_sent() -> None:
    """A snapshot's text may hold anything."""
    _, problems = link_of(exchanges=[], error="refused", text="line\n\x1b[2J" + "x" * 1000)
    assert problems[0].text.isprintable()
    assert len(problems[0].text) <= 200


def test_answers_for_others_are_passed_over() -> None:
    links, _ = look(
        lambda _ports: {"ports": [answer("ibp7"), answer("ibp0", port=2)]}, ib("ibp0", 0)
    )
    assert links["ibp0"].missing == "not-recorded"


def test_an_ipoib_netdev_is_named() -> None:
    """Its link messages are events of the port."""
    netdev = Netdev("ib0", None, None, None, default_route=False)
    links, _ = look(helper(answer()), ib("ibp0", 0, PORT._replace(netdev=netdev)))
    assert links["ibp0"].netdev == "ib0"


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=8),
        st.just(exchanges()[0]["request"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ("ports", "device", "port", "exchanges", "error", "text", "request", "reply")
            ),
            inner,
        ),
    ),
    max_leaves=12,
)
shaped = st.fixed_dictionaries(
    {"device": st.sampled_from(["ibp0", 5]), "port": st.sampled_from([1, "1"])},
    optional={"exchanges": anything, "error": anything, "text": anything},
)


@pytest.mark.slow
@given(st.one_of(anything, st.fixed_dictionaries({"ports": st.lists(shaped, max_size=3)})))
@settings(deadline=None)
def test_any_answer_is_a_link_or_a_failure(said: Any) -> None:
    """No answer raises an exception, or has a reason outside of the model's."""
    found = reading(lambda _ports: said, ib("ibp0", 0))
    if isinstance(found.outcome, Seen):
        (link,) = found.outcome.value
        assert (link.missing or "").replace("-", "").isalpha() != bool(link.neighbors)
    assert all(problem.text.isprintable() for problem in found.problems)


# By the subnet administrator, for a port whose SMPs fail

REFUSED: dict[str, Any] = {"exchanges": [], "error": "refused", "text": "ibp0: umad_register: no"}
SILENT: dict[str, Any] = {
    "exchanges": [exchanges()[0] | {"reply": None, "error": "no-answer"}],
    "error": "no-answer",
    "text": "ibp0: no answer in 500 ms",
}
PLACE = {
    "lid": "0x16",
    "sm_lid": "0x9",
    "sm_sl": "2",
    "pkeys/0": "0xffff",
    "gids/0": "fec0:0000:0000:0001:b83f:d203:00aa:bb00",
}


def by_sa(
    smps: dict[str, Any], place: dict[str, str], state: str = "ACTIVE", **changes: Any
) -> tuple[Link, list[str], list[SubnetPort]]:
    """Return the link of a port with these files, the problems' texts, and what the SA is asked."""
    asked: list[SubnetPort] = []

    def ask(ports: Sequence[SubnetPort]) -> Any:
        asked.extend(ports)
        return {"ports": [answer(exchanges=sas.exchanges()) | changes]}

    base = "sys/class/infiniband/ibp0/ports/1"
    files = {f"{base}/{name}": f"{text}\n".encode() for name, text in place.items()}
    host = Host(
        Tree(MemoryStore(files), {}),
        lambda: 0.0,
        ask_smp=helper(answer(**smps)),
        ask_sa=ask,
        worker=InlineWorker,
    )
    found = read_ib(host, assign([ib("ibp0", 0, PORT._replace(state=state))]))
    assert isinstance(found.outcome, Seen)
    [link] = found.outcome.value
    return link, [problem.text for problem in found.problems], asked


@pytest.mark.parametrize("smps", [REFUSED, SILENT])
def test_a_port_that_waits_for_its_question(smps: dict[str, Any]) -> None:
    """Its reason is that of the SMPs; it says that the SA has not been asked."""
    link, problems, _ = by_sa(smps, PLACE, exchanges=[], error="no-answer", text=None)
    assert (link.missing, link.is_unasked, problems) == (smps["error"], True, [smps["text"]])
    failed, _, _ = by_sa(smps, PLACE, exchanges=[], error="no-answer", text="no answer in 2000 ms")
    assert (failed.missing, failed.is_unasked) == ("sa-no-answer", False)


@pytest.mark.parametrize(("smps", "prefix"), [(REFUSED, 0xFEC0000000000001), (SILENT, None)])
def test_the_sa_is_the_second_way(smps: dict[str, Any], prefix: int | None) -> None:
    """The labels are those by SMP; no problem is left, and `via` says which way it was.

    A port that refuses SMPs may be a virtual one, which needs a global route in its subnet.
    """
    link, problems, asked = by_sa(smps, PLACE)
    [neighbor] = link.neighbors
    assert (neighbor.device, neighbor.port_id, neighbor.via) == ("L90.1.3", "3", "sa")
    assert neighbor.facts == LEAF._replace(via="sa", lid=1)
    assert problems == []
    assert asked == [SubnetPort("ibp0", 1, 22, 9, 2, 0, prefix)]


@pytest.mark.parametrize("gid", [None, "0000:0000:0000:0000:0000:0000:0000:0000", "nothing"])
def test_a_subnet_without_prefix(gid: str | None) -> None:
    """Has the default one: a virtual port may not have its GID yet."""
    place = {name: text for name, text in PLACE.items() if name != "gids/0"}
    _, _, [asked] = by_sa(REFUSED, place | ({"gids/0": gid} if gid else {}))
    assert asked.subnet_prefix == DEFAULT_PREFIX


@pytest.mark.parametrize(
    "smps",
    [
        {},
        {"exchanges": [], "error": "no-answer"},
        {"exchanges": [], "error": "not-permitted"},
        {"exchanges": [], "error": "no-umad"},
    ],
)
def test_the_sa_is_not_asked(smps: dict[str, Any]) -> None:
    """SMPs answer, were not sent so far, or the device that both need is missing."""
    assert by_sa(smps, PLACE)[2] == []


@pytest.mark.parametrize(
    ("smps", "place", "state", "word"),
    [
        (REFUSED, {"sm_lid": "0x0"}, "ACTIVE", "no-sm"),
        (REFUSED, {"sm_lid": "0xc001"}, "ACTIVE", "no-sm"),
        (REFUSED, {}, "INIT", "no-sm"),
        (SILENT, {}, "INIT", "no-answer"),
        (REFUSED, {"lid": "0x0"}, "ACTIVE", "no-lid"),
        (REFUSED, {"lid": "0xffff"}, "ACTIVE", "no-lid"),
    ],
)
def test_a_port_that_cannot_ask(
    smps: dict[str, Any], place: dict[str, str], state: str, word: str
) -> None:
    """The reason why; SMPs that were sent and not answered are another one."""
    link, _, asked = by_sa(smps, PLACE | place, state)
    assert (link.missing, link.hold, asked) == (word, True, [])


@pytest.mark.parametrize(
    ("error", "pkey", "word"),
    [
        ("no-answer", "0xffff", "sa-no-answer"),
        ("no-answer", "0x7fff", "limited-pkey"),
        ("sa-no-record", "0x7fff", "limited-pkey"),
        ("sa-no-record", "0xffff", "sa-no-record"),
        ("sa-busy", "0x7fff", "sa-busy"),
        ("sa-refused", "0xffff", "sa-refused"),
    ],
)
def test_each_refusal_of_the_sa_is_the_port_s(error: str, pkey: str, word: str) -> None:
    """Its text is the problem; labels are held."""
    link, problems, _ = by_sa(REFUSED, PLACE | {"pkeys/0": pkey}, error=error, text="it is said")
    assert (link.missing, link.hold, link.neighbors, problems) == (word, True, (), ["it is said"])


@pytest.mark.parametrize(
    ("table", "index"),
    [
        (["0xffff", "0x8001"], 0),
        (["0x7fff", "0xffff"], 1),
        (["0x7fff", "0x0000", "0x8002"], 2),
        (["0x7fff", "0x0000"], 0),
        ([], 0),
    ],
)
def test_a_full_member_asks(table: list[str], index: int) -> None:
    """P_Key index 0, unless that is a limited membership and another one is full."""
    files = {f"pkeys/{entry}": text for entry, text in enumerate(table)}
    place = {name: text for name, text in PLACE.items() if name != "pkeys/0"} | files
    assert by_sa(REFUSED, place)[2][0].pkey_index == index


def test_an_old_snapshot_keeps_its_reason() -> None:
    """It has neither the LID nor an answer of the SA."""
    assert by_sa(REFUSED, {})[0].missing == "refused"
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0, ask_smp=helper(answer(**REFUSED)))
    found = read_ib(host, assign([ib("ibp0", 0)]))
    assert isinstance(found.outcome, Seen)
    assert found.outcome.value[0].missing == "refused"
