"""What the kernel tells of netdevs: private flags through the ethtool ioctl, also of drivers that
are not here; link states, and modules, by netlink.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.helper.process import call
from agent.lldp.driver_flags import private_flags
from agent.nic.driver import LinkState, decode
from agent.transceiver.modules import AS_NOBODY
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


NEEDS_ROOT = None if os.geteuid() == 0 else "a veth and other users' privileges need root"
UNPRIVILEGED = """\
import json, os
from agent.nic.query import answer
os.setgid(65534)
os.setuid(65534)
print(json.dumps(answer({"netdevs": ["lo"]})))
"""


@pytest.fixture
def veth() -> Any:
    """Yield the names of a pair of netdevs that are down."""
    require(NEEDS_ROOT)
    names = ("bwnic0", "bwnic1")
    ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
    yield names
    ip("link", "del", names[0])


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def states(*netdevs: str) -> dict[str, LinkState]:
    nics, problems = decode(call("nics", {"netdevs": [*netdevs]}, 30.0))
    assert problems == []
    return nics.links


def test_a_link_goes_up(veth: tuple[str, str]) -> None:
    """A veth has no extended state; a netdev that is gone is left out."""
    ip("link", "set", veth[0], "up")
    assert states(veth[0], "bwnic9") == {veth[0]: LinkState(veth[0], is_up=False)}
    ip("link", "set", veth[1], "up")
    assert states(veth[0])[veth[0]].is_up is True


def test_a_quick_question_leaves_out_the_links() -> None:
    """For firmware that holds up the other requests."""
    answer = call("nics", {"netdevs": ["lo"], "quick": True}, 30.0)
    assert (answer["links"], answer["errors"]) == ([], [])


def test_it_needs_no_privilege() -> None:
    """A user without capabilities reads the same."""
    require(NEEDS_ROOT)
    done = subprocess.run([sys.executable, "-c", UNPRIVILEGED], check=True, capture_output=True)
    assert json.loads(done.stdout)["links"][0]["link"] == 1


def test_a_device_without_a_module_is_one_line(veth: tuple[str, str]) -> None:
    """The kernel's own words, and those for a name that is no device."""
    answer = call("modules", {"netdevs": [veth[0], "bwnic9"]}, 30)
    assert [(row["netdev"], row["pages"], row["error"]) for row in answer["modules"]] == [
        (veth[0], {}, "Operation not supported"),
        ("bwnic9", {}, "No such device"),
    ]


def test_without_the_capability_there_is_one_line(repository: Path) -> None:
    """The kernel refuses root, too, whose bounding set lacks it: an agent's Pod."""
    require(NEEDS_ROOT)
    words = "doctor --no-cluster --modules --source rdma --sysfs-root sysfs_fixtures/h200-roce/sys"
    command = (
        "ip link add enp26s0np0 type veth peer bwmod1 && exec setpriv --bounding-set=-net_admin "
        f"--inh-caps=-net_admin {sys.executable} -m agent.cli {words}"
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", command],
        cwd=repository,
        check=False,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.split()[1] == "modules"]
    assert lines == [f"missing  modules     {AS_NOBODY}; run: sudo bwagent doctor --modules"]
    assert (done.returncode, done.stderr) == (1, "")
