"""The plan files of the daemon: this node's rows, or one line that names the file."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from agent.cabling.expected import Expected, from_labels, load, merged, one_each
from agent.cabling.one_node import MAX_ROWS, MAX_SIZE, content, read
from agent.cabling.plan_index import index_of
from agent.cabling.plans.own import read_csv
from agent.cabling.plans.source import PlanContent
from agent.encode import Naming
from agent.errors import Malformed

HEADER = "node,interface,device,port-id,port-name,Label\n"
ROWS = "".join(
    f"gpu-{node},mlx5_{rail},leaf{rail:02},swp{node},,C-{node}{rail}\n"
    for node in range(20)
    for rail in range(8)
)
P, IB = Naming().prefix, Naming().ib_prefix
LABELS = f"{P}/speed.expected: 3200G\n{P}/neighbors.expected.mlx5_0.device: leaf00\n"
CONVERT = "bwagent verify --plan FILE --write-plan csv --split DIR"


def answer(*files: Path, names: tuple[str, ...] = ("gpu-17",)) -> dict[str, Any]:
    payload = {"files": [*map(str, files)], "names": names, "prefixes": [P, IB]}
    return read(payload)


def expected(*files: Path, **more: Any) -> Expected:
    return load(answer(*files, **more)["expected"])


def error(*files: Path) -> str:
    found = answer(*files)
    assert found.keys() == {"error"}
    assert "\n" not in found["error"]
    return str(found["error"])


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan of 20 nodes."""
    path = tmp_path / "plan.csv"
    path.write_text(HEADER + ROWS)
    return path


@pytest.mark.parametrize("name", ["gpu-17", "gpu-17.site.example", "GPU-17"])
def test_the_rows_are_those_of_verify(plan: Path, name: str) -> None:
    """By host name, fully qualified name or Node name; with places and other columns."""
    found = expected(plan, names=("node-17", name))
    [read_plan] = read_csv(PlanContent(str(plan), plan.read_bytes()))
    assert found == index_of(read_plan.cables, ("node-17", name)).of_any("node-17")
    assert len(found.rows) == 8
    assert found.taken == {}
    assert str(found.rows[0].place) == f"{plan}, row 138"
    assert found.rows[0].fields == {"Label": "C-170"}


@pytest.mark.parametrize("lost", [MemoryError, SystemError])
def test_out_of_memory(plan: Path, monkeypatch: pytest.MonkeyPatch, lost: type[Exception]) -> None:
    """CPython 3.11 raises SystemError where it has lost the MemoryError of an allocation."""

    def fail(*_: object) -> None:
        raise lost("returned NULL without setting an exception")

    monkeypatch.setattr("agent.cabling.one_node.index_of", fail)
    assert error(plan) == f"{plan}: more than 96 MiB of memory to read"


def test_files_are_merged_as_verify_merges_them(plan: Path, tmp_path: Path) -> None:
    """Rows and labels; rows that contradict each other come back, with both places."""
    labels = tmp_path / "node.yaml"
    labels.write_text(f"{P}/speed.expected: 3200G\n")
    [read_plan] = read_csv(PlanContent(str(plan), plan.read_bytes()))
    own = index_of(read_plan.cables, ["gpu-17"]).of_any("gpu-17")
    of_labels = from_labels({f"{P}/speed.expected": "3200G"}, Naming(), str(labels))
    assert expected(plan, labels) == merged([own, of_labels])
    labels.write_text(LABELS.replace("leaf00", "leaf01"))
    rows = [row._replace(interface=row.text) for row in expected(plan, labels).rows]
    with pytest.raises(Malformed, match=f"leaf01.*leaf00 swp17 by {plan}, row 138"):
        one_each(rows)


def test_labels_alone(tmp_path: Path) -> None:
    """They need no name of a node."""
    path = tmp_path / "labels"
    path.write_text(LABELS)
    found = expected(path)
    assert (found.speed, len(found.rows), found.rows[0].device) == ("3200G", 1, "leaf00")
    assert found.rows[0].is_label


def test_rows_of_other_nodes_only(plan: Path) -> None:
    """Nothing is expected, which is no error."""
    found = expected(plan, names=("gpu-99",))
    assert (found.rows, found.is_empty) == ((), True)


def test_latin_1_is_read_with_a_note(tmp_path: Path) -> None:
    """As `verify` reads it."""
    path = tmp_path / "plan.csv"
    path.write_bytes((HEADER + "gpu-17,mlx5_0,größe,1,,\n").encode("latin-1"))
    found = expected(path)
    assert found.rows[0].device == "größe"
    assert found.notes == (f"{path}: not UTF-8: read as Latin-1",)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty file"),
        ((HEADER + "gpu-17,mlx5_0,leaf00,1,,\ngpu-17,mlx").encode(), "row 3: 2 cells, and the hea"),
        (f"{P}/speed.expected: [".encode(), "no YAML"),
        (f"{P}/speed.expected: 1G\n{IB}/speed.expected: 2G\n".encode(), "under two prefixes"),
        (b"A-Node,A-Port,Z-Node,Z-Port\ngpu-17,mlx5_0,leaf,1\n", f"convert it: {CONVERT}"),
        (b"PK\x03\x04" + bytes(100), "neither text nor"),
        (
            (HEADER + "".join(f"gpu-17,i{n},l,{n},,\n" for n in range(MAX_ROWS + 1))).encode(),
            f"row {MAX_ROWS + 2}: more than {MAX_ROWS} rows for gpu-17",
        ),
    ],
)
def test_bad_input(content: bytes, text: str, tmp_path: Path) -> None:
    """One line that names the file, and the row where there is one."""
    path = tmp_path / "plan.csv"
    path.write_bytes(content)
    found = error(path)
    assert found.startswith(str(path))
    assert text in found


def test_the_limit_is_a_mebibyte(tmp_path: Path) -> None:
    """A file of 1 MiB is read; of 100 MB no more than that."""
    path = tmp_path / "plan.csv"
    text = HEADER + ROWS
    path.write_text(text + "\n" * (MAX_SIZE - len(text)))
    assert len(expected(path).rows) == 8
    with path.open("a") as file:
        file.write("\n")
    assert error(path) == f"{path}: more than 1 MiB; split it: {CONVERT}"
    os.truncate(path, 100_000_000)
    assert "more than 1 MiB" in error(path)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A FIFO that nobody writes, a folder, a device without an end, a link to nothing."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("nowhere")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        assert error(path) == f"{path}: not a regular file"
    assert error(tmp_path) == f"{tmp_path}: Is a directory"
    assert error(tmp_path / "link") == f"{tmp_path}/link: No such file or directory"


class Growing(io.FileIO):
    """A file to which somebody appends while it is read."""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        with open(self.name, "ab") as file:
            file.write(b"gpu-17,mlx5_9,leaf09,17,,\n")
        return data


def test_a_file_that_grows_is_not_in_use(plan: Path) -> None:
    """What was read of it may end within a row."""
    with Growing(plan) as file, pytest.raises(Malformed, match="changed while it was read"):
        content(str(plan), file)
    assert len(expected(plan).rows) == 9
