r"""A real kernel with real RDMA devices, for tests on hosts that have neither: soft-RoCE in QEMU.

A `Machine` boots Debian's 6.1 kernel without KVM in about four seconds, runs one script as root,
and is discarded. Inside, every path of the host is at its own place, the running Python and its
virtualenv included, so a script can use `{sys.executable} -m agent.cli ...`:

    host's /   --9p, read-only-->  lower layer  \
    (memory)   --tmpfs---------->  upper layer  -+-->  /, writable, discarded at the end
    work_dir   --9p, read-write--------------------->  the same path, the script's folder
    (memory)   --tmpfs------------------------------>  /run, /dev/shm

Modules load by themselves when a link type is first asked for (`ip link add type bond`, `rdma link
add ... type rxe`), and can be removed and loaded again with modprobe. There is no udev: no module
loads because a device appears.

There are three results: the script ended (a `Result` with any exit status), the machine failed
(`MachineError`: it did not boot, crashed under the script, or the script exceeded its limit), a
part is not installed (`missing()`). QEMU never outlives `run()`, nor the process or thread that
called it, even if that was killed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.real_parts import CACHE_OF_PARTS

HERE = Path(__file__).parent
INIT = HERE / "init.sh"
CACHE = CACHE_OF_PARTS / "emulated"
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "depmod": "kmod",
}
TO_REACH_THE_HOST = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
RDMA = (
    "rdma_rxe",
    "crc32_generic",
    "ib_umad",
    "ib_uverbs",
)  # without that crc32 rxe fails to add a link
NETWORK = ("virtio_net", "veth", "bridge", "bonding", "8021q", "dummy")
MODULES = (*TO_REACH_THE_HOST, *RDMA, *NETWORK)
# What is emulated fastest: of a newer processor glibc and the kernel use vectors, which TCG
# computes one element at a time, and page tables of five levels.
PROCESSOR = "Nehalem-v1"
# On a busy host the guest's kernel may stand still before its first line, with a processor at work.
BOOTS = 3
# Nobody in there is to be guarded from anybody else: retpolines cost a third. Whether the timer
# ticks is not to be asked while the host is busy: the answer may be a panic.
QUICK = "mitigations=off no_timer_check"
USER_NETWORK = ("-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0,romfile=")
"""Pass as `devices`; after `modprobe virtio_net`, eth0 may be 10.0.2.15/24, the host 10.0.2.2."""


class MachineError(Exception):
    """A failure of the machine, not of the script in it; the message ends with the last output."""


@dataclass(frozen=True, slots=True)
class Result:
    """The results of a script, besides the files it wrote into its current folder."""

    rc: int
    output: str
    """Standard output and standard error, as they came."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel package unpacked by fetch_kernel.sh."""

    version: str
    image: Path
    modules: Path


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that is off; each `run` is one boot, and keeps nothing of the boot before but the
    files in work_dir.
    """

    work_dir: Path
    devices: tuple[str, ...] = ()
    """More of QEMU's arguments, such as USER_NETWORK."""
    boot_limit: float = 450
    """Seconds until the script starts: many times what it takes on an idle host, for all tries."""

    def run(
        self, script: str, *, timeout: float = 900, env: Mapping[str, str] | None = None
    ) -> Result:
        """Boot, run this bash script as root in work_dir, and return once the machine is off.

        The script's environment is `env` alone, with nothing of this process's.
        """
        for _ in range(BOOTS):
            talk = self._prepare(script, env or {})
            if self._boot(talk, timeout):
                return Result(int((talk / "status").read_text()), _text(talk / "output"))
        raise _error(talk, f"the machine did not boot within {self.boot_limit} s")

    def _boot(self, talk: Path, timeout: float) -> bool:
        """Boot once and wait until it is off; False if the script did not start in time."""
        started = talk / "started"
        limit = self.boot_limit / BOOTS
        with _running(self._command(), talk / "console", cwd=self.work_dir) as qemu:
            if not _within(limit, lambda: qemu.poll() is not None or started.exists()):
                return False
            if not _within(timeout, lambda: qemu.poll() is not None):
                raise _error(talk, f"the script outlasted its {timeout} s")
        if not (talk / "status").exists():
            raise _error(
                talk,
                "the machine went down "
                f"{'under its script' if started.exists() else 'as it booted'}",
            )
        return True

    def _prepare(self, script: str, env: Mapping[str, str]) -> Path:
        """Make the folder shared by init.sh and this module, empty but for init's script."""
        talk = self.work_dir / ".machine"
        shutil.rmtree(talk, ignore_errors=True)
        talk.mkdir(parents=True)
        here = str(self.work_dir.resolve())
        exports = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        (talk / "here").write_text(here)
        (talk / "script").write_text(
            "\n".join([*exports, f"cd {shlex.quote(here)} || exit", script, ""])
        )
        return talk

    def _command(self) -> list[str]:
        """Return QEMU's command line, to be run in work_dir: a path spelt out there would need its
        commas escaped.
        """
        kernel = _kernel()
        if kernel is None:
            raise MachineError(missing())
        share = "local,security_model=none,multidevs=remap"
        return [
            *("setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64"),
            *("-accel", "tcg", "-cpu", PROCESSOR, "-smp", "2", "-m", "1024"),
            *("-nodefaults", "-no-reboot"),
            *("-display", "none", "-serial", "stdio"),
            *("-kernel", str(kernel.image), "-initrd", str(_initramfs(kernel))),
            *("-append", f"console=ttyS0 quiet oops=panic panic=-1 {QUICK}"),
            *(
                "-virtfs",
                f"{share},path=/,mount_tag=host,readonly=on",
                "-virtfs",
                f"{share},path=.,mount_tag=share",
            ),
            *self.devices,
        ]


