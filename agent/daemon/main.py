"""`bwagent run`, put together: the doors of this node, the loop, and what serves it.

Everything is made before the loop begins, so that what is wrong stops the start and not the third hour.
"""

from __future__ import annotations

import gc
import random
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.daemon.clock import AwakeClock
from agent.daemon.loop import Doors, Runtime
from agent.daemon.observer import Observer
from agent.daemon.pollers import NvmlPoller, SmpPoller
from agent.daemon.schedule import Schedule
from agent.errors import Unavailable
from agent.events.monitor import Monitors
from agent.events.port_states import PortStateSweep
from agent.kube.managed_fields import keys_of
from agent.kube.reconcile import Reconciler
from agent.kube.transport import door
from agent.live_host import live_host, polled_gpus
from agent.lldp.inbox import FrameInbox
from agent.lldp.neighbors import Table
from agent.lldp.packet_socket import Listener
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics, own_process, process_text
from agent.telemetry.reporter import Reporter
from agent.telemetry.server import Server, State

if TYPE_CHECKING:
    from agent.daemon.schedule import Settings
    from agent.host import Host
    from agent.labels.table import Naming

CONFIRM = 2  # frames in which a neighbour says who it is now, before a label that says otherwise is changed
GRACE = 30.0  # seconds that a neighbour counts after its TTL, its goodbye or its link
DEADLINE = 1.0  # seconds that one device may hold up a look; what is late is held, and read when it is done
STOP = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The flags of `run`."""

    node: str
    naming: Naming
    settings: Settings
    sources: tuple[str, ...]
    backend_devices: tuple[str, ...]
    excluded_devices: tuple[str, ...]
    sysfs_root: str
    nvml_library: str | None
    kubeconfig: str | None
    context: str | None
    gpu_interval: float  # seconds
    port_interval: float  # seconds
    metrics_address: tuple[str, int] | None
    openvswitch: bool
    dry_run: bool
    verbose: bool
    log_format: str


def run(configuration: Configuration) -> None:
    """Run until SIGTERM; Unavailable where that is not possible."""
    with ExitStack() as stack:
        state = State()
        runtime, voice = _assemble(configuration, state, stack)
        voice.started()
        if configuration.metrics_address:
            process = own_process()
            server = Server(configuration.metrics_address, state, lambda: process_text(process))
            stack.callback(server.close)
            voice.serves(server.fault)
        gc.freeze()  # what was imported stays until the end
        try:
            runtime.run()
        except OSError as error:
            raise Unavailable(f"the loop has ended: {error}") from error


def _assemble(
    configuration: Configuration, state: State, stack: ExitStack
) -> tuple[Runtime, Reporter]:
    clock = AwakeClock()
    keys = keys_of(configuration.naming)
    table = Table(GRACE, CONFIRM)
    ears = FrameInbox(Listener(clock, openvswitch=configuration.openvswitch), table, clock)
    ports = PortStateSweep(configuration.port_interval, sys=configuration.sysfs_root)
    wakeups = Monitors(frames=ears.filenos, ports=ports, signals=(signal.SIGHUP, *STOP))
    stack.callback(wakeups.close)
    host = _host(configuration, ears)
    gpus, smps = NvmlPoller(host.gpus, configuration.gpu_interval), SmpPoller(host.ask_smp)
    host = replace(host, clock=clock, neighbors=table, gpus=gpus, ask_smp=smps)
    voice = Reporter(
        Log(configuration.log_format, verbose=configuration.verbose),
        Metrics(),
        state,
        keys,
        configuration.node,
        configuration.settings.hold,
        time.time,
        clock,
        dry_run=configuration.dry_run,
    )
    doors = Doors(
        clock=clock,
        wakeups=wakeups,
        ports=ports,
        ears=ears,
        gpus=gpus,
        smps=smps,
        watch=Observer(
            host,
            configuration.naming,
            configuration.sources,
            configuration.settings.hold,
            time.time,
        ),
        speaker=Reconciler(
            door(configuration.kubeconfig, configuration.context),
            configuration.node,
            keys,
            configuration.dry_run,
        ),
        pacer=Schedule(configuration.settings, clock(), random.SystemRandom().random),
        voice=voice,
    )
    return Runtime(doors), voice


def _host(configuration: Configuration, ears: FrameInbox) -> Host:
    devices = configuration.excluded_devices, configuration.backend_devices
    host = live_host(configuration.sysfs_root, *devices, ears, configuration.nvml_library)
    gpus = polled_gpus(configuration.nvml_library)
    return replace(host, gpus=gpus, deadline=DEADLINE)
