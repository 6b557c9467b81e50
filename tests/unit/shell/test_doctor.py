"""`bwagent doctor`: all checks together, their order, and the program itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.check import Step, Surroundings, absent, missing, there
from agent.errors import Unavailable
from agent.infiniband.umad import LIBRARY
from agent.model import Absent, Failed, Seen
from agent.shell.doctor import lines, of_sources, surroundings
from agent.sources import NAMES
from tests.support.documents import between
from tests.support.kernel_tree import Kernel, host
from tests.support.observations import around, observation
from tests.support.snapshots import FIXTURES, SMALL, bwagent, compressed, lay, members, tar

LACKING = [
    ("kubernetes", missing(Step.CLUSTER, "Node n1", "export KUBECONFIG=FILE")),
    ("lldp", missing(Step.PRIVILEGE, "packet socket of eth1: EPERM", "sudo bwagent doctor")),
    ("ib", missing(Step.MODULE, "umad devices", "modprobe ib_umad")),
    ("nvml", absent("no GPU")),
    ("rdma", there("RDMA devices: 8")),
    ("ib", missing(Step.LIBRARY, "libibumad.so.3", "apt-get install libibumad3")),
]


def test_lines_are_in_the_order_of_mending() -> None:
    """First what needs no mending; each line is one of status, source and text."""
    assert lines(LACKING) == [
        "-        nvml        no GPU",
        "ok       rdma        RDMA devices: 8",
        "missing  ib          umad devices; run: modprobe ib_umad",
        "missing  ib          libibumad.so.3; run: apt-get install libibumad3",
        "missing  lldp        packet socket of eth1: EPERM; run: sudo bwagent doctor",
        "missing  kubernetes  Node n1; run: export KUBECONFIG=FILE",
    ]


def test_every_source_has_checks() -> None:
    """At least one line of each; of those that --source leaves out, the RDMA devices only."""
    seen = observation(rdma=Absent("none"), ib=Absent("none"), nvml=Seen(()))
    assert [name for name, _ in of_sources(around(seen))] == list(NAMES)
    seen = observation(rdma=Absent("none"), off=frozenset({"rdma", "lldp", "nvml"}))
    assert [name for name, _ in of_sources(around(seen))] == ["rdma", "ib"]


def test_neighbors_of_unknown_ports_are_not_checked() -> None:
    """That no backend port is known does not mean that there is none."""
    seen = observation(rdma=Failed("why"), ib=Absent("no InfiniBand backend port"))
    found = {name: check for name, check in of_sources(around(seen)) if name != "nvml"}
    assert found["rdma"].missing is Step.DRIVER
    assert {found[name].text for name in ("lldp", "ib")} == {
        "not checked: the ports of this node are not known"
    }


def test_a_read_that_blocks_is_a_line() -> None:
    """The checks of other sources go on."""

    def blocked(path: str) -> list[str]:
        raise Unavailable(f"/{path}: timed out in the kernel")

    seen = observation(rdma=Absent("none"), ib=Failed("x"), nvml=Absent("no GPU"))
    found = [(name, check.missing) for name, check in of_sources(around(seen, names=blocked))]
    steps = {"rdma": Step.DRIVER, "ib": Step.DRIVER, "lldp": None, "nvml": None}
    assert dict(found) == steps


def surrounding(**tree: bytes) -> Surroundings:
    """Return the live surroundings over a tree of kernel files."""
    kernel = Kernel({f"sys/module/nvidia/{name}": text for name, text in tree.items()})
    return surroundings(host(kernel), observation(), openvswitch=False)


def test_surroundings_read_the_tree() -> None:
    """A folder or a file that is not there is empty, and no error."""
    found = surrounding(version=b"580.65.06\n")
    assert found.names("sys/module/nvidia") == ["version"]
    assert found.text("sys/module/nvidia/version") == "580.65.06"
    assert (found.names("sys/module/none"), found.text("sys/module/none/version")) == ([], None)


def test_faults_of_device_files(tmp_path: Path) -> None:
    """A file is not opened; one that is not there is ENOENT."""
    fault = surrounding().device_fault
    (tmp_path / "umad0").touch()
    assert fault(str(tmp_path / "umad0")) is None
    assert fault(str(tmp_path / "umad1")) == "ENOENT"
    assert fault("/proc/version") in {None, "EACCES"}


def test_faults_of_packet_sockets() -> None:
    """A netdev that is not there has none, for whoever asks."""
    fault = surrounding().lldp_fault("no-such-netdev")
    assert fault in {"ENODEV", "EPERM"}
    if os.geteuid() == 0 and fault == "ENODEV":
        assert surrounding().lldp_fault("lo") is None


def test_the_sample_is_what_doctor_prints(repository: Path, update_golden: bool) -> None:
    """docs/operations.md shows the lines of a machine without umad devices."""
    command = "doctor --no-cluster --sysfs-root sysfs_fixtures/dgx-h100/sys"
    finished = bwagent(*command.split(), cwd=repository)
    assert (finished.returncode, finished.stderr) == (1, b"")
    printed = finished.stdout.decode().splitlines(keepends=True)
    truth = "".join(line for line in printed if LIBRARY not in line)
    assert "run: modprobe ib_umad\n" in truth
    path, begin = repository / "docs/operations.md", f"$ bwagent {command}\n"
    assert between(path, begin, "```", truth, update=update_golden) == truth


def test_a_node_without_hardware_lacks_nothing() -> None:
    """Exit code 0, a line for each source."""
    root = str(FIXTURES / "cpu-node/sys")
    finished = bwagent("doctor", "--no-cluster", "--sysfs-root", root)
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert [line.split()[1] for line in finished.stdout.decode().splitlines()] == list(NAMES)


@pytest.mark.slow
def test_a_cluster_that_is_not_there() -> None:
    """It is the last line, and one line whatever the error is."""
    root, config = str(FIXTURES / "cpu-node/sys"), "/nowhere/config"
    finished = bwagent("doctor", "--sysfs-root", root, "--node-name", "n1", "--kubeconfig", config)
    assert (finished.returncode, finished.stderr) == (1, b"")
    last = finished.stdout.decode().splitlines()[-1]
    assert last.startswith("missing  kubernetes  Node n1: ")
    assert config in last


def replayed(snapshot: str, *flags: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines about a capture."""
    finished = bwagent("doctor", "--replay", snapshot, *flags)
    assert finished.stderr == b""
    return finished.returncode, finished.stdout.decode().splitlines()


