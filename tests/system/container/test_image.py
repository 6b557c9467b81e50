"""The image, built and run with exactly the privileges of its overlay."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from agent import __version__
from release.licenses import checked
from release.parts import image_parts
from release.sbom import document
from release.version import tag
from tests.support import stand_in_nvml
from tests.support.container.image import ROOT, Image, missing
from tests.support.real_parts import lacks, require

BIGGEST = (
    130_000_000  # bytes unpacked; a third of it is the generated half of the Kubernetes client
)
EPERM = 1
OTHERWISE_FREE = {"pyudev", "pyroute2"}  # an exception; one of two licenses is permissive

# Prints the result of opening a packet socket for LLDP: 0 or an errno.
LISTEN = """
import socket
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88cc)).close()
except OSError as error:
    print(error.errno)
else:
    print(0)
"""
# Prints the modules that had to be compiled.
UNCOMPILED = """
import os, sys
import agent.cli, agent.output.formats, agent.snapshot.replay, agent.snapshot.capture
import agent.live_host, agent.helper.main, agent.infiniband.umad
import agent.kube.api, agent.kube.kubeconfig, agent.helper.process
import agent.nvml.library, agent.daemon.main
import agent.cleanup
from kubernetes.config.incluster_config import InClusterConfigLoader
from kubernetes.config.kube_config import load_kube_config
compiled = {name: getattr(module, "__cached__", None) for name, module in sys.modules.items()}
print(*[name for name, path in compiled.items() if path and not os.path.exists(path)])
"""


@pytest.fixture(scope="module")
def image() -> Image:
    """Build the image, or its changed layers."""
    require(missing())
    return Image()


def pinned() -> dict[str, str]:
    """Return the image's dependencies and their versions."""
    text = (ROOT / "manifests/image/requirements.txt").read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))


def test_dependencies_are_pinned() -> None:
    """Every dependency in pyproject.toml is pinned to a version that satisfies it, with hashes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = pinned()
    for dependency in map(Requirement, project["dependencies"]):
        assert dependency.specifier.contains(versions[dependency.name.lower()]), dependency
    text = (ROOT / "manifests/image/requirements.txt").read_text()
    assert all(
        f"{name}=={version} \\\n    --hash=sha256:" in text for name, version in versions.items()
    )


def test_the_recipe_names_no_architecture() -> None:
    """The Containerfile and what it runs build on arm64 as on amd64."""
    recipe = [ROOT / "Containerfile", ROOT / "manifests/image/gather.py"]
    said = [
        line
        for file in recipe
        for line in file.read_text().splitlines()
        if not line.startswith("#")
    ]
    assert not re.findall(r"x86.64|amd64|aarch64|arm64", "\n".join(said))


def test_size(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    """The image is small, and its layers are the system, the dependencies and the agent."""
    layers = image.layers()
    with capsys.disabled():
        print(f"\nimage: {' + '.join(f'{size / 1e6:.1f}' for size in layers)} MB")  # noqa: T201 - the size is asked for
    assert len(layers) == 3
    assert sum(layers) < BIGGEST
    assert layers[-1] < 6_000_000  # source and bytecode of the agent


def test_metadata(image: Image) -> None:
    """The image has its labels, a default user that is not root, and no shell before the agent."""
    known = image.inspect()
    assert known["Labels"]["org.opencontainers.image.version"] == tag(__version__)
    assert known["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert known["Config"]["User"] == "65532:65532"
    assert known["Config"]["Entrypoint"] == ["/usr/bin/bwagent"]


def test_version(image: Image) -> None:
    """`bwagent --version` runs as an arbitrary user, with no capability, on a read-only root."""
    done = image.run("--version")
    assert (done.stdout, done.stderr) == (f"bwagent {__version__}\n", "")


def test_wrong_flag(image: Image) -> None:
    """Exit codes and the error line of a wrong flag are passed through."""
    done = image.run("probe", "--no-such-flag")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_replay(image: Image) -> None:
    """A machine folder mounted into the container replays to the same labels as outside."""
    machine = ROOT / "sysfs_fixtures/dgx-h100"
    done = image.run("probe", "--replay", "/machine", "-o", "labels", mounts={machine: "/machine"})
    assert (done.stdout, done.stderr) == ((machine / "expected.labels").read_text(), "")


def test_probe(image: Image) -> None:
    """Root without any capability finds the host's devices, and the host's name."""
    done = image.run("probe", "--dry-run", "--no-wait", "-o", "json", user="0")
    assert not done.returncode, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["node"] == os.uname().nodename
    assert "backend.coreweave.cloud/speed.current" in report["labels"]
    assert {port["device"] for port in report["ports"]} <= set(devices())


def devices() -> list[str]:
    """The RDMA devices of this host."""
    folder = "/sys/class/infiniband"
    return os.listdir(folder) if os.path.exists(folder) else []


@pytest.mark.parametrize(
    ("capability", "result"), [("NET_RAW", 0), ("", EPERM)], ids=["NET_RAW", "none"]
)
def test_lldp_sockets(image: Image, capability: str, result: int) -> None:
    """Root opens the packet sockets for LLDP with NET_RAW alone, and not without it."""
    assert image.python(LISTEN, user="0", add=capability) == f"{result}\n"


SMP = "call('smp', {'ports': [['mlx5_none', 1]]}, 10)['ports'][0]['error']"


@pytest.mark.parametrize(
    ("module", "told", "options", "printed"),
    [
        ("infiniband.umad import load", "load()._name", {}, "libibumad.so.3"),
        ("events.monitor import Monitors", "Monitors().unavailable", {"user": "0"}, "{}"),
        ("helper.process import call", SMP, {"user": "0"}, "no-umad"),
    ],
    ids=["umad", "wakeups", "smp"],
)
def test_libraries(
    image: Image, module: str, told: str, options: dict[str, str], printed: str
) -> None:
    """The image has libibumad with its dependencies, and in it every function that the agent
    calls; link messages and uevents arrive, for pyudev finds libudev; and the child that asks
    InfiniBand ports is started by the image's own Python, and answers.
    """
    assert image.python(f"from agent.{module}; print({told})", **options) == f"{printed}\n"


@pytest.mark.parametrize("root", ["/host", "/host/proc/1/root/run/nvidia/driver"])
def test_nvml_from_the_host(image: Image, tmp_path: Path, root: str) -> None:
    """The host's libnvidia-ml is found below /host, as the manifests mount it, and that of GPU
    Operator's driver container; it loads against the image's libc.
    """
    require(lacks("cc"))
    stand_in_nvml.build(tmp_path)
    place = f"{root}/usr/lib/{os.uname().machine}-linux-gnu"
    code = (
        "from agent.helper.process import call; "
        "print(call('nvml', {'library': None}, 10)['library'])"
    )
    assert image.python(code, user="0", mounts={tmp_path: place}) == f"{place}/libnvidia-ml.so.1\n"


def test_programs(image: Image) -> None:
    """Python, bwagent and ldconfig are all that can be run: no shell, no package manager."""
    code = """
