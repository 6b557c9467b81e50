"""Private flags through the ethtool ioctl, of a real netdev and of drivers that are not here."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import pytest

from agent.lldp.driver_flags import private_flags
from tests.support.real_parts import require
from tests.support.switch import Namespace, cable, missing

I40E = [
    *("MFP", "total-port-shutdown", "LinkPolling", "flow-director-atr", "veb-stats"),
    "disable-fw-lldp",
]


def driver(names: list[str], bits: int) -> Callable[[str, bytes], bytes]:
    """A driver's answers, in the layouts of include/uapi/linux/ethtool.h; a command that sets
    something is refused.
    """

    def ask(netdev: str, request: bytes) -> bytes:
        assert netdev == "eth0"
        command = struct.unpack_from("@I", request)[0]
        if command == 0x37:  # ETHTOOL_GSSET_INFO
            return struct.pack("@IIQI", command, 0, 1 << 2 if names else 0, len(names))
        if command == 0x1B:  # ETHTOOL_GSTRINGS
            strings = b"".join(name.encode().ljust(32, b"\0") for name in names)
            assert len(request) >= 12 + len(strings)
            return struct.pack("@III", command, 2, len(names)) + strings.ljust(
                len(request) - 12, b"\0"
            )
        assert command == 0x27  # ETHTOOL_GPFLAGS
        return struct.pack("@II", command, bits)

    return ask


def test_flags_have_their_names_and_values() -> None:
    """Each flag is a bit, in the order of the driver's names."""
    flags = private_flags("eth0", driver(I40E, 0b100011))
    assert list(flags) == I40E
    named = [name for name, value in flags.items() if value]
    assert named == ["MFP", "total-port-shutdown", "disable-fw-lldp"]


def test_a_driver_without_flags_has_none() -> None:
    """No further command is sent to a driver that has no such names."""
    assert private_flags("eth0", driver([], 0)) == {}


def test_a_name_may_fill_its_field() -> None:
    """A name of 32 octets has no NUL; more than 32 flags do not fit into the answer."""
    names = [f"flag-{number:02}".ljust(32, "x") for number in range(40)]
    assert private_flags("eth0", driver(names, 1 << 31)) == {
        name: name == names[31] for name in names[:32]
    }


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV])
def test_a_driver_that_does_not_know_the_command_has_none(number: int) -> None:
    """EOPNOTSUPP and EINVAL mean that it has no flags, ENODEV that the netdev is gone."""

    def ask(netdev: str, request: bytes) -> bytes:
        raise OSError(number, f"{netdev} {len(request)}")

    assert private_flags("eth0", ask) == {}


def test_a_real_netdev_without_flags_has_none() -> None:
    """A veth has no private flags, nor has a netdev that is gone."""
    require(missing())
    with Namespace() as node, Namespace() as peer:
        cable(peer, "wire0", node, "eth0")
        assert node.call(private_flags, "eth0") == {}
        assert node.call(private_flags, "eth1") == {}
