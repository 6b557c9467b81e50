"""Events from real netdevs in network namespaces, and real signals; pyroute2 decodes, too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyroute2.netlink.rtnl.marshal import MarshalRtnl  # type: ignore[import-untyped]

from agent.errors import Unavailable
from agent.events.event import Event
from agent.events.monitor import MIN_RETRY_INTERVAL, MONITORS, Monitor, Monitors
from agent.events.netlink import LinkMessage, LinkMonitor, UeventMonitor, parse
from agent.lldp.packet_socket import Listener
from tests.support import rtnl_lock
from tests.support.lldp_frames import END, MAC, ethernet, identity
from tests.support.real_parts import require
from tests.support.switch import PATIENCE, Namespace, bring_up, cable, missing, wait_for

RTNL_WAIT = 1.0  # seconds, less than a wait for the held lock takes
QUIET = 0.3  # seconds without an event after which none is on its way
ETH0 = Event("link", "eth0")
NO_TEXT = os.fsdecode(b"\xff\xfe0")  # a netdev name that is not UTF-8


@pytest.fixture(scope="module", autouse=True)
def parts() -> None:
    """Skip without the real parts that all tests of this module need."""
    require(missing())


@pytest.fixture
def far() -> Iterator[Namespace]:
    with Namespace() as namespace:
        yield namespace


@pytest.fixture
def node(far: Namespace) -> Iterator[Namespace]:
    """The node's network, where the monitors are; its eth0 is cabled to the far end's wire0."""
    with Namespace() as namespace:
        cable(far, "wire0", namespace, "eth0")
        yield namespace


@contextmanager
def monitoring(
    node: Namespace, *netdevs: str, **opened: Callable[[set[str]], Monitor]
) -> Iterator[Monitors]:
    """Monitors opened in a namespace."""
    monitors = node.call(Monitors, netdevs, signals=(), monitors=opened)
    try:
        assert not monitors.unavailable
        settle(node, monitors)
        yield monitors
    finally:
        monitors.close()


def settle(node: Namespace, monitors: Monitors) -> None:
    """Read events until none follows."""
    while node.call(monitors.wait, QUIET):
        pass


def awaited(node: Namespace, monitors: Monitors, wanted: Event) -> set[Event]:
    """Wait for this event; return all that came."""
    return gathered(partial(node.call, monitors.wait, 1), {wanted})


def gathered(wait: Callable[[], set[Event]], wanted: set[Event]) -> set[Event]:
    """Wait for all of these events; return all that came."""
    found: set[Event] = set()

    def complete() -> bool:
        found.update(wait())
        return wanted <= found

    wait_for(complete)
    return found


@pytest.mark.parametrize("build", [LinkMonitor, UeventMonitor])
def test_changes_of_a_netdev_are_events(
    far: Namespace, node: Namespace, build: Callable[[set[str]], Monitor]
) -> None:
    """Deletion, creation under another index, a rename and the rename back, by either monitor."""
    with monitoring(node, "eth0", one=build) as monitors:
        for step in (
            "link delete eth0",
            f"link add eth0 index 4000 type veth peer name wire1 netns {far.name}",
            "link set eth0 name eth7",
            "link set eth7 name eth0",
        ):
            node.ip(*step.split())
            assert awaited(node, monitors, ETH0) == {ETH0}, step
            settle(node, monitors)


@pytest.mark.parametrize(
    ("build", "event"), [(LinkMonitor, ETH0), (UeventMonitor, Event("resync", "uevents"))]
)
def test_a_name_that_is_no_text_is_an_event(
    node: Namespace, build: Callable[[set[str]], Monitor], event: Event
) -> None:
    """Any bytes but a few are a netdev name; later events arrive."""
    with monitoring(node, "eth0", one=build) as monitors:
        for step in (f"link set eth0 name {NO_TEXT}", f"link set {NO_TEXT} name eth0"):
            node.ip(*step.split())
            assert awaited(node, monitors, event) == {event}, step
            settle(node, monitors)
        node.ip("link", "set", "eth0", "name", "eth7")
        assert awaited(node, monitors, ETH0) == {ETH0}


@pytest.mark.parametrize("build", [LinkMonitor, UeventMonitor])
def test_a_netdev_moved_to_a_pod_and_back_is_two_events(
    node: Namespace, build: Callable[[set[str]], Monitor]
) -> None:
    """It causes one event when it leaves and one when it returns; changes in the other namespace
    cause none.
    """
    with Namespace() as pod, monitoring(node, "eth0", one=build) as monitors:
        node.ip("link", "set", "eth0", "netns", pod.name)
        awaited(node, monitors, ETH0)
        settle(node, monitors)
        pod.ip("link", "set", "eth0", "name", "net1")
        assert not node.call(monitors.wait, QUIET)
        pod.ip("link", "set", "net1", "name", "eth0", "netns", node.name)
        awaited(node, monitors, ETH0)


def test_a_link_down_and_up_is_an_event(node: Namespace) -> None:
    """Set administratively at this end."""
    with monitoring(node, "eth0", links=LinkMonitor) as monitors:
        for state in ("down", "up"):
            node.ip("link", "set", "eth0", state)
            assert awaited(node, monitors, ETH0) == {ETH0}
            settle(node, monitors)


def test_a_carrier_loss_is_an_event(far: Namespace, node: Namespace) -> None:
    """The far end goes down; the kernel batches carrier changes."""
    with monitoring(node, "eth0", links=LinkMonitor) as monitors:
        far.ip("link", "set", "wire0", "down")
        assert awaited(node, monitors, ETH0) == {ETH0}
        settle(node, monitors)
        bring_up(far, "wire0", node, "eth0")
        assert awaited(node, monitors, ETH0) == {ETH0}


@pytest.mark.parametrize(("action", "is_event"), [("bind", True), ("change", False)])
def test_a_driver_that_binds_a_pci_function_is_an_event(
    node: Namespace, action: str, is_event: bool
) -> None:
    """A GPU's or HCA's driver was loaded (a synthetic uevent, kobject_synth_uevent)."""
    functions = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    require(None if functions and os.access(functions[0], os.W_OK) else "needs a PCI function")
    bound = Event("device", functions[0].parent.name)
    with monitoring(node, "eth0", uevents=UeventMonitor) as monitors:
        functions[0].write_text(action)
        found = awaited(node, monitors, bound) if is_event else node.call(monitors.wait, QUIET)
        assert found == ({bound} if is_event else set())


def test_other_netdevs_are_no_events(node: Namespace) -> None:
    """Pods come and go, a bridge gains and loses ports."""
    with monitoring(node, "eth0", links=LinkMonitor, uevents=UeventMonitor) as monitors:
        node.ip("link", "add", "br0", "type", "bridge")
        for _ in range(20):
            node.ip("link", "add", "pod0", "type", "veth", "peer", "name", "pod1")
            node.ip("link", "set", "pod0", "master", "br0")
            node.ip("link", "delete", "pod0")
        assert not node.call(monitors.wait, QUIET)


def test_a_port_that_leaves_a_bridge_is_still_known(node: Namespace) -> None:
    """A bridge's RTM_DELLINK is no deletion: a rename after it names the old netdev."""
    node.ip("link", "add", "br0", "type", "bridge")
    node.ip("link", "set", "eth0", "master", "br0")
    with monitoring(node, "eth0", links=LinkMonitor) as monitors:
        node.ip("link", "set", "eth0", "nomaster")
        node.ip("link", "set", "eth0", "down")
        settle(node, monitors)
        node.ip("link", "set", "eth0", "name", "eth7")
        assert awaited(node, monitors, ETH0) == {ETH0}


