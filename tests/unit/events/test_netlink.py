"""Notifications of devlink: recorded ones, by two readers, and a kernel that has none."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink.devlink import devlinkcmd  # type: ignore[import-untyped]
from pyroute2.netlink.generic import ctrlmsg  # type: ignore[import-untyped]

from agent.events.event import Event
from agent.events.netlink import (
    MAX_MESSAGES,
    DevlinkFamily,
    DevlinkMonitor,
    family,
    family_request,
    notified,
)
from agent.netlink import error_of, number

DEVLINK = DevlinkFamily(21, 7)
# Recorded from netdevsim of Linux 6.1: its reporter `dummy` broke, and recovered.
BROKEN = bytes.fromhex(
    "80000000150000000000000000000000360100000e0001006e657464657673696d0000000f0002006e657464657673"
    "696d3100004c0072000a00730064756d6d7900000005007400010000000c00750001000000000000000c0076000000"
    "0000000000000c0078000000000000000000050079000100000005008d0001000000"
)
RECOVERED = bytes.fromhex(
    "98000000150000000000000000000000360100000e0001006e657464657673696d0000000f0002006e657464657673"
    "696d310000640072000a00730064756d6d7900000005007400000000000c00750002000000000000000c0076000100"
    "0000000000000c007800000000000000000005007900010000000c0077003827fcff000000000c00890054d4618309"
    "8fec1805008d0001000000"
)


def encoded(message: Any, kind: int) -> bytes:
    """Return a message of pyroute2's classes in octets."""
    message["header"]["type"] = kind
    message.encode()
    return bytes(message.data)


def notification(*attributes: tuple[str, Any], command: int = 54) -> bytes:
    message = devlinkcmd()
    message["cmd"], message["version"], message["attrs"] = command, 1, [*attributes]
    return encoded(message, DEVLINK.id)


def of_device(bus: str, name: str) -> tuple[tuple[str, str], ...]:
    return ("DEVLINK_ATTR_BUS_NAME", bus), ("DEVLINK_ATTR_DEV_NAME", name)


def answer(*groups: str) -> bytes:
    """Return the kernel's answer about devlink, with these groups."""
    rows = [
        {"attrs": [["CTRL_ATTR_MCAST_GRP_NAME", name], ["CTRL_ATTR_MCAST_GRP_ID", number]]}
        for number, name in enumerate(groups, DEVLINK.group)
    ]
    message = ctrlmsg()
    message["cmd"], message["version"] = 1, 2
    message["attrs"] = [
        ("CTRL_ATTR_FAMILY_NAME", "devlink"),
        ("CTRL_ATTR_FAMILY_ID", DEVLINK.id),
        ("CTRL_ATTR_MCAST_GROUPS", rows),
    ]
    return encoded(message, 16)


def refusal(error: int) -> bytes:
    return struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -error)


@pytest.mark.parametrize("data", [BROKEN, RECOVERED])
def test_a_notification_of_a_kernel(data: bytes) -> None:
    """Both readers name the device."""
    theirs = devlinkcmd(data)
    theirs.decode()
    names = [theirs.get_attr(f"DEVLINK_ATTR_{part}_NAME") for part in ("BUS", "DEV")]
    assert theirs["cmd"] == 54
    assert [*notified(data, DEVLINK.id)] == ["/".join(names)] == ["netdevsim/netdevsim1"]
    assert [*notified(BROKEN + data, DEVLINK.id)] == ["netdevsim/netdevsim1"] * 2


def test_notifications_of_other_kinds() -> None:
    """A device of PCI is its address; other commands, and messages without names, are none."""
    reporter: tuple[str, Any] = ("DEVLINK_ATTR_HEALTH_REPORTER", {"attrs": []})
    pci = of_device("pci", "0000:18:00.0")
    assert [*notified(notification(*pci), DEVLINK.id)] == ["0000:18:00.0"]
    for data in (
        notification(*pci, command=3),
        notification(reporter),
        notification(pci[0], reporter),
        notification(*of_device("pci", "")),
    ):
        assert [*notified(data, DEVLINK.id)] == []
    assert [*notified(notification(*pci), DEVLINK.id + 1)] == []


@given(st.binary(max_size=200), st.integers(0, len(BROKEN) - 1))
def test_cut_and_odd_octets(noise: bytes, length: int) -> None:
    """A notification that is cut short is none, and nothing raises."""
    assert [*notified(BROKEN[:length], DEVLINK.id)] == []
    odd = struct.pack("=IHHII", 20 + len(noise), DEVLINK.id, 0, 0, 0) + b"\x36\1\0\0" + noise
    assert [name for name in notified(odd + BROKEN, DEVLINK.id) if not name] == []
    family(noise)


def test_the_numbers_of_devlink() -> None:
    """Pyroute2 reads the same request; a kernel may lack the family, or the group."""
    request = ctrlmsg(family_request())
    request.decode()
    assert (request["header"]["type"], request["cmd"]) == (16, 3)
    assert request.get_attr("CTRL_ATTR_FAMILY_NAME") == "devlink"
    assert family(answer("config")) == DEVLINK
    assert family(answer("other", "config")) == DevlinkFamily(21, 8)
    assert (
        family(notification())
        == family(answer("other"))
        == family(refusal(errno.ENOENT))
        == family(b"")
        == DevlinkFamily()
    )
    with pytest.raises(PermissionError):
        family(refusal(errno.EPERM))
    assert (error_of(b""), number(b"\1"), number(None, 5)) == (0, 0, 5)


class Kernel:
    """A socket to a kernel that gives these answers."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self.answers, self.joined, self.is_closed = [*answers], list[Any](), False

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if level == 270:
            self.joined.append((option, value))

    def send(self, data: bytes) -> None:
        assert data == family_request()

    def recv(self, _size: int) -> bytes:
        data = self.answers.pop(0) if self.answers else BlockingIOError()
        if isinstance(data, OSError):
            raise data
        return data

    def fileno(self) -> int:
        return 5

    def close(self) -> None:
        self.is_closed = True


def monitor(kernel: Kernel) -> DevlinkMonitor:
    connect: Callable[[], Any] = lambda: kernel  # noqa: E731
    return DevlinkMonitor(set(), connect)


def test_the_monitor() -> None:
    """It joins the group, and names each device once; lost notifications raise OSError."""
    lost = OSError(errno.ENOBUFS, "")
    kernel = Kernel(answer("config"), *[BROKEN, RECOVERED] * MAX_MESSAGES, lost)
    monitoring = monitor(kernel)
    assert kernel.joined == [(1, DEVLINK.group)]
    assert monitoring.read() == {Event("health", "netdevsim/netdevsim1")}
    monitoring.read()
    with pytest.raises(OSError, match=r"\[Errno 105\]"):
        monitoring.read()
    assert monitoring.fileno() == 5
    monitoring.close()
    assert kernel.is_closed


def test_a_kernel_without_devlink() -> None:
    """The monitor is silent; a refusal closes the socket."""
    kernel = Kernel(refusal(errno.ENOENT))
    assert monitor(kernel).read() == set()
    assert kernel.joined == []
    kernel = Kernel(refusal(errno.EPERM))
    with pytest.raises(PermissionError):
        monitor(kernel)
    assert kernel.is_closed


def test_the_running_kernel() -> None:
    """It has devlink or not; no privilege is needed."""
    monitoring = DevlinkMonitor(set())
    assert monitoring.read() == set()
    monitoring.close()
