"""The error counters of links: which ports are asked about, what is made of the readings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from agent.errors import Unavailable
from agent.host import Host
from agent.infiniband.bad_link import BadEnd, LinkErrors
from agent.infiniband.devices import CounterPort
from agent.infiniband.perf import PortReading
from agent.infiniband.snapshot import RecordedSmps
from agent.model import Absent, Failed, IbNeighbor, Link, Neighbor, RdmaDevice, Reading, Seen
from agent.snapshot.anonymize import Names
from agent.snapshot.tree import MemoryStore, SnapshotFiles, Tree
from agent.sources.counters import read
from tests.support.devices import PORT, assign, ib
from tests.support.perf import NONE, entry, refused, side

ERRORS = NONE._replace(symbol_error=90)
LEAF = IbNeighbor("switch", "b0cf0e0300d66c81", None, 3, "leaf1")
LINKS: Seen[tuple[Link, ...]] = Seen((Link("ibp0", None, (Neighbor("leaf1", "3", None, LEAF),)),))
ONE, TWO = (0.0, side(), side(port=3)), (60.0, side(ERRORS), side(port=3))


def reading(
    answer: Any, device: RdmaDevice | None = None, links: Seen[tuple[Link, ...]] = LINKS
) -> Reading[tuple[LinkErrors, ...]]:
    def ask(_ports: Sequence[CounterPort]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return {"ports": [answer]}

    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0, ask_perf=ask)
    return read(host, assign([device or ib("ibp0", 0)]), links)


def row(answer: Any) -> LinkErrors:
    outcome, problems = reading(answer)
    assert isinstance(outcome, Seen)
    assert problems == ()
    [found] = outcome.value
    return found


def test_two_readings_have_a_verdict() -> None:
    link = row(entry(ONE, TWO))
    assert link.verdict
    assert (link.verdict.end, link.seconds) == (BadEnd.NEAR, 60.0)
    assert (link.near, link.far_end) == (PortReading(ERRORS), PortReading(NONE))
    assert "leaf1 port 3 counts no errors" in link.verdict.text


def test_one_reading_has_none() -> None:
    link = row(entry(TWO))
    assert (link.verdict, link.near) == (None, PortReading(ERRORS))


@pytest.mark.parametrize(
    ("answer", "far"),
    [
        (entry((0.0, side(), refused())), "ibp0 port 1: no answer in 500 ms"),
        (
            entry((0.0, side(), side(port=4))),
            "PerfMgt request: PortSelect is 0x4 instead of 0x3",
        ),
        (entry(error="no-answer", text="helper perf ibp0: no answer within 9 s"), "helper perf"),
        (entry((0.0, side(), {"exchanges": [{}], "error": None})), "a recorded exchange is"),
        (entry((0.0, side(), {"error": None})), "a recorded reading is malformed: KeyError"),
        (entry() | {"readings": 7}, "a recorded reading is malformed: TypeError"),
        (entry(ONE, (10**400, *TWO[1:])), "a recorded reading is malformed: ValueError"),
        (entry(ONE, (math.inf, *TWO[1:])), "a recorded reading is malformed: ValueError(inf)"),
    ],
)
def test_an_end_that_was_not_read_has_one_line(answer: dict[str, Any], far: str) -> None:
    """A far end that answers for another port is not taken for this one."""
    assert str(row(answer).far_end).startswith(far)


@pytest.mark.parametrize("later", [-60.0, 0.0])
def test_readings_that_are_not_in_order_are_not_compared(later: float) -> None:
    """There are no negative rates."""
    assert row(entry(ONE, (later, *TWO[1:]))).verdict is None


def test_a_refusal_between_two_readings_cannot_tell() -> None:
    link = row(entry((0.0, side(), refused()), TWO))
    assert link.verdict
    assert link.verdict.end is BadEnd.CANNOT_TELL
    assert "leaf1 port 3: not known, ibp0 port 1: no answer in 500 ms" in link.verdict.text


def test_a_helper_that_fails_is_a_failure() -> None:
    assert reading(Unavailable("helper perf: late")).outcome == Failed("helper perf: late")


@pytest.mark.parametrize(
    ("device", "links"),
    [
        (ib("ibp0", 0, PORT._replace(state="INIT")), LINKS),
        (ib("ibp0", 0), Seen((Link("ibp0", None, missing="no-answer"),))),
        (ib("ibp0", 0, nvswitch_pattern=True), LINKS),
    ],
)
def test_others_are_not_asked_about(device: RdmaDevice, links: Any) -> None:
    """A port that is not ACTIVE, without a neighbor, of a function that manages NVSwitches."""
    answer = AssertionError("asked")
    assert isinstance(reading(answer, device, links).outcome, Absent)


def test_a_recording_replays_to_the_same_row_anonymized_too() -> None:
    """Nothing else of a reply is in an anonymized one: traffic counters, and what fills a MAD."""
    answer = entry(ONE, TWO, (99.0, refused("no-lid"), side(port=3)))
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0, ask_perf=lambda _ports: {"ports": [answer]})
    recorded, taped = RecordedSmps.record(host)
    assert taped.ask_perf
    taped.ask_perf(())
    names = Names()
    for record_of in (recorded, recorded.anonymized(names)):
        files = {name: data for name, data in record_of.files().items() if data}
        [path] = files
        device = json.loads(files[path])["device"]
        assert path == f"perf/{device}-1.json"
        port = CounterPort(device, 1, (device, 1), 3)
        loaded = RecordedSmps.load(SnapshotFiles(MemoryStore(files)), {}).replayed(host).ask_perf
        assert loaded
        assert loaded([port._replace(number=2)]) == {"ports": []}
        [replayed] = loaded([port])["ports"]
        expected = row(answer)
        assert row(replayed)._replace(near="") == expected._replace(near="")
    kept = json.loads(files[path])["readings"][0]["near"]["exchanges"][0]["reply"]
    assert kept != answer["readings"][0]["near"]["exchanges"][0]["reply"]
    malformed = recorded.anonymized(names)
    malformed.of_perf["x", 1] = {"device": "x", "port": 1, "readings": 3}
    [hidden] = [
        of for of in malformed.anonymized(names).of_perf.values() if of["error"] == "malformed"
    ]
    assert "readings" not in hidden
    unread = row(hidden | {"device": answer["device"]})
    assert unread.near == unread.far_end == "its counters were read once"
