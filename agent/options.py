"""The flags that several commands have, and what is wrong with a value."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from agent.daemon.schedule import Settings
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


UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = 30 * 24 * 3600.0  # seconds


def duration(text: str, least: float = 0.0) -> float:
    """Seconds out of a number and perhaps its unit: `90`, `1.5m`, `1h`; or click.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smh]?)", text, re.ASCII)
    seconds = float(found[1]) * UNITS[found[2]] if found else -1.0
    if not least <= seconds <= LONGEST:
        raise click.BadParameter(f"{text[:64]!r} is no time from {least:g}s to {LONGEST / 3600:g}h")
    return seconds


class AllAtOnce(click.Command):
    """A command that lists every setting that is wrong, unknown variables of its prefix included."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, rest, order = self.make_parser(ctx).parse_args(args=list(args))
        options = [word for word in rest if word.startswith("-")]
        wrong = [f"no such option: {word[:64]}" for word in options]
        wrong += [] if options else [f"unexpected argument: {word[:64]}" for word in rest]
        given = [param for param in order if param in self.params]
        rank = {param: number for number, param in reversed(list(enumerate(given)))}
        for param in sorted(
            self.get_params(ctx), key=lambda one: (not one.is_eager, rank.get(one, len(order)))
        ):
            try:
                param.handle_parse_result(ctx, values, rest)
            except click.UsageError as error:
                wrong.append(error.format_message().rstrip("."))
        wrong += [f"no such setting: {name}" for name in self._unread(ctx)]
        if wrong:
            raise click.UsageError("; ".join(wrong), ctx)
        ctx.params.clear()
        return super().parse_args(
            ctx, args
        )  # which knows what else click does with values, and finds nothing wrong

    def _unread(self, ctx: click.Context) -> list[str]:
        """Environment variables that were meant for this command, and that it does not know."""
        prefix = f"{ctx.auto_envvar_prefix}_"
        known = {f"{prefix}{(param.name or '').upper()}" for param in self.params}
        return sorted(name for name in os.environ if name.startswith(prefix) and name not in known)


def _address(
    _context: click.Context, _parameter: click.Parameter, value: str
) -> tuple[str, int] | None:
    from agent.errors import Malformed
    from agent.telemetry.listening import parse_address

    try:
        return parse_address(value) if value else None
    except Malformed as error:
        raise click.BadParameter(str(error)) from error


def _time(name: str, least: float, default: float, text: str) -> Callable[[Command], Command]:
    return click.option(
        name,
        default=f"{default:g}s",
        show_default=True,
        metavar="TIME",
        help=text,
        callback=lambda _context, _parameter, value: duration(value, least),
    )


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
USUAL = Settings()
# about time, and about what is told to whom
run_options = options(
    _time("--hold", 0.0, USUAL.hold, "How long a label stays that cannot be seen."),
    _time("--min-interval", 0.0, USUAL.min_interval, "Between two requests when much changes."),
    _time("--resync", 1.0, USUAL.resync, "Between two requests while nothing changes."),
    _time("--gpu-interval", 1.0, 60.0, "Between two questions to NVML."),
    _time("--port-interval", 0.1, 2.0, "Between two sweeps of InfiniBand port states."),
    click.option(
        "--metrics-address",
        default="127.0.0.1:9477",
        show_default=True,
        metavar="IP:PORT",
        callback=_address,
        help="Serve /metrics, /healthz and /readyz there.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Log details, too."),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
    ),
)
