"""The environment variables of the flags.

    BWAGENT_RUN_HOLD        a flag of one command: BWAGENT_<COMMAND>_<FLAG>
    BWAGENT_LABEL_PREFIX    a flag that decides labels, for all commands: BWAGENT_<FLAG>

Invariants:
- The command's own variable wins where both are set, and a flag wins over both.
- An empty variable is not set, unless its flag may be empty.
- A variable that no flag reads is an error of the commands that observe the node for its labels.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "BWAGENT_"
# Variables of the test suite, and those that Kubernetes adds to Pods for a Service `bwagent`.
_NO_SETTINGS = re.compile(r"BWAGENT_(TEST_.*|SERVICE_(HOST|PORT.*)|PORT(_[0-9]+_.*)?)")


class ForAllCommands(click.Option):
    """An option that BWAGENT_<FLAG> sets for all commands."""

    may_be_empty = False

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        found = [os.environ.get(name) for name in (_own(ctx, self), _common(self))]
        return next((text for text in found if text or (text == "" and self.may_be_empty)), None)


class MayBeEmpty(ForAllCommands):
    """One that an empty variable sets to ""; click ignores such a variable."""

    may_be_empty = True


class Switch(click.types.BoolParamType):
    """The value of a flag without value, which only a variable has."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if (found := self.str_to_bool(value)) is None:
            self.fail(f"{value[:64]!r} is neither true nor false", param, ctx)
        return found


SWITCH: dict[str, Any] = {"is_flag": True, "type": Switch()}


class CheckedCommand(click.Command):
    """A command whose output depends on the flags that decide labels.

    It raises click.UsageError for an environment variable that no flag reads, except while a shell
    completes its flags.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing and (names := unknown(ctx)):
            raise click.UsageError("; ".join(map(no_such_setting, names)), ctx)
        return rest


def no_such_setting(name: str) -> str:
    """Return the error for a variable that no flag reads."""
    return f"no such setting: {name}"


def unknown(ctx: click.Context) -> list[str]:
    """Return the variables that are meant for this command, or for all, and that no flag reads."""
    known = {_own(ctx, one) for one in ctx.command.params}
    commands = dict(_commands(ctx))
    for command in (ctx.command, *commands.values()):
        known |= {_common(one) for one in command.params if isinstance(one, ForAllCommands)}
    given = {name for name in os.environ if name.startswith(PREFIX)}
    own = f"{ctx.auto_envvar_prefix}_"
    others = tuple(prefix for prefix in commands if not own.startswith(prefix))
    return sorted(
        name
        for name in given - known
        if not (name.startswith(others) or _NO_SETTINGS.fullmatch(name))
    )


def _own(ctx: click.Context, parameter: click.Parameter) -> str:
    return f"{ctx.auto_envvar_prefix}_{(parameter.name or '').upper()}"


def _common(parameter: click.Parameter) -> str:
    return f"{PREFIX}{(parameter.name or '').upper()}"


def _commands(ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands and groups, each after the prefix of its variables."""
    yield from _inner(ctx.find_root().command, PREFIX)


def _inner(group: click.Command, prefix: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items() if isinstance(group, click.Group) else ():
        inner = f"{prefix}{name.upper().replace('-', '_')}_"
        yield inner, command
        yield from _inner(command, inner)
