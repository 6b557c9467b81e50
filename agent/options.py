"""The flags of the commands, and the checks of their values.

Invariant: `bwagent run` is configured in one place for ten thousand nodes, so it does not start
with a wrong flag, value or environment variable, and its error names all of them (StrictCommand).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from agent.environment import SWITCH, ForAllCommands, MayBeEmpty, no_such_setting, unknown
from agent.sources import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Callback = Callable[[click.Context, click.Parameter, Any], Any]
    Command = Callable[..., None]
    Decorator = Callable[[Command], Command]

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
MAX_DURATION = 30 * 24 * 3600.0  # seconds
TLS_FILES = {
    "--metrics-cert": "Serve them over TLS with this certificate.",
    "--metrics-key": "The private key of the certificate.",
    "--metrics-client-ca": "Give them to clients of these CAs only.",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least times of `run` in seconds, by the name of the flag.

    Those of API requests keep a typo from making each agent send one a second. A caller of
    `run_and_exit` may have others.
    """

    hold: float = 0.0
    min_interval: float = 1.0
    resync: float = 300.0
    gpu_interval: float = 1.0
    port_interval: float = 0.1
    verdict_delay: float = 0.0


BOUNDS = Bounds()


class StrictCommand(click.Command):
    """A command that reports all wrong settings in one UsageError.

    Settings are its flags, its arguments and the environment variables of its own (BWAGENT_RUN_*)
    and for all commands (BWAGENT_*); an unknown one is an error, too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check every parameter, but for a shell, then parse as click does; raises UsageError."""
        variables = map(no_such_setting, unknown(ctx))
        wrong = [*self._faults(ctx, args), *variables]
        if wrong and not ctx.resilient_parsing:
            raise click.UsageError("; ".join(wrong), ctx)
        ctx.params.clear()
        return super().parse_args(ctx, args)

    def _faults(self, ctx: click.Context, args: list[str]) -> Iterator[str]:
        """Yield the errors of the command line and of the values of all parameters."""
        values, rest, order = self.make_parser(ctx).parse_args(args=list(args))
        yield from _unexpected(rest)
        for parameter in self._in_order(ctx, order):
            try:
                parameter.handle_parse_result(ctx, values, rest)
            except click.UsageError as error:
                yield error.format_message().rstrip(".")

    def _in_order(self, ctx: click.Context, order: list[click.Parameter]) -> list[click.Parameter]:
        """Return the parameters: eager ones (--help) first, then in the order they were given."""

        def place(parameter: click.Parameter) -> tuple[bool, int]:
            given = order.index(parameter) if parameter in order else len(order)
            return not parameter.is_eager, given

        return sorted(self.get_params(ctx), key=place)


def _unexpected(rest: list[str]) -> list[str]:
    """Return the errors for what no parameter takes: unknown flags, or else all arguments."""
    flags = [word for word in rest if word.startswith("-")]
    if flags:
        return [f"no such option: {word[:64]}" for word in flags]
    return [f"unexpected argument: {word[:64]}" for word in rest]


def duration(text: str, least: float = 0.0) -> float:
    """Return the seconds of `90`, `1.5m` or `1h`; raises click.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smh]?)", text, re.ASCII)
    seconds = float(found[1]) * UNITS[found[2]] if found else -1.0
    if not least <= seconds <= MAX_DURATION:
        limits = f"from {least:g}s to {MAX_DURATION / 3600:g}h"
        raise click.BadParameter(f"{text[:64]!r} is not a time {limits}")
    return seconds


def check(function: Callable[[Any], Any]) -> Callback:
    """Return the callback of an option whose value alone is checked or converted."""
    return lambda _context, _parameter, value: function(value)


def not_empty(value: str | None) -> str | None:
    """Return the value; raises click.BadParameter if it was given as an empty string."""
    if value == "":
        raise click.BadParameter("must not be empty")
    return value


def is_on_command_line(parameter: str) -> bool:
    """Return True if the flag of this parameter was given; a variable of it does not count."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE


