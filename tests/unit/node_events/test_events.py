"""What is worth an Event about the Node; notices become few Events, in bounded memory."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.infiniband.bad_link import LinkErrors, judge
from agent.infiniband.perf import Counters, PortReading
from agent.kube.negotiation import Refusal
from agent.memory import Fact, FarEnd, Known
from agent.model import Failed, Seen
from agent.nic.driver import HealthReporter, NicHealth, Nics
from agent.node_events import (
    KEPT_TIME,
    MAX_EVENTS,
    MAX_MESSAGE,
    MAX_SINGLE,
    MAX_SUBJECTS,
    MAX_TEXT,
    WINDOW,
    Correlator,
    EventReason,
    Faults,
    Losses,
    NodeEvent,
    Notice,
    name_for,
    of_cables,
    of_refusals,
)
from tests.support.observations import observation

WALL = 1_800_000_000.0


class Node:
    """A correlator, and what is written of its Events."""

    def __init__(self) -> None:
        self.now, self.correlator, self.dropped = 0.0, Correlator(), 0

    def notice(self, *texts: str, reason: EventReason = EventReason.CABLE_CHANGED) -> None:
        """Take notices, each with its first word as subject."""
        found = [Notice(reason, text.split()[0], text) for text in texts]
        self.dropped += self.correlator.add(found, self.now, WALL + self.now)

    def write(self) -> list[tuple[str, int]]:
        """Write all that is pending; return messages and counts."""
        written = []
        for event in self.correlator.pending():
            event.name, event.exists, event.written = event.name or "x", True, event.count
            written.append((event.message, event.count))
        return written


def test_a_repetition_counts_up() -> None:
    """The same text is the same Event, until it was idle for as long as a server keeps it."""
    node = Node()
    for count in (1, 2):
        node.notice("a x")
        assert node.write() == [("a x", count)]
        node.now += KEPT_TIME - 1
    node.now += 1
    node.notice("a x")
    assert node.write() == [("a x", 1)]


def test_what_is_not_written_waits() -> None:
    """Its Event has all of it by then, with the times of the first and the last."""
    node = Node()
    node.notice("a x", "a x")
    node.now = 60.0
    node.notice("a x")
    (event,) = node.correlator.pending()
    assert (event.count, event.first, event.last) == (3, WALL, WALL + 60)
    assert event.waits_since == 0.0


def test_several_at_once_are_one() -> None:
    """More than MAX_SINGLE in one observation, with the last text of each."""
    node = Node()
    node.notice(*(f"{name} was" for name in "abcd"))
    assert node.write() == [("4 ports: a was; b was; c was; d was", 4)]
    node.notice("a is")
    assert node.write() == [("4 ports: b was; c was; d was; a is", 5)]


def test_as_many_as_may_be_single() -> None:
    """MAX_SINGLE texts are as many Events; one more is combined with them."""
    node = Node()
    texts = [f"{name} was" for name in "abcd"]
    node.notice(*texts[:MAX_SINGLE])
    assert [text for text, _ in node.write()] == texts[:MAX_SINGLE]
    node.now = WINDOW - 1
    node.notice(texts[MAX_SINGLE])
    assert node.write() == [("4 ports: a was; b was; c was; d was", 1)]


def test_those_not_written_yet_are_combined() -> None:
    """One after the other within a moment: no Event has a part of them."""
    node = Node()
    for name in "abcd":
        node.notice(f"{name} was")
        node.now += 1
    assert node.write() == [("4 ports: a was; b was; c was; d was", 4)]


def test_a_combined_event_ends() -> None:
    """After a quiet time there are single ones again, and the next combined one is another."""
    node = Node()
    node.notice(*(f"{name} was" for name in "abcd"))
    node.write()
    node.now += WINDOW
    node.notice("e was")
    assert node.write() == [("e was", 1)]
    node.notice(*(f"{name} was" for name in "fgh"))
    assert node.write() == [("4 ports: e was; f was; g was; h was", 3)]


def test_reasons_are_apart() -> None:
    node = Node()
    node.notice("a", "b", "c")
    node.notice("a gone", "b gone", reason=EventReason.PORT_LOST)
    node.notice("k refused", reason=EventReason.LABELS_REFUSED)
    assert len(node.write()) == 6
    node.notice(*(f"k{n} refused" for n in range(4)), reason=EventReason.LABELS_REFUSED)
    ((text, _),) = node.write()
    assert text.startswith("5 refusals: k refused; k0 refused")


def test_new_events_come_first() -> None:
    """Before the repetition of others, and the older before the younger."""
    node = Node()
    node.notice("a")
    node.write()
    node.notice("a")
    for number, name in enumerate("bc"):
        node.now = number + 1.0
        node.notice(name)
    assert [text for text, _ in node.write()] == ["b", "c", "a"]


def test_a_refused_event_is_forgotten() -> None:
    """The next notice begins another, a combined one, too."""
    for texts in (["a"], ["a", "b", "c", "d"]):
        node = Node()
        node.notice(*texts)
        (event,) = node.correlator.pending()
        node.correlator.forget(event)
        assert node.write() == []
        node.notice("a")
        assert len(node.write()) == 1


def test_a_message_has_its_limit() -> None:
    """A long text is cut; of a combined one it says how many are left out."""
    node = Node()
    node.notice("a " + "x" * 5000)
    ((text, _),) = node.write()
    assert len(text) == MAX_MESSAGE
    node.notice(*(f"port{number} " + "x" * 200 for number in range(9)))
    ((text, _),) = node.write()
    assert len(text) <= MAX_MESSAGE
    assert text.startswith("10 ports: a xxx")
    assert text.endswith("; and 6 more")


def test_the_oldest_of_many_is_dropped() -> None:
    node = Node()
    for number in range(MAX_EVENTS + 4):
        node.notice(f"p{number} was")
        node.now += WINDOW
    assert node.dropped == 4
    assert [text for text, _ in node.write()] == [f"p{n} was" for n in range(4, MAX_EVENTS + 4)]


def test_more_ports_than_any_node_has() -> None:
    node = Node()
    node.notice(*(f"p{number} was" for number in range(MAX_SUBJECTS + 1)))
    ((text, count),) = node.write()
    assert text.startswith(f"{MAX_SUBJECTS} ports: p1 was; p2 was")
    assert count == MAX_SUBJECTS + 1


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 99), min_size=1, max_size=9),
            st.sampled_from([0.0, 1.0, WINDOW / 2, WINDOW, KEPT_TIME]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_bounds(steps: list[tuple[list[int], float, bool]]) -> None:
    """Whatever happens: few Events, short messages, and each notice is counted or dropped."""
    node, events = Node(), dict[int, NodeEvent]()
    for numbers, after, writes in steps:
        node.now += after
        node.notice(*(f"p{number % 70} x{number}" for number in numbers))
        pending = node.correlator.pending()
        assert len(pending) <= MAX_EVENTS
        for event in pending:
            assert 0 < len(event.message) <= MAX_MESSAGE
            assert event.first <= event.last
            number, _, rest = event.message.partition(" ")
            assert not rest.startswith("ports: ") or int(number) <= MAX_SUBJECTS
            events[id(event)] = event
        if writes:
            node.write()
            assert node.correlator.pending() == []
    noticed = sum(len({*numbers}) for numbers, _, _ in steps)
    assert sum(event.count for event in events.values()) >= noticed - node.dropped


# Notices.

A, B = FarEnd("c0:01", "leaf1", "swp1"), FarEnd("c0:02", "leaf2", "swp2")
SEEN = observation(("ibp0", "0000:18:00.0"))
NOW = int(SEEN.time)


def text(was: FarEnd, now: FarEnd) -> str:
    facts = (Fact("ibp0", "0000:18:00.0", far=now),)
    known = Known(facts, is_seeded=True, was={"ibp0": was})
    (notice,) = of_cables(known)
    assert (notice.reason, notice.subject) == (EventReason.CABLE_CHANGED, "ibp0")
    return notice.text


def test_a_cable() -> None:
    """The text has both ends, as the labels name them."""
    there = "ibp0 was connected to leaf1 port swp1, is connected to leaf2 port swp2"
    assert text(A, B) == there
    assert text(A._replace(port_id=None), B).startswith("ibp0 was connected to leaf1, is")
    switch = FarEnd("0" * 15 + "1", "MF0;L90.1.3:MQM9700/U1", "3")
    assert "is connected to L90.1.3 port 3" in text(A, switch)


def test_a_link_with_errors_is_told_once_for_each_end() -> None:
    """Not at each observation until the next reading, nor where it, or nothing, was not read."""
    links, none = Faults(), Counters(*[0] * 7)

    def look(near: int | None, far: int = 0) -> list[str]:
        if near is None:
            others = observation(("ibp0", None), link_errors=Seen(()))  # ibp0 is down
            nothing = observation(("ibp0", None))
            return [new.text for seen in (nothing, others) for new in links.observed(seen)]
        first, second = (
            (PortReading(none), PortReading(none._replace(symbol_error=errors)))
            for errors in (near, far)
        )
        verdict = judge(first, second, 3600.0, "leaf1 port 3")
        row = LinkErrors("ibp0", "leaf1 port 3", "", "", 3600.0, verdict)
        seen = observation(("ibp0", None), link_errors=Seen((row,)))
        return [notice.text for notice in links.observed(seen)]

    assert look(0) == []
    [text] = look(500)
    assert text.startswith("ibp0: in 60 min: this end counts 500 symbol_error; ")
    assert text.endswith("first the plug at the node, then the cable")
    assert look(500) == look(None) == look(700) == []
    [text] = look(0, 500)
    assert "leaf1 port 3 counts 500 symbol_error" in text
    assert look(0) == []
    assert len(look(0, 500)) == 1


NOT_TOLD = (Failed("late"), Seen(Nics({}, {})))  # the second while it has no RDMA device


def test_an_unhealthy_nic_is_told_once_for_each_set_of_reporters() -> None:
    """Not when it has more errors, nor while its driver does not answer."""
    faults, pci = Faults(), "0000:18:00.0"

    def look(errors: int, *names: str) -> list[str]:
        reporters = tuple(HealthReporter(name, "error", errors) for name in names)
        nics = Seen(
            Nics({}, {pci: NicHealth(pci, None, (HealthReporter("tx", "healthy"), *reporters))})
        )
        answers = [nics] if errors else NOT_TOLD
        seen = [observation(("ibp0", pci), nics=answer) for answer in answers]
        return [notice.text for each in seen for notice in faults.observed(each)]

    assert look(1) == []
    text = "NIC 0000:18:00.0 (ibp0): its driver reports"
    assert look(1, "fw") == [f"{text} fw in error (1 error)"]
    assert look(2, "fw") == look(0) == look(3, "fw") == []
    assert look(2, "fw", "fw_fatal") == [f"{text} fw, fw_fatal in error (4 errors)"]
    assert look(1) == []
    assert len(look(1, "fw")) == 1


def test_no_cable() -> None:
    """Before the Node was read nobody knows, and nothing is said."""
    assert of_cables(Known()) == []
    facts = (Fact("ibp0", "0000:18:00.0", far=B),)
    assert of_cables(Known(facts, is_seeded=True)) == []
    assert of_cables(Known(facts, was={"ibp0": A})) == []


def test_names_that_a_neighbor_chose() -> None:
    """They are cut, and what does not print is escaped."""
    hostile = FarEnd("c0:03", "\x1b[2J\u202e" + "x" * 1000, "\n" * 1000)
    found = text(A, hostile)
    assert found.isprintable()
    assert len(found) < 250


def lost(*ports: Fact) -> list[str]:
    return [one.text for one in Losses().observed(Known(lost=ports), NOW)]


def gone(since: int | None) -> Fact:
    return Fact("ibp3", "0000:1b:00.0", lost_since=since)


def test_a_lost_port() -> None:
    """It is noticed by the observation that found it missing, and by no later one."""
    gone_now = Known(lost=(gone(NOW),))
    there = "ibp3 was at PCI address 0000:1b:00.0, is gone from the bus"
    losses = Losses()
    assert [one.text for one in losses.observed(gone_now, NOW)] == [there]
    assert losses.observed(gone_now, NOW) == []
    assert losses.observed(Known(), NOW) == []
    assert len(losses.observed(gone_now, NOW)) == 1


@pytest.mark.parametrize("since", [None, NOW - 1, 0])
def test_a_port_that_was_lost_before(since: int | None) -> None:
    assert lost(gone(since)) == []


def test_refused_keys() -> None:
    """Keys with one answer are one notice; it has the answer."""
    keys = [f"a.example/{name}" for name in "abcde"]
    found = of_refusals([*(Refusal(key, 422, "no") for key in keys), Refusal("b/c", 403, "never")])
    assert [one.text for one in found] == [
        "a.example/a, a.example/b, a.example/c and 2 more refused: status 422: no",
        "b/c refused: status 403: never",
    ]
    assert {one.reason for one in found} == {EventReason.LABELS_REFUSED}
    assert [one.subject for one in found] == ["a.example/a", "b/c"]


def test_a_hostile_answer() -> None:
    """A webhook's text is cut, too."""
    (found,) = of_refusals([Refusal("a/b", 422, "\x1b" + "x" * 9000)])
    assert found.text.isprintable()
    assert len(found.text) < MAX_TEXT + 100


# RFC 1123 subdomain, as Kubernetes has it.
NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("node", ["n1", "a" * 253, "a" * 235 + "-" * 9 + "b", "a." * 126 + "b"])
@pytest.mark.parametrize("number", [0, 2**64 - 1])
def test_names(node: str, number: int) -> None:
    assert NAME.fullmatch(name_for(node, number))


def test_a_repetition_changes_little() -> None:
    """Count, time and message; a creation has these, too."""
    event = NodeEvent(EventReason.PORT_LOST, "text", 0.0, 61.0, 2, name="n1.1")
    created = event.request("n1")
    assert (created["operation"], created["body"]["count"]) == ("create-event", 2)
    event.exists, event.count = True, 3
    changed = event.request("n1")
    assert (changed["operation"], changed["event"]) == ("patch-event", "n1.1")
    found = {"message": "text", "count": 3, "lastTimestamp": "1970-01-01T00:01:01Z"}
    assert changed["body"] == found
    assert created["body"].items() >= (found | {"count": 2}).items()