def test_a_new_set_of_netdevs_is_followed_by_a_resync(far: Namespace, node: Namespace) -> None:
    """Events may be lost while the monitors reopen; the same set again changes nothing."""
    with monitoring(node, "eth0", links=LinkMonitor) as monitors:
        monitors.watch(["eth0"])
        assert not node.call(monitors.wait, QUIET)
        monitors.watch(["eth9"])
        assert node.call(monitors.wait, 0) == {Event("resync", "links")}
        node.ip("link", "delete", "eth0")
        assert not node.call(monitors.wait, QUIET)
        cable(far, "wire9", node, "eth9")
        assert awaited(node, monitors, Event("link", "eth9"))


def test_monitors_open_while_the_rtnl_lock_is_held(node: Namespace) -> None:
    """At the start, for another set of netdevs, and after a failure: the loop opens them itself."""
    require(rtnl_lock.missing())
    with rtnl_lock.held():
        start = time.monotonic()
        monitors = node.call(Monitors, ["eth0"], signals=())
        node.call(monitors.wait, 0)
        monitors.watch(["eth0", "eth1"])
        resyncs = node.call(monitors.wait, 0)
        took = time.monotonic() - start
    assert resyncs == {Event("resync", name) for name in MONITORS}
    assert took < RTNL_WAIT
    monitors.close()


