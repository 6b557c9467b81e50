"""Cost of reading plans: `python -m benchmarks.plans [CABLES [KIND...]]`, from the repository.

Each kind of file with 100,000 cables, read and indexed by node in a process of its own: the medians
of ROUNDS processes of CPU seconds (getrusage), and of the peak of resident memory above that of a
process that has read a plan of one cable. Beside it the CPU seconds of the library alone: all rows
of csv or openpyxl, the document of json. More than 2 s and 300 MB (10 s for a workbook) is a
failure. Files beyond the limit of 64 MiB are written with as many cables as fit. XLSX has shared
strings, as Excel and LibreOffice write them, XLSX inline has the strings in their cells, as
openpyxl and pandas write them.

python-calamine reads either workbook in 0.6 s (openpyxl 3.4 and 8.6 s), but holds a sheet as a
dense table: one cell in column XFD of row 20,000 took more than 8 GB. So it is not used.
"""

from __future__ import annotations

import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from agent.cabling.plans.model import PlanCable
from agent.cabling.plans.own import COLUMNS, rows_text
from agent.cabling.plans.source import MAX_SIZE
from tests.support import plans

Write = Callable[[Sequence[PlanCable]], str | bytes]

CPU_S, MEMORY_MB = 2.0, 300.0
ROUNDS = 3
BUDGETS = {"XLSX": 10.0, "XLSX inline": 10.0}  # CPU seconds
READ = """
import json, sys
from resource import RUSAGE_SELF, getrusage
from agent.cabling.plans.reader import read_plan
from agent.cabling.plan_index import PlanIndex
def cpu():
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
def peak():  # not ru_maxrss: it has the peak of the parent
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
read_plan(sys.argv[2])
idle = peak()
before = cpu()
found = read_plan(sys.argv[1])
index = PlanIndex((cable for plan in found for cable in plan.cables), lambda host: host)
spent = cpu() - before
print(json.dumps([sum(len(plan.cables) for plan in found), spent, (peak() - idle) / 1024]))
"""


ALONE = """
import csv, io, json, sys, time
def rows_of_csv(path):
    with open(path, newline="") as file:
        return sum(1 for _ in csv.reader(file))
def rows_of_openpyxl(path):
    from openpyxl import load_workbook
    book = load_workbook(open(path, "rb"), read_only=True, data_only=True)
    return sum(1 for sheet in book for _ in sheet.iter_rows(values_only=True))
def document(path):
    with open(path) as file:
        return json.load(file)
work = {"CSV": rows_of_csv, "XLSX": rows_of_openpyxl, "JSON": document}[sys.argv[2]]
before = time.process_time()
work(sys.argv[1])
print(time.process_time() - before)
"""


def cables(count: int) -> list[PlanCable]:
    """Return the cables of a fleet: 8 for each host, a port of a leaf of 64 ports for each."""
    return [
        plans.cable(
            f"gpu-{i // 8:05} mlx5_{i % 8}",
            f"leaf-{i // 64:04} {i % 64 + 1}",
            rate_gbps=400.0,
        )
        for i in range(count)
    ]


