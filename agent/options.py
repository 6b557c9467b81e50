"""The flags of the commands, their environment variables, and the checks of their values.

    BWAGENT_RUN_HOLD        a flag of one command: BWAGENT_<COMMAND>_<FLAG>
    BWAGENT_LABEL_PREFIX    a flag that decides labels, for all commands: BWAGENT_<FLAG>

Invariants:
- The command's own variable wins where both are set, and a flag wins over both.
- An empty variable is not set, unless its flag may be empty.
- A variable that no flag reads is an error of the commands that observe the node for its labels. It
  names all such variables: `bwagent run` is configured in one place for ten thousand nodes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import click

from agent.sources import NAMES

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

PREFIX = "BWAGENT_"
EXAMPLES = "\b\nExamples:\n  {}\n  {}"  # the end of each command's help
Flags = dict[str, Any]  # of a command, by their names
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
MAX_DURATION = 30 * 24 * 3600.0  # seconds
# Of no use to commands that compare cables, so left out of their --help (docs/verify.md).
HIDDEN = {"accelerator_label", "nvml_library", "tier_label"}
# Variables of the test suite, and those that Kubernetes adds to Pods for a Service `bwagent`.
_NO_SETTINGS = r"BWAGENT_(TEST_.*|SERVICE_(HOST|PORT.*)|PORT(_[0-9]+_.*)?)"


class ForAllCommands(click.Option):
    """An option that BWAGENT_<FLAG> sets for all commands."""

    may_be_empty = False

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        texts = [os.environ.get(name) for name in (_own(ctx, self), _common(self))]
        return next((text for text in texts if text or (text == "" and self.may_be_empty)), None)


class MayBeEmpty(ForAllCommands):
    """A flag that an empty variable sets to ""; click ignores such a variable."""

    may_be_empty = True


def _own(ctx: click.Context, parameter: click.Parameter) -> str:
    return f"{ctx.auto_envvar_prefix}_{(parameter.name or '').upper()}"


def _common(parameter: click.Parameter) -> str:
    return f"{PREFIX}{(parameter.name or '').upper()}"


def unknown(ctx: click.Context) -> list[str]:
    """Return the errors for variables that are meant for this command, or for all, and not read."""
    given = {name for name in os.environ if name.startswith(PREFIX)}
    given -= {_own(ctx, parameter) for parameter in ctx.command.params} | _of_all(ctx.command)
    if not given:  # no other command is loaded
        return []
    commands = dict(_commands(ctx.find_root(), PREFIX))
    known = set[str]().union(*map(_of_all, commands.values()))
    own = f"{ctx.auto_envvar_prefix}_"
    others = tuple(prefix for prefix in commands if not own.startswith(prefix))
    return [
        f"no such setting: {name}"
        for name in sorted(given - known)
        if not (name.startswith(others) or re.fullmatch(_NO_SETTINGS, name))
    ]


def _of_all(command: click.Command) -> set[str]:
    """Return the variables of a command that all commands have."""
    own = (each for each in command.params if isinstance(each, ForAllCommands))
    return {_common(parameter) for parameter in own}


def _commands(context: click.Context, prefix: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands and groups of a group, each after the prefix of its variables."""
    if not isinstance(group := context.command, click.Group):
        return
    for name in group.list_commands(context):
        if command := group.get_command(context, name):
            inner = f"{prefix}{name.upper().replace('-', '_')}_"
            yield inner, command
            yield from _commands(click.Context(command, context), inner)


class CheckedCommand(click.Command):
    """A command whose output depends on the flags that decide labels.

    It raises click.UsageError for an environment variable that no flag reads, except while a shell
    completes its flags.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing and (faults := unknown(ctx)):
            raise click.UsageError("; ".join(faults), ctx)
        return rest


class Switch(click.types.BoolParamType):
    """The value of a flag without value, which only a variable has."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if (boolean := self.str_to_bool(value)) is None:
            self.fail(f"{value[:64]!r} is neither true nor false", param, ctx)
        return boolean


