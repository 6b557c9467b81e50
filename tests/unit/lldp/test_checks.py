"""What `doctor` says of LLDP frames."""

from __future__ import annotations

import pytest

from agent.check import Step
from agent.lldp.checks import checks
from tests.support.devices import netdev
from tests.support.observations import PORT, around, observation


def ethernet(*names: str) -> tuple[object, ...]:
    """Return the roles of Ethernet ports with these netdevs; the last one is not the backend."""
    roles = observation(*((name, None) for name in names)).ports
    ports = [
        role._replace(port=PORT._replace(link_layer="Ethernet", netdev=netdev(role.interface)))
        for role in roles
    ]
    return (*ports[:-1], ports[-1]._replace(backend=False))


SEEN = observation(ports=ethernet("eth1", "eth2", "eth3", "eth0"))


def test_nothing_is_needed_without_ethernet() -> None:
    """InfiniBand ports have no LLDP."""
    (check,) = checks(around(observation(("ibp0", None))))
    assert (check.is_there, check.missing) == (False, None)


def test_sockets_are_opened() -> None:
    """On each backend port, and on no other."""
    tried = list[str]()
    (check,) = checks(around(SEEN, lldp_fault=tried.append))
    assert (check.is_there, check.text) == (True, "packet sockets: 3 of 3")
    assert tried == ["eth1", "eth2", "eth3"]


def test_the_socket_of_a_leg() -> None:
    roles = [role._replace(leg=netdev(f"leg-{role.interface}")) for role in SEEN.ports]
    tried = list[str]()
    list(checks(around(observation(ports=tuple(roles)), lldp_fault=tried.append)))
    assert tried == ["leg-eth1", "leg-eth2", "leg-eth3"]


@pytest.mark.parametrize(
    ("fault", "step", "command"),
    [
        ("EPERM", Step.PRIVILEGE, "sudo bwagent doctor"),
        ("EAFNOSUPPORT", Step.MODULE, "modprobe af_packet"),
        ("ENODEV", Step.DRIVER, "ip link show eth1"),
    ],
)
def test_ports_without_a_socket(fault: str, step: Step, command: str) -> None:
    """Those with the same fault are one line; the others are counted."""
    faults = {"eth1": fault, "eth2": fault}
    opened, check = checks(around(SEEN, lldp_fault=faults.get))
    assert opened.text == "packet sockets: 1 of 3"
    assert (check.missing, check.text) == (step, f"packet socket of eth1, eth2: {fault}")
    assert check.command.startswith(command)


@pytest.mark.parametrize(
    ("flag", "consumes", "other"),
    [("disable-fw-lldp", False, "on"), ("fw-lldp-agent", True, "off")],
)
def test_firmware_that_consumes_frames(flag: str, consumes: bool, other: str) -> None:
    """The flag of the driver is turned, of the port that has it so."""
    flags = {"eth1": {flag: not consumes}, "eth2": {flag: consumes, "other": True}, "eth3": {}}
    _, check = checks(around(SEEN, private_flags=lambda name: flags[name]))
    assert check.missing is Step.FIRMWARE
    assert check.command == f"ethtool --set-priv-flags eth2 {flag} {other}"
