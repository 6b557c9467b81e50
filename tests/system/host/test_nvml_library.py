"""The query of the GPUs, through the real helper process, over a stand-in library.

nvidia-ml-py is the code under test here, so the answers are compared with the values that the
stand-in was given. On a machine with an NVIDIA GPU, `BWAGENT_TEST_NVML=real` (or the path of a
library) queries the real one as well.
"""

from __future__ import annotations

import _ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import agent
from agent.errors import Malformed
from agent.helper import process as child
from agent.model import Gpu, Seen
from agent.nvml import decode
from agent.nvml import domain as accelerator
from agent.nvml import library as nvml
from tests.support import stand_in_nvml
from tests.support.kube.command import bwagent
from tests.support.real_parts import lacks, require
from tests.support.stand_in_nvml import CLUSTER, ZERO, given, gpu, tray
from tests.support.sysfs_on_disk import a_node_without_rdma

Ask = Callable[..., dict[str, Any]]


REAL = os.environ.get("BWAGENT_TEST_NVML", "")
ROOT = Path(agent.__file__).parents[1]
CLUSTER_TEXT = "9c6f5af3-53bf-49b5-a436-b66766c413c3"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Build the stand-in, without some functions, each kind once."""
    require(lacks("cc"))
    folder, built = tmp_path_factory.mktemp("nvml"), dict[tuple[str, ...], str]()

    def library(*without: str) -> str:
        if without not in built:
            built[without] = stand_in_nvml.build(
                folder / "-".join(("with-all", *without)), *without
            )
        return built[without]

    return library


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Write the plan of the stand-in."""

    def write(text: str) -> None:
        (tmp_path / "plan").write_text(text, "latin-1")
        monkeypatch.setenv("STAND_IN_NVML", str(tmp_path / "plan"))

    return write


@pytest.fixture
def ask(libraries: Callable[..., str], play: Callable[[str], None]) -> Ask:
    """Query the GPUs of a plan through a helper process."""

    def ask(text: str, *without: str, deadline_s: float = 10) -> dict[str, Any]:
        play(text)
        return child.call("nvml", {"library": libraries(*without)}, deadline_s)

    return ask


def decoded(answer: dict[str, Any]) -> tuple[Gpu, ...]:
    """Decode the GPUs of an answer without an error of the whole query."""
    refused, gpus = decode.answer(answer)
    assert refused is None
    return tuple(decode.gpu(one) for one in gpus)


PLANS = {
    "a healthy tray": tray(),
    "an HGX board": "".join(
        gpu(index, cluster=ZERO, clique=0, mask=0, summary=0) for index in range(8)
    ),
    "sixteen GPUs": tray(gpus=16),
    "one GPU": tray(gpus=1),
    "no GPU": "",
    "a UUID that begins with zero bytes": gpu(0, cluster="0000" + CLUSTER[4:]),
    "a UUID with zero bytes inside": gpu(0, cluster=CLUSTER[:10] + "00000000" + CLUSTER[18:]),
    "a nonsense state": gpu(0, state=77),
    "a clique that nobody has set": gpu(0, clique=0xFFFFFFFF),
    "a position": tray(
        *(f"platform {index} 1823825185529 5 4 1 {index + 1}" for index in range(4))
    ),
    "a serial of 16 bytes, and no serial": tray(
        "platform 0 SERIAL0123456789 255 255 255 255", "platform 1 - 0 0 0 1", gpus=2
    ),
}
STATUSES = (*decode.RETURNS, 31, 4096)
PLANS |= {
    "each state": "".join(gpu(index, state=index) for index in range(len(decode.STATES))),
    "each status": "".join(gpu(index, status=one) for index, one in enumerate(STATUSES)),
}

