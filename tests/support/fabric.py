"""A simulated InfiniBand fabric: ibsim simulates the switches, ibsim-run starts a program on a
host.

A netlist is ibsim's own notation or a dump of `ibnetdiscover`, so that a real fabric can be rebuilt
with its GUIDs and descriptions. ibsim-run preloads the libc calls by which libibumad reaches the
kernel.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.support import stand_in
from tests.support.real_parts import lacks
from tests.support.switch import wait_for

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = ("ibsim", "ibsim-run", "smpquery")
MANAGERS = ("opensm", "saquery", "cc")
HCA = """
import ctypes, os, shutil, sys
umad = ctypes.CDLL("libibumad.so.3")
umad.umad_init()
assert umad.umad_open_port(b"ibsim0", 1) >= 0
shutil.copytree(f"sys-{os.getpid()}/sys", sys.argv[1])
"""
WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")  # ibsim without its console would spin for ever
TIMEOUT = 60.0  # seconds that anything here may take
PROMPT = "sim> "

_FIELD = re.compile(r"^([A-Za-z ]+):\.+(.*)$", re.MULTILINE)
_RECORD_FIELD = re.compile(r"^\s*(\w+)\.{2,}(.*)$", re.MULTILINE)
_CLIENT = re.compile(r"^Client (\d+): pid (\d+)", re.MULTILINE)
_COMPLAINT = re.compile(r"^# .*|.* skipped$", re.MULTILINE)


def missing(*more: str) -> str | None:
    """Return the reason why ibsim, or one of `more`, cannot run here, or None."""
    return lacks(*PROGRAMS, *more)


class Fabric:
    """A running ibsim; a context manager, so that it ends with the test."""

    def __init__(self, netlist: str, folder: Path, *limits: str) -> None:
        self._folder = folder
        self._limits = limits  # of ibsim: `-N 2048` nodes
        self._log = folder / "ibsim.log"
        self._netlist = folder / "netlist"
        self._netlist.write_text(netlist)
        # ibsim binds abstract sockets, which all processes of the machine share.
        self._socket = f"bwagent-{os.getpid()}-{folder.name}"

    def __enter__(self) -> Self:
        """Start ibsim and wait until its console answers."""
        with self._log.open("w") as log:
            self._ibsim = subprocess.Popen(
                [*WITH_US, "ibsim", *self._limits, "-s", self._netlist],
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

    def release(self) -> None:
        """Free the places of ended clients: ibsim has ten, and a helper gives none back."""
        for number, pid in _CLIENT.findall(self.console("Attached")):
            if not Path(f"/proc/{pid}").exists():
                self.console(f"X {number}")

    def console(self, line: str) -> str:
        """Type a line into ibsim's console: `Unlink "leaf1"[1]`; return what it says."""
        before = self._said()
        assert self._ibsim.stdin
        self._ibsim.stdin.write(f"{line}\n".encode())
        self._ibsim.stdin.flush()
        self._await_prompts(before.count(PROMPT) + 1)
        said = self._said()[len(before) :]
        assert not _COMPLAINT.search(said), said
        return said

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

    def bwagent(self, host: str, *words: str, smps: bool = True, tables: bool = False) -> str:
        """Return the output of bwagent on a host: 1 is the code of problems, 3 that of findings."""
        python = ("env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", "agent.cli")
        done = subprocess.run(
            [*self.under(host, smps=smps, tables=tables), *python, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in {0, 1, 3}, done.stderr
        self.release()
        return done.stdout

    def probe(self, host: str, sys_root: Path, *, smps: bool = True) -> dict[str, Any]:
        """Return the report of `bwagent probe` on a host."""
        words = ("probe", "--dry-run", "-o", "json", "--sysfs-root", str(sys_root))
        return dict(json.loads(self.bwagent(host, *words, smps=smps)))

    def boot(self, host: str, tree: Path) -> None:
        """Copy the sysfs of a host's port as it is now, with what a kernel has beside it.

        ibsim shows it as a folder, for as long as a program there has a umad port open, and without
        `link_layer`.
        """
        shutil.rmtree(tree, ignore_errors=True)
        self.run(host, sys.executable, "-c", HCA, str(tree))
        (tree / "class/infiniband/ibsim0/ports/1/link_layer").write_text("InfiniBand\n")

    def smpquery(self, host: str, *arguments: str) -> dict[str, str]:
        """Return the fields that smpquery prints, by name: an oracle that shares no code."""
        return dict(_FIELD.findall(self.run(host, "smpquery", "-D", *arguments)))

    def saquery(self, host: str, *arguments: str) -> list[dict[str, str]]:
        """Return the fields of the records that saquery prints: an oracle that shares no code."""
        records = self.run(host, "saquery", *arguments).split("dump:\n")[1:]
        return [dict(_RECORD_FIELD.findall(record)) for record in records]

    def under(self, host: str, *, smps: bool = True, tables: bool = False) -> list[str]:
        """Return the prefix of a command line that runs it on one host of the fabric.

        Without `smps` its port refuses them, as one without subnet management interface does. With
        `tables` those of NodeRecords are whole (tests/support/whole_tables.c).
        """
        place = [f"{key}={value}" for key, value in self._place(host).items()]
        prefix = ["env", "-C", str(self._folder), *place, "ibsim-run"]
        names = ("no_qp0",) * (not smps) + ("whole_tables",) * tables
        if not names:
            return prefix
        paths = " ".join(stand_in.build_preloaded(name, self._folder) for name in names)
        return [*prefix, "sh", "-c", f'LD_PRELOAD="{paths} $LD_PRELOAD" exec "$@"', "sh"]

    @contextmanager
    def manager(self, host: str, *arguments: str) -> Iterator[int]:
        """Run a subnet manager on a host, wait until it has configured the fabric; give its PID."""
        log = self._folder / "opensm.log"
        log.unlink(missing_ok=True)
        command = [*WITH_US, *self.under(host), "opensm", "-d", "2", "-f", str(log), *arguments]
        manager = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        def is_up() -> bool:
            assert manager.poll() is None, "opensm ended"
            return log.exists() and "SUBNET UP" in log.read_text(errors="replace")

        try:
            wait_for(is_up)
            yield manager.pid
        finally:
            manager.kill()
            manager.wait(TIMEOUT)

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
        def has_answered() -> bool:
            assert self._ibsim.poll() is None, f"ibsim ended: {self._said()}"
            return self._said().count(PROMPT) >= count

        wait_for(has_answered)
