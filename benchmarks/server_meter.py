"""CPU, memory and bytes of an API server and its etcd, by the kernel and their own metrics."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.support.kube.cluster import Cluster

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


class Reading(NamedTuple):
    """Counters; gauges are marked."""

    time: float  # seconds
    server: float  # CPU seconds
    etcd: float
    own: float  # this process: the load generator
    machine: float  # all processes, those of others included
    resident: float  # MiB now, API server
    resident_etcd: float
    stored: float  # MiB now, etcd's file
    written: float  # MiB, etcd's log
    commits: float  # writes to etcd
    rejected: float  # 429 by API priority and fairness

    def since(self, before: Reading) -> Reading:
        """Return the difference of two readings; gauges are the present values."""
        gauges = {"resident", "resident_etcd", "stored"}
        pairs = zip(self._fields, self, before, strict=True)
        return Reading(*(now if name in gauges else now - then for name, now, then in pairs))

    def share(self, name: str) -> float:
        """Return the number of busy cores."""
        return float(getattr(self, name)) / self.time


@dataclass(frozen=True, slots=True)
class Meter:
    """Reads the counters."""

    cluster: Cluster

    def read(self, *, new: bool = False) -> Reading:
        """Return the present counters; `new`: those of an API server that was just started and does
        not answer yet.
        """
        server, etcd = self.cluster.server.pid, self.cluster.etcd.pid
        store = _scrape(self.cluster)
        own = os.times()
        return Reading(
            time=time.monotonic(),
            server=cpu(server),
            etcd=cpu(etcd),
            own=own.user + own.system,
            machine=_machine(),
            resident=resident(server),
            resident_etcd=resident(etcd),
            stored=_sum(store, "etcd_mvcc_db_total_size_in_bytes") / MIB,
            written=_sum(store, "etcd_disk_wal_write_bytes_total") / MIB,
            commits=_sum(store, "etcd_server_proposals_committed_total"),
            rejected=0.0
            if new
            else _sum(self._server_metrics(), "apiserver_flowcontrol_rejected_requests_total"),
        )

    def _server_metrics(self) -> str:
        return str(self.cluster.request("GET", "/metrics").body["message"])


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process (proc(5): stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / TICKS


def resident(pid: int, field: str = "VmRSS") -> float:
    """Return the resident MiB of a process."""
    return next(
        int(line.split()[1]) / 1024
        for line in _lines(f"/proc/{pid}/status")
        if line.startswith(field)
    )


def _machine() -> float:
    """Return the CPU seconds that were not idle, of all cores."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(
        int, _lines("/proc/stat")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / TICKS


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _scrape(cluster: Cluster) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{cluster.etcd_url}/metrics", timeout=30) as reply:
        return str(reply.read().decode())


def _sum(text: str, name: str) -> float:
    """Return the sum of a metric over all its labels."""
    return sum(
        float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    )