def missing(cache: Path = CACHE) -> str | None:
    """Return the part of the emulated machine that this host lacks; None when it can boot."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return "the emulated machine runs the host's programs, which must be for Linux on x86-64"
    for tool, package in TOOLS.items():
        if _tool(tool) is None:
            return f"the emulated machine needs {tool}: apt-get install {package}"
    if _kernel(cache) is None:
        return f"the emulated machine has no kernel in {cache}: run {HERE / 'fetch_kernel.sh'}"
    return None


def lacks_netdevsim(cache: Path = CACHE) -> str | None:
    """Return why netdevsim cannot be loaded; None if it can."""
    built = any(cache.glob("kernel/lib/modules/*/extra/netdevsim.ko"))
    return None if built else f"there is no netdevsim: run {HERE / 'build_netdevsim.sh'}"


def _tool(name: str) -> str | None:
    """Find a program; depmod is only in root's PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _kernel(cache: Path = CACHE) -> Kernel | None:
    root = cache / "kernel"
    image = next(root.glob("boot/vmlinuz-*"), None)
    if image is None:
        return None
    version = image.name.removeprefix("vmlinuz-")
    return Kernel(version, image, root / "lib" / "modules" / version)


def _initramfs(kernel: Kernel) -> Path:
    """Return the initramfs for this kernel, made once for all runs and all processes.

    It is not compressed: unpacking it on an emulated processor takes longer than reading it.
    """
    parts = (*MODULES, INIT.read_text())
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    archive = CACHE / f"initramfs-{kernel.version}-{digest[:12]}.cpio"
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            root = Path(scratch) / "root"
            _stage(root, kernel)
            _pack(root, Path(scratch) / "cpio").replace(archive)
    return archive


def _stage(root: Path, kernel: Kernel) -> None:
    """Lay out the initramfs: init.sh, busybox, the chosen modules and their index."""
    for folder in ("bin", "sbin"):
        (root / folder).mkdir(parents=True)
    shutil.copy(_found("busybox"), root / "bin" / "busybox")
    (root / "sbin" / "modprobe").symlink_to("/bin/busybox")
    shutil.copyfile(INIT, root / "init")
    (root / "init").chmod(0o755)
    for name in _module_files(kernel):
        target = root / "lib" / "modules" / kernel.version / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel.modules / name, target)
    subprocess.run([_found("depmod"), "-b", root, kernel.version], check=True)


def _module_files(kernel: Kernel) -> set[str]:
    """Return the wanted modules with all they depend on, and the modules.{builtin,order} that
    depmod reads.
    """
    wanted = with_dependencies(MODULES, (kernel.modules / "modules.dep").read_text())
    return wanted | {lists.name for lists in kernel.modules.glob("modules.[bo]*")}


def with_dependencies(modules: Iterable[str], modules_dep: str) -> set[str]:
    """Return the files of these modules and of those they need, by modules.dep(5), which lists the
    needed in full.
    """
    lines = (line.partition(":") for line in modules_dep.splitlines())
    table = {
        Path(file).name.partition(".")[0].replace("-", "_"): {file, *needed.split()}
        for file, _, needed in lines
    }
    return set[str]().union(*(table[name] for name in modules))


def _pack(root: Path, archive: Path) -> Path:
    names = "\0".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    with archive.open("wb") as out:
        command = [_found("cpio"), "--create", "--format=newc", "--null", "--quiet", "--owner=0:0"]
        subprocess.run(command, cwd=root, input=names.encode(), stdout=out, check=True)
    return archive


def _found(tool: str) -> str:
    path = _tool(tool)
    if path is None:
        raise MachineError(missing())
    return path


@contextmanager
def _running(command: list[str], console: Path, *, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start QEMU with its console in a file; kill and reap it at the end of the block."""
    with (
        console.open("wb") as out,
        subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ) as qemu,
    ):
        try:
            yield qemu
        finally:
            qemu.kill()


def _within(seconds: float, happened: Callable[[], bool]) -> bool:
    """Wait for a condition; return False if it is not true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _error(talk: Path, what: str) -> MachineError:
    """Return an error with the last lines of the script and of the console, the kernel's stack
    trace included.
    """
    tails = (f"--- {name}:\n{_tail(_text(talk / name), 100)}" for name in ("output", "console"))
    return MachineError("\n".join([what, *tails]))


def _tail(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