OLDER = {
    "a driver that knows version 3": ("", (), 3),
    "a driver that knows version 2": ("newest 2", (), 2),
    "a driver that calls another version an invalid argument": (
        "newest 2\nmismatch 2",
        (),
        2,
    ),
    "a driver before version 2": ("newest 1", (), 1),
    "a driver without nvmlDeviceGetGpuFabricInfoV": ("", ("V",), 1),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_value_is_the_one_that_the_library_gave(ask: Ask, name: str) -> None:
    """The values are those of the library, with all 16 bytes of the cluster UUID."""
    answer = ask(PLANS[name])
    gpus = given(PLANS[name])
    assert (answer["error"], answer["driver"]) == (None, "580.95.05")
    assert (answer["count"], answer["gpus"]) == (len(gpus), gpus)


@pytest.mark.parametrize(
    ("line", "without"),
    [("", ("PLATFORM",)), ("fail platform 0 25", ()), ("fail platform 0 999", ())],
)
def test_a_driver_without_platform_information_says_nothing(
    ask: Ask, line: str, without: tuple[str, ...]
) -> None:
    """The fabric is read all the same."""
    plan = tray(gpus=1)
    answer = ask(plan + f"platform 0 1823825185529 5 4 1 2\n{line}\n", *without)
    assert answer["gpus"] == given(plan)


@pytest.mark.parametrize("name", OLDER)
def test_every_version_of_the_structure_is_read(ask: Ask, name: str) -> None:
    """The fields are those of the newest version of the structure that the driver supports."""
    line, without, version = OLDER[name]
    plan = tray(line, gpus=2)
    assert ask(plan, *without)["gpus"] == given(plan, version)


@pytest.fixture
def pynvml() -> Any:
    """The module of nvidia-ml-py."""
    return import_module("pynvml")


def test_numbers_are_the_bindings(pynvml: Any) -> None:
    """Every return code, state, summary and health field that nvml.h names is named here, with the
    same number.
    """
    theirs = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    assert theirs | {pynvml.NVML_SUCCESS} == set(decode.RETURNS)
    for number, state in enumerate(decode.STATES):
        assert getattr(pynvml, f"NVML_GPU_FABRIC_STATE_{state.upper().replace('-', '_')}") == number
    for number, summary in enumerate(decode.SUMMARIES):
        assert (
            getattr(pynvml, f"NVML_GPU_FABRIC_HEALTH_SUMMARY_{summary.upper().replace('-', '_')}")
            == number
        )
    shifts = {name: value for name, value in vars(pynvml).items() if "HEALTH_MASK_SHIFT" in name}
    assert len(shifts) == len(decode.health(0))


def test_a_driver_without_fabric_is_unsupported(ask: Ask) -> None:
    """A missing symbol is no error of a GPU, and the text names it."""
    gpus = decoded(ask(tray(), "FABRIC"))
    assert {(one.state, one.error) for one in gpus} == {("not-supported", "symbol-missing")}
    found = accelerator.domain_of(Seen(gpus))
    assert (found.value, found.reason) == (None, "unsupported")
    assert "nvmlDeviceGetGpuFabricInfo: the library has no such function" in str(found.text)


@pytest.mark.parametrize(
    ("line", "without", "error"),
    [
        ("fail init -1 9", (), "driver-not-loaded"),
        ("fail init -1 18", (), "version-mismatch"),
        ("fail init -1 4", (), "not-permitted"),
        ("fail init -1 15", (), "gpu-lost"),
        ("fail count -1 999", (), "unknown"),
        ("fail init -1 4711", (), "unnamed-4711"),
        ("", ("INIT",), "symbol-missing"),
    ],
)
def test_what_stops_the_look_has_its_own_word(
    ask: Ask, line: str, without: tuple[str, ...], error: str
) -> None:
    """The failed call is named, with the library's own text."""
    refused, gpus = decode.answer(ask(tray(line), *without))
    assert refused is not None
    assert (refused.error, gpus) == (error, [])
    assert refused.call == ("nvmlDeviceGetCount_v2" if "count" in line else "nvmlInitWithFlags")
    assert refused.text


@pytest.mark.parametrize("call", ["handle", "pci", "uuid", "fabric"])
def test_a_lost_gpu_costs_itself(ask: Ask, call: str) -> None:
    """The other three are read in full."""
    gpus = decoded(ask(tray(f"fail {call} 1 15")))
    assert [one.error for one in gpus] == [None, "gpu-lost", None, None]
    assert [one.state for one in gpus] == ["completed", None, "completed", "completed"]
    assert "GPU is lost" in str(gpus[1].text)


def test_a_string_that_is_not_utf_8_is_an_error_of_its_gpu(ask: Ask) -> None:
    """The others are read in full."""
    plan = gpu(0).replace("GPU-24fb92fc", "GPU-\xff4fb92fc") + gpu(1)
    gpus = decoded(ask(plan))
    assert [one.error for one in gpus] == ["unknown", None]
    assert "nvmlDeviceGetUUID: 'utf-8' codec can't decode byte 0xff" in str(gpus[0].text)


@pytest.mark.parametrize("call", ["driver", "shutdown"])
def test_what_is_not_needed_may_fail(ask: Ask, call: str) -> None:
    """A failure of the driver's version or of the shutdown loses nothing of the answer."""
    answer = ask(tray(f"fail {call} -1 999"))
    assert answer["error"] is None
    assert len(decoded(answer)) == 4


def test_padding_says_nothing(ask: Ask) -> None:
    """The state is one byte; the three bytes of padding after it are ignored."""
    assert [one.state for one in decoded(ask(tray("dirty", gpus=1)))] == ["completed"]


@pytest.mark.parametrize("count", [5, 4_294_967_295])
def test_a_count_out_of_the_blue_ends(ask: Ask, count: int) -> None:
    """GPUs that do not exist are errors each, or one malformed answer, without delay."""
    answer = ask(tray(f"count {count}"), deadline_s=5)
    if count > nvml.MAX_GPUS:
        with pytest.raises(Malformed, match=f"counts {count} GPUs and answers for {nvml.MAX_GPUS}"):
            decode.answer(answer)
    else:
        assert [one.error for one in decoded(answer)] == [None] * 4 + ["invalid-argument"]


@pytest.fixture
def probe(play: Callable[[str], None], tmp_path: Path) -> Callable[..., str]:
    """Run a command over the sysfs of a node without a GPU on its PCI bus; return its output."""
    sys_root = a_node_without_rdma(tmp_path)
    console = sys_root / "bus/pci/devices/0000:01:00.0"
    console.mkdir()
    (console / "class").write_text("0x030000\n")
    (console / "vendor").write_text("0x1a03\n")
    root = ("--sysfs-root", str(sys_root), "--no-wait", "--source", "nvml")

    def run(plan: str, *arguments: str) -> str:
        play(plan)
        done = bwagent(*arguments, *root, STAND_IN_NVML=str(tmp_path / "plan"))
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def accelerator_of(document: str) -> tuple[str | None, str | None]:
    found = json.loads(document)["accelerator"]
    return found["value"], found["reason"]


DRY = ("probe", "--dry-run", "-o", "json")


def test_a_named_library_is_asked_without_a_gpu_on_the_bus(
    libraries: Callable[..., str], probe: Callable[..., str], tmp_path: Path
) -> None:
    """GPUs that are no PCI functions count; the snapshot of such a node is replayed alike."""
    plan = tray(gpu(4, cluster=ZERO, clique=0).rstrip(), "platform 0 1823825185529 5 4 1 2")
    flag = ("--nvml-library", libraries())
    found = probe(plan, *DRY, *flag)
    assert accelerator_of(found) == (f"{CLUSTER_TEXT}.32766", None)
    document = json.loads(found)
    assert [one["cluster_uuid"] for one in document["accelerator"]["gpus"]].count(CLUSTER_TEXT) == 4
    assert len(document["accelerator"]["gpus"]) == 5
    hint = "cluster UUID of zeros: not in the fabric of the other GPUs, and left out"
    problems = document["problems"]
    assert [one["text"] for one in problems if one["subject"] == "0004:01:00.0"] == [hint]
    probe(plan, "capture", str(tmp_path / "snapshot"), *flag)
    replayed = bwagent("probe", "--replay", str(tmp_path / "snapshot"), "-o", "json")
    assert accelerator_of(replayed.stdout) == (f"{CLUSTER_TEXT}.32766", None)
    position = {"chassis": "1823825185529", "slot": 5, "tray": 4, "host": 1}
    assert document["position"] == json.loads(replayed.stdout)["position"] == position


def no_library(path: Path, kind: str) -> None:
    """Put something at a path that is no libnvidia-ml."""
    if kind == "a folder":
        path.mkdir()
    elif kind == "text":
        path.write_text("no library")
    elif kind == "another library":
        shutil.copy(_ctypes.__file__, path)


@pytest.mark.parametrize("kind", ["nothing", "a folder", "text", "another library"])
def test_a_path_that_is_no_library_is_one_line(tmp_path: Path, kind: str) -> None:
    """It is named, and no other library is tried instead."""
    path = tmp_path / "libnvidia-ml.so.1"
    no_library(path, kind)
    answer = child.call("nvml", {"library": str(path)}, 10)
    refused, gpus = decode.answer(answer)
    assert refused is not None
    assert (refused.error, gpus) == (
        "symbol-missing" if kind == "another library" else "library-missing",
        [],
    )
    assert str(path) in (answer["library"] or refused.text)
    assert "\n" not in refused.text


def test_no_library_is_library_missing() -> None:
    """The dynamic loader's own message, where no driver is installed."""
    answer = child.call("nvml", {"library": None}, 10)
    if answer["library"]:
        pytest.skip("an NVIDIA driver is installed here")
    refused, gpus = decode.answer(answer)
    assert refused is not None
    assert (refused.error, gpus) == ("library-missing", [])
    assert nvml.SONAME in refused.text


def test_the_dynamic_loader_is_asked_first(
    libraries: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LD_LIBRARY_PATH works in the isolated child, too."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(libraries()).parent))
    assert child.call("nvml", {}, 10)["library"] == nvml.SONAME


def test_then_folders_below_roots(libraries: Callable[..., str], tmp_path: Path) -> None:
    """The first that loads is taken; one for another machine is passed over."""
    broken, good = (tmp_path / folder[1:] / nvml.SONAME for folder in nvml.FOLDERS[:2])
    for path in (broken, good):
        path.parent.mkdir(parents=True)
    broken.write_text("for another machine")
    shutil.copy(libraries(), good)
    code = (
        "import sys; from agent.nvml import library as nvml;"
        "nvml.ROOTS = sys.argv[1:]; print(nvml.load())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, check=True, cwd=ROOT, text=True
    )
    if run.stdout.strip() == nvml.SONAME:
        pytest.skip("an NVIDIA driver is installed here")
    assert run.stdout.strip() == str(good)


def test_the_agent_itself_never_loads_the_library(ask: Ask) -> None:
    """After a query this process has not mapped it."""
    ask(tray())
    assert "libnvidia-ml" not in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(
    not REAL, reason="no NVIDIA GPU here: BWAGENT_TEST_NVML=real asks the real library"
)
def test_the_real_library() -> None:
    """All GPUs of this machine are read, ten times over with the same result."""
    path = None if REAL == "real" else REAL
    answer = child.call("nvml", {"library": path}, 60)
    sys.stdout.write(json.dumps(answer, indent=2))
    gpus = decoded(answer)
    assert gpus
    assert all(one.pci and one.uuid for one in gpus)
    assert accelerator.domain_of(Seen(gpus)).reason != "failed"
    assert all(child.call("nvml", {"library": path}, 60) == answer for _ in range(10))
