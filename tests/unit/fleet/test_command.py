"""`bwagent fleet` as it is typed: what it reads, its errors and its exit codes."""

from __future__ import annotations

import json
import pty
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli import cli
from agent.fleet.command import Progress, fleet
from tests.support.fleet_nodes import crossed, leaf, listed, node, whole
from tests.support.snapshots import FIXTURES, bwagent, complaint

FLEET = listed([whole(number) for number in range(4)])


def test_a_fleet_without_the_agent_names_the_prefix() -> None:
    """Perhaps it has another one."""
    prefix = ("--label-prefix", "other.example.com", "--ib-label-prefix", "")
    bare = listed([{"metadata": {"name": "cpu"}}], "NodeList")
    for text in (bare, listed([node(1, observed=None)])):
        command = ("fleet", "export", "csv", "--nodes", "-", *prefix)
        line = complaint(bwagent(*command, input=text.encode()), 1)
        assert "none of 1 Nodes has labels of bwagent under other.example.com" in line


def test_a_plan_is_read_before_the_cluster(tmp_path: Path) -> None:
    """Its error needs no access."""
    path = tmp_path / "plan.csv"
    path.write_text("node,interface,device\n")
    line = complaint(bwagent("fleet", "verify", "--plan", str(path), "--kubeconfig", "/nowhere"), 1)
    assert str(path) in line


@pytest.mark.slow
def test_no_cluster_is_one_line() -> None:
    line = complaint(bwagent("fleet", "verify", "--kubeconfig", "/nowhere"), 1)
    assert line.startswith("bwagent: listing Nodes failed: no access to an API server configured: ")
    assert "/nowhere" in line


def test_a_variable_of_the_cluster_does_not_exclude_a_file() -> None:
    """A Pod may have it for all calls."""
    env = {"BWAGENT_FLEET_EXPORT_CONTEXT": "prod"}
    line = complaint(bwagent("fleet", "export", "csv", "--nodes", "-", input=b"[]", env=env), 1)
    assert line == "bwagent: standard input: no Node in it"


def code(*words: str) -> int:
    """Run a command; return its exit code."""
    exit_code: int = fleet.main(words, standalone_mode=False)
    return exit_code


def test_a_fleet_as_it_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but the report is printed."""
    path = tmp_path / "nodes.json"
    path.write_text(listed([whole(number) for number in range(32)]))
    assert code("verify", "--nodes", str(path), "-o", "json") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out)["findings"] == []


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "json", "csv", "junit", "html"])
def test_a_crossed_cable_is_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    """In every format, by the fleet's own pattern."""
    path = tmp_path / "nodes.json"
    nodes = [whole(number) for number in range(32)]
    path.write_text(listed([*nodes[:7], crossed(7, (3, 4)), *nodes[8:]]))
    assert code("verify", "--nodes", str(path), "-o", output) == 3
    printed = capsys.readouterr()
    assert "gpu-00007" in printed.out
    assert printed.err == ""


def test_a_broken_capture_is_code_1_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are exported."""
    (tmp_path / "dgx").symlink_to(FIXTURES / "dgx-h100")
    (tmp_path / "empty").mkdir()
    assert code("export", "csv", "--snapshots", str(tmp_path)) == 1
    printed = capsys.readouterr()
    assert "dgx-01" in printed.out
    assert printed.err.startswith(f"bwagent: {tmp_path}/empty: no snapshot: ")


def test_one_node_without_a_plan_says_why_it_fails(tmp_path: Path) -> None:
    """In every format, as the document may be in a file."""
    path = tmp_path / "nodes.json"
    path.write_text(listed([whole(1)]))
    for form in ("table", "json", "csv", "junit", "html"):
        done = bwagent("fleet", "verify", "--nodes", str(path), "-o", form)
        assert done.returncode == 1
        assert b"no findings" not in done.stdout.lower()
        assert done.stderr.decode() == (
            f"bwagent: {path}: not verified: no pattern found: name the expected cables with"
            " --plan FILE\n"
        )


@pytest.mark.parametrize("form", ["table", "html", "junit"])
def test_a_broken_capture_is_no_fleet_without_findings(tmp_path: Path, form: str) -> None:
    """The error and the document say the same."""
    (tmp_path / "gpu-1.tar").write_bytes(b"no archive")
    done = bwagent("fleet", "verify", "--snapshots", str(tmp_path), "-o", form)
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, line[:9]) == (1, "bwagent: ")
    assert "no findings" not in done.stdout.decode().lower()
    # the path decides where a line ends, and whether it is itself broken
    text, said = "".join(done.stdout.decode().split()), "".join(line.split())
    assert said.removeprefix("bwagent:")[:150] in text


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that is overwritten, and removed at the end."""
    parent, child = pty.openpty()
    with open(child, "w", encoding="utf-8") as terminal, open(parent, "rb", 0) as screen:
        monkeypatch.setattr("sys.stderr", terminal)
        shown = Progress("listing Nodes", interval=0.0)
        shown(3500, 10_000)
        shown(4000, None)
        shown.clear()
        terminal.write(end := "the end")
        terminal.flush()
        written = ""
        while not written.endswith(end):  # a terminal gives what has come so far
            written += screen.read(4096).decode()
    lines = written.removesuffix(end).split("\r")
    assert [line.rstrip() for line in lines] == [
        "",
        "listing Nodes: 3,500 of about 10,000",
        "listing Nodes: 4,000",
        "",
        "",
    ]


