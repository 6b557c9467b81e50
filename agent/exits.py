"""The frame of a command: its standard streams, its exit code, its error in one line on stderr.

The error of `run` is a line of JSON if its log is.

Exit codes: 0 done, 1 failed, 2 wrong flags or environment, 3 differences
(`verify`), 130 interrupted, 143 terminated.

SIGTERM is handled because the kernel gives process 1 of a container no default action. `run`
replaces the handler by its own.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

import click

from agent.errors import BwagentError
from agent.text import visible

MAX_LINE = 2000  # characters of one line that names an error or a change
# Errors of click, and alike, that name what is wrong and not what there is.
_UNKNOWN = r"(no such (command|option|setting)|(got )?unexpected|missing argument)\b"
STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))
LOG_FORMAT, LOG_FORMAT_VARIABLE = "--log-format", "BWAGENT_RUN_LOG_FORMAT"
RESIDENT = {"run"}  # commands that stay: they write nothing to stdout, and need little memory
PLUGIN = "kubectl-bwagent"  # the program that `kubectl bwagent` starts


class Terminated(SystemExit):
    """SIGTERM was received."""


def run_and_exit(cli: click.Command, settings: object = None) -> NoReturn:
    """Run a command line and exit with its code; `settings` become the object of its context."""
    is_resident = bool(RESIDENT.intersection(sys.argv[1:2]))
    if not is_resident:
        # A probe keeps most of the 20,000 objects that it makes: it ends before a collection.
        gc.set_threshold(50_000)
    is_stdout_closed = 1 in open_standard_streams()
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # A name may have letters that the encoding of a terminal lacks.
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if is_stdout_closed and not is_resident:
        sys.exit(report("bwagent: standard output is closed", 1))
    try:
        code = _run(cli, settings)
    except Terminated:
        code = report("bwagent: terminated", 143)
    signal.signal(signal.SIGTERM, _exit)  # an exception would interrupt Python's own end
    if threading.active_count() == 1:
        gc.freeze()  # Python would look for cycles twice before it ends
        sys.exit(code)
    # A thread that is in the kernel, the resolver or OpenSSL outlives its deadline. Such a thread
    # may crash CPython while that takes the interpreter down.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run(cli: click.Command, settings: object) -> int:
    """Run the command; return its exit code."""
    name = "kubectl bwagent" if is_plugin() else "bwagent"
    complete = "_BWAGENT_COMPLETE"
    try:
        code = cli.main(prog_name=name, complete_var=complete, standalone_mode=False, obj=settings)
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        click.echo(no_arguments.format_message(), err=True)
        return 2
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else "bwagent"
        text = " ".join(error.format_message().split())
        if re.match(_UNKNOWN, text, re.IGNORECASE):
            text = f"{text.rstrip('.')}; see {command} --help"
        return report(f"{command}: {text}", 2)
    except (click.Abort, KeyboardInterrupt):
        return report("bwagent: interrupted", 130)
    except BwagentError as error:
        return report(f"bwagent: {error}", 1)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of which click makes an exit
            _discard_output()
        raise
    except OSError as error:
        _discard_output()
        return report(f"bwagent: cannot write the output: {error.strerror or error}", 1)
    return int(code or 0)


def _discard_output() -> None:
    """Send the rest of the buffer to /dev/null: Python flushes it at exit.

    It would fail there again, and say so on stderr, since 3.13 in every case.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_standard_streams() -> list[int]:
    """Open /dev/null as each of descriptors 0 to 2 that is closed; return those descriptors.

    Otherwise the first socket would become one of them.
    """
    closed = []
    for fd, name, mode in STREAMS:
        try:
            os.fstat(fd)
        except OSError:
            closed.append(fd)
            null = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: `fd`
            os.set_inheritable(null, True)  # noqa: FBT003 - has no keywords
            setattr(sys, name, open(null, mode, encoding="utf-8"))  # noqa: SIM115 - stays open
    return closed


def _terminate(*_: object) -> NoReturn:
    """End the command as an exception does; a second SIGTERM ends the process at once."""
    signal.signal(signal.SIGTERM, _exit)
    raise Terminated(143)


def _exit(*_: object) -> NoReturn:
    os._exit(143)


def report(line: str, code: int) -> int:
    """Print an error on stderr, in the format of the log; return the exit code."""
    if is_log_json(sys.argv[1:], os.environ):
        import json
        from datetime import UTC, datetime

        # As a line of the log (agent/telemetry/log.py).
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = {"time": now, "level": "error", "msg": visible(line, MAX_LINE)}
        click.echo(json.dumps(record, ensure_ascii=False), err=True)
    else:
        print_line(line, err=True)
    return code


def is_log_json(words: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Return True if `run` is asked for a log in JSON, even where its other flags are wrong.

    The value of the flag may be its own word or behind an equals sign; the last one counts.
    """
    if words[:1] != ["run"]:
        return False
    wanted = variables.get(LOG_FORMAT_VARIABLE)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag == LOG_FORMAT:
            wanted = value if equals else following
    return wanted == "json"


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines that may name a stranger's text, such as another field manager."""
    click.echo("\n".join(visible(line, MAX_LINE) for line in lines), err=err)


def print_line(line: str, *, err: bool = False) -> None:
    """Print one such line."""
    print_lines([line], err=err)


def print_text(text: str) -> None:
    """Print a document as it is."""
    click.echo(text, nl=False)


def is_plugin() -> bool:
    """Return True if kubectl has started the program, as `kubectl bwagent`."""
    return sys.argv[0].rpartition("/")[2] == PLUGIN
