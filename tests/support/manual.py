"""The manual pages of docs/man, generated from the parser: roff in the macros of man(7).

Invariant: every text of a page is one of `--help` or of this module, with each character that roff
would interpret escaped.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

from agent.cli import cli
from agent.options import PREFIX, ForAllCommands
from agent.shell.commands import capture_of_node

UNWRAPPED = "\b\n"  # click's mark of a paragraph that keeps its lines
SPECIAL = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "~": r"\(ti", "^": r"\(ha"}
)
EXIT_CODES = {
    0: "Done; failed devices are listed, they are no failure.",
    1: "It could not be done: nothing was observed or applied, or a label was refused.",
    2: "Wrong flags or environment.",
    130: "Interrupted.",
    143: "Terminated.",
}
DIFFERENCES = {3: "There are differences."}
COMPARING = {"verify"}  # commands that exit with 3


class Page(NamedTuple):
    """A command and its context."""

    context: click.Context

    @property
    def name(self) -> str:
        """The name of the page: bwagent-fleet-verify."""
        return self.context.command_path.replace(" ", "-")

    @property
    def command(self) -> click.Command:
        """The command itself."""
        return self.context.command


def pages() -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    found = [*_pages(_root("bwagent")), Page(_of_plugin())]
    return {f"{page.name}.1": _text(page) for page in found}


def _root(name: str) -> click.Context:
    return click.Context(cli, info_name=name, **cli.context_settings)


def _of_plugin() -> click.Context:
    """Return the only command that is another one if kubectl starts the program."""
    return click.Context(capture_of_node, _root("kubectl bwagent"), "capture")


def _pages(context: click.Context) -> Iterator[Page]:
    # click keeps the help option of a command's first context, which may have been another root's.
    vars(context.command)["_help_option"] = None
    yield Page(context)
    for inner in _inner(context):
        yield from _pages(inner)


def _inner(context: click.Context) -> list[click.Context]:
    """Return the contexts of the commands of a group."""
    if not isinstance(group := context.command, click.Group):
        return []
    names = group.list_commands(context)
    commands = ((name, group.get_command(context, name)) for name in sorted(names))
    return [click.Context(command, context, name) for name, command in commands if command]


def _text(page: Page) -> str:
    """Return the roff of a page."""
    lines = [
        r".\" Generated: pytest tests/unit/shell/test_manual.py --update-golden",
        f'.TH {_escaped(page.name.upper())} 1 "" "bwagent" "User Commands"',
        ".nh",
        ".ad l",
        *_section("NAME", [rf"{_escaped(page.name)} \- {_escaped(_title(page.command))}"]),
        *_section("SYNOPSIS", [f".B {_escaped(page.context.command_path)}", _usage(page)]),
        *_section("DESCRIPTION", _paragraphs(page.command.help or "")),
        *_section("COMMANDS", _commands(page)),
        *_section("OPTIONS", _options(page)),
        *_section("ENVIRONMENT", _environment(page)),
        *_section("EXIT STATUS", _exit_codes(page)),
        *_section("EXAMPLES", _examples(page.command.epilog or "")),
        *_section("SEE ALSO", [_references(page)]),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a section; nothing without lines."""
    found = list(lines)
    return [f".SH {title}", *found] if found else []


def _escaped(text: str) -> str:
    """Return the text with each character as itself; a dot at its begin is no request."""
    escaped = text.translate(SPECIAL)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def _title(command: click.Command) -> str:
    """Return the first sentence of a command's help, as the NAME section has it."""
    first = " ".join(inspect.cleandoc(command.help or "").partition("\n\n")[0].split())
    return first[:1].lower() + first[1:].rstrip(".")


def _usage(page: Page) -> str:
    return f".I {_escaped(' '.join(page.command.collect_usage_pieces(page.context)))}"


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith(UNWRAPPED):
            yield from _unwrapped(paragraph.removeprefix(UNWRAPPED).splitlines())
        else:
            yield _escaped(" ".join(paragraph.split()))


def _unwrapped(lines: Iterable[str]) -> list[str]:
    return [".nf", *map(_escaped, lines), ".fi"]


def _commands(page: Page) -> Iterator[str]:
    for inner in _inner(page.context):
        yield from _tagged(rf"\fB{_escaped(inner.info_name or '')}\fR", _first(inner.command))


def _first(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    return inspect.cleandoc(command.help or "").partition("\n\n")[0]


def _tagged(tag: str, text: str) -> Iterator[str]:
    yield from (".TP", tag, _escaped(" ".join(text.split())) or r"\&")


def _options(page: Page) -> Iterator[str]:
    for parameter in page.command.get_params(page.context):
        record = parameter.get_help_record(page.context)
        if record and isinstance(parameter, click.Option):
            yield from _tagged(_flags(record[0]), record[1])


def _flags(text: str) -> str:
    """Return flags in bold and the name of their value in italics."""
    words = re.split(r"(\s+)", text)
    return "".join(
        rf"\fB{_escaped(word)}\fR" if word.startswith("-") else _italic(word) for word in words
    )


def _italic(word: str) -> str:
    return rf"\fI{_escaped(word)}\fR" if word.strip() else word


def _environment(page: Page) -> Iterator[str]:
    """Name the variables of a command's flags; a group has none but in its commands."""
    if isinstance(page.command, click.Group):
        return
    shown = [
        one
        for one in page.command.params
        if isinstance(one, click.Option) and not one.hidden and one.name != "help"
    ]
    if shown:
        yield from _variables(page.context.auto_envvar_prefix or "", shown)


def _variables(prefix: str, shown: list[click.Option]) -> Iterator[str]:
    first = f"{prefix}_{(shown[0].name or '').upper()}"
    yield _escaped(f"Every flag is also a variable: {first} is {shown[0].opts[-1]}.")
    common = [f"{PREFIX}{(one.name or '').upper()}" for one in shown if _is_common(one)]
    if common:
        yield _escaped("These are read by all commands:")
        yield _escaped(f"{', '.join(common)}.")


def _is_common(option: click.Option) -> bool:
    return isinstance(option, ForAllCommands)


def _exit_codes(page: Page) -> Iterator[str]:
    own = DIFFERENCES if page.command.name in COMPARING else {}
    for code, text in sorted((EXIT_CODES | own).items()):
        yield from _tagged(str(code), text)


def _examples(epilog: str) -> list[str]:
    lines = epilog.removeprefix(UNWRAPPED).splitlines()[1:]
    return _unwrapped(line.strip() for line in lines) if lines else []


def _references(page: Page) -> str:
    """Name the page of the group, those of the commands, and the other page of `capture`."""
    parent = page.context.parent
    near = [*([parent] if parent else []), *_inner(page.context)]
    names = [Page(one).name for one in near]
    plugin = Page(_of_plugin()).name
    if page.name == plugin:
        names = ["bwagent", "bwagent-capture"]
    elif page.name == "bwagent-capture":
        names.append(plugin)
    return ",\n".join(rf"\fB{_escaped(name)}\fR(1)" for name in names)
