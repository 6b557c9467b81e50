"""The commands `run`, `cleanup`, `explain`, `verify` and `capture`; agent/cli.py loads them.

Each command imports its modules itself, so that `--help` and short commands start fast.
"""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn

import click

from agent import inputs
from agent.errors import BwagentError, Unavailable
from agent.exits import print_line
from agent.options import (
    EXAMPLES,
    FORCE_NODE,
    CheckedCommand,
    Switch,
    anonymize_option,
    check_tls,
    choice,
    cluster_options,
    device_options,
    flag,
    force_option,
    former_options,
    is_on_command_line,
    modules_option,
    naming_options,
    plan_option,
    refuse_cluster,
    replay_option,
    run_options,
    short_help,
    source_options,
    switch,
    tiers_option,
    verify_options,
    wait_options,
)

if TYPE_CHECKING:
    from agent.encode import Naming
    from agent.labels.render import Subject

STDOUT = "-"


@click.command(
    help="Watch this node; keep its Node's labels current until SIGTERM.",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent run --metrics-address :9477", "bwagent run --dry-run --context prod -v"
    ),
)
@switch("--dry-run", "Change nothing; log what would be applied.")
@switch("--events/--no-events", "Write Events about the Node.")
@switch("--require-policy", "Not ready without the admission policy.")
@switch(*FORCE_NODE, hidden=True)
@run_options
@plan_option
@cluster_options
@naming_options
@former_options
@device_options
@source_options
@tiers_option
def run(
    hold: float, min_interval: float, resync: float, source: tuple[str, ...], **flags: Any
) -> None:
    # Until the loop takes it: what it asks for, a start does anyway.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from agent.daemon.main import RunFlags
    from agent.daemon.main import run as serve
    from agent.daemon.schedule import Settings

    check_tls(flags)
    inputs.refuse_idle({**flags, "source": source})
    if flags["dry_run"] and flags["require_policy"] and is_on_command_line("require_policy"):
        raise click.UsageError("--require-policy: a --dry-run does not check the policy")
    serve(
        RunFlags(
            inputs.node_name(flags),
            inputs.naming(flags),
            settings=Settings(hold, min_interval, resync),
            sources=source,
            options=flags,
            **{name: flags[name] for name in RunFlags.__slots__ if name in flags},
        )
    )


@click.command(
    help="Remove every label and annotation of the agent from a Node.\n\n"
    "Delete the DaemonSet first: an agent that runs writes its labels "
    "again.",
    epilog=EXAMPLES.format(
        "bwagent cleanup --context prod --node-name gpu-17", "bwagent cleanup --all --yes"
    ),
)
@switch("--all everywhere", "Clean all Nodes; needs permission to list them.")
@switch(
    "--foreign",
    "Remove the keys that others set and bwagent does not publish, instead of its own; never the "
    "accelerator's.",
)
@flag("--manager", "NAME", "With --foreign: only the keys of this field manager.")
@switch("--lost", "Only forget interfaces that left the bus.")
@switch("--yes", "Do not ask for confirmation.")
@cluster_options
@force_option
@naming_options
def cleanup(
    everywhere: bool, foreign: bool, manager: str | None, lost: bool, yes: bool, **flags: Any
) -> None:
    from agent.cleanup import clean_up, clean_up_foreign, forget_lost
    from agent.kube.api import connect
    from agent.kube.nodes import of_this_host
    from agent.sources.observe import read_boot_id
    from agent.sysfs.reader import LiveRoot

    is_named, is_forced = map(is_on_command_line, ("node_name", "force_node"))
    refusals = {
        "--foreign excludes --lost": foreign and lost,
        "--manager needs --foreign": manager and not foreign,
        "--foreign with --all needs --manager": everywhere and foreign and not manager,
        "--all excludes --node-name": everywhere and is_named,
        "--all excludes --force-node": everywhere and is_forced,
        "--force-node needs --lost": is_forced and not lost,
        "standard input is not a terminal: add --yes": not (yes or sys.stdin.isatty()),
    }
    for text, applies in refusals.items():
        if applies:
            raise click.UsageError(text)
    node, naming = None if everywhere else inputs.node_name(flags), inputs.naming(flags)
    with closing(connect(flags["kubeconfig"], flags["context"])) as kube:
        if foreign:
            clean_up_foreign(kube, node, naming, manager, yes=yes)
        elif lost:
            is_any = everywhere or flags["force_node"]
            own = kube if is_any else of_this_host(kube, read_boot_id(LiveRoot())[0])
            forget_lost(own, node, naming, yes=yes)
        else:
            clean_up(kube, node, naming, yes=yes)


