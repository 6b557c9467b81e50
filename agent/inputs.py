"""The inputs of the commands, from their flags: the Host, the names of labels, the observation.

As in agent/cli.py, each function imports what it needs itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.host import Host
    from agent.kube.commands import Target
    from agent.labels.table import Naming
    from agent.lldp.wait import LldpWait
    from agent.model import Observation

    Flags = dict[str, Any]


def naming(flags: Flags) -> Naming:
    """Return the prefixes and keys of the labels."""
    from agent.labels.table import Naming

    return Naming(flags["label_prefix"], flags["ib_label_prefix"], flags["accelerator_label"])


def replayed(snapshot: str, flags: Flags) -> Host:
    """Return the host of a snapshot."""
    from agent.snapshot.replay import replay

    return replay(snapshot, flags["exclude_device"], flags["backend_device"])


def live(flags: Flags, wait: LldpWait | None) -> Host:
    """Return this node."""
    from agent.live_host import live_host
    from agent.lldp.reception import LldpNeighbors

    globs = flags["exclude_device"], flags["backend_device"]
    neighbors = LldpNeighbors(wait) if wait else None
    return live_host(flags["sysfs_root"], *globs, neighbors, source_options(flags))


def lldp_wait(flags: Flags) -> LldpWait | None:
    """Return the source of LLDP frames; None with --no-wait."""
    from agent.lldp.packet_socket import Listener
    from agent.lldp.wait import LldpWait, progress

    if flags["no_wait"]:
        return None
    return LldpWait(flags["wait"], progress, Listener(openvswitch=flags["openvswitch"]))


def source_options(flags: Flags) -> dict[str, Any]:
    """Return the options of the sources, by name."""
    from agent.sources.table import OPTIONS

    return {option.name: flags[option.name] for option in OPTIONS}


def observed(host: Host, flags: Flags, target: Target | None) -> Observation:
    """Observe the node, a second time if a switch has another name than the Node's annotation."""
    from agent.infiniband.switch_names import SwitchNames
    from agent.sources.observe import observe

    if target is None:
        return observe(host, flags["source"])
    names, labeled = SwitchNames(), target.interfaces()
    names.seed(target.switches())
    host = replace(host, switch_names=names)
    observation = observe(host, flags["source"], labeled)
    return observe(host, flags["source"], labeled) if names.is_unconfirmed() else observation
