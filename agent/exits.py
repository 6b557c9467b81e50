"""The end of a command: its exit code, and its error in one line on stderr.

Exit codes: 0 done, 1 failed, 2 wrong flags or environment, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from agent.errors import BwagentError, Unavailable
from agent.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LINE = 2000  # characters of one line that names an error or a change


def run_and_exit(cli: click.Command) -> NoReturn:
    """Run a command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # A name may have letters that the encoding of a terminal lacks.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(_run(cli))


def report(line: str, code: int) -> int:
    """Print an error on stderr; return the exit code."""
    print_line(line, err=True)
    return code


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines that may name a stranger's text, such as another field manager."""
    click.echo("\n".join(visible(line, MAX_LINE) for line in lines), err=err)


def print_line(line: str, *, err: bool = False) -> None:
    """Print one such line."""
    print_lines([line], err=err)


def _run(cli: click.Command) -> int:
    """Run the command; return its exit code."""
    try:
        return _command(cli)
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        click.echo(no_arguments.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return report(_usage(error), 2)
    except (click.Abort, KeyboardInterrupt):
        return report("bwagent: interrupted", 130)
    except BwagentError as error:
        return report(f"bwagent: {error}", 1)
    except OSError as error:
        _discard_output()
        return report(f"bwagent: cannot write the output: {error.strerror or error}", 1)


def _command(cli: click.Command) -> int:
    if sys.stdout is None:
        raise Unavailable("standard output is closed")
    code: int | None = cli.main(prog_name="bwagent", standalone_mode=False)
    return code or 0


def _usage(error: click.ClickException) -> str:
    """Return click's message as one line that begins with the command."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "bwagent"
    return f"{command}: {' '.join(error.format_message().split())}"


def _discard_output() -> None:
    """Discard the rest of the buffer, so that Python's flush at exit does not fail, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