class Duration(click.ParamType):  # type: ignore[type-arg]  # not in click 8.2
    """A time of at least some seconds.

    The least times of API requests keep a typo from making each agent send one a second. A caller
    of `run_and_exit` may have others, by the name of the parameter.
    """

    name = "time"

    def __init__(self, least: float) -> None:
        self.least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        others = ctx.find_object(dict) if ctx else None
        return duration(value, (others or {}).get(param and param.name, self.least))


def duration(text: str, least: float = 0.0) -> float:
    """Return the seconds of `90`, `1.5m` or `1h`; raises click.BadParameter."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smh]?)", text, re.ASCII)
    seconds = float(match[1]) * UNITS[match[2]] if match else -1.0
    if not least <= seconds <= MAX_DURATION:
        limits = f"from {least:g}s to {MAX_DURATION / 3600:g}h"
        raise click.BadParameter(f"{text[:64]!r} is not a time {limits}")
    return seconds


def not_empty(text: str) -> str:
    """Return the text; raises click.BadParameter for an empty text."""
    if text == "":
        raise click.BadParameter("must not be empty")
    return text


def _prefix(text: str) -> str:
    from agent.encode import prefix_fault

    if fault := prefix_fault(text):
        raise click.BadParameter(fault)
    return text


def _prefix_or_empty(text: str) -> str:
    return text and _prefix(text)


def _tier_keys(text: str) -> tuple[str, ...]:
    from agent.encode import tier_keys
    from agent.errors import Malformed

    try:
        return tier_keys(text)
    except Malformed as error:
        raise click.BadParameter(str(error)) from error


def _former(text: str) -> tuple[str, ...]:
    return _tier_keys(text) if "/" in text else (_prefix(text),)


def _joined(_ctx: object, _param: object, several: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(chain.from_iterable(several))


def _label_key_or_empty(text: str) -> str:
    from agent.encode import key_fault

    if text and "/" not in text:
        raise click.BadParameter(f"{text[:64]!r} has no prefix with a slash")
    if text and (fault := key_fault(text)):
        raise click.BadParameter(fault)
    return text


class Seconds(click.FloatRange):
    """A number of seconds; the name is that of the error."""

    name = "number of seconds"


def _glob(text: str) -> str:
    """Return the glob; raises click.BadParameter for none, or a comma, which no device name has."""
    if "," in re.sub(r"\[[^]]*\]", "", not_empty(text)):  # [0,1] is a set of characters
        fault = "has a comma: separate by spaces in the variable, or repeat the flag"
        raise click.BadParameter(f"{text[:64]!r} {fault}")
    return text


def _node_name(text: str) -> str:
    from agent.encode import prefix_fault

    if prefix_fault(text):
        raise click.BadParameter(f"{text[:64]!r} is not a Node name (a lower-case DNS name)")
    return text


def address(text: str) -> tuple[str, int] | None:
    """Parse `IP:PORT`, None for ""; raises click.BadParameter for a host name, too.

    An IPv6 address may have brackets or, as in Kubernetes' `$(NODE_IP):9477`, none. `:9477` is
    every address of the host.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not (colon and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 0xFFFF):
        raise click.BadParameter(f"{text[:64]!r} is no IP:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    import socket  # one millisecond that only `run` needs

    numeric = socket.AI_NUMERICHOST
    try:
        socket.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM, flags=numeric)
    except (OSError, UnicodeError) as error:
        fault = f"{text[:64]!r} is no IP:PORT: {host[:64]!r} is no IP address"
        raise click.BadParameter(fault) from error
    return host, int(port)


def check_tls(flags: dict[str, Any]) -> None:
    """Raise click.UsageError for a part of the files that TLS needs, or without a server."""
    names = ("metrics_cert", "metrics_key", "metrics_client_ca")
    given = [f"--{name.replace('_', '-')}" for name in names if flags[name]]
    if given and {"--metrics-cert", "--metrics-key"}.difference(given):
        raise click.UsageError(f"{given[0]}: TLS needs both --metrics-cert and --metrics-key")
    if given and flags["metrics_address"] is None:
        raise click.UsageError(f"{given[0]}: --metrics-address is empty, so nothing is served")


