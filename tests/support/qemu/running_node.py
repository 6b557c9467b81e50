"""A node with cables to leaf switches and `bwagent run`, inside the emulated machine, controlled by
a test.

    rxe0 p0 ------ swp1  leaf-1      and further cables
    rxe1 p1 ------ swp1  leaf-2
         eth0 --- the host: the API server, and the test (tests/support/qemu/remote_calls.py)

`python -m tests.support.qemu.running_node NODE ACCOUNT PORT`; each agent leaves agent-N.log.
ACCOUNT is a folder with what a Pod has of its service account, PORT that of the API server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from agent.kube.access import SERVICE_ACCOUNT
from tests.support.qemu.cabled_node import Node, add_rdma, run
from tests.support.qemu.remote_calls import HOST, obey
from tests.support.switch import PATIENCE, Leaf, Namespace, bring_up, wait_for

START = 200.0  # seconds that an agent may take until it is ready
ADDRESS = "127.0.0.1:9477"
API_SERVER = "kubernetes.default.svc"  # the name in its certificate
# The HCA on the bus has no driver: without the flag no Ethernet port would be the backend.
BWAGENT = (sys.executable, "-m", "agent.cli")
RUN = (*BWAGENT, "run", "--metrics-address", ADDRESS, "--backend-device", "rxe*")

# The files of the host are slow the first time: the switches come up meanwhile.
WARM_UP = (sys.executable, "-c", "import agent.daemon.main, agent.kube.api, agent.cli")


class RunningNode:
    """The node, its switches and its agent; the public methods are the commands."""

    def __init__(self, stack: ExitStack, name: str, logs: Path) -> None:
        self._command = (*RUN, "--node-name", name)
        self._logs, self._started = logs, 0
        self._agent: subprocess.Popen[bytes] | None = None
        with subprocess.Popen(WARM_UP):
            self._node = stack.enter_context(Node())
            self._leaves = {name: Leaf(name) for name in ("leaf-1", "leaf-2")}
            for leaf in self._leaves.values():
                stack.enter_context(leaf)
                leaf.lldpd.configure("lldp", "portidsubtype", "ifname")

    def start(self, *flags: str) -> None:
        """Start an agent."""
        self._started += 1
        with (self._logs / f"agent-{self._started}.log").open("wb") as log:
            self._agent = subprocess.Popen(
                (*self._command, *flags), stdin=subprocess.DEVNULL, stderr=log
            )

    def ready(self) -> None:
        """Wait for the log line of the first applied observation."""
        end = time.monotonic() + START
        while not _is_ready():
            assert self._living()
            assert time.monotonic() < end, "it is not ready"
            time.sleep(0.3)

    def signal(self, name: str) -> None:
        """Send a signal to the agent."""
        self._living().send_signal(signal.Signals[name])

    def end(self, name: str) -> tuple[int, float]:
        """End the agent by a signal; return its exit status and the seconds it took."""
        began = time.monotonic()
        self.signal(name)
        return self._living().wait(PATIENCE), time.monotonic() - began

    def run(self, *words: str) -> None:
        """Run a shell command."""
        run(*words)

    def pull(self, leaf: str, port: str) -> None:
        """Take the carrier from a cable."""
        self._leaves[leaf].ip("link", "set", port, "down")

    def push(self, leaf: str, port: str, netdev: str) -> None:
        """Give the carrier back."""
        bring_up(self._leaves[leaf], port, self._node, netdev)

    def rename(self, leaf: str, hostname: str) -> None:
        """Rename a switch."""
        self._leaves[leaf].rename(hostname)

    def move(self, leaf: str, port: str, other: str, its: str, netdev: str) -> None:
        """Move the far end of a cable to another switch."""
        self._leaves[leaf].ip("link", "set", port, "netns", self._leaves[other].name, "name", its)
        self._leaves[other].ip(
            "link", "set", its, "address", "02:00:00:00:00:09"
        )  # a port of its own
        bring_up(self._leaves[other], its, self._node, netdev)

    def plug(self, *cables: list[str]) -> None:
        """Plug in these cables (leaf, port there, netdev and RDMA device here) at once: one by one
        takes a second each.
        """
        ends: list[tuple[Namespace, str]] = []
        for name, port, netdev, _ in cables:
            leaf = self._leaves[name]
            leaf.ip(
                *("link", "add", port, "type", "veth", "peer", "name", netdev, "netns"),
                self._node.name,
            )
            ends += [(leaf, port), (self._node, netdev)]
        for network, end in ends:
            network.ip("link", "set", end, "up")
        wait_for(lambda: all(network.is_up(end) for network, end in ends))
        for leaf in self._leaves.values():
            leaf.plugged()
        for _, _, netdev, device in cables:
            add_rdma(device, netdev)

    def add(self, device: str, netdev: str) -> None:
        """Create an RDMA device over an interface."""
        add_rdma(device, netdev)

    def _living(self) -> subprocess.Popen[bytes]:
        assert self._agent
        assert self._agent.poll() is None, "the agent has ended by itself"
        return self._agent


def _is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}/readyz", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def as_in_a_pod(account: str, port: str) -> None:
    """Give the agents what a Pod has: the service account, and the API server by its name."""
    Path(SERVICE_ACCOUNT).parent.mkdir(parents=True)
    Path(SERVICE_ACCOUNT).symlink_to(account)
    hosts = Path("/run/hosts")  # the root is that of the host, and read-only
    hosts.write_text(f"127.0.0.1 localhost\n{HOST} {API_SERVER}\n")
    run("mount", "--bind", str(hosts), "/etc/hosts")
    os.environ |= {"KUBERNETES_SERVICE_HOST": API_SERVER, "KUBERNETES_SERVICE_PORT": port}


def main() -> None:
    """Build the node, and run commands."""
    Path("/run/lldpd").mkdir(exist_ok=True)  # where lldpd locks itself in
    name, account, port = sys.argv[1:]
    as_in_a_pod(account, port)
    with ExitStack() as stack:
        run("modprobe", "virtio_net")
        node = RunningNode(stack, name, Path.cwd())
        obey(node)
        stack.pop_all()  # the machine takes all of it down with itself


if __name__ == "__main__":
    main()
