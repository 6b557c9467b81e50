"""The flags that several commands have, and what is wrong with a value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from agent.sources.table import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., None]

GLOB: dict[str, Any] = {"multiple": True, "metavar": "GLOB"}


class MayBeEmpty(click.Option):
    """An option that an empty environment variable sets, too; click takes such a variable for none."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return os.environ.get(f"{ctx.auto_envvar_prefix}_{(self.name or '').upper()}")


def not_empty(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    """A value that must not be left empty where it is given."""
    if value == "":
        raise click.BadParameter("may not be empty")
    return value


def _prefix(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    from agent.labels.encode import prefix_fault

    if not value and parameter.name == "ib_label_prefix":
        return value  # the family is turned off
    if fault := prefix_fault(value):
        raise click.BadParameter(fault)
    return value


def _label_key(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    from agent.labels.encode import key_fault

    if value and "/" not in value:
        raise click.BadParameter(f"{value[:64]!r} has no domain before a slash")
    if value and (fault := key_fault(value)):
        raise click.BadParameter(fault)
    return value


def _node_name(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    from agent.labels.encode import prefix_fault

    if value is not None and prefix_fault(value):
        raise click.BadParameter(f"{value[:64]!r} is no Node name (a DNS name in lower case)")
    return value


def options(*several: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator out of several, which --help lists in this order."""

    def decorated(command: Command) -> Command:
        for option in reversed(several):
            command = option(command)
        return command

    return decorated


# of every command that looks at the node's devices
device_options = options(
    click.option(
        "--sysfs-root",
        type=click.Path(exists=True, file_okay=False),
        default="/sys",
        metavar="DIR",
        help="Where the host's /sys is mounted.",
    ),
    click.option(
        "--exclude-device", **GLOB, help="Leave these RDMA devices out and unread. Repeatable."
    ),
    click.option(
        "--backend-device",
        **GLOB,
        help="These RDMA devices are the backend, no others. Repeatable.",
    ),
    click.option(
        "--nvml-library",
        type=click.Path(dir_okay=False),
        metavar="PATH",
        help="libnvidia-ml.so.1, where it is not found.",
    ),
)
# about who is asked
source_options = options(
    click.option(
        "--source",
        type=click.Choice(NAMES),
        multiple=True,
        help="Ask only these sources. Repeatable.",
    ),
    click.option(
        "--openvswitch",
        is_flag=True,
        help="Hear LLDP below Open vSwitch, too (a filter sees each packet).",
    ),
)
# about who is asked, and for how long LLDP is listened to
wait_options = options(
    source_options,
    click.option(
        "--wait",
        type=click.FloatRange(0, 3600),
        metavar="SECONDS",
        help="Listen for LLDP that long.  [default: until every port has spoken, or 65]",
    ),
    click.option("--no-wait", is_flag=True, help="Do not listen for LLDP at all."),
)
# which API server is meant
cluster_options = options(
    click.option(
        "--kubeconfig",
        metavar="FILE",
        callback=not_empty,
        help="Else $KUBECONFIG or ~/.kube/config with --context, else the Pod's service account.",
    ),
    click.option("--context", metavar="NAME", callback=not_empty, help="Of the kubeconfig."),
)
# how the Node and its label keys are called
naming_options = options(
    click.option(
        "--node-name",
        default=lambda: os.environ.get("NODE_NAME") or None,
        metavar="NAME",
        callback=_node_name,
        help="Else $NODE_NAME, else the host name.",
    ),
    click.option(
        "--label-prefix",
        default="backend.coreweave.cloud",
        show_default=True,
        metavar="DOMAIN",
        callback=_prefix,
    ),
    click.option(
        "--ib-label-prefix",
        cls=MayBeEmpty,
        default="ib.coreweave.cloud",
        show_default=True,
        metavar="DOMAIN",
        callback=_prefix,
        help="Empty: none of these keys.",
    ),
    click.option(
        "--accelerator-label",
        cls=MayBeEmpty,
        default="network.topology.nvidia.com/accelerator",
        show_default=True,
        metavar="KEY",
        callback=_label_key,
    ),
)