@click.command(
    help="Print where a label comes from, and who holds it on the Node.\n\n"
    "KEY may lack its prefix.",
    cls=CheckedCommand,
    epilog=EXAMPLES.format(
        "bwagent explain speed.current",
        "bwagent explain backend.coreweave.cloud/neighbors.current.ibp0.device",
    ),
)
@click.argument("key", metavar="KEY")
@replay_option
@choice("-o --output", ["table", "json"], "Print this format.")
@cluster_options
@force_option
@naming_options
@device_options
@wait_options
def explain(key: str, output: str, **flags: Any) -> None:
    from agent.labels.render import render
    from agent.output import explain
    from agent.output.formats import show_explained

    if flags["replay"]:
        refuse_cluster("--replay")
    inputs.refuse_idle(flags)
    naming = inputs.naming(flags)
    subject = _subject(key, naming)
    needs_frames = subject.row.key.partition("/")[2].startswith(("neighbors", "leaves", "ports"))
    wait = inputs.lldp_wait(flags) if needs_frames else None
    host = inputs.host(flags, wait, reads_counters=bool(subject.interface))
    target, on_node = None, None
    try:
        target = None if flags["replay"] else inputs.target(flags, host)
    except Unavailable as error:
        on_node = {"fault": str(error)}
    observation, known = inputs.observed(host, flags, target)
    if target:
        on_node = target.facts(subject.key)
    names = explain.known_interfaces(observation, known)
    is_on_node = bool(on_node and on_node.get("value") is not None)
    if subject.interface and subject.interface not in names and not is_on_node:
        near = explain.backend_interfaces(observation, known)
        raise click.UsageError(explain.unknown_key(subject.key, naming, near))
    rendered = render(known, naming)
    rendered = rendered.over(target.previous) if target else rendered
    show_explained(explain.explained(subject, observation, known, rendered, on_node), output)


def _subject(key: str, naming: Naming) -> Subject:
    """Return the row of a label key, with or without its prefix.

    Raises click.UsageError for another key.
    """
    from agent.labels.render import subject_of
    from agent.output.explain import unknown_key

    whole = [full for full in (naming.accelerator, *naming.tiers) if full.endswith(f"/{key}")]
    for full in (key, f"{naming.prefix}/{key}", f"{naming.ib_prefix}/{key}", *whole):
        if subject := subject_of(full, naming):
            if naming.tiers and subject.row.tier and full not in naming.tiers:
                other = naming.tiers[subject.row.tier]
                raise click.UsageError(f"{key[:64]!r} is {other} by --tier-label")
            return subject
    raise click.UsageError(unknown_key(key, naming, ["{if}"]))


class NpdCommand(CheckedCommand):
    """A command with the flag --npd: with it, every error is the line, and the code for unknown.

    node-problem-detector reads nothing but the standard output of a plugin.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = args[: args.index("--")] if "--" in args else args
        (flag,) = (parameter for parameter in self.params if parameter.name == "npd")
        variable = Switch.str_to_bool(flag.resolve_envvar_value(ctx) or "")
        is_npd = not ctx.resilient_parsing and ("--npd" in words or bool(variable))
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if is_npd:
                self._exit(ctx, error.format_message())
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if ctx.params["npd"]:
                self._exit(ctx, error.format_message())
            raise
        except BwagentError as error:
            if ctx.params["npd"]:
                self._exit(ctx, str(error))
            raise

    @staticmethod
    def _exit(ctx: click.Context, text: str) -> NoReturn:
        from agent.output.report import UNVERIFIED
        from agent.verify.command import NPD_EXIT, npd_text

        print_line(npd_text(text))
        ctx.exit(NPD_EXIT[UNVERIFIED])


@short_help
@click.command(
    help="Compare the cables of this node with those of the site's plan.\n\n"
    "The plan is --plan or the Node's expected labels. Exit code 3: "
    "differences.",
    cls=NpdCommand,
    epilog=EXAMPLES.format(
        "bwagent verify --plan cabling.csv",
        "bwagent verify --replay node-17 --plan cabling.csv -o junit",
    ),
)
@replay_option
@verify_options
@cluster_options
@force_option
@naming_options
@device_options
@wait_options
def verify(**flags: Any) -> None:
    from agent.verify.command import run as compare

    click.get_current_context().exit(compare(flags))


@click.command(
    help="Write everything that bwagent reads on this node into DIR.\n\n"
    "DIR - is a tar archive on standard output.",
    epilog=EXAMPLES.format(
        "bwagent capture --anonymize for-a-bug-report", "bwagent capture - >node-17.tar"
    ),
)
@click.argument("folder", metavar="DIR")
@replay_option
@anonymize_option
@device_options
@wait_options
@tiers_option
@modules_option
def capture(folder: str, anonymize: bool, **flags: Any) -> None:
    from agent.folder import refuse_archive, refuse_existing
    from agent.snapshot import anonymize as anonymizer
    from agent.snapshot.capture import (
        STANDARD_OUTPUT,
        WRITER,
        entries,
        record,
        summary,
        write_folder,
        write_tar,
    )

    inputs.refuse_idle(flags)
    if folder != STDOUT:
        refuse_archive(folder)
        refuse_existing(folder, WRITER)
    elif sys.stdout.isatty():
        raise click.UsageError("standard output is a terminal: redirect it, or name a folder")
    host = inputs.host(flags, inputs.lldp_wait(flags))
    journal, observation = record(host, flags["source"], modules=flags["modules"])
    if not any(path.startswith("sys/") for path in journal.files):
        inputs.require_rdma(observation)
    journal = anonymizer.anonymize(journal) if anonymize else journal
    if folder == STDOUT:
        write_tar(entries(journal), sys.stdout.buffer, observation.time)
    else:
        write_folder(entries(journal), folder)
    place = STANDARD_OUTPUT if folder == STDOUT else f"{folder.rstrip('/')}/"
    # not NODE of `kubectl bwagent capture NODE`
    source = flags["replay"] or f"this host{f' {host.name}' if host.name else ''}"
    print_line(f"captured {source} into {place}: {summary(journal)}", err=True)
