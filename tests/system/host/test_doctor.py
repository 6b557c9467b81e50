"""The checks of `bwagent doctor` without privileges."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.support.real_parts import require
from tests.support.snapshots import REPOSITORY

LIVE = """
from agent.live_host import live_host
from agent.shell.doctor import surroundings
host = live_host("/sys", (), (), None, {"nvml_library": None})
print(surroundings(host, None, openvswitch=False).lldp_fault("lo"))
"""


def test_without_privileges_a_socket_is_missing() -> None:
    """The fault of a packet socket without CAP_NET_RAW is EPERM."""
    require(None if os.geteuid() == 0 and shutil.which("setpriv") else "needs root and setpriv")
    command = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", sys.executable, "-c"]
    done = subprocess.run(
        [*command, LIVE], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "EPERM\n"
