"""The flags of `bwagent run` alone, and a command that says everything that is wrong at once.

The law of this module: a DaemonSet is configured in one place and fails on ten thousand nodes, so a wrong setting stops
the start, whether it is a flag, a value or an environment variable that nobody reads, and whoever fixes it is told of
all of them the first time.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from agent.daemon.schedule import Settings
from agent.options import options

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., None]

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = 30 * 24 * 3600.0  # seconds


def duration(text: str, least: float = 0.0) -> float:
    """Seconds out of a number and perhaps its unit: `90`, `1.5m`, `1h`; or click.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smh]?)", text, re.ASCII)
    seconds = float(found[1]) * UNITS[found[2]] if found else -1.0
    if not least <= seconds <= LONGEST:
        raise click.BadParameter(f"{text[:64]!r} is no time from {least:g}s to {LONGEST / 3600:g}h")
    return seconds


class AllAtOnce(click.Command):
    """A command that lists every setting that is wrong, unknown variables of its prefix included."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, rest, order = self.make_parser(ctx).parse_args(args=list(args))
        options = [word for word in rest if word.startswith("-")]
        wrong = [f"no such option: {word[:64]}" for word in options]
        wrong += [] if options else [f"unexpected argument: {word[:64]}" for word in rest]
        given = [param for param in order if param in self.params]
        rank = {param: number for number, param in reversed(list(enumerate(given)))}
        for param in sorted(
            self.get_params(ctx), key=lambda one: (not one.is_eager, rank.get(one, len(order)))
        ):
            try:
                param.handle_parse_result(ctx, values, rest)
            except click.UsageError as error:
                wrong.append(error.format_message().rstrip("."))
        wrong += [f"no such setting: {name}" for name in self._unread(ctx)]
        if wrong:
            raise click.UsageError("; ".join(wrong), ctx)
        ctx.params.clear()
        return super().parse_args(
            ctx, args
        )  # which knows what else click does with values, and finds nothing wrong

    def _unread(self, ctx: click.Context) -> list[str]:
        """Environment variables that were meant for this command, and that it does not know."""
        prefix = f"{ctx.auto_envvar_prefix}_"
        known = {f"{prefix}{(param.name or '').upper()}" for param in self.params}
        return sorted(name for name in os.environ if name.startswith(prefix) and name not in known)


def _address(
    _context: click.Context, _parameter: click.Parameter, value: str
) -> tuple[str, int] | None:
    from agent.errors import Malformed
    from agent.telemetry.address import parse_address

    try:
        return parse_address(value) if value else None
    except Malformed as error:
        raise click.BadParameter(str(error)) from error


def _time(name: str, least: float, default: float, text: str) -> Callable[[Command], Command]:
    return click.option(
        name,
        default=f"{default:g}s",
        show_default=True,
        metavar="TIME",
        help=text,
        callback=lambda _context, _parameter, value: duration(value, least),
    )


USUAL = Settings()
# about time, and about what is told to whom
run_options = options(
    _time("--hold", 0.0, USUAL.hold, "How long a label stays that cannot be seen."),
    _time("--min-interval", 0.0, USUAL.min_interval, "Between two requests when much changes."),
    _time("--resync", 1.0, USUAL.resync, "Between two requests while nothing changes."),
    _time("--gpu-interval", 1.0, 60.0, "Between two questions to NVML."),
    _time("--port-interval", 0.1, 2.0, "Between two sweeps of InfiniBand port states."),
    click.option(
        "--metrics-address",
        default="127.0.0.1:9477",
        show_default=True,
        metavar="IP:PORT",
        callback=_address,
        help="Serve /metrics, /healthz and /readyz there.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Log details, too."),
    click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
    ),
)