import os, sys
folders = [f"{top}/{name}" for top in ("", "/usr", "/usr/local") for name in ("bin", "sbin")]
folders.append("/opt/bwagent/bin")
print(*{name for folder in folders if os.path.exists(folder) for name in os.listdir(folder)})
"""
    programs = set(image.python(code).split())
    assert {"bwagent", "python3"} <= programs
    assert all(re.fullmatch(r"bwagent|ldconfig|python3(\.\d+)?", name) for name in programs)
    assert image.python(
        "import importlib.util as u; print(*map(u.find_spec, ('pip', 'ensurepip', 'scapy')))"
    ) == ("None None None\n")


def test_byte_compiled(image: Image) -> None:
    """All that the agent or its children import is byte-compiled."""
    assert image.python(UNCOMPILED) == "\n"


def test_papers(image: Image) -> None:
    """Each Debian package in the image has its entry for scanners and its copyright file, each
    wheel its metadata.
    """
    code = "import os; print(*sorted(os.listdir({!r})))"
    packages = image.python(code.format("/var/lib/dpkg/status.d")).split()
    assert {"libc6", "libibumad3", "libssl3"} <= set(packages)
    assert image.python(code.format("/usr/share/doc")).split() == packages
    assert "PyYAML" in image.python(
        "from importlib.metadata import distribution as d; print(d('pyyaml').name)"
    )


def test_licenses(image: Image) -> None:
    """Every part of the image may be shipped, every file belongs to one, and they make an SBOM."""
    with image.file_system() as root:
        found = checked(image_parts(root))
    assert {"click", "libc6", "libgcc-s1"} <= {one.part.name for one in found}
    bom = json.loads(document("image-amd64", __version__, 64 * "0", 0, found))
    assert len(bom["components"]) == len(found)
    python = [one for one in found if one.part.kind == "pypi"]
    assert not [
        one for one in python if "GPL" in one.expression and one.part.name not in OTHERWISE_FREE
    ]
