"""`bwagent run` as a process: its Node on a real API server, its log, and its metrics.

The agents of these tests differ in a command prefix, environment variables, and the network
namespace in which their metrics are scraped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tests.support.kernel_tree import BUS, CLASS, HOME, Entries, bdf
from tests.support.kube.cluster import Cluster
from tests.support.kube.programs import free_ports
from tests.support.real_parts import lacks, require
from tests.support.sysfs_on_disk import lay, remove, rewrite

P, IB = "backend.coreweave.cloud", "ib.coreweave.cloud"
REPOSITORY = Path(__file__).parents[3]
LIMIT = 90.0  # seconds that anything may take; what it does take is for benchmarks
PROGRAM = (sys.executable, "-m", "tests.support.quick", "run")
QUICK = ("--port-interval", "0.2", "--min-interval", "0.2", "--gpu-interval", "1")


class Scrape:
    """The content of /metrics."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def series(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and values of all series of this name that have these labels."""
        return [
            (one.labels, one.value)
            for one in self._samples
            if one.name == name and labels.items() <= one.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the only series of this name that has these labels; None
        without one.
        """
        found = self.series(name, **labels)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def holds(self, name: str, word: str, **labels: str) -> list[str]:
        """Return the values of the label `word` in the series that are 1."""
        return [found[word] for found, value in self.series(name, **labels) if value == 1]

    def lint(self) -> None:
        """Check the exposition with Prometheus' own linter."""
        require(lacks("promtool"))
        command = ["promtool", "check", "metrics"]
        done = subprocess.run(command, input=self.text.encode(), capture_output=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")


class Agent:
    """A `bwagent run` within the block, its Node and its /sys."""

    def __init__(  # noqa: PLR0913 - what a process is started with
        self,
        cluster: Cluster,
        folder: Path,
        node: str,
        entries: Entries,
        *flags: str,
        under: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        fetch: Callable[[str], str] | None = None,
        address: str = "127.0.0.1",
        token: str | None = None,
    ) -> None:
        self.cluster, self.folder, self.node = cluster, folder, node
        self.sys = lay(entries, folder)
        self.log = folder / f"{time.monotonic_ns()}.log"
        self.served = served = f"{address}:{free_ports(1)[0]}"
        self._fetch, self._url = fetch or get, f"http://{served}/metrics"
        own = ["--node-name", node, "--sysfs-root", str(self.sys), "--metrics-address", served]
        access = ["--kubeconfig", str(cluster.kubeconfig(token))]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*under, *PROGRAM, *own, *QUICK, *flags, *access],
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | dict(environment or {}),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Kill it, and check its log for a traceback."""
        self.process.kill()
        self.process.wait()
        assert kind or "Traceback" not in self.log.read_text()

    def set(self, device: str, file: str, text: str) -> None:
        """Change an attribute of port 1."""
        rewrite(self.sys / f"class/infiniband/{device}/ports/1/{file}", f"{text}\n".encode())

    def metadata(self) -> dict[str, dict[str, str]]:
        return self.cluster.metadata(self.node)

    def labels(self) -> dict[str, str]:
        """Return the agent's labels, without their prefix."""
        return {
            key.removeprefix(f"{P}/"): value
            for key, value in self.metadata().get("labels", {}).items()
            if P in key
        }

    def neighbors(self, interface: str) -> dict[str, str]:
        """Return the neighbor labels of this interface, by the last word of their keys."""
        start = f"neighbors.current.{interface}."
        return {
            key.removeprefix(start): value
            for key, value in self.labels().items()
            if key.startswith(start)
        }

    def version(self) -> str:
        return str(self.metadata()["resourceVersion"])

    def metrics(self) -> Scrape:
        return Scrape(self._fetch(self._url))

    def helpers(self, verb: str) -> list[int]:
        return [pid for pid in _children(self._proc()) if verb in _words(pid)]

    def until(self, wanted: Callable[[], object], limit: float = LIMIT) -> None:
        """Wait for a condition; a failure shows the log."""
        deadline = time.monotonic() + limit
        while not wanted():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self._story()
            time.sleep(0.05)

    def speaks(self, speed: str) -> None:
        """Wait for this value of the speed label."""
        self.until(lambda: self.labels().get("speed.current") == speed)

    def says(self, text: str, limit: float = LIMIT) -> None:
        """Wait for this text in the log."""
        self.until(lambda: text in self.log.read_text(), limit)

    def lines(self, *words: str) -> list[str]:
        """Return the log lines with all of these words."""
        log = self.log.read_text().splitlines()
        return [line for line in log if all(word in line for word in words)]

    def requests(self) -> float:
        """Return the number of requests to the API server so far, the check of the policy among
        them.
        """
        self.until(lambda: self.metrics().value("bwagent_policy_in_force") is not None)
        series = self.metrics().series("bwagent_api_requests_total")
        return sum(count for _, count in series)

    def look(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def lose(self, *numbers: int) -> None:
        """Let HCAs fall off the bus: remove them with their PCI functions."""
        for n in numbers:
            paths = (f"{CLASS}/ibp{n}", f"{BUS}/{bdf(n)}", f"{HOME}/{bdf(n)}")
            remove(self.folder, *paths)
        self.look()

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(by)
        return self.process.wait(LIMIT)

    def _story(self) -> str:
        """Return the text of a failed wait: the labels, the log, and /metrics."""
        return f"{self.metadata().get('labels')}\n{self.log.read_text()}\n{self._fetch(self._url)}"

    def _proc(self) -> Path:
        return Path("/proc", str(self.process.pid))


def get(url: str) -> str:
    """Return the body behind a URL of this host; "" if the connection fails."""
    try:
        with urllib.request.urlopen(url, timeout=LIMIT) as reply:  # noqa: S310 - our own server
            return str(reply.read().decode())
    except urllib.error.URLError:
        return ""


def _children(process: Path) -> list[int]:
    """Return the PIDs of a process's children; a thread that ends meanwhile has none."""
    found: list[int] = []
    for task in process.glob("task/*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, task.read_text().split())
    return found


def _words(pid: int) -> list[str]:
    """Return the command line of a process; empty if it is gone."""
    try:
        return Path("/proc", str(pid), "cmdline").read_text().split("\0")
    except OSError:
        return []
