"""The commands of the shell; each imports its modules itself."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_BWAGENT_COMPLETE"  # click's name for it, which the scripts set


@click.command(
    epilog="\b\nExamples:\n"
    "  bwagent completion bash >/etc/bash_completion.d/bwagent\n"
    "  bwagent completion fish >~/.config/fish/completions/bwagent.fish"
)
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands and flags.

    SHELL is bash (4.4 or newer), zsh or fish. For one session:
    source <(bwagent completion bash)
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    if script := get_completion_class(shell):
        click.echo(script(root, {}, "bwagent", VARIABLE).source())
