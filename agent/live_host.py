"""The I/O of the node that this process runs on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from agent.errors import Unavailable
from agent.helper.process import ForkServer, call
from agent.host import Host
from agent.infiniband.devices import (
    SA_PORT_LIMIT,
    AskingPort,
    CounterPort,
    DeviceQueries,
    Entries,
    SubnetPort,
    by_port,
)
from agent.lldp.driver_flags import private_flags
from agent.nvml import poller as nvml
from agent.sysfs.reader import LiveRoot
from agent.sysfs.routes import RouteTable

if TYPE_CHECKING:
    from agent.infiniband.exploration import Exploration, KnownNames, LeafLook, Lids, Uplinks
    from agent.lldp.reception import LldpQuery
    from agent.text import Json

    Call = Callable[[str, Json, float], Json]  # a helper's verb, payload and seconds

# seconds for a helper that queries all ports at once, two requests with two tries of 500 ms each
SMP_TIMEOUT = 10.0
SMP_DEVICE_TIMEOUT = 5.0  # seconds for the helper of one device
TIERS_LIMIT = 60.0  # seconds for all questions about the switches above
TIERS_TIMEOUT = 5.0  # seconds for the helper that asks them, beside TIERS_LIMIT
PERF_TIMEOUT = 5.0  # seconds for the helper that reads counters, beside PERF_PORT_LIMIT a port
PERF_PORT_LIMIT = 6.0  # two readings of two ends that each take two tries of 500 ms, and an SMP
MODULES_TIMEOUT = 10.0  # seconds for the helper that reads transceivers, beside MODULE_LIMIT each
MODULE_LIMIT = 5.0  # four pages by i2c take tenths of a second
NICS_TIMEOUT = 20.0  # seconds for the helper that asks the drivers of NICs
SA_TIMEOUT = 5.0  # seconds for the helper that asks the SA, beside SA_PORT_LIMIT a port


def live_host(
    sysfs_root: str,
    excluded: tuple[str, ...],
    backend: tuple[str, ...],
    lldp_neighbors: LldpQuery | None,
    options: Mapping[str, Any],
) -> Host:
    """Return the Host of this node; `options` are the command line options by name."""
    system = os.uname()
    return Host(
        root=LiveRoot(sysfs_root),
        clock=time.time,
        name=system.nodename,
        kernel=system.release,
        excluded=excluded,
        backend=backend,
        lldp_neighbors=lldp_neighbors,
        all_ethertypes=bool(options.get("openvswitch")),
        private_flags=private_flags,
        ask_smp=DeviceQueries(_query_ports),
        ask_sa=DeviceQueries(_query_sa, processes=1),
        ask_perf=DeviceQueries(partial(_query_counters, sysfs_root)),
        routes=RouteTable(),
        ask_nics=nics_by_helper(call),
        explore=_explore if options.get("tiers") else None,
        look=_look if options.get("tiers") else None,
        modules=_query_modules,
        gpus=nvml.by_helper(call, options),
        gpus_off_bus=bool(options.get(nvml.LIBRARY)),
    )


def with_fork_server(host: Host, options: Mapping[str, Any]) -> Host:
    """Return the host for a daemon: a fork server instead of a helper process for each query."""
    return host._replace(
        ask_nics=health_by_helper(call), gpus=nvml.by_fork_server(ForkServer, options)
    )


def nics_by_helper(call: Call) -> Callable[[Sequence[str]], Json]:
    """Return a query of the drivers of NICs that starts a helper process.

    Where firmware holds up the requests, another one asks for the health reporters alone.
    """

    def ask(netdevs: Sequence[str]) -> Json:
        payload: Json = {"netdevs": [*netdevs]}
        try:
            return call("nics", payload, NICS_TIMEOUT)
        except Unavailable as error:
            answer = call("nics", payload | {"quick": True}, NICS_TIMEOUT)
            return answer | {"errors": [*answer["errors"], ["link states, firmware", str(error)]]}

    return ask


def health_by_helper(call: Call) -> Callable[[Sequence[str]], Json]:
    """Return a query of the health reporters alone, as the daemon asks."""
    return lambda _netdevs: call("nics", {"netdevs": [], "quick": True}, NICS_TIMEOUT)


def _query_ports(ports: Sequence[tuple[str, int]]) -> dict[str, Any]:
    subject, is_one = _subject(ports)
    payload = {"ports": [list(port) for port in ports]}
    return call("smp", payload, SMP_DEVICE_TIMEOUT if is_one else SMP_TIMEOUT, subject)


def _query_sa(ports: Sequence[SubnetPort]) -> dict[str, Any]:
    payload = {"ports": [list(port) for port in ports]}
    return call("sa", payload, SA_TIMEOUT + SA_PORT_LIMIT * len(ports), _subject(ports)[0])


def _query_counters(sysfs_root: str, ports: Sequence[CounterPort]) -> dict[str, Any]:
    payload = {"ports": ports, "root": sysfs_root}
    limit = PERF_TIMEOUT + PERF_PORT_LIMIT * len(ports) + max(port.again for port in ports)
    return call("perf", payload, limit, _subject(ports)[0])


def _query_modules(netdevs: Sequence[str]) -> Json:
    timeout = MODULES_TIMEOUT + MODULE_LIMIT * len(netdevs)
    return call("modules", {"netdevs": [*netdevs]}, timeout)


def _explore(
    ports: Sequence[AskingPort], entries: Entries | None, known: KnownNames
) -> Exploration:
    """Explore by a helper; adds what is asked to `entries`. Raises Unavailable."""
    from agent.infiniband.exploration import loaded

    return loaded(_tiers(ports, entries, known=dict(known)))


def _look(ports: Sequence[AskingPort], uplinks: Uplinks, lids: Lids) -> LeafLook:
    """Look at the leaves by a helper. Raises Unavailable."""
    from agent.infiniband.exploration import LeafLook

    rows = {leaf: [*at.items()] for leaf, at in uplinks.items()}
    answer = _tiers(ports, uplinks=rows, lids=dict(lids))
    return LeafLook(**{name: answer[name] for name in LeafLook._fields})


def _tiers(ports: Sequence[AskingPort], entries: Entries | None = None, **of: Json) -> Json:
    from agent.infiniband.exploration import Unexplored

    if not any(port for port, _ in ports):
        raise Unavailable("no port can ask a subnet administrator")
    payload = {"ports": ports, "seconds": TIERS_LIMIT, "record": entries is not None, **of}
    answer = call("tiers", payload, TIERS_LIMIT + TIERS_TIMEOUT)
    if entries is not None:
        entries |= by_port(answer)
    if "error" in answer:
        raise Unexplored(answer["error"], answer["outcomes"])
    return answer


def _subject(ports: Sequence[tuple[Any, ...]]) -> tuple[str, bool]:
    """Return the name of the ports' device, or their number; and True for one device."""
    devices = {port[0] for port in ports}
    is_one = len(devices) == 1
    return devices.pop() if is_one else f"for {len(devices)} devices", is_one