def test_no_progress_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress("listing Nodes", interval=0.0)
    shown(1, None)
    shown.clear()
    assert capsys.readouterr().err == ""


def test_an_export_names_the_key_of_the_domains() -> None:
    """A fleet whose agents have another key would be exported without domains."""
    text = CliRunner().invoke(cli, ["fleet", "export", "--help"]).output
    assert "--accelerator-label KEY" in text
    text = CliRunner().invoke(cli, ["fleet", "verify", "--help"]).output
    assert "--accelerator-label" not in text


@pytest.mark.parametrize("flag", ["--plan-format", "--hca-map"])
def test_how_to_read_a_plan_needs_one(tmp_path: Path, flag: str) -> None:
    """A flag that would be ignored is an error that names both."""
    (tmp_path / "map.csv").touch()
    done = bwagent("fleet", "verify", "--nodes", "-", flag, str(tmp_path / "map.csv"))
    assert (done.returncode, f"{flag} needs --plan" in done.stderr.decode()) == (2, True)


def test_a_map_of_the_plans_names(tmp_path: Path) -> None:
    """Without it the finding says which flag takes it, and the flag is there."""
    plan, names = tmp_path / "plan.csv", tmp_path / "map.csv"
    rows = [
        f"gpu-{number:05},{'abcdefgh'[rail]},{leaf(number, rail)},{number + 1}"
        for number in range(4)
        for rail in range(8)
    ]
    plan.write_text("\n".join(["node,interface,device,port-id", *rows, ""]))
    names.write_text(
        "port,hca-name\n" + "".join(f"{name},ibp{rail}\n" for rail, name in enumerate("abcdefgh"))
    )
    command = ("fleet", "verify", "--nodes", "-", "--plan", str(plan))
    alone = bwagent(*command, input=FLEET.encode())
    assert (alone.returncode, b"--hca-map" in alone.stdout) == (1, True)
    mapped = bwagent(*command, "--hca-map", str(names), input=FLEET.encode())
    assert b"32 of 32 cables as planned" in mapped.stdout


def test_a_plan_that_names_netdevs_is_compared(tmp_path: Path) -> None:
    """The annotation that the agent writes for a RoCE node has them."""
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes/h200").symlink_to(FIXTURES / "h200-roce")
    written = bwagent("verify", "--replay", str(FIXTURES / "h200-roce"), "--write-plan", "csv")
    rows = re.sub(rb",rocep(\d+)s0,", rb",enp\1s0np0,", written.stdout)
    plan = tmp_path / "plan.csv"
    plan.write_bytes(rows)
    done = bwagent("fleet", "verify", "--snapshots", str(tmp_path / "nodes"), "--plan", str(plan))
    assert rows.count(b",enp") == 8
    assert done.stdout.startswith(b"1 node: no findings; 8 of 8 cables as planned")
    assert done.returncode == 0


def test_a_map_for_no_node(tmp_path: Path) -> None:
    """Its numbers would be assumed in spite of it; a part of the Nodes may have no row."""
    plan, path = tmp_path / "plan.csv", tmp_path / "map.csv"
    plan.write_text(f"node,interface,device,port-id\ngpu-00000,HCA 0,{leaf(0, 0)},1\n")
    path.write_text("node,port,hca-name\nb200-*,0,ibp1\n")
    words = ("fleet", "verify", "--nodes", "-", "--plan", str(plan), "--hca-map", str(path))
    line = complaint(bwagent(*words, input=FLEET.encode()), 1)
    assert f"{path}: no glob of the column node fits a Node, such as 'b200-*'" in line
    done = bwagent(*words, "--node", "gpu-00000", input=FLEET.encode())
    assert b"fits a Node" not in done.stderr
