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
from agent.flags import device_options, naming_options, not_empty, wait_options

if TYPE_CHECKING:
    from agent.host import Host
    from agent.live.hearing import Hearing
    from agent.model import Observation

EXAMPLES = "\b\nExamples:\n  {}\n  {}"


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
@click.option(
    "--replay", metavar="SNAPSHOT", callback=not_empty, help="Look at a capture (folder or tar) instead of this node."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "labels", "json", "yaml"]), default="table", show_default=True
)
@naming_options
@device_options
@wait_options
def probe(replay: str | None, output: str, dry_run: bool, **flags: Any) -> None:
    """Observe this node once and print its labels."""
    if not dry_run and replay is None:
        raise click.UsageError("this version applies no labels yet: add --dry-run")
    from agent.labels import Naming
    from agent.observe import observe
    from agent.probe import Choices, report_on, show
    from agent.replay import replay as replayed

    excluded, backend = flags["exclude_device"], flags["backend_device"]
    if replay:
        host, hearing = replayed(replay, excluded, backend), None
    else:
        host, hearing = _live(flags)
    observation = observe(host, flags["source"])
    choices = Choices(
        backend,
        excluded,
        Naming(flags["label_prefix"], flags["ib_label_prefix"], flags["accelerator_label"]),
        flags["node_name"],
    )
    show(report_on(observation, choices, hearing.note() if hearing else None), output)
    _fail_if_blind(observation)


@cli.command(epilog=EXAMPLES.format("bwagent capture node-17", "bwagent capture --anonymize for-a-bug-report"))
@click.argument("folder", metavar="DIR")
@click.option("--anonymize", is_flag=True, help="Replace GUIDs, MACs, serials and host names, consistently.")
@device_options
@wait_options
def capture(folder: str, anonymize: bool, **flags: Any) -> None:
    """Write a snapshot of what bwagent reads on this node into DIR."""
    from agent import anonymize as anonymizer
    from agent.capture import record, refuse_existing, summary, write

    refuse_existing(folder)
    host, _ = _live(flags)
    journal, observation = record(host, flags["source"])
    if not any(path.startswith("sys/") for path in journal.files):
        _fail_if_blind(observation)
    journal = anonymizer.anonymize(journal) if anonymize else journal
    write(journal, folder)
    click.echo(f"{folder}: {summary(journal)}")


def _live(flags: dict[str, Any]) -> tuple[Host, Hearing | None]:
    """The doors of this node, and the patience of the one that LLDP frames come in by."""
    from agent.live.hearing import Hearing, progress
    from agent.live.node import live_host
    from agent.live.packets import Listener

    hearing = None if flags["no_wait"] else Hearing(flags["wait"], progress, Listener(openvswitch=flags["openvswitch"]))
    devices = flags["exclude_device"], flags["backend_device"]
    return live_host(flags["sysfs_root"], *devices, hearing, flags["nvml_library"]), hearing


def _fail_if_blind(observation: Observation) -> None:
    from agent.model import Failed

    if isinstance(observation.rdma, Failed):
        raise Unavailable(f"nothing observed: {observation.rdma.reason}")


def main() -> None:
    """Run the command line; what goes wrong becomes one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name may have any letters
    sys.exit(_run())


def _run() -> int:
    try:
        if sys.stdout is None:
            raise Unavailable("standard output is closed")
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
    except OSError as error:
        # What is still in the buffer cannot be written either; Python's last flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _complain(f"bwagent: cannot write the output: {error.strerror or error}", 1)
    return code or 0


def _complain(line: str, code: int) -> int:
    click.echo(line, err=True)
    return code


if __name__ == "__main__":
    main()
