"""The netdevs that are watched and the InfiniBand ports that are swept, by the last observation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.model import Observation, PortRole


class Event(Protocol):
    """An event (agent/events/event.py)."""

    @property
    def kind(self) -> str: ...
    @property
    def subject(self) -> str: ...


class Monitors(Protocol):
    """The sources of events (agent/events/monitor.py)."""

    @property
    def unavailable(self) -> dict[str, str]:
        """The monitors that could not be opened, with the error of the last attempt."""

    def wait(self, timeout: float) -> Iterable[Event]:
        """Return the events so far, or wait up to `timeout` seconds for the first."""

    def watch(self, netdevs: Iterable[str]) -> None:
        """Report these netdevs from now on, and no others."""


class PortStates(Protocol):
    """The sweep of port states (agent/events/port_states.py)."""

    def watch(self, ports: Iterable[tuple[str, int]]) -> None:
        """Sweep these ports (RDMA device, number) from now on, and no others."""


class Watched:
    """Chooses what is watched: the netdevs and the InfiniBand ports of the backend.

    Rule: the netdevs of the backend ports are watched. While one of these ports has no netdev, or a
    PCI function has no RDMA device, those watched before stay, since a netdev that has gone may
    return under its name.
    Example: eth0 moves to a pod's namespace, so mlx5_0 has no netdev. eth0 stays watched, and its
    return is an event.
    """

    def __init__(self, monitors: Monitors, port_states: PortStates) -> None:
        self._monitors, self._port_states = monitors, port_states
        self._netdevs: frozenset[str] = frozenset()

    def observed(self, observation: Observation) -> None:
        """Watch the backend of this observation from now on."""
        backend = observation.backend
        is_complete = not observation.unbound and _have_netdevs(backend)
        self._netdevs = _netdevs(backend) | (frozenset() if is_complete else self._netdevs)
        self._monitors.watch(self._netdevs)
        self._port_states.watch(_infiniband(backend))


def _have_netdevs(roles: Iterable[PortRole]) -> bool:
    return all(role.port.netdev is not None for role in roles)


def _netdevs(roles: Iterable[PortRole]) -> frozenset[str]:
    """Return the names of these ports' netdevs: a port's own, and all legs of its bond."""
    netdevs = [netdev for role in roles for netdev in (role.port.netdev, role.leg, *role.port.legs)]
    return frozenset(netdev.name for netdev in netdevs if netdev)


def _infiniband(roles: Iterable[PortRole]) -> list[tuple[str, int]]:
    return [
        (role.device.name, role.port.number)
        for role in roles
        if role.port.link_layer == "InfiniBand"
    ]
