"""The command line run as by a shell: exit codes, errors of one line, and no traceback."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import click
import pytest

from agent.cli import cli
from agent.fleet.command import FORMER
from tests.support import snapshots
from tests.support.snapshots import CLASS, FIXTURES, SMALL, bwagent, complaint, lay

MACHINE = str(FIXTURES / "dgx-h100")
EXPECTED = (FIXTURES / "dgx-h100/expected.labels").read_bytes()
PROBE = ("probe", "--replay", MACHINE)
WRITE = ("verify", "--replay", MACHINE, "--write-plan", "csv")
VERIFY = ("verify", "--replay", MACHINE, "--plan", __file__)
ALL_COLUMNS = "node=A,interface=B,device=C,port-id=D"


def test_labels_are_printed_as_they_are() -> None:
    """Sorted, `key=value`, and nothing else."""
    finished = bwagent(*PROBE, "-o", "labels")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, EXPECTED, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", ["speed.current", "ib.coreweave.cloud/leaves.current", "leaves.current", "accelerator"]
)
def test_a_label_is_explained(key: str) -> None:
    """By its key with or without prefix, as a table or as JSON; without the Node for a snapshot."""
    finished = bwagent("explain", key, "--replay", MACHINE, "-o", "json")
    assert (finished.returncode, finished.stderr) == (0, b"")
    found = json.loads(finished.stdout)
    assert found["key"].endswith(key)
    assert found["on_node"] is None
    table = bwagent("explain", key, "--replay", MACHINE).stdout.decode()
    assert table.startswith(found["key"])


OF_MACHINE = shlex.join(PROBE[1:])
REPLAYED, WRITTEN, VERIFIED = map(shlex.join, (PROBE, WRITE, VERIFY))
FLEET, EXPORT = "fleet verify", "fleet export csv"
# The command line, and what the error names.
USAGE: dict[str, tuple[str, str]] = {
    "an unknown flag": ("probe --nosuch", "--nosuch"),
    "an unknown flag of the group": ("--nosuch", "--nosuch"),
    "a shortened flag": ("probe --out json", "--out"),
    "an unknown command": ("nosuch", "nosuch"),
    "an unknown output": (f"{REPLAYED} -o xml", "--output"),
    "a flag without its value": ("probe --replay", "--replay"),
    "a value for a switch": ("probe --dry-run=yes", "--dry-run"),
    "an argument too many": (f"{REPLAYED} extra", "extra"),
    "a key of no label": (f"explain speed.curent {OF_MACHINE}", "/speed.current"),
    "a key of no interface": (
        f"explain neighbors.current.ibp77.device {OF_MACHINE}",
        "neighbors.current.mlx5_9.device",
    ),
    "no folder": ("capture", "DIR"),
    "no key": ("explain", "KEY"),
    "two folders": ("capture a b", "b"),
    "a prefix with a space": (f"{REPLAYED} --label-prefix 'a b'", "--label-prefix"),
    "no prefix": (f"{REPLAYED} --label-prefix ''", "--label-prefix"),
    "the prefix of Kubernetes": (f"{REPLAYED} --label-prefix node.kubernetes.io", "--label-prefix"),
    "another prefix of Kubernetes": (f"{REPLAYED} --ib-label-prefix k8s.io", "--ib-label-prefix"),
    "a Node name with capitals": (f"{REPLAYED} --node-name Node", "--node-name"),
    "a sysfs that is not there": ("probe --dry-run --sysfs-root /nowhere", "--sysfs-root"),
    "a sysfs that is a file": ("capture x --sysfs-root /etc/passwd", "--sysfs-root"),
    "a difference of a replay": (f"{REPLAYED} --diff", "--diff"),
    "a cleanup without confirmation": ("cleanup --node-name n1", "--yes"),
    "a manager of no foreign keys": ("cleanup --manager m --yes", "--foreign"),
    "foreign keys of all managers on all Nodes": ("cleanup --foreign --all --yes", "--manager"),
    **{
        f"all Nodes and one of them, {flags}": (
            f"cleanup --all --node-name a1 --yes {flags}",
            "--all excludes --node-name",
        )
        for flags in ("", "--lost", "--foreign --manager m")
    },
    "an accelerator key without a domain": (
        f"{REPLAYED} --accelerator-label domain",
        "--accelerator-label",
    ),
    "a fleet of no file": (f"{FLEET} --nodes /nowhere", "--nodes"),
    "a fleet of two sources": (f"{FLEET} --nodes - --snapshots /", "--nodes excludes --snapshots"),
    "a selector of a file": (f"{EXPORT} --nodes - --selector a=b", "--nodes excludes --selector"),
    "a cluster of captures": (
        f"{FLEET} --snapshots / --context prod",
        "--snapshots excludes --context",
    ),
    "an empty selector": (f"{FLEET} --selector ''", "--selector"),
    "an empty Node name": (f"{FLEET} --nodes - --node ''", "--node"),
    **{
        f"an idle flag: {words} {flag}": (f"{words} {flag}", named)
        for words, flag, named in (
            (VERIFIED, "--context prod", "--context needs --from-node"),
            (VERIFIED, "--kubeconfig /etc/passwd", "--kubeconfig needs --from-node"),
            (WRITTEN, "--context dev", "leave out --context"),
            ("verify --plan /etc/passwd", "--force-node", "--force-node needs --from-node"),
            (f"{VERIFIED} --from-node", "--force-node", "--replay excludes --force-node"),
            (WRITTEN, "--force-node", "force-node"),
            ("probe --dry-run", "--force-node", "leave out --force-node"),
            (REPLAYED, "--force-node", "leave out --force-node"),
            (f"explain flavor {OF_MACHINE}", "--force-node", "leave out --force-node"),
            ("cleanup --yes", "--force-node", "--force-node needs --lost"),
            ("cleanup --yes --all --lost", "--force-node", "--all excludes --force-node"),
            (REPLAYED, "--wait 5", "--replay excludes --wait"),
            (REPLAYED, "--sysfs-root /tmp", "--replay excludes --sysfs-root"),
            (REPLAYED, "--openvswitch", "--replay excludes --openvswitch"),
            *(
                (line, "--nvml-library a.so", "--replay excludes --nvml-library")
                for line in (REPLAYED, VERIFIED, f"explain flavor {OF_MACHINE}")
            ),
            *(
                (line, f"{flag} a", f"{flag} needs --snapshots")
                for line in (FLEET, f"{EXPORT} --nodes -")
                for flag in ("--exclude-device", "--backend-device")
            ),
            ("probe --dry-run", "--wait 5 --no-wait", "--wait excludes --no-wait"),
            ("probe --dry-run", "--context prod", "leave out --context"),
            (REPLAYED, "--kubeconfig /etc/passwd", "leave out --kubeconfig"),
            (f"explain flavor {OF_MACHINE}", "--context prod", "leave out --context"),
            (VERIFIED, "--write-baseline -", "--write-baseline"),
            (VERIFIED, "--columns node=A,interface=A,device=B,port-id=C", "'A' is given for two"),
            (VERIFIED, "--columns node=A", "interface=TITLE is missing"),
            (VERIFIED, f"--columns {ALL_COLUMNS},node=E", "node is given twice"),
            (VERIFIED, "--columns node=A,leaf=B", "'leaf=B' is no COLUMN=TITLE of node, interface"),
            (VERIFIED, "--columns node=", "'node=' is no COLUMN=TITLE of "),
            ("probe", "--wait 5 --no-wait", "--wait excludes --no-wait"),
            ("doctor --no-cluster", "--context dev", "leave out --context"),
            ("probe --dry-run", "--source lldp --tiers", "--source lldp excludes --tiers"),
            ("run --dry-run", "--source ib --openvswitch", "--source ib excludes --openv"),
            ("capture /nowhere/x", "--source rdma --wait 5", "--source rdma excludes --wait"),
            ("doctor", "--source ib --nvml-library n.so", "--source ib excludes --nvml-library"),
        )
    },
    **{
        f"a pattern of tiers: {pattern}": (f"{words} --tier-label {pattern}", named)
        for words, pattern, named in (
            ("run", "a.b/tier-{n", "--tier-label"),
            ("fleet verify", "a.b/{a,b}", "'a.b/{a,b}' has not three"),
            (
                "cleanup --yes",
                "backend.coreweave.cloud/tier-{n}.current",
                "tier-1.current is the key",
            ),
            ("probe", "ib.coreweave.cloud/{leaves.current,a,b}", "leaves.current is the key"),
            ("probe", "backend.coreweave.cloud/{rack,a,b}", "/rack is the key of another"),
            ("run", "backend.coreweave.cloud/{a,b,speed.expected}", "speed.expected is the key"),
            ("probe", "network.topology.nvidia.com/{accelerator,a,b}", "accelerator is the key"),
            ("run", "k8s.io/tier-{n} --dry-run", "reserved for Kubernetes"),
            ("explain tier-2.current", "a.b/{a,b,c}", "'tier-2.current' is a.b/c by --tier-label"),
        )
    },
    "a former pattern": ("run --former-label-prefix a.b/c", "--former-label-prefix"),
    "an empty glob": ("probe --dry-run --exclude-device ''", "--exclude-device"),
    "no number": ("probe --dry-run --wait x", "'x' is not a valid number of seconds"),
    "no export": ("fleet export", "FORMAT"),
    "an unknown export": ("fleet export xml", "FORMAT"),
    **{
        f"a former export: {form}": (f"fleet export {form} --nodes -", f"{form} was removed: {use}")
        for form, use in FORMER.items()
    },
    "no shell": ("completion", "SHELL"),
    "an unknown shell": ("completion tcsh", "tcsh"),
    "a plan of the fleet that is not there": (f"{FLEET} --plan /nowhere", "--plan"),
    "an unknown tolerance of the fleet": (f"{FLEET} --no-tolerance luck", "--no-tolerance"),
}
PRINTED: dict[str, tuple[tuple[str, ...], str]] = {
    "a flag of two lines": (("probe", "--no\nsuch"), "such"),
    "a prefix of two lines": ((*PROBE, "--label-prefix", "a\n\x1b[2J"), "--label-prefix"),
    "a difference of a replay": ((*PROBE, "--diff"), "--diff"),
    **{
        f"what there is: {words}": (tuple(words.split()), f"; see {command} --help")
        for words, command in (
            ("prob", "bwagent"),
            ("--dry run", "bwagent"),
            ("probe --dryrun", "bwagent probe"),
            ("run now", "bwagent run"),
            ("cleanup gpu-17", "bwagent cleanup"),
            ("fleet judge", "bwagent fleet"),
            ("capture", "bwagent capture"),
        )
    },
}


@pytest.mark.parametrize(("line", "named"), USAGE.values(), ids=USAGE)
def test_a_usage_error_names_the_flag(line: str, named: str) -> None:
    """Whatever else is wrong, and before anything is done."""
    with pytest.raises(click.UsageError) as caught:
        cli.main(shlex.split(line), prog_name="bwagent", standalone_mode=False)
    assert named in caught.value.format_message()


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "named"), PRINTED.values(), ids=PRINTED)
def test_a_usage_error_is_one_line(arguments: tuple[str, ...], named: str) -> None:
    """On stderr, with exit code 2; what is unknown is listed by --help."""
    line = complaint(bwagent(*arguments), 2)
    assert named in line
    assert line.isprintable()


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("BWAGENT_PROBE_OUTPUT", "xml", "--output"),
        ("BWAGENT_PROBE_LABEL_PREFIX", "-", "--label-prefix"),
        ("BWAGENT_PROBE_NODE_NAME", "A", "--node-name"),
        ("NODE_NAME", "A", "--node-name"),
        ("BWAGENT_PROBE_DRY_RUN", "perhaps", "--dry-run"),
    ],
)
def test_a_wrong_environment_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(click.UsageError) as caught:
        cli.main(list(PROBE), prog_name="bwagent", standalone_mode=False)
    assert named in caught.value.format_message()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NODE_NAME", "BWAGENT_CLEANUP_NODE_NAME"])
def test_a_variable_with_a_node_name_permits_all(name: str) -> None:
    """A Pod may have it in its environment."""
    arguments = ("cleanup", "--all", "--yes", "--kubeconfig", "/nowhere")
    assert "/nowhere" in complaint(bwagent(*arguments, env={name: "a1"}), 1)


def test_every_flag_is_a_variable() -> None:
    """Repeatable flags take several globs."""
    environment = {
        "BWAGENT_PROBE_REPLAY": MACHINE,
        "BWAGENT_PROBE_OUTPUT": "json",
        "BWAGENT_PROBE_EXCLUDE_DEVICE": "mlx5_0 mlx5_1*",
        "BWAGENT_PROBE_BACKEND_DEVICE": "mlx5_*",
        "BWAGENT_PROBE_LABEL_PREFIX": "net.example.com",
        "BWAGENT_PROBE_IB_LABEL_PREFIX": "ib.example.com",
        "BWAGENT_PROBE_NODE_NAME": "node-18",
        "NODE_NAME": "node-17",
    }
    found = json.loads(bwagent("probe", env=environment).stdout)
    assert found["node"] == "node-18"
    prefixes = {key.partition("/")[0] for key in found["labels"]}
    assert prefixes == {"net.example.com", "ib.example.com"}
    devices = {port["device"] for port in found["ports"]}
    assert not devices & {"mlx5_0", "mlx5_1", "mlx5_10", "mlx5_11"}
    assert "mlx5_2" in devices


@pytest.mark.slow
def test_a_flag_beats_its_variable_and_node_name_is_the_last() -> None:
    """`--node-name`, else BWAGENT_PROBE_NODE_NAME, else NODE_NAME, else the host name."""
    given, both = {"NODE_NAME": "c"}, {"NODE_NAME": "c", "BWAGENT_PROBE_NODE_NAME": "b"}
    runs = [((*PROBE, "--node-name", "a"), both), (PROBE, both), (PROBE, given), (PROBE, {})]
    names = [
        json.loads(bwagent(*arguments, "-o", "json", env=env).stdout)["node"]
        for arguments, env in runs
    ]
    assert names == ["a", "b", "c", "dgx-01"]


COMMANDS = ("probe", "run", "capture", "verify", "cleanup", "fleet verify", "fleet export")


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS, "completion", "doctor"])
def test_help_fits_a_screen_and_ends_with_two_examples(command: str) -> None:
    """40 lines of 80 columns on any terminal."""
    finished = bwagent(*command.split(), "--help")
    lines = finished.stdout.decode().splitlines()
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[-3].strip() == "Examples:"
    assert all(line.strip().startswith(f"bwagent {command} ") for line in lines[-2:])


def test_help_needs_no_docstrings() -> None:
    """The image runs `python -OO`."""
    code = (
        "from agent.cli import cli; groups = cli, cli.get_command(None, 'fleet'); "
        "print(*[group.get_command(None, name).help "
        "for group in groups for name in group.list_commands(None)])"
    )
    plain, bare = (
        subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, check=True).stdout
        for flags in ((), ("-OO",))
    )
    assert b"None" not in plain
    assert bare == plain


def test_help_of_the_group_has_whole_lines() -> None:
    for group in ((), ("fleet",)):
        commands = bwagent(*group, "--help").stdout.decode().partition("Commands:")[2]
        assert commands
        assert "..." not in commands


def test_version_and_usage() -> None:
    """The version is one line; without arguments the usage is printed."""
    assert bwagent("--version").stdout.decode().startswith("bwagent ")
    nothing = bwagent()
    assert (nothing.returncode, nothing.stdout, nothing.stderr[:14]) == (2, b"", b"Usage: bwagent")


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "labels", "json", "yaml"])
def test_a_closed_pipe_is_no_traceback(output: str) -> None:
    """`bwagent probe | head -1`: the reader is gone before anything was written."""
    reading, writing = os.pipe()
    os.close(reading)
    finished = bwagent(*PROBE, "-o", output, stdout=writing)
    os.close(writing)
    assert (finished.returncode, finished.stderr) == (1, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [(*PROBE, "-o", "json"), (*PROBE, "-o", "table"), ("probe", "--help"), ("--version",)],
)
def test_a_full_disk_under_stdout_is_one_line(arguments: tuple[str, ...]) -> None:
    """The exit code is 1, since the output is missing."""
    with Path("/dev/full").open("wb") as full:
        line = complaint(bwagent(*arguments, stdout=full))
    assert line == "bwagent: cannot write the output: No space left on device"


def test_a_closed_stdout_is_no_traceback() -> None:
    command = f'"{sys.executable}" -m agent.cli probe --replay {MACHINE} >&-'
    finished = subprocess.run(
        ["sh", "-c", command], cwd=snapshots.REPOSITORY, check=False, capture_output=True
    )
    assert b"Traceback" not in finished.stderr
    assert finished.returncode == 1


def on_a_terminal(*arguments: str, **environment: str) -> bytes:
    """Return what the program writes to a terminal, which buffers a few KiB."""
    ours, theirs = pty.openpty()
    with ThreadPoolExecutor(1) as reader:
        written = reader.submit(_read_all, ours)
        try:
            bwagent(*arguments, stdout=theirs, env=environment)
        finally:
            os.close(theirs)  # or the reader would wait forever
    os.close(ours)
    return written.result()


def _read_all(terminal: int) -> bytes:
    written = b""
    with suppress(OSError):  # EIO: the other end is closed
        while more := os.read(terminal, 65536):
            written += more
    return written


@pytest.mark.slow
def test_color_is_for_terminals() -> None:
    """Not in a pipe, not with NO_COLOR, not on a dumb terminal; the text is the same without it."""
    colored = on_a_terminal(*PROBE, TERM="xterm")
    plain = bwagent(*PROBE).stdout
    assert b"\x1b[32m" in colored
    assert b"\x1b" not in plain
    assert on_a_terminal(*PROBE, TERM="xterm", NO_COLOR="1") == plain.replace(b"\n", b"\r\n")
    assert on_a_terminal(*PROBE, TERM="dumb") == plain.replace(b"\n", b"\r\n")
    assert b"\x1b" not in on_a_terminal(*PROBE, "-o", "json", TERM="xterm")


@pytest.mark.parametrize("output", ["table", "labels", "json", "yaml"])
def test_a_long_name_breaks_no_output(tmp_path: Path, output: str) -> None:
    """The table cuts long names; the other formats have them whole."""
    name = "m" * 60
    snapshot = {path: data for path, data in SMALL.items() if path != f"{CLASS}/ibp0"}
    folder = lay(tmp_path / "long", snapshot | {f"{CLASS}/{name}": SMALL[f"{CLASS}/ibp0"]})
    finished = bwagent("probe", "--replay", folder, "-o", output)
    assert finished.returncode == 0
    assert output != "table" or max(map(len, finished.stdout.splitlines())) <= 80
    assert output != "json" or json.loads(finished.stdout)["ports"][0]["device"] == name


def test_a_narrow_encoding_is_no_traceback(tmp_path: Path) -> None:
    """A host name may have letters that the terminal's encoding lacks."""
    folder = lay(tmp_path / "small", SMALL | {"host.json": '{"hostname": "knöten"}'.encode()})
    finished = bwagent("probe", "--replay", folder, env={"PYTHONIOENCODING": "ascii"})
    assert b"Traceback" not in finished.stderr


def test_an_empty_snapshot_name_does_not_show_this_machine() -> None:
    """`--replay "$UNSET"`."""
    assert complaint(bwagent("probe", "--replay", "", env={"NODE_NAME": "node-17"}), 2)


def test_probe_says_of_which_host_it_is() -> None:
    """Without a cluster nobody has compared the Node of --node-name with this host."""
    done = bwagent("probe", "--dry-run", "--node-name", "gpu-17", "--source", "rdma")
    assert b"Node gpu-17 was not compared with it: --dry-run --diff" in done.stderr
    assert b"gpu-17" not in done.stdout


@pytest.mark.parametrize("key", ["leaf", "a.b/leaf", "leafgroup.current"])
def test_a_tier_is_explained(key: str) -> None:
    """Its prefix may be missing, as that of other keys; the leaf group has both keys."""
    words = ("--tier-label", "a.b/{leaf,spine,core}", "-o", "json")
    finished = bwagent("explain", key, *words, "--replay", MACHINE)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    assert found["key"].endswith(key)
    assert found["meaning"].startswith("the distinct switches")
