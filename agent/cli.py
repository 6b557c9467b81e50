"""The command line: flags and environment in, an exit code and one line about what went wrong out.

Exit codes: 0 done, 1 could not do it, 2 wrong flags or environment. What a command needs it imports itself, so that
`--help` is as fast as click allows.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from agent import __version__
from agent.errors import BwagentError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., None]

EXAMPLES = "\b\nExamples:\n  {}\n  {}"
GLOB: dict[str, Any] = {"multiple": True, "metavar": "GLOB"}


def _prefix(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    from agent.encode import prefix_fault

    if not value and parameter.name == "ib_label_prefix":
        return value  # the family is turned off
    if fault := prefix_fault(value):
        raise click.BadParameter(fault)
    return value


def _node_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from agent.encode import prefix_fault

    if value is not None and prefix_fault(value):
        raise click.BadParameter(f"{value[:64]!r} is no Node name (a DNS name in lower case)")
    return value


def device_options(command: Command) -> Command:
    """The flags of every command that looks at the node's devices."""
    for option in (
        click.option("--exclude-device", **GLOB, help="Leave these RDMA devices out and unread. Repeatable."),
        click.option(
            "--sysfs-root",
            type=click.Path(exists=True, file_okay=False),
            default="/sys",
            metavar="DIR",
            help="Where the host's /sys is mounted.",
        ),
    ):
        command = option(command)
    return command


def naming_options(command: Command) -> Command:
    """The flags that say how the Node and its label keys are called."""
    for option in (
        click.option(
            "--ib-label-prefix",
            default="ib.coreweave.cloud",
            show_default=True,
            metavar="DOMAIN",
            callback=_prefix,
            help="Empty: none of these keys.",
        ),
        click.option(
            "--label-prefix", default="backend.coreweave.cloud", show_default=True, metavar="DOMAIN", callback=_prefix
        ),
        click.option(
            "--node-name",
            default=lambda: os.environ.get("NODE_NAME"),
            metavar="NAME",
            callback=_node_name,
            help="Else $NODE_NAME, else the host name.",
        ),
    ):
        command = option(command)
    return command


@click.group(context_settings={"auto_envvar_prefix": "BWAGENT", "help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bwagent", message="%(prog)s %(version)s")
def cli() -> None:
    """Observe a node's backend network and render the labels that topology-aware schedulers read.

    Every flag is also an environment variable, BWAGENT_<COMMAND>_<FLAG>.
    """


@cli.command(
    epilog=EXAMPLES.format("bwagent probe --dry-run", "bwagent probe --replay sysfs_fixtures/dgx-h100 -o labels")
)
@click.option("--dry-run", is_flag=True, help="Change nothing and contact no API server.")
@click.option("--replay", metavar="SNAPSHOT", help="Look at a capture (folder or tar) instead of this node.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "labels", "json", "yaml"]), default="table", show_default=True
)
@click.option("--backend-device", **GLOB, help="These RDMA devices are the backend, no others. Repeatable.")
@naming_options
@device_options
def probe(replay: str | None, output: str, dry_run: bool, **flags: Any) -> None:
    """Observe this node once and print its labels."""
    if not dry_run and replay is None:
        raise click.UsageError("this version applies no labels yet: add --dry-run")
    from agent.labels import Naming
    from agent.model import Failed
    from agent.observe import observe
    from agent.probe import Choices, live_host, report_on, show
    from agent.replay import replay as replayed

    excluded = flags["exclude_device"]
    observation = observe(replayed(replay, excluded) if replay else live_host(flags["sysfs_root"], excluded))
    naming = Naming(flags["label_prefix"], flags["ib_label_prefix"])
    show(report_on(observation, Choices(flags["backend_device"], excluded, naming, flags["node_name"])), output)
    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")


@cli.command(epilog=EXAMPLES.format("bwagent capture node-17", "bwagent capture --anonymize for-a-bug-report"))
@click.argument("folder", metavar="DIR")
@click.option("--anonymize", is_flag=True, help="Replace GUIDs, MACs, serials and host names, consistently.")
@device_options
def capture(folder: str, anonymize: bool, sysfs_root: str, exclude_device: tuple[str, ...]) -> None:
    """Write a snapshot of what bwagent reads on this node into DIR."""
    from agent import anonymize as anonymizer
    from agent.capture import record, refuse_existing, summary, write
    from agent.model import Failed
    from agent.probe import live_host

    refuse_existing(folder)
    journal, observation = record(live_host(sysfs_root, exclude_device))
    if isinstance(observation.rdma, Failed) and not journal.files:
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")
    journal = anonymizer.anonymize(journal) if anonymize else journal
    write(journal, folder)
    click.echo(f"{folder}: {summary(journal)}")


def main() -> None:
    """Run the command line; what goes wrong becomes one line on stderr and an exit code."""
    sys.exit(_run())


def _run() -> int:  # noqa: PLR0911 - one line for each way to end
    try:
        code: int | None = cli.main(prog_name="bwagent", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        return _complain(help_wanted.format_message(), 2)
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "bwagent"
        return _complain(f"{command}: {' '.join(error.format_message().split())}", 2)
    except (click.Abort, KeyboardInterrupt):
        return _complain("bwagent: interrupted", 130)
    except BwagentError as error:
        return _complain(f"bwagent: {error}", 1)
    except BrokenPipeError:
        # Nobody reads any more; Python's last flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _complain(f"bwagent: cannot write the output: {error.strerror or error}", 1)
    return code or 0


def _complain(line: str, code: int) -> int:
    click.echo(line, err=True)
    return code


if __name__ == "__main__":
    main()