def storm(node: Namespace, rounds: int) -> None:
    """Send messages of all kinds about eth0 and others, faster than one `ip` at a time."""
    pod = "link add pod0 type veth peer name pod1\nlink delete pod0\n"
    lines = f"link set eth0 down\n{pod}link set eth0 up\n"
    batch = ["ip", "-n", node.name, "-batch", "-"]
    subprocess.run(batch, input=lines * rounds, check=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("build", [LinkMonitor, UeventMonitor])
def test_an_overflow_is_a_resync_and_no_end(node: Namespace, build: Callable[..., Monitor]) -> None:
    """ENOBUFS is reported every time, and later events arrive."""
    with monitoring(node, "eth0", one=partial(build, receive_buffer=8192)) as monitors:
        for _ in range(2):
            storm(node, 30)
            awaited(node, monitors, Event("resync", "one"))
            settle(node, monitors)
            node.ip("link", "set", "eth0", "down")
            node.ip("link", "set", "eth0", "name", "eth7")
            awaited(node, monitors, ETH0)
            node.ip("link", "set", "eth7", "name", "eth0")
            settle(node, monitors)


def test_a_storm_takes_no_memory(node: Namespace) -> None:
    """Thousands of messages become one event."""
    with monitoring(node, "eth0", links=LinkMonitor) as monitors:
        tracemalloc.start()
        try:
            for _ in range(2):
                storm(node, 100)
                assert node.call(monitors.wait, 0) <= {ETH0, Event("resync", "links")}
                settle(node, monitors)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def test_a_dead_socket_is_replaced(node: Namespace) -> None:
    """A descriptor that is no socket any more: a resync, and the next message arrives."""
    made: list[LinkMonitor] = []

    def keep(names: set[str]) -> LinkMonitor:
        made.append(LinkMonitor(names))
        return made[-1]

    with monitoring(node, "eth0", links=keep) as monitors:
        reader, writer = os.pipe()
        os.dup2(reader, made[-1].fileno())
        os.close(reader)
        os.close(writer)
        awaited(node, monitors, Event("resync", "links"))
        node.ip("link", "set", "eth0", "down")
        awaited(node, monitors, ETH0)


def test_a_monitor_that_cannot_be_opened_is_retried() -> None:
    """No pyudev, no descriptors left: the error is kept, and each attempt is a resync."""

    def shut(_names: set[str]) -> Monitor:
        raise Unavailable("uevents: no libudev here")

    monitors = Monitors(signals=(), monitors={"uevents": shut})
    assert monitors.unavailable == {"uevents": "uevents: no libudev here"}
    start = time.monotonic()
    assert monitors.wait(60) == {Event("resync", "uevents")}
    assert MIN_RETRY_INTERVAL <= time.monotonic() - start < 10 * MIN_RETRY_INTERVAL
    assert not monitors.wait(0)
    monitors.close()


def test_without_libudev_there_are_no_uevents(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ImportError that pyudev raises at the first use becomes Unavailable."""

    def shut() -> None:
        raise ImportError("No library named udev")

    monkeypatch.setitem(
        sys.modules,
        "pyudev",
        SimpleNamespace(Context=shut, Monitor=SimpleNamespace(from_netlink=None)),
    )
    with pytest.raises(Unavailable, match="uevents: No library named udev"):
        UeventMonitor(set())


def test_no_capability_is_needed() -> None:
    """Without CAP_NET_ADMIN the receive buffer is smaller; both monitors work."""
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c"]
    code = "from agent.events.monitor import Monitors; print(Monitors().unavailable)"
    assert (
        subprocess.run([*powerless, code], check=True, capture_output=True, text=True).stdout
        == "{}\n"
    )


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_signals_are_events(number: signal.Signals) -> None:
    """Before the wait and during it; `close` restores the handlers."""
    before = signal.getsignal(number)
    monitors = Monitors(monitors={})
    os.kill(os.getpid(), number)
    assert monitors.wait(PATIENCE) == {Event("signal", number.name)}
    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    assert monitors.wait(PATIENCE) == {Event("signal", number.name)}
    assert not monitors.wait(0)
    monitors.close()
    assert signal.getsignal(number) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_frames_are_events_until_they_are_received(far: Namespace, node: Namespace) -> None:
    """The descriptors are listed at each wait, so that a netdev may come later."""
    listener = Listener()
    monitors = Monitors(signals=(), monitors={}, frames=listener.filenos)
    assert not monitors.wait(0)
    node.call(listener.watch, ["eth0"])
    far.send("wire0", ethernet(identity(b"\x04" + MAC, b"\x05swp1") + END))
    assert monitors.wait(PATIENCE) == {Event("frames", "")}
    assert monitors.wait(0) == {Event("frames", "")}
    assert len(listener.receive(0)) == 1
    assert not monitors.wait(QUIET)
    listener.close()
    monitors.close()


RTMGRP_LINK = 1
STEPS = (
    *("link add eth0 type veth peer name wire0", "link set eth0 up", "link set wire0 up"),
    *("link set eth0 mtu 9000", "link add br0 type bridge", "link set eth0 master br0"),
    *("link set eth0 nomaster", "link set eth0 down", "link set eth0 name a-name-of-15-ch"),
    "link property add dev a-name-of-15-ch altname an-alternative-name-which-is-longer",
    "link set a-name-of-15-ch name eth0",
    "link delete br0",
    "link delete eth0",
)


@pytest.fixture(scope="module")
def datagrams() -> list[bytes]:
    """Datagrams of a real kernel while netdevs are created, changed and deleted."""
    require(missing())
    with Namespace() as namespace:
        sock = namespace.call(
            socket.socket, socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0
        )
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            sock.bind((0, RTMGRP_LINK))
            for step in STEPS:
                namespace.ip(*step.split())
            return list(_received(sock))


def _received(sock: socket.socket) -> Iterator[bytes]:
    with suppress(BlockingIOError):
        while True:
            yield sock.recv(1 << 16)


def by_pyroute2(data: bytes) -> list[LinkMessage]:
    """The messages of a datagram as pyroute2 decodes them."""
    return [
        LinkMessage(
            message["index"],
            message.get_attr("IFLA_IFNAME") or "",
            gone=message["event"] == "RTM_DELLINK" and message["family"] == socket.AF_UNSPEC,
        )
        for message in MarshalRtnl().parse(data)
        if message["event"] in {"RTM_NEWLINK", "RTM_DELLINK"}
    ]


def test_we_read_what_pyroute2_reads(datagrams: list[bytes]) -> None:
    """Index, name and deletion of every netdev in every message."""
    ours = [list(parse(data)) for data in datagrams]
    assert ours == [by_pyroute2(data) for data in datagrams]
    found = {(message.name, message.gone) for messages in ours for message in messages}
    assert {("eth0", False), ("a-name-of-15-ch", False), ("br0", True), ("eth0", True)} <= found


def test_several_messages_in_a_datagram_are_all_read(datagrams: list[bytes]) -> None:
    """The kernel may batch them."""
    together = b"".join(datagrams)
    assert list(parse(together)) == [message for data in datagrams for message in by_pyroute2(data)]


def test_a_malformed_message_is_skipped(datagrams: list[bytes]) -> None:
    """No truncation raises, nor a length of nothing or too much in any place."""
    data = datagrams[0]
    for end in range(len(data)):
        assert len(list(parse(data[:end]))) <= 1
        for value in (b"\0\0", b"\xff\xff"):
            list(parse(data[:end] + value + data[end + 2 :]))
