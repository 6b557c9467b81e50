"""Uevents of RDMA devices, netdevs and drivers (lib/kobject_uevent.c), read through pyudev.

A driver that binds a PCI function causes "bind": the driver of a GPU or HCA was loaded.

Uevents come from the kernel's own multicast group rather than udevd's. Those of udevd follow only
after its rules have run; in a container that does not see /run/udev they never come, and no error
is reported. The kernel sends a device's uevents to the network namespace of the device, hence to a
pod with hostNetwork, and never into a user namespace.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

from agent.errors import Unavailable
from agent.events.event import Event
from agent.events.rtnetlink import MAX_MESSAGES, RECEIVE_BUFFER, set_receive_buffer


class UeventMonitor:
    """Reads uevents of all RDMA devices, of bound PCI functions, and of the netdevs in `names`.

    Raises Unavailable where pyudev or libudev is missing, OSError where no socket can be opened.
    """

    def __init__(self, names: set[str], receive_buffer: int = RECEIVE_BUFFER) -> None:
        self._names = names
        try:
            import pyudev  # type: ignore[import-untyped]

            self._monitor: Any = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        except ImportError as error:  # pyudev raises it for a missing libudev, too
            raise Unavailable(f"uevents: {error}") from error
        for subsystem in ("infiniband", "net", "pci"):
            self._monitor.filter_by(subsystem)
        # pyudev's own function needs CAP_NET_ADMIN.
        with socket.socket(fileno=os.dup(self._monitor.fileno())) as sock:
            set_receive_buffer(sock, receive_buffer)
        self._monitor.start()

    def fileno(self) -> int:
        return int(self._monitor.fileno())

    def read(self) -> set[Event]:
        """Return events for at most MAX_MESSAGES uevents; OSError (ENOBUFS) if some were lost."""
        return {event for device in self._received() for event in self._decoded(device)}

    def _received(self) -> Iterator[Any]:
        for _ in range(MAX_MESSAGES):
            device = self._monitor.poll(0)
            if device is None:
                return
            yield device

    def close(self) -> None:
        self._monitor = None  # libudev closes the socket with the last reference

    def _decoded(self, device: Any) -> set[Event]:
        """Return the events of one uevent; a rename ("move") names the old device as well.

        "resync" if a name in it is not UTF-8.
        """
        try:
            names = {device.sys_name}
            if device.action == "move":
                names.add(device.properties.get("DEVPATH_OLD", "").rpartition("/")[2])
            if device.subsystem == "pci":
                return {Event("device", name) for name in names if device.action == "bind"}
            if device.subsystem == "infiniband":
                return {Event("device", name) for name in names if name}
            return {Event("link", name) for name in names & self._names}
        except UnicodeDecodeError:  # by pyudev: any bytes but a few are a netdev name
            return {Event("resync", "uevents")}
