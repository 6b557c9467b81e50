"""The flag --version: the version, and the revision and day of its commit where they are known."""

from __future__ import annotations

from typing import Any

import click

from agent import __version__
from agent.exits import print_line
from agent.revision import revision


def _print(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    known = revision()
    print_line(f"bwagent {__version__} ({known})" if known else f"bwagent {__version__}")
    context.exit()


def version_option(command: Any) -> Any:
    """Add --version to a command."""
    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print,
        help="Show the version and exit.",
    )(command)
