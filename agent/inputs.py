"""The inputs of the commands, from their flags: the Host, the names of labels, the observation.

As in agent/cli.py, each function imports what it needs itself.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.host import Host
    from agent.kube.commands import Target
    from agent.labels.render import Subject
    from agent.labels.table import Naming
    from agent.lldp.inbox import LldpWait
    from agent.model import Observation

    Flags = dict[str, Any]


def node_name(flags: Flags) -> str:
    """Return the name of the Node; raises click.UsageError if the host has no such name."""
    import click

    from agent.labels.encode import prefix_fault

    name: str = flags["node_name"] or os.uname().nodename.lower()
    if prefix_fault(name):
        raise click.UsageError(f"the host name {name[:64]!r} is not a Node name: set --node-name")
    return name


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
    return live_host(flags["sysfs_root"], *globs, neighbors, flags)


def lldp_wait(flags: Flags) -> LldpWait | None:
    """Return the source of LLDP frames; None with --no-wait."""
    from agent.lldp.inbox import LldpWait, progress
    from agent.lldp.packet_socket import Listener

    if flags["no_wait"]:
        return None
    return LldpWait(flags["wait"], progress, Listener(openvswitch=flags["openvswitch"]))


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
    if names.is_unconfirmed():
        observation = observe(host, flags["source"], labeled)
    return target.completed(host, observation)


def subject_of(key: str, flags: Flags) -> Subject:
    """Return the row of a label key, with or without its prefix.

    Raises click.UsageError for another key.
    """
    import click

    from agent.labels import render
    from agent.output.explain import unknown_key

    names = naming(flags)
    accelerator = names.accelerator if names.accelerator.endswith(f"/{key}") else ""
    for full in (key, f"{names.prefix}/{key}", f"{names.ib_prefix}/{key}", accelerator):
        if found := render.subject_of(full, names):
            return found
    raise click.UsageError(unknown_key(key, names, ["{if}"]))


def wait_for(subject: Subject, flags: Flags) -> LldpWait | None:
    """Return the source of LLDP frames for a label that needs neighbors."""
    words = ("neighbors", "leaves", "ports")
    needs_frames = subject.row.key.partition("/")[2].startswith(words)
    return lldp_wait(flags) if needs_frames else None


def readable(flags: Flags, read: Callable[[Flags], Target]) -> tuple[Target | None, str | None]:
    """Return the Node, or the reason why it cannot be read."""
    from agent.errors import Unavailable

    try:
        return read({**flags, "former_label_prefixes": ()}), None
    except Unavailable as error:
        return None, str(error)


def explained(
    subject: Subject,
    observation: Observation,
    flags: Flags,
    target: Target | None,
    fault: str | None,
) -> dict[str, Any]:
    """Return the document of a label; raises click.UsageError for an unknown interface."""
    import click

    from agent.labels.render import render
    from agent.output import explain

    key, _, interface = subject
    on_node = {"fault": fault} if fault else None
    if target:
        on_node = target.facts(key)
    names = explain.known_interfaces(observation)
    is_on_node = bool(on_node and on_node.get("value") is not None)
    if interface and interface not in names and not is_on_node:
        near = explain.backend_interfaces(observation)
        raise click.UsageError(explain.unknown_key(key, naming(flags), near))
    rendered = render(observation, naming(flags), target.previous() if target else None)
    return explain.explained(subject, observation, rendered, on_node)
