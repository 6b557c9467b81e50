"""The verdict in the annotation: what is written, and what is read back of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.annotation import MAX_BYTES, annotate, fitted, parse, render, without_future
from agent.kube.plan import Desired, plan
from agent.kube.remembered import MAX_FINDINGS, Remembered, RememberedFinding, interface_of
from tests.support.nodes import ANNOTATED, BOOT, KEYS, NOW, node, rows
from tests.support.observations import observation

KEY = KEYS.annotation
SWAPPED = RememberedFinding("swapped", "ibp3", "0f3c21aa9d10")
SPEED = RememberedFinding("speed", None, "aa3c21aa9d10")
VERDICT = Remembered(BOOT, NOW, (SWAPPED, SPEED))


def told(**changes: Any) -> str:
    """Return an annotation with a verdict that has these parts."""
    document = json.loads(render(replace(ANNOTATED, verdict=VERDICT)))
    document["verdict"] |= changes
    return json.dumps(document)


def test_the_text() -> None:
    """It has boot ID, time and findings, without what is unknown."""
    assert json.loads(told())["verdict"] == {
        "boot_id": BOOT,
        "time": "2027-01-15T08:00:00Z",
        "findings": [
            {"code": "swapped", "interface": "ibp3", "id": "0f3c21aa9d10"},
            {"code": "speed", "id": "aa3c21aa9d10"},
        ],
    }


@given(
    st.lists(
        st.builds(
            RememberedFinding,
            st.sampled_from(["missing", "swapped", "wrong-port"]),
            st.none() | st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1,
                                max_size=64),
            st.text("0123456789abcdef", min_size=12, max_size=12),
        ),
        max_size=MAX_FINDINGS,
    )
)  # fmt: skip
def test_both_ways(findings: list[RememberedFinding]) -> None:
    """Rendering and parsing are inverse."""
    annotation = replace(ANNOTATED, verdict=Remembered(BOOT, None, tuple(findings)))
    assert parse(render(annotation), KEY) == (annotation, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"findings": None},
        {"findings": {}},
        {"findings": [None]},
        {"findings": [{}]},
        {"findings": [{"code": "swapped"}]},
        {"findings": [{"code": "Swapped!", "id": "0f"}]},
        {"findings": [{"code": "swapped", "id": "x"}]},
        {"findings": [{"code": "swapped", "id": 12}]},
        {"findings": [{"code": "swapped", "id": "0f", "interface": 3}]},
        {"findings": [{"code": "swapped", "id": "0f", "interface": "a\nb"}]},
        {"findings": [{"code": "swapped", "id": "0f"}] * (MAX_FINDINGS + 1)},
        {"boot_id": None},
        {"boot_id": 7},
        {"boot_id": "two words"},
    ],
)
def test_a_malformed_verdict_is_dropped_as_a_whole(changes: dict[str, Any]) -> None:
    """Half of it could pass where the whole fails; the rest of the annotation counts."""
    found, problem = parse(told(**changes), KEY)
    assert found == ANNOTATED
    assert problem
    assert problem.text == "malformed facts, ignored: verdict"


@pytest.mark.parametrize("value", ["pass", 1, [], True])
def test_a_verdict_that_is_no_object(value: object) -> None:
    """It is dropped."""
    document = json.loads(told()) | {"verdict": value}
    found, problem = parse(json.dumps(document), KEY)
    assert found == ANNOTATED
    assert problem


def test_a_malformed_time_is_unknown() -> None:
    """The findings count without it, and without a time in the future."""
    found, problem = parse(told(time="yesterday"), KEY)
    assert found
    assert found.verdict == VERDICT._replace(time=None)
    assert problem
    assert problem.text == "malformed facts, ignored: time of verdict"
    early = without_future(replace(ANNOTATED, verdict=VERDICT), NOW - 3600)
    assert early
    assert early.verdict == VERDICT._replace(time=None)


def test_an_observation_keeps_it() -> None:
    """`probe` has no verdict of its own, and leaves that of the agent."""
    before = replace(ANNOTATED, verdict=VERDICT)
    assert annotate(observation(("ibp0", "0000:18:00.0")), [], KEYS, before).verdict == VERDICT


@pytest.mark.parametrize(
    ("after", "due"),
    [
        (VERDICT._replace(time=NOW + 60), False),
        (VERDICT._replace(findings=(SPEED,)), True),
        (VERDICT._replace(boot_id="another"), True),
        (None, True),
    ],
)
def test_a_change_makes_a_request_due(after: Remembered | None, due: bool) -> None:
    """A later time does not."""
    before = replace(ANNOTATED, verdict=VERDICT)
    desired = Desired({}, replace(before, verdict=after))
    assert plan(node({}, observed=render(before)), desired, KEYS).due == due


def test_it_has_room_before_the_interfaces() -> None:
    """A verdict is never cut; the last interfaces are."""
    findings = tuple(RememberedFinding("missing", "x" * 64, f"{n:012x}") for n in range(64))
    many = rows(*((f"mlx5_{number}", "0000:18:00.0") for number in range(512)))
    found = fitted(replace(ANNOTATED, interfaces=many, verdict=Remembered(BOOT, NOW, findings)))
    assert found.verdict
    assert len(found.verdict.findings) == MAX_FINDINGS
    assert found.dropped
    assert len(render(found)) <= MAX_BYTES


@pytest.mark.parametrize("text", [None, "", "x" * 65, "a\nb", "東京"])
def test_an_odd_name_is_not_remembered(text: str | None) -> None:
    """A plan may give an interface any name."""
    assert interface_of(text) is None
    assert interface_of("HCA 1") == "HCA 1"
