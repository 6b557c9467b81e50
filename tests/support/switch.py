"""Switches that send LLDP: network namespaces, veth cables between them, and lldpd inside
(https://lldpd.github.io).

Every name contains the process ID, so that parallel runs do not collide, and everything is removed
on exit.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, Self, TypeVar

from tests.support.real_parts import lacks

P = ParamSpec("P")
T = TypeVar("T")

CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
PATIENCE = 90.0  # seconds until something that should have happened has not
_numbers = itertools.count()


def missing() -> str | None:
    """Return what this host lacks for namespaces with lldpd; None if it lacks nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if absent := lacks("ip", "lldpd", "lldpcli"):
        return absent
    probe = subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True)
    return None if probe.returncode == 0 else "no network namespaces here"


class Namespace(AbstractContextManager["Namespace"]):
    """A network namespace, and a thread that runs in it."""

    def __init__(self) -> None:
        self.name = f"bw{os.getpid()}-{next(_numbers)}"
        self._thread = ThreadPoolExecutor(1, initializer=self._move_in)

    def __enter__(self) -> Self:
        _run("ip", "netns", "add", self.name)
        self.ip("link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        for link in json.loads(self.ip("-j", "link", "show", "type", "veth")):
            # A namespace takes its time to go, and its cables with it.
            self.ip("link", "delete", link["ifname"])
        _run("ip", "netns", "delete", self.name)

    def ip(self, *words: str) -> str:
        """Run `ip` in the namespace."""
        return _run("ip", "-n", self.name, *words)

    def is_up(self, netdev: str) -> bool:
        """True if a netdev can send and receive."""
        [link] = json.loads(self.ip("-j", "link", "show", netdev))
        return bool(link["operstate"] == "UP")

    def plugged(self) -> None:
        """Handle a new cable."""

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the namespace; a socket that it opens stays there, also when
        used elsewhere.
        """
        return self._thread.submit(function, *args, **kwargs).result()

    def command(self, *words: str) -> list[str]:
        """Return a command line that runs in the namespace."""
        return ["ip", "netns", "exec", self.name, *words]

    def send(self, netdev: str, *frames: bytes) -> None:
        """Send frames, octet for octet."""
        self.call(_send, netdev, frames)

    def _move_in(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)  # os.setns() came with Python 3.12
        with Path("/run/netns", self.name).open() as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {self.name}")


class Lldpd(AbstractContextManager["Lldpd"]):
    """An lldpd in a namespace, sending once a second; with `-r` it only receives."""

    def __init__(self, namespace: Namespace, *options: str) -> None:
        self._command = namespace.command("lldpd", "-d", *options)
        self._folder = TemporaryDirectory(prefix="lldpd-")
        Path(self._folder.name).chmod(0o711)  # lldpcli runs as a user of its own
        self._socket = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        """The PID of the daemon that started the other, unprivileged one."""
        assert self._process
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until lldpcli can connect."""
        # A new one each time: the old daemon may still answer orders while it goes.
        self._socket = f"{self._folder.name}/{next(_numbers)}"
        log = Path(f"{self._socket}.log")
        with log.open("wb") as sink:
            self._process = subprocess.Popen([*self._command, "-u", self._socket], stderr=sink)
        wait_for(lambda: b"should resume operations" in log.read_bytes())
        self.configure("lldp", "tx-interval", "1")

    def stop(self) -> None:
        """End it; it sends its neighbors shutdown frames."""
        if self._process:
            self._process.terminate()
            self._process.wait(PATIENCE)
            self._process = None

    def pause(self) -> None:
        """Send nothing more, not even a shutdown frame."""
        self._cli("pause").check_returncode()

    def configure(self, *words: str) -> None:
        """Run `lldpcli configure`."""
        self._cli("configure", *words).check_returncode()

    def unconfigure(self, *words: str) -> None:
        """Run `lldpcli unconfigure`."""
        self._cli("unconfigure", *words).check_returncode()

    def update(self) -> None:
        """Scan its ports now: it misses one that comes while it starts, and scans again
        every 30 s.
        """
        self._cli("update").check_returncode()

    def neighbors(self) -> list[dict[str, Any]]:
        """Return its neighbors by `lldpcli -f json0`, an item for each."""
        told = json.loads(self._cli("-f", "json0", "show", "neighbors", "details").stdout)
        return [item for part in told["lldp"] for item in part.get("interface", [])]

    def _cli(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        command = ["lldpcli", "-u", self._socket, *words]
        return subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE)


class Leaf(Namespace):
    """A leaf switch: a namespace with an lldpd in it."""

    def __init__(self, hostname: str) -> None:
        super().__init__()
        self.lldpd = Lldpd(self)
        self._hostname = hostname
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        super().__enter__()
        with ExitStack() as stack:
            stack.callback(super().__exit__)
            forward = "echo 1 >/proc/sys/net/ipv4/ip_forward"  # lldpd says that it is a Router
            _run(*self.command("sh", "-c", forward))
            stack.enter_context(self.lldpd)
            self.rename(self._hostname)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def plugged(self) -> None:
        """Scan for the new port."""
        self.lldpd.update()

    def rename(self, hostname: str) -> None:
        """Change the switch's System Name."""
        self.lldpd.configure("system", "hostname", hostname)


def cable(one: Namespace, port: str, other: Namespace, netdev: str) -> None:
    """Plug a cable between a port of this namespace and a netdev of another."""
    far = f"peer name {netdev} netns {other.name}"
    _run(*f"ip link add {port} netns {one.name} type veth {far}".split())
    bring_up(one, port, other, netdev)


def bring_up(one: Namespace, port: str, other: Namespace, netdev: str) -> None:
    """Set both ends of a cable up, and wait until both can send: that comes a moment later
    (net/core/link_watch.c).
    """
    for namespace, name in ((one, port), (other, netdev)):
        namespace.ip("link", "set", name, "up")
    wait_for(lambda: one.is_up(port) and other.is_up(netdev))
    one.plugged()
    other.plugged()


def wait_for(happened: Callable[[], T], patience: float = PATIENCE) -> T:
    """Return the result of `happened` as soon as it is true; fail if it is not in time."""
    end = time.monotonic() + patience
    while not (result := happened()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return result


def _send(netdev: str, frames: tuple[bytes, ...]) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((netdev, 0))
        for frame in frames:
            sock.send(frame)


def _run(*words: str) -> str:
    run = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, f"{' '.join(words)}: {run.stderr.strip()}"
    return run.stdout
