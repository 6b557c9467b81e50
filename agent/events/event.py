"""The event type that every monitor produces."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """A hint that part of the node may have changed; the state itself is read from sysfs.

    kind      subject          meaning
    "link"    netdev           a link message or uevent named this netdev
    "device"  RDMA device      a uevent named this device
    "port"    "DEVICE/NUMBER"  the state or rate of this port changed
    "frames"  ""               LLDP frames are waiting in the packet sockets
    "signal"  "SIGHUP", ...    this process received the signal
    "resync"  monitor          this monitor may have missed events
    "results" ""               a background task has finished
    "results" "facts"          a late device was read
    "results" "sockets"        packet sockets or private flags are ready (lldp/packet_socket.py)
    """

    kind: str
    subject: str
