"""Read a fleet from where the flags say: a file, a folder of snapshots, or the API server."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from agent import inputs
from agent.fleet.collect import Selection

if TYPE_CHECKING:
    from agent.fleet.model import Fleet

    Flags = dict[str, Any]

WIDTH = 79  # columns of the line of progress
INTERVAL = 0.2  # seconds between two
OF_CLUSTER = ("selector", "kubeconfig", "context")


def read(flags: Flags) -> Fleet:
    """Read the fleet; raises Malformed or Unavailable, click.UsageError for flags that clash."""
    _check(flags)
    progress = Progress("reading Nodes" if flags["nodes"] else "reading snapshots")
    if not (flags["nodes"] or flags["snapshots"]):
        progress = Progress("listing Nodes")
    selection = Selection(inputs.naming(flags), flags["node"], progress)
    try:
        return _read(flags, selection, progress)
    finally:
        progress.clear()


def _check(flags: Flags) -> None:
    """Raise click.UsageError for flags that would have no effect."""
    source = next((name for name in ("nodes", "snapshots") if flags[name]), None)
    if source is None:
        return
    others = ("snapshots", *OF_CLUSTER) if source == "nodes" else OF_CLUSTER
    if given := [name for name in others if flags[name] and _is_given(name)]:
        raise click.UsageError(f"--{source} excludes --{given[0]}")


def _is_given(name: str) -> bool:
    """Return True unless a variable for all calls gives the cluster's access."""
    from agent.options import is_on_command_line

    return name in ("selector", "snapshots") or is_on_command_line(name)


def _read(flags: Flags, selection: Selection, progress: Progress) -> Fleet:
    if flags["nodes"]:
        from agent.fleet.node_file import read_file

        return read_file(flags["nodes"], selection, time.time())
    if flags["snapshots"]:
        from agent.fleet.snapshots import read_snapshots

        globs = flags["exclude_device"], flags["backend_device"]
        return read_snapshots(flags["snapshots"], selection, globs)
    return _of_cluster(flags, selection, progress)


def _of_cluster(flags: Flags, selection: Selection, progress: Progress) -> Fleet:
    from agent.fleet.cluster import read_cluster
    from agent.kube.api import connect

    api = connect(flags["kubeconfig"], flags["context"], waiting=progress.waiting)
    with closing(api) as kube:
        return read_cluster(kube, flags["selector"] or "", selection, time.time())


class Progress:
    """A line on stderr, if it is a terminal.

    `listing Nodes: 3,500 of about 10,000`, then `, 12 s for the next page` while one is awaited.
    """

    def __init__(self, verb: str, interval: float = INTERVAL) -> None:
        self._verb, self._interval = verb, interval
        self._is_shown = sys.stderr.isatty()
        self._due = time.monotonic() + interval
        self._count = "0"

    def __call__(self, read: int, total: int | None) -> None:
        """Show the number of Nodes read, and in all if that is known."""
        if self._is_shown:
            of = "" if total is None else f" of about {total:,}"
            self._count = f"{read:,}{of}"
            if time.monotonic() >= self._due:
                self._write("")

    def waiting(self, seconds: float) -> None:
        """Show for how long the next Nodes have been awaited."""
        if self._is_shown:
            self._write(f", {seconds:.0f} s for the next page")

    def _write(self, more: str) -> None:
        sys.stderr.write(f"\r{f'{self._verb}: {self._count}{more}':<{WIDTH}}")
        sys.stderr.flush()
        self._due = time.monotonic() + self._interval

    def clear(self) -> None:
        """Remove the line."""
        if self._is_shown:
            sys.stderr.write(f"\r{'':<{WIDTH}}\r")
            sys.stderr.flush()
