"""`verify --split`: a plan of any kind as files of our own CSV, each of at most 1 MiB."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cabling.plans.columns import PLACE
from agent.cabling.plans.model import End, FilePlace, Plan, PlanCable, date_fault, fault
from agent.cabling.plans.own import read_csv
from agent.cabling.plans.source import PlanContent
from agent.errors import Malformed, Unavailable
from agent.verify.write import PlanPart, split, write
from tests.support.plans import meaning, of, rows, workbook
from tests.support.snapshots import bwagent

NOWHERE = FilePlace("big.xlsx", "Links", 2)
NAME = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
# What no plan can have as a name is refused when it is read.
NAME = NAME.filter(lambda text: not (fault(text) or date_fault(text)))
PLAIN = NAME.filter(lambda text: not text.startswith("'"))
MAYBE = st.none() | PLAIN
RATE = st.none() | st.sampled_from([100.0, 106.25, 400.0, 1600.0])
MARK = st.sampled_from([None, "ignore", "link-state-only"])
CABLE = st.builds(
    lambda host, leaf, rate, mark, fields: PlanCable(host, leaf, NOWHERE, rate, mark, fields),
    st.builds(End, st.just("gpu-") | PLAIN, PLAIN, st.none(), *[MAYBE] * len(PLACE)),
    st.builds(End, st.just("leaf"), PLAIN, MAYBE, *[MAYBE] * len(PLACE)),
    RATE,
    MARK,
    st.dictionaries(st.sampled_from(["Label", "Cable ID", "Length"]), PLAIN),
)


def plans(cables: Any) -> list[Plan]:
    return [Plan("big.xlsx", "point-to-point", "Links", tuple(cables))]


def read(part: PlanPart) -> list[Plan]:
    return read_csv(PlanContent(part.name, part.text.encode()))


def fabric(nodes: int, rails: int = 8, **more: Any) -> list[PlanCable]:
    """Return the cables of a site in any order, the leaf on side A of half of them."""
    found = []
    for number in range(nodes):
        for rail in range(rails):
            host = End(f"gpu-{number:04}", f"mlx5_{rail}", rack=f"R{number // 4}")
            leaf = End(f"leaf-{number // 32 * rails + rail:03}", f"swp{number % 32 + 1}")
            ends = (leaf, host) if (number + rail) % 2 else (host, leaf)
            found.append(PlanCable(*ends, NOWHERE, 400.0, **more))
    random.Random(1).shuffle(found)  # noqa: S311 - an order, no secret
    return found


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(CABLE, min_size=1, max_size=9))
def test_what_was_written_reads_back_equal(cables: list[PlanCable]) -> None:
    """Ends, places, rates, marks and all other columns; repeated rows once."""
    parts, notes = split(plans(cables))
    assert notes == []
    found = [one for part in parts for one in of(read(part))]
    wanted = meaning(cables)
    assert sorted(found) == [one for at, one in enumerate(wanted) if one not in wanted[:at]]


ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
ANY = ANY | st.sampled_from(["2026-01-02", "'2-Jan", "2-Jan", "#N/A", "'=", "=", " a", "1:02:00"])
FULL = ANY.map(str.strip).filter(bool)
ANY_END = st.builds(End, FULL, FULL, st.none() | ANY, *[st.none() | ANY] * len(PLACE))
ANY_CABLE = st.builds(
    lambda a, b, rate, mark, fields: PlanCable(a, b, NOWHERE, rate, mark, fields),
    ANY_END,
    ANY_END,
    st.none() | st.integers(0, 10**15 - 1).map(lambda count: count / 1e6),
    MARK,
    st.dictionaries(ANY, ANY | st.just(""), max_size=3),
).filter(lambda one: one.a[:2] != one.b[:2])


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(ANY_CABLE, min_size=1, max_size=9), st.sampled_from([2000, 1 << 20]))
def test_parts_split_to_themselves(cables: list[PlanCable], limit: int) -> None:
    """What was written is read, and written again it is the same, whatever the texts."""
    parts, _ = split(plans(cables), limit)
    again, notes = split([plan for part in parts for plan in read(part)], limit)
    assert again == parts
    assert notes == []


@pytest.mark.parametrize("limit", [700, 5000, 1 << 20])
def test_all_rows_of_a_node_are_in_one_file(limit: int) -> None:
    """No file is larger than the limit; together they have every cable, whatever the order."""
    cables = fabric(64)
    parts, _ = split(plans(cables), limit)
    assert all(part.size <= limit for part in parts)
    assert (len(parts) == 1) == (limit == 1 << 20)
    assert sorted(one for part in parts for one in of(read(part))) == meaning(cables)
    hosts = [{row.partition(",")[0] for row in part.text.splitlines()[1:]} for part in parts]
    assert sum(map(len, hosts)) == len(set().union(*hosts)) == 64
    again, _ = split(plans(reversed(cables)), limit)
    assert again == parts
    assert sum(part.nodes for part in parts) == 64
    assert sum(part.rows for part in parts) == 512


def test_spellings_of_one_node_stay_together() -> None:
    """By case, and with a domain; a dot within a short name is none."""
    names = ("a-1", "a-2", "gpu-1", "GPU-1", "gpu-1.site.example", "gpu.1.2", "gpu.1.3")
    cables = [
        PlanCable(End(name, f"mlx5_{number}"), End("leaf", f"swp{number}"), NOWHERE)
        for number, name in enumerate(names)
    ]
    parts, _ = split(plans(cables), 150)
    counts = [part.text.lower().count("gpu-1") for part in parts]
    assert counts == [0, 3, 0]  # the first file had room for two of them


def test_what_our_csv_cannot_have_is_said() -> None:
    """Columns with the names of ours, or with one name in two spellings; second names of NICs."""
    fields = {"Label": "C-1", "label": "c-2", "Far Rack": "R9", "=cmd": "x", "Notes": "spare"}
    host, leaf = End("gpu-1", "mlx5_0", "ib0"), End("leaf", "swp1", "to gpu-1")
    others = [PlanCable(End("gpu-2", "mlx5_0"), End("leaf", "swp2"), NOWHERE)]
    [part], notes = split(plans([PlanCable(host, leaf, NOWHERE, None, None, fields), *others]))
    assert notes == [
        "left out, columns that our CSV cannot have: =cmd, Far Rack, Label, label",
        "left out, second names of 1 ports of nodes",
    ]
    [plan] = read(part)
    assert [cable.fields for cable in plan.cables] == [{"Notes": "spare"}, {}]
    assert plan.cables[0].b.port_name == "to gpu-1"


def test_a_node_that_fits_no_file_is_refused() -> None:
    hosts = ["gpu-1"] * 8 + ["gpu-2", "gpu-3"]
    cables = [
        PlanCable(End(host, f"mlx5_{number}"), End("leaf", f"swp{number}"), NOWHERE)
        for number, host in enumerate(hosts)
    ]
    with pytest.raises(Malformed, match="gpu-1: its rows are more than 200 bytes"):
        split(plans(cables), 200)
    assert split(plans(cables[-2:]), 200)[0]


def test_labels_are_not_split() -> None:
    with pytest.raises(Malformed, match=r"node\.yaml: labels are of one node"):
        split([Plan("node.yaml", "labels", None, (), {"a/speed.expected": "1G"})])


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A folder that is there stays as it is; one that cannot be written is named."""
    (tmp_path / "parts").mkdir()
    with pytest.raises(Unavailable, match=r"parts: exists already; --split overwrites nothing"):
        write([], str(tmp_path / "parts"))
    with pytest.raises(Unavailable, match=r"no/parts: No such file"):
        write([], str(tmp_path / "no" / "parts"))
    assert [*tmp_path.rglob("*")] == [tmp_path / "parts"]


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    """A workbook becomes files, each with a line; both are read as the workbook is."""
    cables = fabric(130, fields={"Notes": "n" * 1000})
    book = tmp_path / "site.xlsx"
    book.write_bytes(workbook({"Links": rows(cables, "sided")}))
    finished = bwagent("verify", "--plan", str(book), "--write-plan", "csv", "--split", "parts",
                       cwd=tmp_path)  # fmt: skip
    assert (finished.returncode, finished.stderr) == (0, b"")
    lines = finished.stdout.decode().splitlines()
    files = sorted((tmp_path / "parts").iterdir())
    assert [line.partition(":")[0] for line in lines] == [f"parts/{file.name}" for file in files]
    assert len(files) == 2
    for line, file in zip(lines, files, strict=True):
        assert line.endswith(f" nodes, {file.stat().st_size} bytes")
        assert file.stat().st_size <= 1 << 20
    found = [one for file in files for one in of(read_csv(PlanContent("p", file.read_bytes())))]
    assert sorted(found) == meaning(cables)
