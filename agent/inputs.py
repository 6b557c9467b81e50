"""What the commands work on, by their flags: the Node, the Host, the observation.

As in agent/commands.py, each function imports what it needs itself.
"""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING

import click

from agent.errors import Unavailable
from agent.options import OF_SOURCE, is_on_command_line

if TYPE_CHECKING:
    from agent.cabling.interfaces import HcaMap
    from agent.cabling.plans.model import Plan
    from agent.encode import Naming
    from agent.host import Host
    from agent.kube.commands import Target
    from agent.lldp.inbox import LldpWait
    from agent.memory import Known
    from agent.model import Observation, Problem
    from agent.options import Flags
    from agent.output.document import Hardware
    from agent.text import Json

# Flags that a snapshot has no use for
OF_LIVE_HOST = (
    "sysfs_root",
    *(name for name in chain.from_iterable(OF_SOURCE.values()) if name != "tiers"),
    "force_node",
)


def refuse_idle(flags: Flags) -> None:
    """Raise click.UsageError for a flag of a source that has no effect beside the others.

    Variables do not count: they are the same for all commands.
    """
    idle = [("--wait", "no_wait")] if is_on_command_line("wait") else []
    if flags.get("replay"):
        idle += [("--replay", name) for name in OF_LIVE_HOST]
    if is_on_command_line("source"):
        given = f"--source {' --source '.join(flags['source'])}"
        left_out = OF_SOURCE.keys() - set(flags["source"])
        idle += [(given, name) for source in sorted(left_out) for name in OF_SOURCE[source]]
    for other, name in idle:
        if is_on_command_line(name):
            raise click.UsageError(f"{other} excludes --{name.replace('_', '-')}")


def node_name(flags: Flags) -> str:
    """Return the name of the Node; raises click.UsageError if the host has no such name."""
    from agent.encode import prefix_fault

    name: str = flags["node_name"] or os.uname().nodename.lower()
    if prefix_fault(name):
        raise click.UsageError(f"the host name {name[:64]!r} is not a Node name: set --node-name")
    return name


def stranger(flags: Flags, host: Host) -> str | None:
    """Return the line on --node-name where that is not the name of this host; None if it is."""
    node, here = flags["node_name"], host.name and host.name.lower()
    if not node or not here or node in {here, here.partition(".")[0]}:
        return None
    return (
        f"bwagent: what is printed is of this host, {here}; Node {node} was not compared with it:"
        " --dry-run --diff compares their boot IDs"
    )


def naming(flags: Flags) -> Naming:
    """Return the prefixes and keys of the labels.

    Raises click.UsageError if --tier-label has a key of another label, or of the site's half.
    """
    from agent.encode import Naming
    from agent.labels.render import is_taken

    naming = Naming(flags["label_prefix"], flags["ib_label_prefix"], flags["accelerator_label"])
    tiers = flags["tier_label"] or ()
    if taken := next((key for key in tiers if is_taken(key, naming)), None):
        raise click.UsageError(f"--tier-label: {taken} is the key of another label")
    return naming._replace(tiers=tiers)


def target(flags: Flags, host: Host) -> Target:
    """Read the Node; raises Unavailable, or Misdirected, before anything else is done.

    It has to be this host. A snapshot may be of an earlier boot, and is compared only.
    """
    from agent.kube.api import connect
    from agent.kube.commands import target
    from agent.kube.nodes import of_this_host
    from agent.sources.observe import read_boot_id

    kube, name = connect(flags["kubeconfig"], flags["context"]), node_name(flags)
    is_any = flags["force_node"] or flags["replay"]
    own = kube if is_any else of_this_host(kube, read_boot_id(host.root)[0])
    return target(own, name, naming(flags), flags.get("former_label_prefixes", ()))


def lldp_wait(flags: Flags) -> LldpWait | None:
    """Return the source of LLDP frames; None with --no-wait, and for a snapshot."""
    if flags["no_wait"] or flags.get("replay"):
        return None
    from agent.lldp.inbox import LldpWait, progress
    from agent.lldp.packet_socket import Listener

    return LldpWait(flags["wait"], progress, Listener(openvswitch=flags["openvswitch"]))


