"""Everything that says "look again", behind one object for a single-threaded loop.

The law of this module: a wake-up is a hint and never a fact. It names what may have changed, and the sources read the
root; so two that say the same cost one look, and one too many costs little. What must not happen is that one is lost
unsaid. An ear whose buffer overflowed or whose socket died is built anew, and only then is everything to be looked at
again ("resync"); while it cannot be built each try says "resync", so that deafness becomes a slow poll.

Memory is bounded whatever storm comes: an ear hands out what a burst of messages names, the others have their turn, and
the rest waits in the kernel's buffer, which drops what does not fit and says so.

Uevents come through pyudev but from the kernel itself. Those of udevd come after its rules, and in a container that
does not see /run/udev never, without an error. The kernel sends a device's uevents to its network namespace, hence to a
pod with hostNetwork, and never into a user namespace.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent.errors import Unavailable
from agent.events.rtnetlink import BURST, RECEIVE_BUFFER, LinkSocket, enlarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.events.port_states import PortStateSweep

RETRY, LONGEST_RETRY = 1.0, 300.0  # seconds between two tries to build an ear
BEAT = 5.0  # seconds; the longest sleep while a sweep of ports has to be looked after
STOP, LOOK_NOW = signal.SIGTERM, signal.SIGHUP


class Event(NamedTuple):
    """One reason to look again.

    "link" NETDEV, "device" RDMA_DEVICE, "port" DEVICE/NUMBER: it may have changed, come or gone. "frames" "": LLDP
    frames wait to be received. "signal" NAME. "resync" EAR: that ear may have missed anything.
    """

    kind: str
    subject: str


class Ear(Protocol):
    """What has reasons; an OSError out of `hear` means that it missed some and is of no use any more."""

    def fileno(self) -> int:
        """Readable when `hear` has something to do."""

    def hear(self) -> set[Event]:
        """The reasons so far; never waits."""

    def close(self) -> None:
        """Give back what it holds."""


class Links(LinkSocket):
    """The kernel's link messages of the netdevs in `names`."""

    def hear(self) -> set[Event]:
        """A reason for each netdev."""
        return {Event("link", name) for name in self.changed()}


class Uevents:
    """The kernel's uevents of RDMA devices and of the netdevs in `names`; Unavailable without pyudev and libudev."""

    def __init__(self, names: set[str], receive_buffer: int = RECEIVE_BUFFER) -> None:
        self._names = names
        try:
            import pyudev  # type: ignore[import-untyped]

            self._monitor: Any = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        except ImportError as error:  # also what pyudev says when there is no libudev
            raise Unavailable(f"uevents: {error}") from error
        for subsystem in ("infiniband", "net"):
            self._monitor.filter_by(subsystem)
        # pyudev's own way needs CAP_NET_ADMIN.
        with socket.socket(fileno=os.dup(self._monitor.fileno())) as sock:
            enlarge(sock, receive_buffer)
        self._monitor.start()

    def fileno(self) -> int:
        return int(self._monitor.fileno())

    def hear(self) -> set[Event]:
        found = set()
        for _ in range(BURST):
            if (device := self._monitor.poll(0)) is None:
                break
            old = (
                device.properties.get("DEVPATH_OLD", "") if device.action == "move" else ""
            )  # a rename
            names = {device.sys_name, old.rpartition("/")[2]} - {""}
            if device.subsystem == "infiniband":
                found |= {Event("device", name) for name in names}
            else:
                found |= {Event("link", name) for name in names & self._names}
        return found

    def close(self) -> None:
        self._monitor = None  # libudev closes the socket with the last reference


