"""The Surroundings of this node: device files and packet sockets are tried, nothing is changed."""

from __future__ import annotations

import errno
import os
from functools import partial
from typing import TYPE_CHECKING

from agent.check import Surroundings
from agent.lldp.packet_socket import open_lldp_socket
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from agent.host import Host
    from agent.model import Observation


def surroundings(host: Host, observation: Observation, *, openvswitch: bool) -> Surroundings:
    """Return the surroundings of a host that was observed."""
    reader = Reader(host.root, "doctor")
    return Surroundings(
        observation,
        names=lambda path: reader.names(path) or [],
        text=reader.text,
        device_fault=_device_fault,
        lldp_fault=partial(_lldp_fault, openvswitch=openvswitch),
        private_flags=host.private_flags,
    )


def _device_fault(path: str) -> str | None:
    """Return why a device file cannot be opened; it is not opened, since a driver may block."""
    if not os.path.exists(path):
        return "ENOENT"
    return None if os.access(path, os.R_OK | os.W_OK) else "EACCES"


def _lldp_fault(netdev: str, *, openvswitch: bool) -> str | None:
    try:
        open_lldp_socket(netdev, openvswitch=openvswitch).close()
    except OSError as error:
        return errno.errorcode.get(error.errno or errno.ENODEV, str(error.errno))
    return None
