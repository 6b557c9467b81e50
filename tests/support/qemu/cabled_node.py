"""A node with cables to two leaf switches, inside the emulated machine: `python -m
tests.support.qemu.cabled_node`, beside forked.py.

    rxe0 eth0 ---------------------- swp1   leaf-1: port IDs are interface names
    rxe1 eth1 ---------------------- swp1   leaf-2: its own chassis ID; port IDs are MAC addresses,
                                            and "Ethernet1/1" on this port
    rxe2 eth2 ----- dumb switch ---- swp2   leaf-1
                          `--------- swp2   leaf-2
    rxe_bond0 eth3 ----------------- swp3   leaf-1
            `-eth4 ----------------- swp3   leaf-2
    rxe5 eth5 ---------------------- port   sends nothing until it is started
    rxe6 eth6 -- pulled out -------- swp6   leaf-1

Each probe leaves NAME.json, the report of bwagent; NAME.terminal, its standard error; and
NAME.lldpd, the neighbors of an lldpd on the node.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.lldp_frames import END, MAC, ethernet, identity, tlv
from tests.support.switch import PATIENCE, Leaf, Lldpd, Namespace, cable, wait_for

# No NIC carries a default route, so which ports are the front end is not known.
BACKEND = ("--backend-device", "rxe*")
LOOK = ("probe", "--dry-run", "-o", "json", *BACKEND)
ORDERS, RESULTS = 3, 4  # the descriptors that lead to forked.py
ENOUGH = "4"  # seconds in which every leaf has sent several frames
LATE = ethernet(identity(b"\x04" + MAC, b"\x05port") + tlv(5, b"leaf-3") + END)


class Node(Namespace):
    """The machine's own network, as a Namespace that cables can be plugged into."""

    def __enter__(self) -> Self:
        run("ip", "netns", "attach", self.name, str(os.getpid()))
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the machine is powered off."""

    def command(self, *words: str) -> list[str]:
        return list(words)


class Terminal:
    """A terminal that is the standard error of bwagent."""

    def __init__(self) -> None:
        self._ours, self._its = os.openpty()
        self.name, self._said = os.ttyname(self._its), b""

    def wait_for(self, text: bytes) -> None:
        """Read until this text has appeared."""
        while text not in self._said:
            assert select.select([self._ours], [], [], PATIENCE)[0], self._said
            self._said += os.read(self._ours, 4096)

    def rest(self) -> bytes:
        """Return all output after bwagent has ended."""
        os.close(self._its)
        try:
            while piece := os.read(self._ours, 4096):
                self._said += piece
        except OSError:  # EIO: the other end is closed
            pass
        return self._said


class Tour:
    """The node, its switches, and the recorded results."""

    def __init__(self, stack: ExitStack) -> None:
        self._orders, self._results = os.fdopen(ORDERS, "w"), os.fdopen(RESULTS)
        self.node, self.silent, self.dumb = Node(), Namespace(), Namespace()
        self.leaf1, self.leaf2 = Leaf("leaf-1"), Leaf("leaf-2")
        for network in (self.node, self.leaf1, self.leaf2, self.silent, self.dumb):
            stack.enter_context(network)
        self._plug_in()
        self._add_rdma()
        self._shape_identifiers()
        self.second = stack.enter_context(Lldpd(self.node, "-r"))

    def start(self, out: str, err: str, *words: str) -> None:
        """Start bwagent with its output in these files."""
        self._orders.write(" ".join((str(Path.cwd()), out, err, *words)) + "\n")
        self._orders.flush()

    def bwagent(self, out: str, err: str, *words: str) -> None:
        """Run bwagent with its output in these files."""
        self.start(out, err, *words)
        self.end()

    def end(self) -> None:
        """Wait until it has succeeded."""
        status = self._results.readline()
        assert status == "0\n", status

    def _plug_in(self) -> None:
        cables = (
            (self.leaf1, "swp1", self.node, "eth0"),
            (self.leaf2, "swp1", self.node, "eth1"),
            (self.dumb, "port0", self.node, "eth2"),
            (self.leaf1, "swp2", self.dumb, "port1"),
            (self.leaf2, "swp2", self.dumb, "port2"),
            (self.leaf1, "swp3", self.node, "eth3"),
            (self.leaf2, "swp3", self.node, "eth4"),
            (self.silent, "port", self.node, "eth5"),
            (self.leaf1, "swp6", self.node, "eth6"),
        )
        for far, port, near, netdev in cables:
            far.ip("link", "add", port, "type", "veth", "peer", "name", netdev, "netns", near.name)
        self._join()
        ends = [end for far, port, near, netdev in cables for end in ((far, port), (near, netdev))]
        for network, netdev in ends:
            network.ip("link", "set", netdev, "up")
        wait_for(
            lambda: all(network.is_up(netdev) for network, netdev in ends)
        )  # one by one is a second each
        self.leaf1.plugged()
        self.leaf2.plugged()

    def _join(self) -> None:
        """Make the forwarding bridge out of its ports, and the bond out of its legs."""
        run("modprobe", "bridge")
        run("modprobe", "bonding", "max_bonds=0")
        self.dumb.ip(
            "link", "add", "br0", "type", "bridge", "group_fwd_mask", "0x4000"
        )  # LLDP is passed on
        self.node.ip("link", "add", "bond0", "type", "bond", "mode", "balance-xor", "miimon", "50")
        for port in ("port0", "port1", "port2"):
            self.dumb.ip("link", "set", port, "master", "br0")
        for leg in ("eth3", "eth4"):
            self.node.ip("link", "set", leg, "master", "bond0")
        self.dumb.ip("link", "set", "br0", "up")
        self.node.ip("link", "set", "bond0", "up")

    def _add_rdma(self) -> None:
        for number in (0, 1, 2, 5, 6):
            add_rdma(f"rxe{number}", f"eth{number}")
        add_rdma("rxe_bond0", "bond0")
        self.leaf1.ip("link", "set", "swp6", "down")
        wait_for(lambda: not self.node.is_up("eth6"))

    def _shape_identifiers(self) -> None:
        self.leaf1.lldpd.configure("lldp", "portidsubtype", "ifname")
        self.leaf2.lldpd.configure("lldp", "portidsubtype", "macaddress")
        self.leaf2.lldpd.configure("ports", "swp1", "lldp", "portidsubtype", "local", "Ethernet1/1")
        self.leaf2.lldpd.configure("system", "chassisid", "rack 7, unit 42")
        self.leaf2.lldpd.configure(
            "system", "capabilities", "enabled", "bridge,router"
        )  # so it is the one of rxe2: the other does not say what it is
        self.leaf1.lldpd.unconfigure("lldp", "capabilities-advertisements")

    def look(self, name: str, *words: str) -> None:
        """Probe with these flags."""
        self.bwagent(f"{name}.json", f"{name}.terminal", *LOOK, *words)

    def note_second(self, name: str) -> None:
        """Record the neighbors of the lldpd on the node."""
        Path(f"{name}.lldpd").write_text(json.dumps(self.second.neighbors()))

    def look_at_changes(self, name: str) -> None:
        """Probe with a long --wait; while it waits for eth5 one switch shuts down and
        another is renamed.
        """
        terminal = Terminal()
        self.start(f"{name}.json", terminal.name, *LOOK)
        terminal.wait_for(b"awaited: eth5 ")
        self.leaf1.lldpd.stop()
        self.leaf2.lldpd.stop()
        self.leaf2.lldpd.start()
        self.leaf2.rename("leaf-9")
        self.await_names({"leaf-9"})
        self.silent.send("port", LATE)
        self.end()
        Path(f"{name}.terminal").write_bytes(terminal.rest())
        self.note_second(name)

    def await_names(self, names: set[str]) -> None:
        """Wait until the lldpd on the node has exactly these switches."""
        wait_for(
            lambda: (
                {item["chassis"][0]["name"][0]["value"] for item in self.second.neighbors()}
                == names
            )
        )

    def replace(self) -> None:
        """Delete a netdev with its RDMA device, and create both again; unplug the cable of the
        silent port.
        """
        run("ip", "link", "delete", "eth0")
        run("ip", "link", "delete", "eth5")
        cable(self.leaf2, "swp9", self.node, "eth0")
        add_rdma("rxe0", "eth0")


def add_rdma(device: str, netdev: str) -> None:
    """Create a soft-RoCE device."""
    run("rdma", "link", "add", device, "type", "rxe", "netdev", netdev)


def run(*words: str) -> None:
    """Run a command; raise if it fails."""
    subprocess.run(words, check=True, timeout=PATIENCE)


def main() -> None:
    """Take all steps."""
    Path("/run/lldpd").mkdir(exist_ok=True)  # where lldpd locks itself in
    with ExitStack() as stack:
        tour = Tour(stack)
        tour.await_names({"leaf-1", "leaf-2"})
        tour.look("cabled", "--wait", ENOUGH)
        tour.note_second("cabled")
        tour.look("unheard", "--no-wait")
        tour.bwagent("powerless.json", "powerless.terminal", "powerless", *LOOK)
        tour.bwagent(
            *("capture.out", "capture.err", "capture", "captured", "--wait", ENOUGH, *BACKEND)
        )
        tour.look_at_changes("changes")
        tour.leaf1.lldpd.start()
        tour.leaf1.rename("leaf-8")
        tour.replace()
        tour.await_names({"leaf-8", "leaf-9"})
        tour.look("replaced")
        tour.note_second("replaced")
        stack.pop_all()  # the machine takes all of it down with itself


if __name__ == "__main__":
    main()
