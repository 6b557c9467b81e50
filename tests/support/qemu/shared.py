"""One boot of the emulated machine for the scripts of several test files.

A boot takes some seconds of both cores, and the imports of bwagent take ten more: here they are
made once. Each script is run in a folder of its own, on a node without netdevs and RDMA devices.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tests.support.qemu.capture_soft_roce import ENVIRONMENT, FORKED, NODE
from tests.support.qemu.machine import CACHE, Machine, Result
from tests.support.qemu.probed_node import TOUR

REFUSED = """
ask() { echo '{"ports": [["rxe0", 1]]}' | "$@" "$PYTHON" -m agent.helper.main smp; }
ip link add v0 type veth peer name v1
ip link set v0 up
rdma link add rxe0 type rxe netdev v0
ask >no-umad 2>/dev/null
modprobe ib_umad
ask >refused
chmod 0 /dev/infiniband/umad0
ask setpriv --bounding-set=-all --inh-caps=-all >not-permitted
"""
BROKEN = f"""
set -eu
mount -t debugfs debug /sys/kernel/debug
cd {CACHE}/kernel/lib/modules/*
insmod kernel/net/psample/psample.ko
insmod extra/netdevsim.ko
cd "$OLDPWD"
echo "1 1" >/sys/bus/netdevsim/new_device
"$PYTHON" -m tests.support.qemu.broken_nic
echo 1 >/sys/bus/netdevsim/del_device # its netdev cannot be deleted by itself
"""
# By test file; the first one begins before any RDMA driver is loaded, and the last one leaves
# processes.
SCRIPTS = {
    "test_probe": TOUR,
    "test_capture_soft_roce": NODE,
    "test_machine": REFUSED,
    "test_wakeups": 'exec "$PYTHON" -m tests.support.qemu.waking_node\n',
    "test_broken_nic": BROKEN,
    "test_neighbors": 'exec "$PYTHON" -m tests.support.qemu.cabled_node\n',
}
TAKE = r"""
take() { # FOLDER
    (set -eu; cd "$1"; . ./script) >"$1/output" 2>&1
    echo $? >"$1/status"
    for netdev in /sys/class/net/*; do
        ip link delete "${netdev##*/}"
    done
    ip netns delete leaf
    modprobe -r rdma_rxe ib_umad
} 2>/dev/null
"""
END = r"""
printenv >environment
echo written >"$ELSEWHERE"
cat "$ELSEWHERE"
echo and to standard error >&2
exit 7
"""


@dataclass(frozen=True, slots=True)
class Shared:
    """The results of the boot."""

    folder: Path
    result: Result
    elsewhere: Path  # which the script has written

    def results(self, name: str) -> Path:
        """Return the folder of a script, which has succeeded."""
        folder = self.folder / name
        assert (folder / "status").read_text() == "0\n", (folder / "output").read_text()
        return folder


def boot(folder: Path, elsewhere: Path, files: Collection[str]) -> Shared:
    """Boot once, and run the scripts of these test files."""
    names = [name for name in SCRIPTS if name in files]
    for name in names:
        (folder / name).mkdir()
        (folder / name / "script").write_text(SCRIPTS[name])
    script = "\n".join([FORKED, TAKE, *(f"take {name}" for name in names), END])
    env = {**ENVIRONMENT, "ELSEWHERE": str(elsewhere)}
    return Shared(folder, Machine(folder).run(script, timeout=1800, env=env), elsewhere)
