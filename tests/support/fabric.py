"""A simulated InfiniBand fabric: ibsim simulates the switches, ibsim-run starts a program on a
host.

A netlist is ibsim's own notation or a dump of `ibnetdiscover`, so that a real fabric can be rebuilt
with its GUIDs and descriptions. ibsim-run preloads the libc calls by which libibumad reaches the
kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from agent.helper.process import HelperProcesses, command

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

PROGRAMS = ("ibsim", "ibsim-run", "smpquery")
TIMEOUT = 60.0  # seconds that anything here may take
PROMPT = "sim> "

_FIELD = re.compile(r"^([A-Za-z ]+):\.+(.*)$", re.MULTILINE)
_COMPLAINT = re.compile(r"^# .*|.* skipped$", re.MULTILINE)


def missing() -> str | None:
    """Return the reason why ibsim cannot run here, or None."""
    absent = [program for program in PROGRAMS if not shutil.which(program)]
    return f"{', '.join(absent)} not installed (tests/apt-packages.txt)" if absent else None


class Fabric:
    """A running ibsim; a context manager, so that it ends with the test."""

    def __init__(self, netlist: str, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "ibsim.log"
        self._netlist = folder / "netlist"
        self._netlist.write_text(netlist)
        # ibsim binds abstract sockets, which all processes of the machine share.
        self._socket = f"bwagent-{os.getpid()}-{folder.name}"

    def __enter__(self) -> Self:
        """Start ibsim and wait until its console answers."""
        with self._log.open("w") as log:
            self._ibsim = subprocess.Popen(
                ["ibsim", "-s", self._netlist],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"IBSIM_SOCKNAME": self._socket},
            )
        try:
            self._await_prompts(1)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill ibsim."""
        self._ibsim.kill()
        self._ibsim.wait(TIMEOUT)
        if self._ibsim.stdin:
            self._ibsim.stdin.close()

    def console(self, line: str) -> None:
        """Type a line into ibsim's console: `Unlink "leaf1"[1]`, `Relink "leaf1"[1]`."""
        before = self._said()
        assert self._ibsim.stdin
        self._ibsim.stdin.write(f"{line}\n".encode())
        self._ibsim.stdin.flush()
        self._await_prompts(before.count(PROMPT) + 1)
        said = self._said()[len(before) :]
        assert not _COMPLAINT.search(said), said

    def run(self, host: str, *arguments: str) -> str:
        """Return the output of a program on one host of the fabric."""
        return subprocess.run(
            ["ibsim-run", *arguments],
            cwd=self._folder,
            env=os.environ | self._place(host),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            text=True,
            timeout=TIMEOUT,
        ).stdout

    def smpquery(self, host: str, *arguments: str) -> dict[str, str]:
        """Return the fields that smpquery prints, by name: an oracle that shares no code."""
        return dict(_FIELD.findall(self.run(host, "smpquery", "-D", *arguments)))

    def helper(self, host: str, payload: dict[str, Any]) -> list[dict[str, Any]]:
        """Return our own helper's entries for the ports of one host."""
        under = self.under(host)
        children = HelperProcesses(lambda verb, deadline_s: [*under, *command(verb, deadline_s)])
        ports: list[dict[str, Any]] = children.call("smp", payload, TIMEOUT)["ports"]
        return ports

    def under(self, host: str) -> list[str]:
        """Return the prefix of a command line that runs it on one host of the fabric."""
        place = [f"{key}={value}" for key, value in self._place(host).items()]
        return ["env", "-C", str(self._folder), *place, "ibsim-run"]

    def stop(self) -> None:
        """Stop ibsim until `restart`: queries hang, since ibsim does not survive the end of a
        client.
        """
        self._ibsim.send_signal(signal.SIGSTOP)

    def restart(self, netlist: str) -> None:
        """Run another fabric at the same address."""
        self.__exit__()
        self._netlist.write_text(netlist)
        self.__enter__()

    def _place(self, host: str) -> dict[str, str]:
        return {"SIM_HOST": host, "IBSIM_SOCKNAME": self._socket}

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    def _await_prompts(self, count: int) -> None:
        deadline = time.monotonic() + TIMEOUT
        while self._said().count(PROMPT) < count:
            assert self._ibsim.poll() is None, f"ibsim ended: {self._said()}"
            assert time.monotonic() < deadline, f"ibsim is silent: {self._said()}"
            time.sleep(0.01)
