"""Our own plan files: labels in YAML and JSON, and the CSV."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.cabling.expected import Expected
from agent.cabling.plan_index import from_plans
from agent.cabling.plans.model import ERRORS, NO_FIELDS, date_fault
from agent.cabling.plans.own import (
    COLUMNS,
    FORMULA,
    is_labels,
    is_own,
    read_csv,
    read_labels,
    rows_text,
    unquoted,
)
from agent.cabling.plans.source import PlanContent
from tests.support.plans import refusal

P = "backend.coreweave.cloud"
LABELS = {f"{P}/speed.expected": "3200G", f"{P}/neighbors.expected.ibp0.device": "L90.1.3"}
HEADER = "node,interface,device,port-id,port-name"
CELL = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Z"]), min_size=1, max_size=9)
CELL = CELL.filter(lambda text: text not in ERRORS and not date_fault(text))


def source(text: str | bytes) -> PlanContent:
    return PlanContent("plan.csv", text if isinstance(text, bytes) else text.encode())


def rows(text: str) -> Expected:
    return from_plans(read_csv(source(text)), ["gpu-1"])


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{key}: {value}\n" for key, value in LABELS.items()),
        json.dumps(LABELS),
        json.dumps({"kind": "Node", "metadata": {"name": "n", "labels": LABELS | {"a/b": "c"}}}),
        "kind: Node\nmetadata:\n  labels:\n"
        + "".join(f"    {key}: {value}\n" for key, value in LABELS.items()),
    ],
)
def test_labels(text: str) -> None:
    """A mapping or a manifest."""
    assert is_labels(source(text))
    [plan] = read_labels(source(text))
    assert plan.labels == LABELS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"{P}/speed.expected: [1\n", "row 2"),
        ("a: b\n", "no expected label"),
        (f"{P}/speed.expected: [1]\n", "no text"),
        ("[]", "no expected label"),
        (f"{P}/speed.expected: ''\n", "no expected label"),
        (f'{{"{P}/speed.expected": ', "not JSON"),
        (f"{P}/speed.expected: 1G\n{P}/speed.expected: 2G\n", "row 2, key .*: given twice"),
        (f'{{"{P}/speed.expected": "1G", "{P}/speed.expected": "1G"}}', "key .*: given twice"),
        (f"{P}/speed.expected:\n", "row 1, key .*: the value is no text"),
        (f'{{"{P}/speed.expected": true}}', "no text"),
        (f"{P}/speed.expected: " + "[" * 1000, "nested too deeply"),
        (f"{P}/speed.expected: |\n  a\n  b\n", "no text of a label"),
        (f"{P}/speed.expected: {'x' * 256}\n", "no text of a label"),
        (f"{P}/speed.expected: *a\n", "row 1: no YAML: found undefined alias"),
        (f"a: &a {{{P}/speed.expected: 1G}}\nb: {{<<: *a}}\n", "no expected label"),
        (f"{P}/speed.expected: 1G\n" + "#" * (1 << 20), "labels of more than 1 MiB"),
    ],
)
def test_malformed_labels(text: str, named: str) -> None:
    assert re.match(f"p(: |, ).*{named}", refusal(text, "labels"))


@pytest.mark.parametrize(
    "text", ["3_4", "1:2", "010", "0x1f", "1e3", "no", "true", "2026-01-02", "1.10"]
)
def test_labels_are_texts(text: str) -> None:
    """No value is taken for a number, a time or a truth value, as YAML 1.1 does."""
    [plan] = read_labels(source(f"{P}/ports.expected: {text}\n"))
    assert plan.labels == {f"{P}/ports.expected": text}


@pytest.mark.parametrize("text", ["5", "5.50", "1e3"])
def test_numbers_of_json_are_texts(text: str) -> None:
    """A number is the text as it stands."""
    [plan] = read_labels(source(f'{{"{P}/ports.expected": {text}}}'))
    assert plan.labels == {f"{P}/ports.expected": text}


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", " ", "{ ", "a", "a.", ",a", "\n ", '\t"', "a/"])
def test_recognition_costs_no_time(text: str) -> None:
    """No pattern tries a long text again at each of its characters."""
    one = source("x" + text * (1 << 20))
    start = time.process_time()
    assert not is_labels(one)
    assert time.process_time() - start < 5


def test_a_long_first_line_is_no_header() -> None:
    """The field of a row is not bounded where a kind is recognized."""
    assert not is_own(source("[" + "1" * (1 << 20)))


def test_anchors_do_not_multiply() -> None:
    """Merge keys would make 9 ** 12 entries of half a kilobyte."""
    lines = [f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 13)]
    text = "\n".join(["a0: &a0 {x: 1}", *lines, f"{P}/speed.expected: 1G"])
    [plan] = read_labels(source(text))
    assert plan.labels == {f"{P}/speed.expected": "1G"}


def test_other_columns_are_carried() -> None:
    """Places, rate, mark, and what we do not know."""
    text = (
        "\ufeffDevice;Port ID;Node;Interface;Rate;Mark;Rack;Unit;far-rack;Cable ID\r\n"
        "leaf1;swp5;gpu-1;mlx5_0;400 Gb/s;link-state-only;A1;20;B3;C-17\r\n"
    )
    assert is_own(source(text))
    [row] = rows(text).rows
    assert (row.device, row.port_id, row.rate_gbps) == ("leaf1", "swp5", 400.0)
    assert (row.mark, row.fields) == ("link-state-only", {"Cable ID": "C-17"})
    assert row.near
    assert row.far
    assert (row.near.rack, row.near.unit, row.far.rack, row.far.unit) == ("A1", "20", "B3", None)
    assert str(row.place) == "plan.csv, row 2"


@pytest.mark.parametrize(
    ("text", "gbps"),
    [("400", 400.0), ("400G", 400.0), ("1.6T", 1600.0), ("4xNDR", 400.0), ("100000M", 100.0)],
)
def test_rates_are_those_of_sheets(text: str, gbps: float) -> None:
    """A rate that a cabling sheet may have, our own CSV may have, too."""
    [row] = rows(f"{HEADER},rate\ngpu-1,mlx5_0,leaf,1,,{text}\n").rows
    assert row.rate_gbps == gbps


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("node,interface,port-id\n", "no column device"),
        (f"{HEADER},device\n", "two columns device"),
        (f"{HEADER}\n", "no row below"),
        (f"{HEADER}\n,mlx5_0,leaf,1,\n", "row 2, column node"),
        (f"{HEADER},rate\ng,mlx5_0,leaf,1,,fast\n", "row 2, column rate"),
        (f"{HEADER},mark\ng,mlx5_0,leaf,1,,no\n", "row 2, column mark"),
        (f'{HEADER}\ng,"mlx5_0\n', "row"),
        (f"{HEADER}\ng,mlx5_0,leaf,2-Jan,\n", "row 2, column port-id: the date '2-Jan'"),
        (f"{HEADER}\ng,mlx5_0,#REF!,1,\n", "row 2, column device: #REF!"),
        (f"{HEADER}{',' * 2000}\n", "row 1: more than 1024 columns"),
        (f"{HEADER}\ng,1,g,1,\n", "row 2: both ends are 'g 1'"),
        (f"{HEADER}\ng,mlx5_0,leaf,1,\ng,mlx5_1", "row 3: 2 cells, and the header has 5"),
        (f"{HEADER}\ng,mlx5_0,leaf,1,\ng,mlx5_1,leaf,1/", "row 3: 4 cells"),
        (f"{HEADER}\ng,mlx5_0,leaf,1,2,\ng,mlx5_1,leaf,1,2,3", "row 3: 6 cells"),
        (f"{HEADER}\ng,mlx5_0,leaf,1,\n,,,,,x", "row 3: 6 cells, and the header has 5"),
        (f'{HEADER},"Label\ng,mlx5_0,leaf,1,,x\n', "row 1: no CSV: a quotation that never ends"),
        (f'{HEADER}\ng,a,leaf,1,\ng,"b,leaf,2,\n{"g,c,leaf,3," * 9}', "row 3: no CSV: a quotation"),
        (f"\n,,\n{HEADER},device\n", "row 3: two columns device"),
    ],
)
def test_malformed_csv(text: str, named: str) -> None:
    assert re.match(f"p(: |, ).*{named}", refusal(text, "own"))


@pytest.mark.parametrize("blank", ["\n\n", ",,,,\n", " \t\r\n, ,\r\n"])
def test_blank_rows(blank: str) -> None:
    """Above the header and below it; places count them."""
    plan = source(f"{blank}{HEADER}\n{blank}gpu-1,mlx5_0,leaf,1,\n{blank}")
    assert is_own(plan)
    [cable] = read_csv(plan)[0].cables
    assert str(cable.place) == f"plan.csv, row {2 * blank.count(chr(10)) + 2}"


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=6, unique_by=lambda row: row[0]
    ),
    st.permutations(range(5)),
    st.randoms(),
)
@example([("'=", "''+", "@", "'")], [0, 1, 2, 3, 4], Random(0))  # noqa: S311 - an order
def test_rows_and_columns_may_have_any_order(
    cells: list[tuple[str, str, str, str]], order: list[int], shuffle: object
) -> None:
    """What was written reads back equal, also with formulas and separators in the cells."""
    table = [("gpu-1", *row) for row in cells]
    plain = rows(rows_text([COLUMNS, *table]))
    found = [(row.text, row.device, row.port_id, row.port_name) for row in plain.rows]
    assert found == [(a, b, c, d) for _, a, b, c, d in table]
    shuffle.shuffle(table)  # type: ignore[attr-defined]
    mixed = [[row[column] for column in order] for row in (COLUMNS, *table)]
    again = rows(rows_text(mixed))
    assert {
        row._replace(place=plain.rows[0].place, fields=NO_FIELDS)[:5] for row in again.rows
    } == {row._replace(place=plain.rows[0].place, fields=NO_FIELDS)[:5] for row in plain.rows}


@given(
    st.lists(
        st.text(st.sampled_from("'=+-@\t\r\n\",;aB ") | st.characters(codec="utf-8")), min_size=1
    )
)
@example(["'="])
@example(["'2-Jan", "2-Jan", "''#N/A", "'#N/A", "#N/A"])
@example(["\r", "'\r", "a\rb"])
def test_any_text_reads_back(cells: list[str]) -> None:
    """A cell is the text that was written, and begins with no character of a formula."""
    [row] = csv.reader(io.StringIO(rows_text([cells]), newline=""), strict=True)
    assert [unquoted(cell) for cell in row] == cells
    [row] = csv.reader(io.StringIO(rows_text([cells], names=True), newline=""), strict=True)
    assert [unquoted(cell) for cell in row] == cells
    assert not [cell for cell in row if cell.startswith(FORMULA)]


@pytest.mark.parametrize("text", [*sorted(ERRORS), "2-Jan", "2026-01-02", "'2-Jan", "''#N/A"])
def test_a_name_that_looks_replaced_is_quoted(text: str) -> None:
    """A switch port may be named as a date is written; the quote says that it is no date."""
    table = rows_text([COLUMNS, ["gpu-1", text, text, text, text]], names=True)
    [row] = rows(table).rows
    assert (row.text, row.device, row.port_id, row.port_name) == (text,) * 4


def test_an_open_quotation_is_named_alike_by_every_reader() -> None:
    """The row where it begins, whether the header is still that of our own CSV or not."""
    for header in (f"{HEADER}", f'"{HEADER}', HEADER.replace("device", '"device')):
        for kind in (None, "own"):
            text = f'{header}\ng,"mlx5_0,leaf,1,\n' if header == HEADER else f"{header}\n"
            row = 2 if header == HEADER else 1
            assert refusal(text, kind) == f"p, row {row}: no CSV: a quotation that never ends"


def test_cells_of_0_2_0_read_as_they_did() -> None:
    """One quote before a formula is none of the text; other quotes are."""
    assert [unquoted(cell) for cell in ("'=A1", "'-1", "'a", "''a", "'", "a'=")] == [
        *("=A1", "-1"),
        *("'a", "''a", "'", "a'="),
    ]
