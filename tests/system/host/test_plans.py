"""Plan files that other programs write: LibreOffice, ibnetdiscover and iblinkinfo."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent.cabling.plans.reader import read_plan
from tests.support import fabric, plans
from tests.support.fabrics import MANAGED, MANAGED_HOST
from tests.support.real_parts import lacks, require

TIMEOUT = 300.0  # seconds; LibreOffice's first start makes a profile
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
        timeout=TIMEOUT,
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
