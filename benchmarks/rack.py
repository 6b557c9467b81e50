"""A node for benchmarks, of real parts where there are some, and `bwagent run` on it.

    Ethernet     eight veth pairs between the node's namespace and a leaf's, where lldpd runs; the
                 netdevs' files in the node's /sys are the kernel's own. No driver makes RDMA
                 devices of veths, so those are files, and the test that pulls a cable writes their
                 `state`. Both ends of a pair have the same index, each in its namespace, so the
                 kernel batches their messages as it does a NIC's (net/core/link_watch.c): a lost
                 carrier is reported up to a second late if another link has just changed
    InfiniBand   eight HCAs as files; the stand-in libibumad answers at once (ibsim gives a host one
                 umad device, whatever the number of its ports)
    GPUs         eight in the stand-in libnvidia-ml
    API server   a real one, found as in a Pod: by the service account's files and environment

The two fabrics together are sixteen ports: `--backend-device *` makes all of them the backend.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.relay import Relay
from tests.support import stand_in, stand_in_nvml, switch
from tests.support.kernel_tree import BUS, HOME, NET, Entries, hca, netdev
from tests.support.kube import programs
from tests.support.kube.cluster import Cluster
from tests.support.real_parts import lacks
from tests.support.switch import Leaf, Namespace, cable
from tests.support.sysfs_on_disk import lay, rewrite

PORTS = 8
GPUS = 8
REPO = str(Path(__file__).parents[1])
# Python compiles no module anew that was started once.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1  # include/uapi/linux/sockios.h, if.h
UP, DOWN = "4: ACTIVE", "1: DOWN"
_IFREQ = struct.Struct("16sh14x")
# `ip netns exec` has given it a mount namespace of its own.
_MOUNTS = """
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io &&
    ln -s "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"
"""
AS_POD = ("sh", "-c", _MOUNTS)


def ethernet(names: Sequence[str]) -> Entries:
    """Return RoCE devices over these netdevs, whose own files are the kernel's."""
    entries: Entries = {f"{NET}/lo": None}
    for number, name in enumerate(names):
        address = f"0000:{0x10 + number:02x}:00.0"
        entries |= hca(f"mlx5_{number}", address, "Ethernet", {1: name}) | netdev(name, address)
        home = f"{HOME}/{address}/net/{name}"
        entries |= {
            f"{home}/{file}": f"/sys/class/net/{name}/{file}"
            for file in ("operstate", "address", "speed")
        }
    return entries


def infiniband(*, ipoib: bool = False) -> Entries:
    """Return eight HCAs with a port each, which has no netdev, or an IPoIB netdev that is up."""
    entries: Entries = {f"{NET}/lo": None}
    for number in range(PORTS):
        address = f"0000:{0x80 + number:02x}:00.0"
        entries |= hca(f"ibp{number}", address)
        if ipoib:
            entries |= netdev(f"ib{number}", address, type="32", flags="0x1003")
    return entries


def gpu() -> Entries:
    """Return an NVIDIA GPU on the bus."""
    address = "0000:c0:00.0"
    home = f"{HOME}/{address}"
    link = f"../../../devices/pci0000:00/{address}"
    return {f"{BUS}/{address}": link, f"{home}/class": b"0x030200\n", f"{home}/vendor": b"0x10de\n"}


def missing() -> str | None:
    """Return the reason why there can be no such node here; None if there can."""
    return switch.missing() or lacks("cc") or programs.missing()


def set_link(netdev: str, *, up: bool) -> None:
    """Set a netdev of this thread's namespace up or down, without starting a process."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        name = netdev.encode()
        _, flags = _IFREQ.unpack(fcntl.ioctl(sock, SIOCGIFFLAGS, _IFREQ.pack(name, 0)))
        fcntl.ioctl(
            sock, SIOCSIFFLAGS, _IFREQ.pack(name, flags | IFF_UP if up else flags & ~IFF_UP)
        )


@dataclass(slots=True)
class Agent:
    """A running `bwagent run`, its Node and its /sys."""

    node: str
    process: subprocess.Popen[bytes]
    sys: Path
    log: Path
    leaf: Namespace

    def set(self, device: str, file: str, text: str) -> None:
        """Change an attribute of a port, whether its device is in the class or not."""
        [home] = self.sys.parent.glob(f"{HOME}/*/infiniband/{device}")
        rewrite(home / "ports/1" / file, f"{text}\n".encode())

    def infiniband(self, number: int, *, up: bool) -> None:
        """Take a port down or up."""
        self.set(f"ibp{number}", "state", UP if up else DOWN)

    def ethernet(self, number: int, *, up: bool) -> None:
        """Pull or plug a cable at its far end; the RoCE port's state follows the link as in
        a driver.
        """
        self.set(f"mlx5_{number}", "state", UP if up else DOWN)
        self.leaf.call(set_link, f"port{number}", up=up)


@dataclass(slots=True)
class Rack:
    """A node's network, its leaf, and the fabric; a context manager."""

    node: Namespace = field(default_factory=Namespace)
    leaf: Leaf = field(default_factory=lambda: Leaf("leaf1"))
    netdevs: tuple[str, ...] = tuple(f"eth{number}" for number in range(PORTS))
    folder: Path = Path()
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        """Plug in all cables."""
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rack-")))
            for part in (self.node, self.leaf):
                stack.enter_context(part)
            for number, name in enumerate(self.netdevs):
                cable(self.leaf, f"port{number}", self.node, name)
            stand_in.build(self.folder)
            stand_in_nvml.build(self.folder / "nvml")
            self.gpus(stand_in_nvml.tray(gpus=GPUS))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Unplug all cables."""
        self._stack.close()

    def gpus(self, plan: str) -> None:
        """Set the answer of the GPUs from now on."""
        place = self.folder / "nvml/next"
        place.write_text(plan)
        place.rename(self.folder / "nvml/plan")

    @contextmanager
    def agent(
        self, cluster: Cluster, relay: Relay, name: str, entries: Entries, *flags: str
    ) -> Iterator[Agent]:
        """Run an agent on a Node of its own within the block."""
        cluster.node(name)
        home = self.folder / name
        place, log = lay(entries, home), home / "log"
        environment = self._environment() | relay.account(home / "account", name)
        command = [
            *AS_POD,
            str(home / "account"),
            *(sys.executable, "-OO", "-m", "benchmarks.as_in_image"),
            "run",
        ]
        fixed = ("--node-name", name, "--sysfs-root", str(place))
        with log.open("wb") as sink:
            process = subprocess.Popen(
                self.node.command(*command, *fixed, *flags), cwd=home, env=environment, stderr=sink
            )
        try:
            yield Agent(name, process, place, log, self.leaf)
        finally:
            process.terminate()
            process.wait(20)

    def _environment(self) -> dict[str, str]:
        libraries = (
            f"{self.folder}:{self.folder / 'nvml'}"  # found there as libraries are found on a node
        )
        found = {"LD_LIBRARY_PATH": libraries, "STAND_IN_NVML": str(self.folder / "nvml/plan")}
        return ENVIRONMENT | found | {"PYTHONPATH": REPO}