def _tolerance(text: str) -> str:
    from agent.cabling.names import TOLERANCES

    if text not in TOLERANCES:
        raise click.BadParameter(f"{text[:64]!r} is none of {', '.join(TOLERANCES)}")
    return text


def _columns(text: str) -> dict[str, str]:
    """Parse `node=Server,interface=NIC,device=Leaf,port-id=Port`, in quotes with a comma."""
    import csv

    from agent.cabling.plans.columns import COLUMNS

    known = [column.name for column in COLUMNS]
    titles: dict[str, str] = {}
    for part in next(csv.reader([text]), []):
        name, _, title = map(str.strip, part.partition("="))
        name = name.lower().replace("_", "-").replace(" ", "-")
        if name not in known or not title:
            raise click.BadParameter(f"{part[:64]!r} is no COLUMN=TITLE of {', '.join(known)}")
        if name in titles:
            raise click.BadParameter(f"{name} is given twice")
        if title in titles.values():
            raise click.BadParameter(f"{title[:64]!r} is given for two columns")
        titles[name] = title
    if absent := [n for n in ("node", "interface", "device", "port-id") if n not in titles]:
        raise click.BadParameter(f"{absent[0]}=TITLE is missing")
    return titles


def _new_file(path: str) -> str:
    if path in ("", "-"):
        raise click.BadParameter("the name of a file, as standard output has the findings")
    return path


def require_plan(flags: dict[str, Any]) -> None:
    """Raise click.UsageError for a flag that says how to read a plan, without a plan."""
    given = [name for name in ("plan_format", "columns", "hca_map") if flags[name]]
    if given and not flags["plan"]:
        raise click.UsageError(f"--{given[0].replace('_', '-')} needs --plan FILE")


def is_on_command_line(parameter: str) -> bool:
    """Return True if the flag of this parameter was given; a variable of it does not count."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE


def refuse_cluster(flag: str) -> None:
    """Raise click.UsageError for a flag of OF_CLUSTER beside a flag that needs no cluster."""
    if idle := idle_of_cluster():
        raise click.UsageError(f"{flag} contacts no API server: leave out {idle}")


def idle_of_cluster() -> str | None:
    """Return the first flag of OF_CLUSTER on the command line; None if there is none."""
    name = next(filter(is_on_command_line, OF_CLUSTER), None)
    return name and f"--{name.replace('_', '-')}"


def short_help(command: click.Command) -> click.Command:
    """Leave the options of HIDDEN out of --help."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name in HIDDEN:
            parameter.hidden = True
    return command


def options(*several: Decorator) -> Decorator:
    """Combine decorators; --help lists their options in this order."""

    def decorated(command: Command) -> Command:
        for option in reversed(several):
            command = option(command)
        return command

    return decorated


def switch(names: str, text: str, **others: Any) -> Decorator:
    """Return a flag without value, of these names."""
    return click.option(*names.split(), is_flag=True, type=Switch(), help=text, **others)


def flag(names: str, value: str, text: str | None, **others: Any) -> Decorator:
    """Return a flag with a value, which is not empty unless `type` says otherwise."""
    others = {"type": not_empty, **others}
    return click.option(*names.split(), metavar=value, help=text, **others)


def globs(name: str, text: str | None, **others: Any) -> Decorator:
    """Return a flag whose values are globs."""
    others = {"type": _glob, "cls": ForAllCommands, "multiple": True, **others}
    return flag(name, "GLOB", text, **others)


def choice(names: str, words: Sequence[str], text: str, **others: Any) -> Decorator:
    """Return a flag whose value is one of these words; the first is the default."""
    others = {"default": words[0], "show_default": True, **others}
    return click.option(*names.split(), type=click.Choice(words), help=text, **others)


def _time(name: str, default: int, text: str, least: float = 0.0, **others: Any) -> Decorator:
    limit = f", min {least:g}s" if least else ""
    help_text = f"{text}  [default: {default}s{limit}]"
    return flag(name, "TIME", help_text, default=f"{default}s", type=Duration(least), **others)


