"""--baseline and --write-baseline: findings that are known and accepted."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from agent.cabling.baseline import read
from agent.errors import Malformed
from tests.support.fleet_nodes import crossed, listed, whole
from tests.support.snapshots import FIXTURES, Finished, bwagent, complaint

HALF = str(FIXTURES / "half-failed")


def fleet(folder: Path, *rails: tuple[int, int]) -> str:
    """Write a fleet of which one Node has these cables crossed."""
    path = folder / "nodes.json"
    nodes = [whole(number) for number in range(32)]
    path.write_text(listed([*nodes[:7], crossed(7, *rails), *nodes[8:]]))
    return str(path)


def judged(nodes: str, *words: str) -> Finished:
    return bwagent("fleet", "verify", "--nodes", nodes, *words)


@pytest.mark.slow
def test_accepted_findings_are_listed_apart(tmp_path: Path) -> None:
    """They do not fail, in any format, and keep their date and note."""
    nodes, path = fleet(tmp_path, (3, 4)), tmp_path / "known.csv"
    assert judged(nodes).returncode == 3
    assert judged(nodes, "--write-baseline", str(path)).returncode == 0
    [row] = csv.DictReader(path.read_text().splitlines())
    assert row["where"] == "gpu-00007/ibp3 gpu-00007/ibp4"
    path.write_text(path.read_text().replace(f"{row['date']},,", "2026-11-23,new cables in May,"))
    done = judged(nodes, "--baseline", str(path))
    text = " ".join(done.stdout.decode().split())
    assert done.returncode == 0
    assert "no findings; 254 of 256 cables follow the pattern; 1 accepted" in text
    assert "Accepted swapped: " in text
    assert "(accepted 2026-11-23: new cables in May)" in text
    document = json.loads(judged(nodes, "--baseline", str(path), "-o", "json").stdout)
    assert (document["outcome"], document["findings"]) == ("ok", [])
    assert [one["note"] for one in document["accepted"]] == ["new cables in May"]
    junit = judged(nodes, "--baseline", str(path), "-o", "junit").stdout
    assert b'skipped message="accepted 2026-11-23: new cables in May: ' in junit


@pytest.mark.slow
def test_a_new_finding_beside_an_accepted_one(tmp_path: Path) -> None:
    """It fails; written again, the former keeps its note."""
    path = tmp_path / "known.csv"
    judged(fleet(tmp_path, (3, 4)), "--write-baseline", str(path))
    path.write_text(path.read_text().replace(",,", ",known,", 1))
    nodes = fleet(tmp_path, (3, 4), (0, 1))
    done = judged(nodes, "--baseline", str(path))
    assert (done.returncode, b"1 finding: 1 swapped" in done.stdout) == (3, True)
    assert "exists" in complaint(judged(nodes, "--write-baseline", str(path)))
    renewed = judged(nodes, "--baseline", str(path), "--write-baseline", str(path))
    assert renewed.returncode == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert sorted(row["note"] for row in rows) == ["", "known"]


def test_a_finding_that_is_gone_or_has_grown(tmp_path: Path) -> None:
    """The one is a note, so that its row can go; the other is not accepted."""
    path = tmp_path / "known.csv"
    nodes = fleet(tmp_path, (3, 4))
    judged(nodes, "--write-baseline", str(path))
    gone = judged(fleet(tmp_path), "--baseline", str(path))
    words = b" ".join(gone.stdout.split())  # the path decides where a line ends
    assert (gone.returncode, b"gone, leave them out: " in words) == (0, True)
    path.write_text(path.read_text().replace(" gpu-00007/ibp4", ""))
    grown = judged(fleet(tmp_path, (3, 4)), "--baseline", str(path))
    words = b" ".join(grown.stdout.split())
    assert (grown.returncode, b"they have grown: " in words) == (3, True)


def test_a_renewed_file_keeps_the_rows_of_other_nodes(tmp_path: Path) -> None:
    """A part of the fleet says nothing of the others, and a finding that grew keeps its note."""
    path = tmp_path / "known.csv"
    nodes = fleet(tmp_path, (3, 4))
    judged(nodes, "--write-baseline", str(path))
    [row] = csv.DictReader(path.read_text().splitlines())
    path.write_text(path.read_text().replace(" gpu-00007/ibp4,", ",").replace(",,", ",mine,", 1))
    both = ("--baseline", str(path), "--write-baseline", str(path))
    foreign = "0123456789ab,2026-11-23,RMA 7,swapped,gpu-00040/ibp0,\nfedcba987654,,any,,,\n"
    path.write_text(path.read_text() + foreign)
    assert judged(nodes, *both).returncode == 0
    notes = {one["id"]: one["note"] for one in csv.DictReader(path.read_text().splitlines())}
    assert notes == {row["id"]: "mine", "0123456789ab": "RMA 7", "fedcba987654": "any"}
    assert judged(nodes, *both, "--node", "gpu-0000[0-6]").returncode < 3
    assert len(path.read_text().splitlines()) == 4
    judged(fleet(tmp_path), *both)
    assert row["id"] not in path.read_text()


def test_nothing_compared_is_no_pass(tmp_path: Path) -> None:
    """Although that is accepted."""
    plan, path = tmp_path / "plan.csv", tmp_path / "known.csv"
    written = bwagent("verify", "--replay", HALF, "--write-plan", "csv").stdout
    plan.write_bytes(written)
    words = ("verify", "--replay", HALF, "--plan", str(plan), "--source", "rdma")
    done = bwagent(*words, "--write-baseline", str(path))
    line = " ".join(done.stdout.decode().split())
    assert (done.returncode, "accepted, 1 of them not compared" in line) == (1, True)
    document = json.loads(bwagent(*words, "--baseline", str(path), "-o", "json").stdout)
    assert document["outcome"] == "unverified"


@pytest.mark.slow
def test_a_baseline_of_one_node(tmp_path: Path) -> None:
    """`verify` takes and writes the same file; rows of other nodes are not gone."""
    plan, path = tmp_path / "plan.csv", tmp_path / "known.csv"
    written = bwagent("verify", "--replay", HALF, "--write-plan", "csv").stdout.decode()
    plan.write_text(written.replace("mlx5_4,fc6a1c03004fd4c0,44", "mlx5_4,fc6a1c03004fd4c0,43"))
    words = ("verify", "--replay", HALF, "--plan", str(plan))
    assert bwagent(*words).returncode == 3
    assert bwagent(*words, "--write-baseline", str(path)).returncode == 0
    with path.open("a") as file:
        file.write("0123456789ab,,,swapped,gpu-9/mlx5_0,\n")
    done = bwagent(*words, "--baseline", str(path), "-o", "json")
    document = json.loads(done.stdout)
    assert [one["code"] for one in document["accepted"]] == ["wrong-port"]
    assert (done.returncode, any("gone" in note for note in document["notes"])) == (0, False)
    line = bwagent(*words, "--baseline", str(path), "--npd")
    assert (line.returncode, b"1 accepted" in line.stdout) == (0, True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("code,note\nswapped,x\n", "row 1: no column id; there are code, note"),
        ("id\n1.23457E+11\n", r"row 2: '1.23457E\+11' is no ID of 12 hex digits"),
        ("id,date\n0123456789ab,23.11.26\n", "row 2: '23.11.26' is no date such as 2026-11-23"),
        ("id,note\n0123456789ab,a\n0123456789ab,b\n", "row 3: the ID 0123456789ab is in an"),
    ],
)
def test_a_malformed_baseline(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "known.csv"
    path.write_text(text)
    with pytest.raises(Malformed, match=f"^{path}, {fault}"):
        read(str(path))
