"""The error counters of both ends of a link over ibsim, with `perfquery` beside it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fabric import MANAGERS, Fabric, missing
from tests.support.fabrics import LINKED
from tests.support.real_parts import require

NEAR, FAR = '"host1"[1]', '"leaf1"[1]'
NAMES = {  # of PerformanceSet and perfquery, by those of ours
    "symbol_error": "SymbolErrorCounter",
    "link_error_recovery": "LinkErrorRecoveryCounter",
    "link_downed": "LinkDownedCounter",
    "port_rcv_errors": "PortRcvErrors",
    "port_rcv_remote_physical_errors": "PortRcvRemotePhysicalErrors",
    "local_link_integrity_errors": "LocalLinkIntegrityErrors",
    "excessive_buffer_overrun_errors": "ExcessiveBufferOverrunErrors",
}
_FIELD = re.compile(r"^(\w+):\.*(\w+)$", re.MULTILINE)
PLANTED = {
    "near": ((NEAR,), "near"),
    "far": ((FAR,), "far"),
    "both": ((NEAR, FAR), "cable"),
    "nowhere": ((), "quiet"),
}


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    require(missing(*MANAGERS, "perfquery"))
    folder = tmp_path_factory.mktemp("counters")
    with Fabric(LINKED, folder) as fabric, fabric.manager("host3"):
        yield fabric


def plant(fabric: Fabric, port: str, **counters: int) -> None:
    for name, value in counters.items():
        fabric.console(f"PerformanceSet {port} PortCounters.{NAMES[name]}={value}")


def perfquery(fabric: Fabric, *where: str) -> dict[str, int]:
    """Return what perfquery reads, by our names: an oracle that shares no code."""
    said = dict(_FIELD.findall(fabric.run("host1", "perfquery", *where)))
    return {name: int(said[theirs]) for name, theirs in NAMES.items()}


def probe(fabric: Fabric, folder: Path, more: list[tuple[str, int]]) -> dict[str, Any]:
    """Return the report of a probe; between its readings the symbol errors of ports rise."""
    fabric.boot("host1", folder / "sys")
    captured = str(folder / "captured")
    words = "capture", captured, "--sysfs-root", str(folder / "sys")

    def rise() -> None:
        time.sleep(3.5)
        for port, value in more:
            plant(fabric, port, symbol_error=value)

    thread = threading.Thread(target=rise)
    thread.start()
    fabric.bwagent("host1", *words)
    thread.join()
    said = fabric.bwagent("host1", "probe", "--replay", captured, "-o", "json")
    return dict(json.loads(said))


@pytest.mark.parametrize("case", PLANTED)
def test_errors_planted(case: str, fabric: Fabric, tmp_path: Path) -> None:
    """A capture of the bad cable replays to the right end: in `probe` and in `verify`."""
    ports, verdict = PLANTED[case]
    for number, port in enumerate((NEAR, FAR)):  # totals of before, at both ends
        plant(fabric, port, **dict.fromkeys(NAMES, 11 + number))
    report = probe(fabric, tmp_path, [(port, 500) for port in ports])
    [row] = report["link_errors"]
    assert (row["verdict"], row["unstable"]) == (verdict, verdict != "quiet")
    near, far = (end["counters"] for end in row["ends"])
    lid = fabric.smpquery("host1", "portinfo", "0,1", "0")["Lid"]
    assert near == perfquery(fabric)
    assert far == perfquery(fabric, lid, "1")
    assert row["far"] == "leaf1 port 1"
    text = fabric.bwagent("host1", "probe", "--replay", str(tmp_path / "captured"))
    assert ("Links with errors" in text) == row["unstable"]
    plan = tmp_path / "plan.csv"
    plan.write_text("node,interface,device,port\nhost1,ibsim0,leaf1,1\n")
    flags = "--replay", str(tmp_path / "captured"), "--node-name", "host1", "-o", "json"
    findings = json.loads(fabric.bwagent("host1", "verify", "--plan", str(plan), *flags))[
        "findings"
    ]
    ends = [
        {fact["name"]: fact["value"] for fact in finding["facts"]}["bad-end"]
        for finding in findings
    ]
    assert ends == ([verdict] if ports else [])