OF_CLUSTER = ("kubeconfig", "context", "force_node")
OF_SOURCE = {"lldp": ("wait", "openvswitch"), "ib": ("tiers",), "nvml": ("nvml_library",)}
FILE = click.Path(exists=True, dir_okay=False)
FOLDER = click.Path(exists=True, file_okay=False)
FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, allow_dash=True)

# fmt: off
# The node's devices: probe, run, capture, explain, verify, doctor.
device_options = options(
    flag("--sysfs-root", "DIR", "Read the host's sysfs here.  [default: /sys]",
         type=FOLDER, default="/sys", cls=ForAllCommands),
    globs("--exclude-device", "Do not read these RDMA devices. Repeatable."),
    globs("--backend-device", "Only these RDMA devices count. Repeatable."),
    flag("--nvml-library", "PATH", "NVML library.  [default: libnvidia-ml.so.1]",
         type=click.Path(dir_okay=False), cls=ForAllCommands),
)
# The sources: probe, run, capture, doctor.
source_options = options(
    click.option("--source", cls=ForAllCommands, type=click.Choice(NAMES), multiple=True,
                 help="Read only these sources. Repeatable."),
    switch("--openvswitch", "LLDP below Open vSwitch; filters all packets.", cls=ForAllCommands),
)
# The sources, and the time to wait for LLDP frames: probe, capture, explain, verify.
no_wait_option = switch("--no-wait", "Do not receive LLDP frames.")
wait_options = options(
    source_options,
    flag("--wait", "SECONDS", "Wait for LLDP.  [default: up to 65, until every port has a frame]",
         type=Seconds(0, 3600)),
    no_wait_option,
)
# The switches above the leaves: probe, run, capture, doctor.
tiers_option = switch("--tiers", "Ask for the switches above the leaves.", cls=ForAllCommands)
# The transceiver modules: probe, capture, doctor.
modules_option = switch("--modules", "Read transceivers of Ethernet ports (root).")
# Names in a snapshot: capture, of this node and as a plugin of kubectl.
anonymize_option = switch("--anonymize", "Replace GUIDs, MACs, serials and host names.")
# A capture instead of this node: probe, explain, verify, doctor.
replay_option = flag("--replay", "SNAPSHOT", "Read this capture (folder or tar) instead.")
# A Node that need not be this host: probe, cleanup, explain, verify; hidden: run, whose --help is
# full (docs/operations.md).
FORCE_NODE = "--force-node", "The Node may have another boot ID."
force_option = switch(*FORCE_NODE)
# The API server: probe, run, cleanup, explain, verify, doctor, fleet.
cluster_options = options(
    flag("--kubeconfig", "FILE", "[default: Pod's account, else as kubectl]"),
    flag("--context", "NAME", "Context of the kubeconfig."),
)
# The label keys: probe, run, cleanup, explain, verify, fleet.
label_options = options(
    flag("--label-prefix", "DOMAIN", None, type=_prefix,
         default="backend.coreweave.cloud", show_default=True, cls=ForAllCommands),
    flag("--ib-label-prefix", "DOMAIN", "Empty: none.", type=_prefix_or_empty,
         default="ib.coreweave.cloud", show_default=True, cls=MayBeEmpty),
    flag("--accelerator-label", "KEY", "[network.topology.nvidia.com/accelerator]", cls=MayBeEmpty,
         type=_label_key_or_empty, default="network.topology.nvidia.com/accelerator"),
    flag("--tier-label", "PATTERN", "Keys of the tiers: example.com/tier-{n}.", type=_tier_keys,
         cls=ForAllCommands),
)
# The Node and its label keys: probe, run, cleanup, explain, verify; doctor has the first flag.
node_name_option = flag(
    "--node-name", "NAME", "Node name.  [default: $NODE_NAME or hostname]", type=_node_name,
    default=lambda: os.environ.get("NODE_NAME") or None,
)
naming_options = options(node_name_option, label_options)
# Prefixes and patterns that the operator has given up: probe, run. The variable has a list of them.
former_options = flag(
    "--former-label-prefix former_label_prefixes", "DOMAIN",
    "Prefix to clean of own labels. Repeatable.", type=_former, callback=_joined,
    cls=ForAllCommands, multiple=True,
)
# Times, metrics and log: run, whose --help is full: docs/verdict.md has the hidden one. The first
# three defaults are those of daemon/schedule.py, too.
run_options = options(
    _time("--hold", 600, "Keep unread labels this long."),
    _time("--min-interval", 10, "Wait between changes.", least=1),
    _time("--resync", 3600, "Refresh the Node.", least=300),
    _time("--gpu-interval", 60, "Query the GPUs.", least=1),
    _time("--port-interval", 2, "Read IB port states.", least=0.1),
    _time("--verdict-delay", 60, "A finding must last this long.", hidden=True),
    flag("--metrics-address", "IP:PORT", "Serve metrics here.",
         default="127.0.0.1:9477", show_default=True, type=address),
    flag("--metrics-cert", "FILE", "Serve metrics over TLS with this certificate."),
    flag("--metrics-key", "FILE", "Private key of --metrics-cert."),
    flag("--metrics-client-ca", "FILE", "CAs of the clients that may read metrics."),
    switch("-v --verbose", "Log details."),
    choice("--log-format", ["text", "json"], "Write the log in this format."),
)
# The expected half, besides that of the Node: run. A ConfigMap may come later than the agent.
plan_option = flag("--plan", "FILE", "Cabling plan, own CSV or labels. Repeatable.", multiple=True)
# The plans of a comparison, and what differences do not count: verify, fleet verify.
_plan_options = options(
    flag("--plan", "FILE", "Cabling plan. Repeatable.", type=FILE, multiple=True),
    flag("--plan-format", "KIND", "Kind of the plan.  [default: recognized]", type=str),
    flag("--columns", "COLUMN=TITLE,...", "Titles of a table's columns.", type=_columns),
)
_tolerance_options = options(
    flag("--baseline", "FILE", "Findings that are accepted.", type=FILE),
    flag("--write-baseline", "FILE", "Accept all findings in this file.", type=_new_file),
    flag("--hca-map", "CSV", "Columns port,hca-name[,node] of HCA numbers.", type=FILE),
    globs("--ignore", "Ignore these interfaces. Repeatable."),
    flag("--no-tolerance", "NAME", "Switch off a tolerance of names. Repeatable.",
         type=_tolerance, multiple=True),
)
verify_options = options(
    _plan_options,
    switch("--from-node", "The Node's labels, beside --plan."),
    _tolerance_options,
    choice("-o --output", ["table", "json", "junit", "csv"], "table, json, junit or csv.",
           metavar="FORMAT"),
    switch("--npd", "One line, for node-problem-detector."),
    click.option("--write-plan", type=click.Choice(["csv", "labels"]),
                 help="Print what is seen as a plan."),
    flag("--split", "DIR", "With --write-plan csv: write parts of --plan."),
)
# The Nodes to read: fleet. The globs are of --snapshots.
reading_options = options(
    flag("--nodes", "FILE", "Read what `kubectl get nodes -o json` printed; - is standard input.",
         type=FILE_OR_STDIN),
    flag("--snapshots", "DIR", "Read the captures in this folder.", type=FOLDER),
    flag("--selector", "LABELS", "Only Nodes with these labels, as for kubectl."),
    flag("--node", "NAME", "Only this Node; a glob for several. Repeatable.", multiple=True),
    cluster_options,
    label_options,
    globs("--exclude-device", None, hidden=True),
    globs("--backend-device", None, hidden=True),
)
# The comparison and its output: fleet verify.
comparison_options = options(
    _plan_options,
    switch("--partial", "The plan is meant for some Nodes only."),
    _tolerance_options,
    choice("-o --output", ["table", "json", "csv", "junit", "html"],
           "table, json, csv, junit or html.", metavar="FORMAT"),
)
# fmt: on
