"""What is worth an Event about the Node."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agent.kube.negotiation import Refusal
from agent.memory import Fact, FarEnd, Known
from agent.node_events import MAX_TEXT, Event, Losses, Reason, cables, name_for, refusals
from tests.support.observations import observation

A, B = FarEnd("c0:01", "leaf1", "swp1"), FarEnd("c0:02", "leaf2", "swp2")
SEEN = observation(("ibp0", "0000:18:00.0"))
NOW = int(SEEN.time)


def text(was: FarEnd, now: FarEnd) -> str:
    facts = (Fact("ibp0", "0000:18:00.0", far=now),)
    known = Known(facts, is_seeded=True, was={"ibp0": was})
    (notice,) = cables(replace(SEEN, known=known))
    assert (notice.reason, notice.subject) == (Reason.CABLE_CHANGED, "ibp0")
    return notice.text


def test_a_cable() -> None:
    """The text has both ends, as the labels name them."""
    there = "ibp0 was connected to leaf1 port swp1, is connected to leaf2 port swp2"
    assert text(A, B) == there
    assert text(A._replace(port_id=None), B).startswith("ibp0 was connected to leaf1, is")
    switch = FarEnd("0" * 15 + "1", "MF0;L90.1.3:MQM9700/U1", "3")
    assert "is connected to L90.1.3 port 3" in text(A, switch)


def test_no_cable() -> None:
    """Before the Node was read nobody knows, and nothing is said."""
    assert cables(SEEN) == []
    facts = (Fact("ibp0", "0000:18:00.0", far=B),)
    assert cables(replace(SEEN, known=Known(facts, is_seeded=True))) == []
    assert cables(replace(SEEN, known=Known(facts, was={"ibp0": A}))) == []


def test_names_that_a_neighbor_chose() -> None:
    """They are cut, and what does not print is escaped."""
    hostile = FarEnd("c0:03", "\x1b[2J\u202e" + "x" * 1000, "\n" * 1000)
    found = text(A, hostile)
    assert found.isprintable()
    assert len(found) < 250


def lost(*ports: Fact) -> list[str]:
    return [one.text for one in Losses().observed(replace(SEEN, known=Known(lost=ports)))]


def gone(since: int | None) -> Fact:
    return Fact("ibp3", "0000:1b:00.0", lost_since=since)


def test_a_lost_port() -> None:
    """It is noticed by the observation that found it missing, and by no later one."""
    gone_now = replace(SEEN, known=Known(lost=(gone(NOW),)))
    there = "ibp3 was at PCI address 0000:1b:00.0, is gone from the bus"
    losses = Losses()
    assert [one.text for one in losses.observed(gone_now)] == [there]
    assert losses.observed(gone_now) == []
    assert losses.observed(SEEN) == []
    assert len(losses.observed(gone_now)) == 1


@pytest.mark.parametrize("since", [None, NOW - 1, 0])
def test_a_port_that_was_lost_before(since: int | None) -> None:
    """By an agent before, as the annotation has it."""
    assert lost(gone(since)) == []


def test_refused_keys() -> None:
    """Keys with one answer are one notice; it has the answer."""
    keys = [f"a.example/{name}" for name in "abcde"]
    found = refusals([*(Refusal(key, 422, "no") for key in keys), Refusal("b/c", 403, "never")])
    assert [one.text for one in found] == [
        "a.example/a, a.example/b, a.example/c and 2 more refused: status 422: no",
        "b/c refused: status 403: never",
    ]
    assert {one.reason for one in found} == {Reason.LABELS_REFUSED}
    assert [one.subject for one in found] == ["a.example/a", "b/c"]


def test_a_hostile_answer() -> None:
    """A webhook's text is cut, too."""
    (found,) = refusals([Refusal("a/b", 422, "\x1b" + "x" * 9000)])
    assert found.text.isprintable()
    assert len(found.text) < MAX_TEXT + 100


# RFC 1123 subdomain, as Kubernetes has it.
NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("node", ["n1", "a" * 253, "a" * 235 + "-" * 9 + "b", "a." * 126 + "b"])
@pytest.mark.parametrize("number", [0, 2**64 - 1])
def test_names(node: str, number: int) -> None:
    """Every Node's name gives a name that Kubernetes accepts."""
    assert NAME.fullmatch(name_for(node, number))


def test_a_repetition_changes_little() -> None:
    """Count, time and message; a creation has these, too."""
    event = Event(Reason.PORT_LOST, "text", 0.0, 61.0, 2, name="n1.1")
    created = event.request("n1")
    assert (created["operation"], created["body"]["count"]) == ("create-event", 2)
    event.exists, event.count = True, 3
    changed = event.request("n1")
    assert (changed["operation"], changed["event"]) == ("patch-event", "n1.1")
    found = {"message": "text", "count": 3, "lastTimestamp": "1970-01-01T00:01:01Z"}
    assert changed["body"] == found
    assert created["body"].items() >= (found | {"count": 2}).items()
