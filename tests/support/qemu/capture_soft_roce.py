"""Capture the machine in sysfs_fixtures/soft-roce: the software RDMA devices of a real kernel.

    python -m tests.support.qemu.capture_soft_roce sysfs_fixtures/soft-roce

NODE lays out the same node at every boot: names, MAC addresses (and with them GUIDs and GIDs), and
the cables that are unplugged. The differences are in meta.json (boot, time, versions) and in the
use counts of ipv6_route. In an existing folder the files written by hand stay (README.md,
expected.labels) and the rest is replaced.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.qemu.machine import Machine, MachineError, Result

REPO = Path(__file__).resolve().parents[3]
WRITTEN_BY_PEOPLE = frozenset({"README.md", "expected.labels"})

ENVIRONMENT = {"PYTHON": sys.executable, "PYTHONPATH": str(REPO)}

# Shell functions for a node whose cables end at a leaf switch, a network namespace of that name.
# Each returns once the kernel has noticed, which takes up to a second.
WIRING = r"""
set -eu
modprobe bonding max_bonds=0 # or the module creates a bond0
ip netns add leaf

cable() { # NETDEV NUMBER
    ip link add "$1" address "02:00:00:00:01:$2" type veth \
        peer name "$1" address "02:00:00:00:02:$2" netns leaf
    ip link set "$1" up
    ip -n leaf link set "$1" up
    settle "$1" up
}
pull() { # NETDEV
    ip -n leaf link set "$1" down
    until [ "$(cat "/sys/class/net/$1/carrier")" = 0 ]; do sleep 0.05; done
    until grep -q down "/sys/class/net/$1/operstate"; do sleep 0.05; done
}
plug() { # NETDEV
    ip -n leaf link set "$1" up
    settle "$1" up
}
settle() { # NETDEV OPERSTATE
    until [ "$(cat "/sys/class/net/$1/operstate")" = "$2" ]; do sleep 0.05; done
}
tie() { # BOND LEG LEG OPTION...
    local bond=$1 one=$2 two=$3
    shift 3
    ip link add "$bond" type bond "$@"
    for leg in "$one" "$two"; do
        ip link set "$leg" down
        ip link set "$leg" master "$bond"
    done
    ip link set "$bond" up
    settle "$one" up
    settle "$two" up
    settle "$bond" up
}
notice() { # LEG MII_STATUS: what its monitored bond has noticed
    until grep -q "$2" "/sys/class/net/$1/bonding_slave/mii_status"; do sleep 0.05; done
}
"""

# `bwagent OUT ERR WORD...` with the interpreter that the line before starts; see forked.py.
FORKED = r"""
mkfifo /run/orders /run/results
"$PYTHON" -m tests.support.qemu.forked </run/orders >/run/results &
exec 3>/run/orders 4</run/results
bwagent() {
    local status=70
    echo "$PWD $*" >&3
    read -r status <&4 || true
    return "$status"
}
"""

NODE = (
    WIRING
    + r"""
cable eth0 00 # in front: the default route, of IPv6 alone, is on a VLAN
ip link add link eth0 name eth0.100 type vlan id 100
ip link set eth0.100 up
ip -6 route add default dev eth0.100
rdma link add rxe0 type rxe netdev eth0

cable eth1 01
rdma link add rxe1 type rxe netdev eth1

cable eth2 02 # its cable is out
rdma link add rxe2 type rxe netdev eth2
pull eth2

cable eth3 03 # a bond, one leg's cable is out
cable eth4 04
tie bond0 eth3 eth4 mode balance-xor miimon 50
rdma link add rxe_bond0 type rxe netdev bond0
pull eth4
notice eth4 down

# No switch sends LLDP there.
bwagent capture.out capture.err capture captured --no-wait || { cat capture.err; exit 1; }
sh "$PYTHONPATH/sysfs_fixtures/capture.sh" copied
bwagent probe.json probe.err probe --dry-run --no-wait -o json || { cat probe.err; exit 1; }
cat capture.err probe.err
uname -r >kernel
cat /proc/sys/kernel/random/boot_id >boot_id
"""
)


def capture(work_dir: Path) -> Result:
    """Boot NODE; work_dir then has the snapshots `captured` and, of the shell script, `copied`, and
    `probe.json`, `kernel`, `boot_id` of the same boot.
    """
    result = Machine(work_dir).run(FORKED + NODE, env=ENVIRONMENT)
    if result.rc:
        raise MachineError(f"the capture ended with {result.rc}:\n{result.output}")
    return result


def replace(folder: Path, captured: Path) -> None:
    """Replace an older capture; its files written by hand stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.name not in WRITTEN_BY_PEOPLE:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for new in captured.iterdir():
        if not (folder / new.name).exists():
            shutil.move(new, folder / new.name)


def main() -> None:
    """Capture into the folder on the command line; refuse one that holds no machine."""
    folder = Path(sys.argv[1])
    if folder.exists() and not (folder / "meta.json").exists():
        sys.exit(f"{folder}: exists and holds no capture")
    with tempfile.TemporaryDirectory() as scratch:
        sys.stdout.write(capture(Path(scratch)).output)
        replace(folder, Path(scratch) / "captured")


if __name__ == "__main__":
    main()
