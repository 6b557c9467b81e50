"""`bwagent` inside the emulated machine, where its imports take ten seconds, which it does once.

    python -m tests.support.qemu.forked <orders >results

A line of orders is two files for standard output and error, and arguments; a fork runs them, and
its exit status is the line of the result.
"""

from __future__ import annotations

import os
import sys
import traceback

import agent.labels.render
import agent.live_host
import agent.lldp.packet_socket
import agent.output.document
import agent.output.formats
import agent.snapshot.capture
import agent.sources.observe  # noqa: F401 - the commands import these late
from agent.cli import main as bwagent


def run(out: str, err: str, arguments: list[str]) -> int:
    """Run bwagent in a fork; return its exit status."""
    pid = os.fork()
    if not pid:
        for number, path in enumerate((out, err), 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        os._exit(_status(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _status(arguments: list[str]) -> int:
    sys.argv[1:] = arguments
    status = 70
    try:
        bwagent()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def main() -> None:
    """Run one order after the other."""
    for line in sys.stdin:
        out, err, *arguments = line.split()
        print(run(out, err, arguments), flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main()
