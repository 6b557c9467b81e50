"""The annotation: what is written into it, and how little is believed when it is read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.annotation import RESYNC, Annotation, annotate, is_stale, parse, render
from agent.model import Absent, Failed, Observation, PortRole, RdmaDevice, RdmaPort, Seen
from tests.support.nodes import ANNOTATED, BOOT, FLAVOR, KEYS, LEAF, NOW

KEY = KEYS.annotation
PORT = RdmaPort(1, "InfiniBand", "ACTIVE", "LinkUp", None, 400.0, None, None, None, None, ())
NOTHING: Seen[tuple[Any, ...]] = Seen(())


def observation(*interfaces: tuple[str, str | None], **changes: Any) -> Observation:
    """All sources looked; these interfaces are the backend."""
    ports = tuple(
        PortRole(
            name, RdmaDevice(name, pci=pci), PORT, None, backend=True, reason="", counted_gbps=400.0
        )
        for name, pci in interfaces
    )
    whole = Observation(
        NOW + 0.9, "n1", BOOT, ports, NOTHING, NOTHING, Absent("no InfiniBand"), Absent("no GPU")
    )
    return replace(whole, **changes)


def test_both_ways() -> None:
    """What is written is what is read."""
    assert parse(render(ANNOTATED), KEY) == (ANNOTATED, None)
    empty = Annotation(None, None)
    assert parse(render(empty), KEY) == (empty, None)
    assert parse(None, KEY) == (None, None)


def test_a_full_observation() -> None:
    """Time, boot ID and the backend's PCI addresses are those of the observation."""
    told = annotate(observation(("ibp1", "0000:2a:00.0"), ("ibp0", "0000:18:00.0")), [], KEYS)
    assert told == Annotation(NOW, BOOT, (("ibp0", "0000:18:00.0"), ("ibp1", "0000:2a:00.0")))


@pytest.mark.parametrize(
    "change", [{"ib": Failed("x")}, {"rdma": Failed("x")}, {"off": frozenset({"lldp"})}]
)
def test_an_observation_that_is_not_full(change: dict[str, Any]) -> None:
    """Time and boot ID stay those of the last full observation, together."""
    before = Annotation(NOW - 60, "another-boot")
    told = annotate(observation(boot_id=BOOT, **change), [], KEYS, before)
    assert (told.time, told.boot_id) == (NOW - 60, "another-boot")
    told = annotate(observation(**change), [], KEYS)
    assert (told.time, told.boot_id) == (None, None)


def test_interfaces_that_are_held() -> None:
    """The address of an interface that cannot be seen stays as long as it has labels."""
    before = Annotation(NOW - 60, BOOT, (("ibp0", "0000:18:00.0"), ("ibp9", "0000:99:00.0")))
    told = annotate(observation(("ibp1", "0000:2a:00.0")), [FLAVOR, LEAF], KEYS, before)
    assert told.interfaces == (("ibp0", "0000:18:00.0"), ("ibp1", "0000:2a:00.0"))


def test_nothing_is_written_that_would_not_be_read() -> None:
    """Names and addresses of an odd form are left out, so that the annotation is understood."""
    told = annotate(
        observation(("ibp0", None), ("a b", "0000:18:00.0"), ("ibp1", "x"), boot_id="a b"), [], KEYS
    )
    assert told == Annotation(NOW, None)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"schema": 2}, "schema"),
        ({"schema": None}, "schema"),
        ({"time": 7}, "time"),
        ({"time": "yesterday"}, "isoformat"),
        ({"boot_id": 7}, "boot_id"),
        ({"boot_id": "a b"}, "boot_id"),
        ({"agent": "\n"}, "agent"),
        ({"interfaces": {}}, "interfaces"),
        ({"interfaces": [7]}, "row"),
        ({"interfaces": [{"interface": "ibp0"}]}, "row"),
        ({"interfaces": [{"interface": "../..", "pci": "0000:18:00.0"}]}, "interface"),
        ({"interfaces": [{"interface": "ibp0", "pci": "../../etc"}]}, "pci"),
        ({"interfaces": [{"interface": "a", "pci": "0000:18:00.0"}] * 513}, "interfaces"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], word: str) -> None:
    """A part that makes no sense spoils the annotation, and the problem names it."""
    told, problem = parse(json.dumps(json.loads(render(ANNOTATED)) | change), KEY)
    assert told is None
    assert problem is not None
    assert word in problem.text
    assert problem.subject == KEY


def test_times_of_others() -> None:
    """Any RFC 3339 time is read; without a zone it is UTC."""
    for text in ("2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", "2027-01-15T08:00:00"):
        told, _ = parse(json.dumps(json.loads(render(ANNOTATED)) | {"time": text}), KEY)
        assert told == ANNOTATED


@pytest.mark.parametrize(
    ("time", "stale"),
    [(NOW, False), (NOW - 3599, False), (NOW - 3600, True), (NOW + 5, True), (None, True)],
)
def test_age(time: int | None, *, stale: bool) -> None:
    """The annotation is stale after an hour, without a time, and with a time in the future."""
    assert is_stale(Annotation(time, BOOT), NOW) == stale


def test_no_annotation() -> None:
    """A missing annotation is stale; the greatest age is the caller's choice."""
    assert is_stale(None, NOW)
    assert is_stale(Annotation(NOW - 60, BOOT), NOW, 60)
    assert not is_stale(Annotation(NOW - 60, BOOT), NOW, RESYNC)


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_any_text(text: str) -> None:
    """No text raises anything."""
    told, problem = parse(text, KEY)
    assert (told is None) == (problem is not None)