MODPROBE = "modprobe mlx5_ib (Ubuntu: apt-get install linux-modules-extra-$(uname -r))"
CAPTURES = {  # what doctor says of it, and nothing else is missing
    "dgx-h100": ("ok       ib          InfiniBand backend ports with a neighbor: 8 of 8", ""),
    "half-failed": ("-        ib          mlx5_0, mlx5_3, mlx5_5, mlx5_6: link-down", ""),
    "sick-hca": ("-        rdma        /sys/class/infiniband/mlx5_10: not read in time", ""),
    "h200-roce": ("ok       lldp        Ethernet backend ports with a neighbor: 8 of 8", ""),
    "gb200-registering": ("-        nvml        accelerator: in-progress: 1 of 4 GPUs", ""),
    "irdma-e810": ("missing  lldp        LLDP frames of enp202s0f0np0", "ethtool --set-priv-flags"),
    "gb300-ib-no-smi": ("missing  ib          ibp0, ibp1, ibp2, ibp3: no subnet", "rdma dev add"),
    "mlx5-ib-not-loaded": ("missing  rdma        no RDMA device: ", MODPROBE),
    "bnxt-re-not-loaded": ("missing  rdma        no RDMA device: ", "modprobe bnxt_re"),
    "driver-reloading": ("missing  rdma        /sys/class/infiniband is not", "modprobe mlx5_ib"),
}


@pytest.mark.parametrize("machine", CAPTURES)
def test_a_capture(machine: str) -> None:
    """What its files tell; the devices, libraries and modules of this host are not looked at."""
    begin, command = CAPTURES[machine]
    code, printed = replayed(str(FIXTURES / machine))
    (line,) = (line for line in printed if line.startswith(begin))
    assert [line for line in printed if "missing" in line] == ([line] if command else [])
    assert (f"; run: {command}" in line, code) == (bool(command), int(bool(command)))
    (last,) = (line for line in printed if line.split()[1] == "capture")
    assert "not in a capture: device files" in last


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.zst"])
def test_the_forms_of_a_capture(form: str, tmp_path: Path) -> None:
    """Those of `probe --replay`."""
    packed = tar(tmp_path / "plain", members(SMALL))
    path = tmp_path / f"small.{form}"
    data = Path(packed).read_bytes()
    path.write_bytes(data if form == "tar" else compressed(data, form.rpartition(".")[2]))
    assert replayed(str(path)) == replayed(lay(tmp_path / "folder", SMALL))


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--no-cluster",), "--replay excludes --no-cluster"),
        (("--node-name", "n1"), "--replay excludes --node-name"),
        (("--context", "prod"), "--replay contacts no API server: leave out --context"),
        (("--sysfs-root", "/sys"), "--replay excludes --sysfs-root"),
        (("--openvswitch",), "--replay excludes --openvswitch"),
        (("--nvml-library", "a.so"), "--replay excludes --nvml-library"),
    ],
)
def test_a_flag_that_a_capture_has_no_use_for(flags: tuple[str, ...], word: str) -> None:
    finished = bwagent("doctor", "--replay", str(FIXTURES / "dgx-h100"), *flags)
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert word in finished.stderr.decode()


def test_no_capture(tmp_path: Path) -> None:
    """One line that names it."""
    (tmp_path / "odd").write_text("odd")
    for path in (tmp_path / "odd", tmp_path / "none"):
        finished = bwagent("doctor", "--replay", str(path))
        assert (finished.returncode, finished.stdout) == (1, b"")
        assert finished.stderr.decode().count("\n") == 1
        assert str(path) in finished.stderr.decode()
