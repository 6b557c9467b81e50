"""Cost of reading plans: `python -m benchmarks.plans [CABLES]`, from the repository.

Each kind of file with 100,000 cables, read and indexed by node in a process of its own: CPU
seconds, and the resident memory above that of a process that has read a plan of one cable. More
than 2 s and 300 MB (10 s for a workbook) is a failure. Files beyond the limit of 64 MiB are written
with as many cables as fit. The workbook has shared strings, as Excel and LibreOffice write them;
openpyxl itself writes inline strings, and takes twice as long to read them (XLSX inline).
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from agent.verify.plans.source import MAX_SIZE
from tests.support import plans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.verify.model import Cable

    Write = Callable[[Sequence[Cable]], str | bytes]

CPU_S, MEMORY_MB = 2.0, 300.0
BUDGETS = {"XLSX": 10.0, "XLSX inline": 30.0}  # CPU seconds
READ = """
import json, sys, time
from agent.verify.plans.cables import by_node
from agent.verify.plans.reader import read_plan
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
read_plan(sys.argv[2])
idle = peak()
before = time.process_time()
found = read_plan(sys.argv[1])
index = by_node(found)
spent = time.process_time() - before
print(json.dumps([sum(len(plan.cables) for plan in found), spent, (peak() - idle) / 1024]))
"""


def cables(count: int) -> list[Cable]:
    """Return the cables of a fleet: 8 for each host, a port of a leaf of 64 ports for each."""
    return [
        plans.cable(
            f"gpu-{i // 8:05} mlx5_{i % 8}",
            f"leaf-{i // 64:04} {i % 64 + 1}",
            rate_gbps=400.0,
        )
        for i in range(count)
    ]


def sheet(found: Sequence[Cable]) -> plans.Rows:
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
    "NetBox JSON": plans.netbox,
    "links JSON": plans.links,
    "dot": plans.dot,
    "topo": lambda found: plans.topo(found, both=False),
    "ibnetdiscover": plans.ibnetdiscover,
    "iblinkinfo": plans.iblinkinfo,
}


def measure(folder: Path, name: str, count: int) -> tuple[int, int, float, float]:
    """Return size, cables, CPU seconds and MB of one kind."""
    content = written(WRITERS[name], count)
    paths = []
    for number, data in enumerate((content, written(WRITERS[name], 1))):
        paths.append(folder / f"{number}")
        paths[-1].write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", READ, *paths], check=True, capture_output=True, text=True
    )
    read, cpu_s, memory_mb = json.loads(done.stdout)
    return len(content), read, cpu_s, memory_mb


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
    print(f"{'':14}{'MB file':>9}{'cables':>9}{'CPU s':>8}{'MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names or WRITERS:
            size, read, cpu_s, memory_mb = measure(Path(folder), name, count)
            print(f"{name:14}{size / 1e6:9.1f}{read:9}{cpu_s:8.2f}{memory_mb:8.0f}")
            failures += cpu_s > BUDGETS.get(name, CPU_S) or memory_mb > MEMORY_MB
    print(f"budget: {CPU_S} s ({BUDGETS['XLSX']} s for XLSX), {MEMORY_MB} MB: {failures} beyond")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 100_000, sys.argv[2:]))
