"""The errors of commands: one line on stderr, in the format of the log."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from agent.exits import is_log_json
from tests.support.snapshots import bwagent

JSON = {"BWAGENT_RUN_LOG_FORMAT": "json"}


@pytest.mark.parametrize(
    ("words", "variables", "is_json"),
    [
        ("run --log-format json --nosuch", {}, True),
        ("run --nosuch --log-format=json", {}, True),
        ("run --log-format text --log-format json", {}, True),
        ("run --nosuch", JSON, True),
        ("run --log-format text", JSON, False),
        ("run --log-format jsn", JSON, False),
        ("run --log-format", {}, False),
        ("run", {}, False),
        ("probe", JSON, False),
        ("", JSON, False),
    ],
)
def test_the_format_is_known_beside_wrong_flags(
    words: str, variables: dict[str, str], *, is_json: bool
) -> None:
    """The last flag counts, then the variable; no other command has a log."""
    assert is_log_json(words.split(), variables) == is_json


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("--nosuch",), 2, "--nosuch"),
        (("--hold", "a\nb"), 2, "--hold"),
        (("--metrics-cert", "a"), 2, "--metrics-key"),
        (("--metrics-cert", "/nosuch", "--metrics-key", "/nosuch"), 1, "/nosuch"),
        (("--node-name", "n1", "--metrics-address", "192.0.2.1:1", "--kubeconfig", "/x"), 1, "/x"),
    ],
)
def test_an_error_of_run_is_a_line_of_json(words: tuple[str, ...], code: int, named: str) -> None:
    """Wrong flags, and an agent that cannot run; with time, level and msg as each line."""
    finished = bwagent("run", "--log-format", "json", *words)
    lines = finished.stderr.decode().splitlines()
    error = json.loads(lines[-1])
    assert finished.returncode == code
    assert (error["level"], named in error["msg"]) == ("error", True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", error["time"])
    assert all("msg" in json.loads(line) for line in lines)


STUCK = """
import atexit, threading, click
from agent.exits import run_and_exit
atexit.register(print, "the interpreter is taken down")
@click.command
def cli():
    {start}
    click.echo("printed", nl=False)
run_and_exit(cli)
"""
LATE = "threading.Thread(target=threading.Event().wait, daemon=True).start()"


@pytest.mark.parametrize(
    ("start", "printed"),
    [("pass", "printedthe interpreter is taken down\n"), (LATE, "printed")],
    ids=["no thread", "a thread"],
)
def test_the_interpreter_is_not_taken_down_around_a_thread(start: str, printed: str) -> None:
    """A thread that is past its deadline may crash the interpreter while that ends."""
    command = [sys.executable, "-c", STUCK.format(start=start)]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, printed, "")


COLLECTING = """
import gc, sys, click
from agent.exits import run_and_exit
usual = gc.get_threshold()
sys.argv[1:] = [{command!r}]
@click.command
@click.argument("command")
def cli(command):
    click.echo(gc.get_threshold() == usual)
run_and_exit(cli)
"""


@pytest.mark.parametrize(("command", "is_usual"), [("run", True), ("probe", False)])
def test_only_a_short_command_puts_collections_off(command: str, *, is_usual: bool) -> None:
    """What an agent would not collect while it starts is a megabyte that it has for ever."""
    program = [sys.executable, "-c", COLLECTING.format(command=command)]
    finished = subprocess.run(program, check=False, capture_output=True, text=True)
    assert (finished.stdout, finished.stderr) == (f"{is_usual}\n", "")
