"""The annotation: its contents, and what is rejected when it is parsed."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.annotation import (
    MAX_INTERFACES,
    MAX_LENGTH,
    RESYNC,
    Annotation,
    annotate,
    annotation_of,
    is_stale,
    parse,
    render,
)
from agent.kube.managed_fields import state_of
from agent.model import Absent, Failed, Problem, RdmaDevice, Seen
from tests.support.nodes import ANNOTATED, BOOT, FLAVOR, KEYS, LEAF, NOW, node
from tests.support.observations import observation

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
    assert render(Annotation(NOW, BOOT, (("ibp0", "0000:18:00.0"),), "0.1.0")) == (
        '{"schema":1,"agent":"0.1.0",'
        f'"boot_id":"{BOOT}","time":"2027-01-15T08:00:00Z",'
        '"interfaces":[{"interface":"ibp0","pci":"0000:18:00.0"}]}'
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
    found = annotate(observation(("ibp1", "0000:2a:00.0"), ("ibp0", "0000:18:00.0")), [], KEYS)
    assert found == Annotation(NOW, BOOT, (("ibp0", "0000:18:00.0"), ("ibp1", "0000:2a:00.0")))


@pytest.mark.parametrize(
    "change", [{"ib": Failed("x")}, {"rdma": Failed("x")}, {"off": frozenset({"lldp"})}]
)
def test_an_observation_that_is_not_full(change: dict[str, Any]) -> None:
    """Time and boot ID stay those of the last full observation, together."""
    before = Annotation(NOW - 60, "another-boot")
    found = annotate(observation(boot_id=BOOT, **change), [], KEYS, before)
    assert (found.time, found.boot_id) == (NOW - 60, "another-boot")
    found = annotate(observation(**change), [], KEYS)
    assert (found.time, found.boot_id) == (None, None)


def test_interfaces_that_are_held() -> None:
    """The address of an interface that cannot be read stays as long as it has labels."""
    before = Annotation(NOW - 60, BOOT, (("ibp0", "0000:18:00.0"), ("ibp9", "0000:99:00.0")))
    found = annotate(observation(("ibp1", "0000:2a:00.0")), [FLAVOR, LEAF], KEYS, before)
    assert found.interfaces == (("ibp0", "0000:18:00.0"), ("ibp1", "0000:2a:00.0"))


@pytest.mark.parametrize(
    ("rdma", "kept"), [(Failed("x"), (("ibp9", "0000:99:00.0"),)), (Absent("no device"), ())]
)
def test_interfaces_without_devices(rdma: Any, kept: tuple[tuple[str, str], ...]) -> None:
    """The addresses stay if the RDMA devices cannot be read; they go with the last device."""
    before = Annotation(NOW - 60, BOOT, (("ibp9", "0000:99:00.0"),))
    assert annotate(observation(rdma=rdma), [], KEYS, before).interfaces == kept


def test_interfaces_of_a_device_that_fails_or_is_gone() -> None:
    """The addresses of its ports stay without labels, those of no other device."""
    held = tuple((name, "0000:18:00.0") for name in ("mlx5_1", "mlx5_1-3", "mlx5_2"))
    others = tuple((name, "0000:18:00.0") for name in ("mlx5_10", "mlx5_3"))
    found = annotate(
        observation(
            rdma=Seen((RdmaDevice("mlx5_1", failure="blocks"), RdmaDevice("mlx5_3"))),
            unbound=("mlx5_2",),
        ),
        [],
        KEYS,
        Annotation(NOW - 60, BOOT, held + others),
    )
    assert found.interfaces == held


def test_many_interfaces() -> None:
    """No more are written than are parsed again."""
    many = [(f"ibp{number:04}", "0000:18:00.0") for number in range(MAX_INTERFACES + 1)]
    found = annotate(observation(*many), [], KEYS)
    assert found.interfaces == tuple(many[:MAX_INTERFACES])
    assert parse(render(found), KEY) == (found, None)


def test_malformed_facts() -> None:
    """Malformed names and addresses are left out, so that the annotation can be parsed."""
    found = annotate(
        observation(("ibp0", None), ("a b", "0000:18:00.0"), ("ibp1", "x"), boot_id="a b"), [], KEYS
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
    """Text that is no JSON object, or longer than 64 KiB, is a problem."""
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
def test_malformed_annotations(change: dict[str, Any], word: str) -> None:
    """A malformed part makes the whole annotation malformed, and the problem names it."""
    found, problem = parse(json.dumps(json.loads(render(ANNOTATED)) | change), KEY)
    assert found is None
    assert problem is not None
    assert word in problem.text
    assert problem.subject == KEY


@pytest.mark.usefixtures("tokyo")
def test_times() -> None:
    """Any RFC 3339 time is parsed; without a zone it is UTC, and so is a rendered one, whatever the
    zone of the host.
    """
    assert '"time":"2027-01-15T08:00:00Z"' in render(ANNOTATED)
    for text in ("2027-01-15T08:00:00Z", "2027-01-15T09:00:00+01:00", "2027-01-15T08:00:00"):
        found, _ = parse(json.dumps(json.loads(render(ANNOTATED)) | {"time": text}), KEY)
        assert found == ANNOTATED


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


@pytest.mark.slow
@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_any_text(text: str) -> None:
    """No text raises anything."""
    found, problem = parse(text, KEY)
    assert (found is None) == (problem is not None)


def test_the_annotation_is_small() -> None:
    """An annotation of sixteen interfaces has less than two kilobytes."""
    text = render(
        Annotation(NOW, "b" * 36, tuple((f"mlx5_{i}", f"0000:{i:02x}:00.0") for i in range(16)))
    )
    assert len(text) < 2048
    assert json.loads(text)["time"] == "2027-01-15T08:00:00Z"