def host(flags: Flags, wait: LldpWait | None = None, *, reads_counters: bool = True) -> Host:
    """Return this node, or the host of a snapshot.

    With `reads_counters` an observation reads the error counters of links, and waits for another
    reading if a link has errors.
    """
    host = _host(flags, wait)
    return host if reads_counters else host._replace(ask_perf=None)


def _host(flags: Flags, wait: LldpWait | None) -> Host:
    globs = flags["exclude_device"], flags["backend_device"]
    if snapshot := flags.get("replay"):
        from agent.snapshot.replay import replay

        if not flags.get("tiers"):
            return replay(snapshot, *globs)
        from agent.fabric_dump import with_dump

        return with_dump(replay(snapshot, *globs, tiers=True))
    from agent.live_host import live_host

    neighbors = None
    if wait:
        from agent.lldp.reception import LldpNeighbors

        neighbors = LldpNeighbors(wait)
    return live_host(flags["sysfs_root"], *globs, neighbors, flags)


def observed(host: Host, flags: Flags, target: Target | None) -> tuple[Observation, Known]:
    """Observe the node; return what is known after it, too, by the Node's annotation as well.

    Switches keep the names that they have there.
    """
    from agent.memory import known_of
    from agent.sources.observe import Memories, observe

    if target is None:
        observation = observe(host, flags["source"])
        return observation, known_of(observation)
    memories = Memories(host.device_readers())
    memories.switch_names.seed(target.switches())
    observation = observe(host, flags["source"], target.interfaces, memories=memories)
    return target.completed(host, observation)


def node_document(host: Host, flags: Flags, target: Target | None, node_name: str | None) -> Json:
    """Observe the node, but not its GPUs; return the node document, as `probe -o json` has it.

    Raises Unavailable if the RDMA class could not be read.
    """
    from agent.output.document import node_document
    from agent.sources import rdma
    from agent.sources.observe import NEIGHBOR_SOURCES

    sources = flags["source"] or (rdma.SOURCE, *dict(NEIGHBOR_SOURCES))
    observation, known = observed(host, {**flags, "source": sources}, target)
    require_rdma(observation)
    return node_document(observation, known, node_name, hardware(host, observation))


def modules(flags: Flags, host: Host, observation: Observation) -> tuple[Json, list[Problem]]:
    """Return the part of the document that --modules adds, and its problems."""
    if not flags["modules"]:
        return {}, []
    from agent.transceiver.modules import rows

    described, problems = rows(observation, host.modules)
    return {"modules": described}, problems


def whole(host: Host, observation: Observation) -> Hardware:
    """Read what the whole document has beside the observation."""
    from agent.sources.counters import read_counters

    return hardware(host, observation)._replace(counters=read_counters(host, observation.ports))


def hardware(host: Host, observation: Observation) -> Hardware:
    """Read what a comparison of cables needs beside the observation."""
    from agent.output.document import Hardware
    from agent.sources.netdev import netdev_names
    from agent.sources.pci import functions_on_bus, read_paths

    paths = read_paths(host, observation.ports)
    return Hardware(paths, functions_on_bus(host), netdev_names(host))


def plans(flags: Flags) -> list[Plan]:
    """Read the files of --plan."""
    from agent.cabling.plans.reader import read_plan

    form, columns = flags["plan_format"], flags["columns"] or {}
    return [plan for path in flags["plan"] for plan in read_plan(path, form, columns)]


def hca_map(flags: Flags) -> HcaMap:
    """Read the file of --hca-map."""
    from agent.cabling.interfaces import read_map

    return read_map(flags["hca_map"]) if flags["hca_map"] else {}


def require_rdma(observation: Observation) -> None:
    """Raise Unavailable if the RDMA class could not be read: without it nothing was observed."""
    from agent.model import Failed

    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")
