"""Our own plan files: labels in YAML and JSON, and the CSV."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.verify.expected import Expected, from_plans
from agent.verify.model import NO_FIELDS
from agent.verify.plans.own import COLUMNS, is_labels, is_own, read_csv, read_labels, rows_text
from agent.verify.plans.source import Source

P = "backend.coreweave.cloud"
LABELS = {f"{P}/speed.expected": "3200G", f"{P}/neighbors.expected.ibp0.device": "L90.1.3"}
HEADER = "node,interface,device,port-id,port-name"
CELL = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Z"]), min_size=1, max_size=9)


def source(text: str | bytes) -> Source:
    """Return a file with this text."""
    return Source("plan.csv", text if isinstance(text, bytes) else text.encode())


def rows(text: str) -> Expected:
    """Return the rows of gpu-1."""
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


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"{P}/speed.expected: [1\n", "row 2"),
        ("a: b\n", "no expected label"),
        (f"{P}/speed.expected: [1]\n", "no text"),
        ("[]", "no expected label"),
        (f'{{"{P}/speed.expected": ', "no JSON"),
    ],
)
def test_malformed_labels(text: str, named: str) -> None:
    """One line that names the file, and the row or key."""
    with pytest.raises(Malformed, match=named) as caught:
        read_labels(source(text))
    assert str(caught.value).startswith("plan.csv")


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
    ("text", "named"),
    [
        ("node,interface,port-id\n", "no column device"),
        (f"{HEADER},device\n", "two columns device"),
        (f"{HEADER}\n", "no row below"),
        (f"{HEADER}\n,mlx5_0,leaf,1,\n", "row 2, column node"),
        (f"{HEADER},rate\ng,mlx5_0,leaf,1,,fast\n", "row 2, column rate"),
        (f"{HEADER},mark\ng,mlx5_0,leaf,1,,no\n", "row 2, column mark"),
        (f'{HEADER}\ng,"mlx5_0\n', "row"),
    ],
)
def test_malformed_csv(text: str, named: str) -> None:
    """One line that names file, row and column."""
    with pytest.raises(Malformed, match=named) as caught:
        read_csv(source(text))
    assert str(caught.value).startswith("plan.csv")


@given(
    st.lists(
        st.tuples(CELL, CELL, CELL, CELL), min_size=1, max_size=6, unique_by=lambda row: row[0]
    ),
    st.permutations(range(5)),
    st.randoms(),
)
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