def sheet(found: Sequence[PlanCable]) -> plans.Rows:
    """Return a table with racks, units and a label."""
    placed = [
        one._replace(
            a=one.a._replace(rack=f"R{i // 64}", unit=str(i // 8 % 8)),
            b=one.b._replace(rack=f"N{i // 640}", unit="40"),
            fields={"Label": f"C-{i:06}"},
        )
        for i, one in enumerate(found)
    ]
    return plans.rows(placed, "sided")


def own(found: Sequence[PlanCable]) -> str:
    """Return our own CSV, as `verify --write-plan csv` prints it."""
    rows = [[one.a.node, one.a.interface, one.b.node, one.b.interface, ""] for one in found]
    return rows_text([COLUMNS, *rows])


def shared(book: bytes) -> bytes:
    """Return a workbook with its inline strings moved to the table of shared strings."""
    strings: dict[str, int] = {}
    cell = re.compile(r' t="inlineStr"><is><t>([^<]*)</t></is>')

    def number(match: re.Match[str]) -> str:
        return f' t="s"><v>{strings.setdefault(match[1], len(strings))}</v>'

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as old, zipfile.ZipFile(out, "w", 8) as new:
        parts = {name: old.read(name).decode() for name in old.namelist()}
        sheet_xml = cell.sub(number, parts["xl/worksheets/sheet1.xml"])
        items = "".join(f"<si><t>{text}</t></si>" for text in strings)
        namespace = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
        override = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'
        types = parts["[Content_Types].xml"]
        parts["[Content_Types].xml"] = types.replace("</Types>", override)
        size = f'<dimension ref="A1:J{sheet_xml.count("<row ")}"/><sheetViews>'
        parts["xl/worksheets/sheet1.xml"] = sheet_xml.replace("<sheetViews>", size, 1)
        parts["xl/sharedStrings.xml"] = f'<sst xmlns="{namespace}">{items}</sst>'
        for name, text in parts.items():
            new.writestr(name, text)
    return out.getvalue()


WRITERS: dict[str, Write] = {
    "CSV": lambda found: plans.csv_text(sheet(found)),
    "XLSX": lambda found: shared(plans.workbook({"Links": sheet(found)})),
    "XLSX inline": lambda found: plans.workbook({"Links": sheet(found)}),
    "NetBox CSV": lambda found: plans.csv_text(plans.rows(found, "netbox-import")),
    "own CSV": own,
    "NetBox JSON": plans.netbox,
    "dot": plans.dot,
    "ibnetdiscover": plans.ibnetdiscover,
    "iblinkinfo": plans.iblinkinfo,
}


class Cost(NamedTuple):
    """The cost of reading one file."""

    cables: int
    cpu_s: float
    memory_mb: float


def measure(paths: Sequence[Path]) -> Cost:
    """Return the medians of reading the first file; the second one has one cable."""
    runs = [Cost(*json.loads(child(READ, *paths))) for _ in range(ROUNDS)]
    return Cost(*(statistics.median(column) for column in zip(*runs, strict=True)))


def alone(path: Path, name: str) -> str:
    """Return the CPU seconds of the library alone; "" for text that none reads."""
    library = next((one for one in ("CSV", "XLSX", "JSON") if one in name), None)
    if library is None:
        return ""
    return f"{statistics.median(float(child(ALONE, path, library)) for _ in range(ROUNDS)):.2f}"


def child(code: str, *arguments: object) -> str:
    """Return the output of a Python process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def written(write: Write, count: int) -> bytes:
    """Return a file of so many cables, or of fewer if it would be too large."""
    while True:
        content = write(cables(count))
        data = content if isinstance(content, bytes) else content.encode()
        if len(data) <= MAX_SIZE:
            return data
        count = count * 9 // 10


def main(count: int, names: Sequence[str]) -> int:
    """Print the table; return 1 if a kind costs more than its budget."""
    failures = 0
    print(f"{'':14}{'MB file':>9}{'cables':>9}{'CPU s':>8}{'library':>9}{'MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, "plan"), Path(folder, "one")]
        for name in names or WRITERS:
            for path, cables_in in zip(paths, (count, 1), strict=True):
                path.write_bytes(written(WRITERS[name], cables_in))
            cost, size = measure(paths), paths[0].stat().st_size
            print(
                f"{name:14}{size / 1e6:9.1f}{cost.cables:9}{cost.cpu_s:8.2f}"
                f"{alone(paths[0], name):>9}{cost.memory_mb:8.0f}"
            )
            failures += cost.cpu_s > BUDGETS.get(name, CPU_S) or cost.memory_mb > MEMORY_MB
    print(f"budget: {CPU_S} s ({BUDGETS['XLSX']} s for XLSX), {MEMORY_MB} MB: {failures} beyond")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 100_000, sys.argv[2:]))
