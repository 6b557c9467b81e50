"""`bwagent` inside the emulated machine, where its imports take ten seconds, which it does once.

    python -m tests.support.qemu.forked <orders >results

A line of orders is a folder, two files in it for standard output and error, and arguments; a fork
runs them there, and its exit status is the line of the result. Before the arguments, `powerless`
takes all capabilities from the fork.

The machine is emulated, on processors that other tests use: a read of sysfs has PATIENCE in place
of the five seconds of a real one.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from typing import Any

import agent.labels.render
import agent.live_host as live_hosts
import agent.lldp.packet_socket
import agent.output.document
import agent.output.formats
import agent.snapshot.capture
import agent.sources.observe  # noqa: F401 - the commands import these late
from agent.cli import main as bwagent
from agent.host import Host
from agent.live_host import live_host as host_of

PATIENCE = 60.0  # seconds
CAPABILITY_VERSION_3 = 0x20080522  # include/uapi/linux/capability.h


def patient_host(*words: Any, **flags: Any) -> Host:
    """Return the host of this machine, whose reads may take long."""
    return host_of(*words, **flags)._replace(deadline=PATIENCE)


def run(folder: str, out: str, err: str, arguments: list[str]) -> int:
    """Run bwagent in a fork; return its exit status."""
    pid = os.fork()
    if not pid:
        os.chdir(folder)
        for number, path in enumerate((out, err), 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        # What the interpreter has opened knows whether it can seek.
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os._exit(_status(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _status(arguments: list[str]) -> int:
    if arguments[0] == "powerless":
        del arguments[0]
        this = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3)
        assert not ctypes.CDLL(None).capset(this, (ctypes.c_uint32 * 6)())
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
    vars(live_hosts)["live_host"] = patient_host
    for line in sys.stdin:
        folder, out, err, *arguments = line.split()
        print(run(folder, out, err, arguments), flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main()
