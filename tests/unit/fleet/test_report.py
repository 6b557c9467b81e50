"""The output of `fleet verify` in each format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cabling.baseline import Accepted, BaselineRow
from agent.cabling.finding import Finding, Move, PortRef, Spot, finding
from agent.fleet.model import Gap, Group, Judged
from agent.fleet.page.worklist import summary
from agent.fleet.report import FORMATS, outcome, unverified, verdict
from agent.output.report import EXIT
from tests.support.small_fleets import judged, rack

A, B = PortRef("gpu-001", "mlx5_3"), PortRef("gpu-002", "mlx5_3")
ENDS = ("leaf03", "swp1"), ("leaf04", "swp2")
SWAPPED = finding(
    "swapped",
    [A, B],
    "Exchange the cables of gpu-001 mlx5_3 and gpu-002 mlx5_3.",
    moves=(
        Move(A, ENDS[1], ENDS[0], Spot("B1"), Spot("B3")),
        Move(B, ENDS[0], ENDS[1], Spot("B2"), Spot("B4")),
    ),
    expected=ENDS[0],
    actual=ENDS[1],
    facts={"rack": "B1", "far-rack": "B3"},
)
SILENT = finding("silent", [], "2 nodes have not reported.", nodes=["gpu-003", "gpu-004"])
REMARK = SILENT._replace(severity="info")
FOLLOW = "16 of 16 cables follow the pattern"
GUESSED = SWAPPED._replace(confidence=0.997, majority="62 of 64 nodes")
HOSTILE = "=cmd|' /C calc'!A0\x1b[31m<script>alert(1)</script>\n\u202e\ud800"


def suites_of(result: Judged) -> ET.Element:
    return ET.fromstring(FORMATS["junit"](result))  # noqa: S314 - our own


def test_verdict_of_a_plan() -> None:
    result = judged(rack(), SWAPPED, SILENT, as_planned=14, by_pattern=False)
    line = "4 nodes: 1 finding: 1 swapped; 14 of 16 cables as planned; 2 silent"
    assert verdict(result) == line


@pytest.mark.parametrize(
    ("result", "line", "code"),
    [
        (judged(rack()), "4 nodes: no findings; 16 of 16 cables follow the pattern", 0),
        (judged(rack(1)), "1 node: no findings; 4 of 4 cables follow the pattern", 0),
        (judged(rack(), planned=0), "4 nodes: no pattern found", 1),
        (judged([], planned=0), "0 nodes: no pattern found", 1),
        (judged(rack(), SILENT), f"4 nodes: no findings; {FOLLOW}; 2 silent", 1),
        (judged(rack(), REMARK), f"4 nodes: no findings; {FOLLOW}; 2 silent", 0),
        (judged(rack(), SWAPPED, SILENT), f"4 nodes: 1 finding: 1 swapped; {FOLLOW}; 2 silent", 3),
    ],
)
def test_outcomes(result: Judged, line: str, code: int) -> None:
    """Differences are 3, what could not be compared 1, and nothing compared is no success."""
    assert (verdict(result), EXIT[outcome(result)]) == (line, code)


def test_a_fleet_that_was_read_in_part_is_not_verified() -> None:
    result = judged(rack())
    partial = result._replace(fleet=replace(result.fleet, problems=("node7.json: no JSON",)))
    assert outcome(partial) == "unverified"
    assert "node7.json: no JSON" in FORMATS["table"](partial)
    assert verdict(partial) == f"4 nodes: 1 not read; {FOLLOW}"
    assert summary(partial).startswith("4 nodes in 1 group; 1 not read; 16 of 16 cables")
    assert "no findings" not in summary(partial)
    (error,) = suites_of(partial).findall(".//error")
    assert error.attrib["message"] == "node7.json: no JSON"


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (
            judged(rack(1), planned=0),
            "no pattern found: name the expected cables with --plan FILE",
        ),
        (
            judged(rack(), planned=0)._replace(has_plan=True, by_pattern=False),
            "no cables in the plan",
        ),
        (
            judged(rack())._replace(gap=Gap((), ("gpu-9",), (), 16, 20)),
            "16 of 20 cables compared: 1 host of the plan has no Node",
        ),
        (judged(rack(), SILENT), "1 finding of severity unknown"),
        (
            judged(rack(), as_planned=0)._replace(accepted=(Accepted(SILENT, BaselineRow("0")),)),
            "no cable was compared",
        ),
    ],
)
def test_why_a_fleet_is_not_verified(result: Judged, why: str) -> None:
    """The error names it, and JUnit has an error for it."""
    assert outcome(result) == "unverified"
    assert unverified(result) == f"{result.fleet.source}: not verified: {why}"
    gap = [] if result.findings else [why]
    errors = suites_of(result).findall(".//testcase[@name='not compared']/error")
    assert [one.attrib["message"] for one in errors] == gap


def test_table() -> None:
    """The work by leaf, then what is not known, the groups and the notes, in 80 columns."""
    result = judged(rack(), GUESSED, SILENT, as_planned=14, notes=("plan.csv: 16 rows",))
    assert FORMATS["table"](result) == (
        "4 nodes: 1 finding: 1 swapped; 14 of 16 cables follow the pattern; 2 silent\n"
        "\n"
        "leaf03 (rack B3)\n"
        "  swapped: Exchange the cables of gpu-001 mlx5_3 and gpu-002 mlx5_3. (99 %\n"
        "    confident: 62 of 64 nodes)\n"
        "\n"
        "Silent nodes\n"
        "  2 nodes have not reported.\n"
        "\n"
        "Groups\n"
        "  leaf00 to leaf03: 4 nodes, rail-optimized: interface i on leaf i\n"
        "\n"
        "Notes\n"
        "  plan.csv: 16 rows\n"
    )


def test_many_groups_are_folded() -> None:
    groups = [Group(f"group {one}", (f"n{one}",), (), None) for one in range(100)]
    text = FORMATS["table"](judged(rack(), groups=tuple(groups)))
    section = text.partition("Groups\n")[2].splitlines()
    assert len(section) == 20
    assert section[-1] == "  81 more groups of 81 nodes, 81 without a pattern"


def test_json_is_of_the_schema(repository: Path) -> None:
    schema = json.loads((repository / "docs/fleet.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for result in (judged([], planned=0), judged(rack(), GUESSED, SILENT)):
        jsonschema.validate(json.loads(FORMATS["json"](result)), schema)


def test_json_has_what_was_not_compared() -> None:
    gap = Gap(("gpu-003",), ("gpu-02",), (), 4, 20)
    document = json.loads(FORMATS["json"](judged(rack())._replace(gap=gap)))
    assert document["not_compared"] == {"cables": 16, "nodes": ["gpu-003"], "hosts": ["gpu-02"]}


def test_json_has_the_names_unaltered() -> None:
    hostile = SWAPPED._replace(nodes=(HOSTILE,))
    document = json.loads(FORMATS["json"](judged(rack(), hostile)))
    assert document["findings"][0]["nodes"] == [HOSTILE]


def test_csv_has_a_row_for_each_port() -> None:
    """Each with ends and places of its own cable; of a finding without ports, one for each node."""
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](judged(rack(), SWAPPED, SILENT)))))
    ends = [(row["node"], row["interface"], row["expected device"], row["actual port"])
            for row in rows]  # fmt: skip
    assert ends == [
        ("gpu-001", "mlx5_3", "leaf03", "swp2"),
        ("gpu-002", "mlx5_3", "leaf04", "swp1"),
        ("gpu-003", "", "", ""),
        ("gpu-004", "", "", ""),
    ]
    assert {row["id"] for row in rows[:2]} == {SWAPPED.id}
    places = [(row["place"], row["expected place"]) for row in rows]
    assert places == [("rack B1", "rack B3"), ("rack B2", "rack B4"), ("", ""), ("", "")]


def test_junit_fails_once_for_one_cause() -> None:
    """At the first node; the second names it, the others pass, and silent nodes are errors."""
    root = suites_of(judged(rack(), SWAPPED, SILENT))
    suites = {suite.attrib["hostname"]: suite for suite in root}
    assert {name: suite.attrib["failures"] for name, suite in suites.items()} == {
        "gpu-001": "1", "gpu-002": "0", "gpu-003": "0", "gpu-004": "0",
    }  # fmt: skip
    assert [suites[name].attrib["skipped"] for name in suites] == ["0", "1", "0", "1"]
    assert root.attrib["errors"] == suites["gpu-003"].attrib["errors"] == "1"
    assert (root.attrib["tests"], root.attrib["failures"]) == ("4", "1")


def test_junit_of_a_large_fleet_has_a_suite_for_each_group() -> None:
    result = judged(rack(2001, 1), SWAPPED)
    root = suites_of(result)
    assert [suite.attrib["hostname"] for suite in root] == [group.name for group in result.groups]
    assert root.attrib["tests"] == "2001"


def test_junit_has_findings_without_a_node() -> None:
    lost = Finding("unverifiable", "unknown", (), (), "text", id="0" * 12)
    root = suites_of(judged(rack(1), lost))
    assert [suite.attrib["errors"] for suite in root] == ["1", "0"]


@given(st.text(max_size=300).map(lambda text: HOSTILE + text))
def test_hostile_names(text: str) -> None:
    """No control character, no markup, no formula and no long line, whoever chose the names."""
    ref = PortRef(text, text)
    hostile = finding(
        "miscabled",
        [ref],
        text,
        moves=(Move(ref, (text, text), (text, text)),),
        expected=(text, text),
        actual=(text, text),
        facts={"rack": text, "far-rack": text},
        majority=text,
        confidence=0.5,
    )
    group = Group(text, (text,), (text,), text)
    result = judged(rack(1), hostile, hostile._replace(code="silent", severity="unknown"),
                    groups=(group,), notes=(text,))  # fmt: skip
    for kind, form in FORMATS.items():
        lines = form(result).split("\n")
        assert all(line.isprintable() for line in lines), kind
    assert max(map(len, FORMATS["table"](result).split("\n"))) <= 80
    assert "<script>" not in FORMATS["junit"](result)
    suites_of(result)
    cells = [cell for row in csv.reader(io.StringIO(FORMATS["csv"](result))) for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