def options(*several: Decorator) -> Decorator:
    """Combine decorators; --help lists their options in this order."""

    def decorated(command: Command) -> Command:
        for option in reversed(several):
            command = option(command)
        return command

    return decorated


def _prefix(value: str) -> str:
    from agent.labels.encode import prefix_fault

    if fault := prefix_fault(value):
        raise click.BadParameter(fault)
    return value


def _prefix_or_empty(value: str) -> str:
    return _prefix(value) if value else value


def _prefixes(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_prefix(value) for value in values)


def _globs(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the globs; raises click.BadParameter for a comma, which no device name has."""
    for value in values:
        if "," in re.sub(r"\[[^]]*\]", "", value):  # [0,1] is a set of characters
            text = "has a comma: separate by spaces in the variable, or repeat the flag"
            raise click.BadParameter(f"{value[:64]!r} {text}")
    return values


GLOB: dict[str, Any] = {
    "cls": ForAllCommands,
    "multiple": True,
    "metavar": "GLOB",
    "callback": check(_globs),
}


def _label_key_or_empty(value: str) -> str:
    from agent.labels.encode import key_fault

    if value and "/" not in value:
        raise click.BadParameter(f"{value[:64]!r} has no prefix with a slash")
    if value and (fault := key_fault(value)):
        raise click.BadParameter(fault)
    return value


def _node_name(value: str | None) -> str | None:
    from agent.labels.encode import prefix_fault

    if value is not None and prefix_fault(value):
        raise click.BadParameter(f"{value[:64]!r} is not a Node name (a lower-case DNS name)")
    return value


def _address(value: str) -> tuple[str, int] | None:
    from agent.errors import Malformed
    from agent.telemetry.address import parse_address

    try:
        return parse_address(value) if value else None
    except Malformed as error:
        raise click.BadParameter(str(error)) from error


def check_tls(flags: dict[str, Any]) -> None:
    """Raise click.UsageError for a part of the files that TLS needs, or without a server."""
    given = [flag for flag in TLS_FILES if flags[flag.lstrip("-").replace("-", "_")]]
    if given and {"--metrics-cert", "--metrics-key"}.difference(given):
        raise click.UsageError(f"{given[0]}: TLS needs both --metrics-cert and --metrics-key")
    if given and flags["metrics_address"] is None:
        raise click.UsageError(f"{given[0]}: --metrics-address is empty, so nothing is served")


def _bounded(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Return the seconds; raises click.BadParameter below the bound of the flag."""
    bounds = context.find_object(Bounds) or BOUNDS
    return duration(value, getattr(bounds, parameter.name or ""))


def _time(name: str, default: float, text: str) -> Decorator:
    least = getattr(BOUNDS, name.lstrip("-").replace("-", "_"))
    limit = f", min {least:g}s" if least else ""
    return click.option(
        name,
        default=f"{default:g}s",
        metavar="TIME",
        help=f"{text}  [default: {default:g}s{limit}]",
        callback=_bounded,
    )


# The node's devices: probe, run, capture, explain.
device_options = options(
    click.option(
        "--sysfs-root",
        cls=ForAllCommands,
        type=click.Path(exists=True, file_okay=False),
        default="/sys",
        metavar="DIR",
        help="Read the host's sysfs here.  [default: /sys]",
    ),
    click.option("--exclude-device", **GLOB, help="Do not read these RDMA devices. Repeatable."),
    click.option("--backend-device", **GLOB, help="Only these are the backend. Repeatable."),
    click.option(
        "--nvml-library",
        cls=ForAllCommands,
        type=click.Path(dir_okay=False),
        metavar="PATH",
        help="NVML library.  [default: libnvidia-ml.so.1]",
    ),
)
# Of no use to commands that compare cables, so left out of their --help (docs/verify.md).
HIDDEN = {"accelerator_label", "nvml_library"}


def short_help(command: click.Command) -> click.Command:
    """Leave the options of HIDDEN out of --help."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name in HIDDEN:
            parameter.hidden = True
    return command


# The sources: probe, run, capture.
source_options = options(
    click.option(
        "--source",
        cls=ForAllCommands,
        type=click.Choice(NAMES),
        multiple=True,
        help="Read only these sources. Repeatable.",
    ),
    click.option(
        "--openvswitch",
        cls=ForAllCommands,
        **SWITCH,
        help="LLDP below Open vSwitch; filters all packets.",
    ),
)
# The sources, and the time to wait for LLDP frames: probe, capture.
wait_options = options(
    source_options,
    click.option(
        "--wait",
        type=click.FloatRange(0, 3600),
        metavar="SECONDS",
        help="Wait for LLDP.  [default: up to 65, until every port has a frame]",
    ),
    click.option("--no-wait", **SWITCH, help="Do not receive LLDP frames."),
)
# Names in a snapshot: capture, of this node and as a plugin of kubectl.
anonymize_option = click.option(
    "--anonymize", **SWITCH, help="Replace GUIDs, MACs, serials and host names."
)
# A capture instead of this node: probe, explain, verify.
replay_option = click.option(
    "--replay",
    metavar="SNAPSHOT",
    callback=check(not_empty),
    help="Read this capture (folder or tar) instead.",
)
# The API server: probe, run, cleanup, explain, verify.
cluster_options = options(
    click.option(
        "--kubeconfig",
        metavar="FILE",
        callback=check(not_empty),
        help="[default: Pod's account, else as kubectl]",
    ),
    click.option(
        "--context", metavar="NAME", callback=check(not_empty), help="Context of the kubeconfig."
    ),
)
# The label keys: probe, run, cleanup, explain, verify, fleet.
label_options = options(
    click.option(
        "--label-prefix",
        cls=ForAllCommands,
        default="backend.coreweave.cloud",
        show_default=True,
        metavar="DOMAIN",
        callback=check(_prefix),
    ),
    click.option(
        "--ib-label-prefix",
        cls=MayBeEmpty,
        default="ib.coreweave.cloud",
        show_default=True,
        metavar="DOMAIN",
        callback=check(_prefix_or_empty),
        help="Empty: none.",
    ),
    click.option(
        "--accelerator-label",
        cls=MayBeEmpty,
        default="network.topology.nvidia.com/accelerator",
        show_default=True,
        metavar="KEY",
        callback=check(_label_key_or_empty),
    ),
)
# The Node and its label keys: probe, run, cleanup.
node_name_option = click.option(
    "--node-name",
    default=lambda: os.environ.get("NODE_NAME") or None,
    metavar="NAME",
    callback=check(_node_name),
    help="Node name.  [default: $NODE_NAME or hostname]",
)
naming_options = options(node_name_option, label_options)
# Prefixes that the operator has given up: probe, run.
former_options = options(
    click.option(
        "--former-label-prefix",
        "former_label_prefixes",  # as the variable, which has a list
        cls=ForAllCommands,
        multiple=True,
        metavar="DOMAIN",
        callback=check(_prefixes),
        help="Remove own labels under it. Repeatable.",
    ),
)
# Times, metrics and log: run.
run_options = options(
    _time("--hold", 600.0, "Keep unread labels this long."),
    _time("--min-interval", 10.0, "Wait between changes."),
    _time("--resync", 3600.0, "Refresh the Node."),
    _time("--gpu-interval", 60.0, "Query the GPUs."),
    _time("--port-interval", 2.0, "Read IB port states."),
    _time("--verdict-delay", 60.0, "Report a finding that lasts."),
    click.option(
        "--metrics-address",
        default="127.0.0.1:9477",
        show_default=True,
        metavar="IP:PORT",
        callback=check(_address),
        help="Serve metrics here.",
    ),
    *(
        click.option(flag, metavar="FILE", callback=check(not_empty), help=text)
        for flag, text in TLS_FILES.items()
    ),
    click.option("-v", "--verbose", **SWITCH, help="Log details."),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Write the log in this format.",
    ),
)