class Signals:
    """Signals as reasons, instead of what they would do; for the main thread only."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._descriptor = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, lambda *_: None) for number in numbers}

    def fileno(self) -> int:
        return self._reader

    def hear(self) -> set[Event]:
        return {
            Event("signal", signal.Signals(number).name)
            for number in os.read(self._reader, 1 << 16)
        }

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._descriptor)
        os.close(self._reader)
        os.close(self._writer)


EARS: Mapping[str, Callable[[set[str]], Ear]] = {"links": Links, "uevents": Uevents}


class Monitors:
    """All reasons to look again at `netdevs`, the RDMA devices and the ports that `ports` sweeps.

    `frames` gives the descriptors at which LLDP frames come in (Listener.filenos). `deaf` says which ears cannot be
    built, and why. `ears` and `signals` are doors.
    """

    def __init__(
        self,
        netdevs: Iterable[str] = (),
        *,
        frames: Callable[[], Iterable[int]] = tuple,
        ports: PortStateSweep | None = None,
        signals: Iterable[signal.Signals] = (LOOK_NOW, STOP),
        ears: Mapping[str, Callable[[set[str]], Ear]] = EARS,
    ) -> None:
        self._names = set(netdevs)
        self._frames, self._ports = frames, ports
        self._posts = {name: _Post(build) for name, build in ears.items()}
        self._fixed: list[Ear] = [Signals(signals)] if signals else []
        self._fixed += [ports] if ports else []
        for post in self._posts.values():
            post.man(self._names)

    @property
    def deaf(self) -> dict[str, str]:
        """The ears that cannot be built now, with their reasons."""
        return {name: post.reason for name, post in self._posts.items() if post.ear is None}

    def watch(self, netdevs: Iterable[str]) -> None:
        """Hear of these netdevs and no others from now on, be they there or not; a change is followed by "resync"."""
        names = set(netdevs)
        if names != self._names:
            self._names = names
            for post in self._posts.values():
                post.dismiss()

    def wait(self, timeout: float) -> set[Event]:
        """The reasons so far, or else the first to come within `timeout` seconds; empty when none has."""
        end = time.monotonic() + timeout
        while True:
            found = self._revive()
            found |= self._listen(0 if found else end - time.monotonic())
            if self._ports:
                self._ports.relieve()
            if found or time.monotonic() >= end:
                return found

    def close(self) -> None:
        """Close all ears; signals do again what they did before."""
        for ear in (*self._fixed, *(post.ear for post in self._posts.values() if post.ear)):
            ear.close()
        self._posts, self._fixed = {}, []

    def _revive(self) -> set[Event]:
        lost = [
            name
            for name, post in self._posts.items()
            if post.ear is None and time.monotonic() >= post.due
        ]
        for name in lost:
            self._posts[name].man(self._names)
        return {Event("resync", name) for name in lost}

    def _listen(self, left: float) -> set[Event]:
        waits = [post.due - time.monotonic() for post in self._posts.values() if post.ear is None]
        longest = min(
            [left, BEAT, *waits] if self._ports and self._ports.sweeping else [left, *waits]
        )
        posts = {post.ear.fileno(): post for post in self._posts.values() if post.ear}
        fixed = {ear.fileno(): ear for ear in self._fixed}
        poll = select.poll()
        for fd in (*posts, *fixed, *self._frames()):
            poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(math.ceil(1000 * max(0, longest)))]
        found: set[Event] = set()
        for fd in ready:
            if fd in posts:
                found |= posts[fd].hear()
            else:
                found |= fixed[fd].hear() if fd in fixed else {Event("frames", "")}
        return found


class _Post:
    """The place of an ear: who is there, or why nobody is and from when on one may be built."""

    def __init__(self, build: Callable[[set[str]], Ear]) -> None:
        self.ear: Ear | None = None
        self.reason = ""
        self.due = 0.0
        self._build = build
        self._delay = RETRY

    def man(self, names: set[str]) -> None:
        """Put a new ear here."""
        self._leave()
        try:
            self.ear, self._delay = self._build(names), RETRY
        except (OSError, Unavailable) as error:
            self.reason, self._delay = str(error), min(2 * self._delay, LONGEST_RETRY)
        self.due = time.monotonic() + self._delay

    def hear(self) -> set[Event]:
        """What the ear says; it is sent away when it missed something."""
        try:
            return self.ear.hear() if self.ear else set()
        except OSError as error:
            self._leave()
            self.reason = str(error)
            return set()

    def dismiss(self) -> None:
        """Send a good ear away; another may come at once."""
        if self.ear:
            self._leave()
            self.due = 0.0

    def _leave(self) -> None:
        if self.ear:
            self.ear.close()
        self.ear = None
