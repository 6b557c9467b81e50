"""The verdict in the annotation: what is written, and what is read back of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kube.annotation import (
    MAX_BYTES,
    MAX_FINDINGS,
    Annotation,
    Remembered,
    RememberedFinding,
    fitted,
    interface_of,
    parse,
    render,
    without_future,
)
from agent.kube.plan import Desired, plan
from agent.kube.remembered import annotate
from agent.memory import Fact, FarEnd
from tests.support.nodes import ANNOTATED, BOOT, KEYS, NOW, node
from tests.support.observations import observation

KEY = KEYS.annotation
SWAPPED = RememberedFinding("swapped", "ibp3", "0f3c21aa9d10")
SPEED = RememberedFinding("speed", None, "aa3c21aa9d10")
VERDICT = Remembered(BOOT, NOW, (SWAPPED, SPEED))
SWITCH = FarEnd("b0cf0e0300d4ee40", "MF0;L90.1.3:MQM9700/U1", "3")
WHOLE = Fact(
    *("ibp0", "0000:18:00.0"), port_guid="a" * 16, node_guid="b" * 16, gbps=400.0, last_far=SWITCH
)


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
    assert annotate(observation(("ibp0", "0000:18:00.0")), before).verdict == VERDICT


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
    assert plan(node({}, observed=render(before)), desired, KEYS).is_due == due


def test_interfaces_have_room_before_findings() -> None:
    """On a node whose 64 cables are all wrong no row is left out for a finding; the least severe
    findings are, and counted.
    """
    findings = tuple(RememberedFinding("miscabled", f"ibp{n}", f"{n:012x}") for n in range(64))
    wide = WHOLE._replace(port=2, netdev="e" * 15, rule="r" * 30, layer="InfiniBand")
    rows = tuple(
        wide._replace(interface=f"ibp{number}", port_guid=f"{number:016x}") for number in range(64)
    )
    large = replace(ANNOTATED, interfaces=rows, verdict=Remembered(BOOT, NOW, findings))
    found = fitted(large)
    assert (found.interfaces, found.dropped) == (rows, 0)
    assert found.verdict
    kept = len(found.verdict.findings)
    assert 0 < kept < 64
    assert found.verdict == Remembered(BOOT, NOW, findings[:kept], 64 - kept)
    assert MAX_BYTES - 100 < len(render(found)) <= MAX_BYTES
    assert parse(render(found), KEY) == (found, None)


def test_lost_interfaces_have_room_before_findings() -> None:
    """A loss is known in no other place."""
    findings = tuple(RememberedFinding("miscabled", f"ibp{n}", f"{n:012x}") for n in range(64))
    rows = tuple(WHOLE._replace(interface=f"ibp{number}") for number in range(32))
    lost = tuple(row._replace(interface=f"x{row.interface}", lost_since=NOW) for row in rows)
    found = fitted(Annotation(NOW, BOOT, rows, lost=lost, verdict=Remembered(BOOT, 1, findings)))
    assert (found.interfaces, found.lost, found.dropped) == (rows, lost, 0)


def test_a_verdict_without_its_most_severe_finding() -> None:
    """It could pass where the whole fails, so it is left out; one without findings stays."""
    many = tuple(WHOLE._replace(interface=f"mlx5_{number}") for number in range(512))
    long = RememberedFinding("miscabled", "x" * 64, "f" * 64)
    full = replace(ANNOTATED, interfaces=many, verdict=Remembered(BOOT, NOW, (long,)))
    assert fitted(full).verdict is None
    passed = Remembered(BOOT, NOW)
    assert fitted(replace(full, verdict=passed)).verdict == passed


@pytest.mark.parametrize("value", ["9", -1, None, [], 10**9])
def test_a_malformed_number_of_findings_is_unknown(value: object) -> None:
    """The findings count."""
    found, problem = parse(told(dropped=value), KEY)
    assert found
    assert (found.verdict, problem) == (VERDICT, None)


@pytest.mark.parametrize("text", [None, "", "x" * 65, "a\nb", "東京"])
def test_an_odd_name_is_not_remembered(text: str | None) -> None:
    """A plan may give an interface any name."""
    assert interface_of(text) is None
    assert interface_of("HCA 1") == "HCA 1"
