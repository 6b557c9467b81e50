"""The emulated machine: the boot that others share, what ends one, and SMPs on it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.qemu.machine import Machine, MachineError, missing, with_dependencies
from tests.support.qemu.shared import Shared
from tests.support.real_parts import require


@pytest.fixture(scope="module")
def parts() -> None:
    """Skip tests that boot a machine where none can boot."""
    require(missing())


def test_host_is_not_written_outside_the_work_dir(shared: Shared) -> None:
    """The script can write and read back, and nothing of it is on the host; its environment is what
    was passed, and its exit code the result.
    """
    assert (shared.result.rc, shared.result.output) == (7, "written\nand to standard error\n")
    assert not shared.elsewhere.exists()
    environment = (shared.folder / "environment").read_text()
    assert f"ELSEWHERE={shared.elsewhere}\n" in environment
    assert "PYTEST_CURRENT_TEST" not in environment


@pytest.mark.usefixtures("parts")
def test_script_that_outlasts_its_limit(tmp_path: Path) -> None:
    """The error has the script's last output, and the machine is gone."""
    said = ""
    for limit in (20, 100):  # on a busy host the shell starts late
        with pytest.raises(MachineError, match=rf"outlasted its {limit} s") as caught:
            Machine(tmp_path).run("echo so far so good; sleep 1000", timeout=limit)
        assert not _processes_in(tmp_path)
        if (said := str(caught.value)).count("so far so good"):
            break
    assert "so far so good" in said


@pytest.mark.sweep
@pytest.mark.usefixtures("parts")
def test_kernel_panic(tmp_path: Path) -> None:
    """A machine that crashes under its script raises an error with the kernel's message."""
    with pytest.raises(
        MachineError, match=r"(?s)went down under its script.*Kernel panic - not syncing: sysrq"
    ):
        Machine(tmp_path).run("echo c >/proc/sysrq-trigger; sleep 60")
    assert not _processes_in(tmp_path)


@pytest.mark.usefixtures("parts")
def test_boot_that_hangs(tmp_path: Path) -> None:
    """A machine that does not start its script in time has another error than a script that takes
    too long.
    """
    with pytest.raises(MachineError, match=r"did not boot within 0\.1 s"):
        Machine(tmp_path, boot_limit=0.1).run("true")
    assert not _processes_in(tmp_path)


@pytest.mark.usefixtures("parts")
def test_machine_that_qemu_refuses(tmp_path: Path) -> None:
    """The error has QEMU's message about its arguments."""
    with pytest.raises(MachineError, match=r"(?s)went down as it booted.*no-such-device"):
        Machine(tmp_path, devices=("-device", "no-such-device")).run("true")


def test_dependencies_are_found_under_either_spelling() -> None:
    """modules.dep names files, which may have a hyphen where the module has an underscore."""
    text = (
        "kernel/a/virtio-pci.ko: kernel/b/virtio.ko kernel/c/ring.ko\n"
        "kernel/b/virtio.ko:\nkernel/d/veth.ko:\n"
    )
    expected = {"kernel/a/virtio-pci.ko", "kernel/b/virtio.ko", "kernel/c/ring.ko"}
    assert with_dependencies(["virtio_pci"], text) == expected


@pytest.mark.usefixtures("parts")
def test_missing_kernel_is_said_in_words(tmp_path: Path) -> None:
    """The reason to skip names the command that installs the kernel."""
    assert "fetch_kernel.sh" in (missing(cache=tmp_path) or "")


def _processes_in(folder: Path) -> list[str]:
    """Return the processes whose current folder this is: QEMU runs in the machine's."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.path.realpath(process / "cwd") == str(folder.resolve()):
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("word", ["no-umad", "refused", "not-permitted"])
def test_a_real_kernel_refuses_in_words(shared: Shared, word: str) -> None:
    """Soft-RoCE without ib_umad, with it, and with a device node that we may not open."""
    [port] = json.loads((shared.results("test_machine") / word).read_text())["ports"]
    assert port["error"] == word, port["text"]
