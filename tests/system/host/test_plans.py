"""Plan files that other programs write: LibreOffice, ibnetdiscover and iblinkinfo; and the helper
that reads plan files for the daemon, as a process of its own.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from agent.cabling.plans.reader import read_plan
from agent.daemon.background import BackgroundTask
from agent.daemon.plan_file import STALLED, TIMEOUT, PlanFile
from agent.encode import Naming
from agent.errors import Unavailable
from agent.helper.process import HelperProcesses
from tests.support import dead_filesystem, fabric, plans
from tests.support.fabrics import MANAGED, MANAGED_HOST
from tests.support.processes import Started
from tests.support.real_parts import lacks, require
from tests.support.switch import wait_for

OFFICE_TIMEOUT = 300.0  # seconds; LibreOffice's first start makes a profile
CABLES = [plans.cable(f"gpu-017 mlx5_{i}", f"leaf-{i} {i + 1}", rate_gbps=400.0) for i in range(8)]


def office(path: Path, to: str) -> Path:
    """Convert a file with LibreOffice."""
    subprocess.run(
        [
            *("soffice", f"-env:UserInstallation=file://{path.parent}/profile", "--headless"),
            *("--convert-to", to, "--outdir", path.parent / "out", path),
        ],
        check=True,
        capture_output=True,
        timeout=OFFICE_TIMEOUT,
    )
    return path.parent / "out" / f"{path.stem}.{to.partition(':')[0]}"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A cabling sheet in CSV."""
    require(lacks("soffice"))
    path = tmp_path / "plan.csv"
    path.write_text(plans.csv_text(plans.rows(CABLES, "doubled")))
    return path


def test_a_workbook_of_libreoffice(written: Path) -> None:
    """LibreOffice's XLSX has shared strings, numbers and dimensions of its own."""
    path = office(written, "xlsx")
    assert plans.of(read_plan(str(path))) == plans.meaning(CABLES)


@pytest.mark.sweep
def test_a_workbook_through_its_own_format(written: Path) -> None:
    """The same, after the file was saved as ODS: styles and default columns come with it."""
    ods = office(written, "ods")
    path = office(ods, "xlsx")
    assert plans.of(read_plan(str(path))) == plans.meaning(CABLES)


@pytest.mark.sweep
def test_a_csv_of_libreoffice(written: Path) -> None:
    """Semicolons, quotes around every text and Latin-1 (code page 1252), from an XLSX of ours."""
    book = written.with_suffix(".xlsx")
    book.write_bytes(plans.workbook({"Links": plans.rows(CABLES, "sided")}))
    path = office(book, "csv:Text - txt - csv (StarCalc):59,34,1,1,,0,true")
    assert plans.of(read_plan(str(path))) == plans.meaning(CABLES)


@pytest.mark.sweep
def test_a_split_port_that_became_a_date(written: Path) -> None:
    """A port 1/2 that was typed as a date is refused with its cell, not compared."""
    written.write_text("A-Node,A-Port,Z-Node,Z-Port\ngpu-017,1,leaf-1,2026-01-02\n")
    with pytest.raises(Exception, match=r"sheet plan, row 2, column Z-Port: the date '2026-01-02"):
        read_plan(str(office(written, "xlsx")))


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("ibnetdiscover", ["ibnetdiscover"]),
        ("ibnetdiscover", ["ibnetdiscover", "--group"]),
        ("iblinkinfo", ["iblinkinfo"]),
        ("iblinkinfo", ["iblinkinfo", "--line"]),
        ("iblinkinfo", ["iblinkinfo", "--switches-only"]),
    ],
)
def test_golden_dumps(kind: str, command: list[str], tmp_path: Path) -> None:
    """The dumps of a simulated fabric are recognized, each cable once."""
    require(fabric.missing(command[0]))
    with fabric.Fabric(MANAGED, tmp_path) as one:
        dump = one.run(MANAGED_HOST, *command)
    plan = plans.read_one(dump)
    assert plan.kind == kind
    expected = plans.cable("node005 mlx5_0", "L90.1.3 3", rate_gbps=10.0)
    assert plans.of([plan]) == plans.meaning([expected])


P = Naming().prefix


def answer(
    path: Path, timeout_s: float = TIMEOUT, helpers: HelperProcesses | None = None
) -> dict[str, Any]:
    payload = {"files": [str(path)], "names": ["gpu-17"], "prefixes": [P, ""]}
    return (helpers or HelperProcesses()).call("plan", payload, timeout_s)


@pytest.mark.parametrize(
    "text",
    [
        "node,interface,device,port-id\ngpu-17,mlx5_0,leaf1,swp1\ngpu-18,mlx5_0,leaf1,swp2\n",
        f"{P}/neighbors.expected.mlx5_0.device: leaf1\n",
        f'{{"{P}/neighbors.expected.mlx5_0.device": "leaf1"}}',
    ],
)
def test_every_kind(text: str, tmp_path: Path) -> None:
    """With the packages that an isolated interpreter finds; in the parent by a thread."""
    path = tmp_path / "plan"
    path.write_text(text)
    plan = PlanFile((str(path),), ["gpu-17"], Naming(), BackgroundTask())
    plan.start_due(0.0)
    assert wait_for(lambda: plan.collect(0.0))
    expected = plan.expected
    assert expected
    assert [(row.text, row.device) for row in expected.rows] == [("mlx5_0", "leaf1")]
    assert plan.problem is None


@pytest.mark.parametrize(
    "item", ["[],", *(pytest.param(one, marks=pytest.mark.sweep) for one in ("{},", "x,"))]
)
def test_its_memory_is_limited(item: str, tmp_path: Path) -> None:
    """The container's limit is not reached, and the reason is said."""
    path = tmp_path / "plan"
    text = f"{P}/speed.expected: 1G\na: ["
    path.write_text(text + item * (((1 << 20) - len(text)) // len(item) - 1) + "]\n")
    assert answer(path) == {"error": f"{path}: more than 96 MiB of memory to read"}


def test_a_file_system_that_does_not_answer(tmp_path: Path, started: Started) -> None:
    """The helper is late; the agent's own look is in a thread, and is said to hang."""
    require(dead_filesystem.missing())
    with dead_filesystem.mounted(tmp_path / "dead") as folder:
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"helper plan: no answer within 0\.5 s"):
            answer(folder / "plan.csv", 0.5, HelperProcesses(popen=started))
        assert time.monotonic() - began < TIMEOUT / 2
        plan = PlanFile((str(folder / "plan.csv"),), ["gpu-17"], Naming(), BackgroundTask())
        plan.start_due(0.0)
        assert not plan.collect(1.0)
        assert plan.collect(STALLED)
        assert plan.problem == f"{folder}/plan.csv: the file system does not answer"
    assert wait_for(lambda: plan.collect(STALLED))
