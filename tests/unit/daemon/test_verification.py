"""The verdict of an agent: the whole loop in simulated time, with expected labels on its Node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent.cabling import one_node
from agent.cabling.expected import Expected, ExpectedRow
from agent.cabling.plans.model import FilePlace
from agent.daemon.background import BackgroundTask
from agent.daemon.plan_file import LOOK_INTERVAL, PlanFile
from agent.encode import Naming
from agent.events.event import Event
from agent.telemetry.metrics import Exposition
from agent.text import utc
from tests.support.kernel_tree import CLASS, HOME, hca, nic
from tests.support.lldp_frames import switch
from tests.support.nodes import IB_PREFIX, PREFIX
from tests.support.running import DELAY, EPOCH, HUP, Api, World
from tests.support.smps import far_end

A, B = "0000:18:00.0", "0000:19:00.0"
IB = hca("ibp0", A) | hca("ibp1", B)
LEAVES = {"ibp0": "leaf1", "ibp1": "leaf2"}
EXPECTED = {f"{PREFIX}/neighbors.expected.{port}.device": leaf for port, leaf in LEAVES.items()}
BEFORE = "; compared with what was expected before "
NO_PLAN = "no --plan and no expected labels on the Node"
NO_ROWS = "no expected labels on the Node, and no rows for it in --plan"


class Rack(World):
    """A node with two cables; `leaves` are the switches at their far ends."""

    def __init__(self, expected: Mapping[str, str] | None = None, **changes: Any) -> None:
        self.leaves, self.pcie_reads = dict(LEAVES), 0
        api = Api()
        api.hold("site", EXPECTED if expected is None else expected)
        super().__init__(IB, api=api, **changes)
        self.smp = self._far_end

    def _far_end(self, address: tuple[str, int]) -> dict[str, Any]:
        leaf = self.leaves.get(address[0])
        return far_end(address, int(leaf[4]), leaf) if leaf else self.no_smp(address)

    def cable(self, **leaves: str) -> None:
        """Change the far ends; the ports bounce."""
        self.leaves |= leaves
        self.at(0.0, *(Event("port", f"{name}/1") for name in leaves))

    def expect(self, labels: Mapping[str, str]) -> None:
        """Change the expected labels; an operator sends SIGHUP."""
        self.api.hold("site", labels)
        self.at(0.0, HUP)

    def read(self, path: str, limit: int) -> bytes:
        self.pcie_reads += path.endswith("current_link_speed")
        return super().read(path, limit)

    def wall(self, seconds: float = 0.0) -> str:
        """Return a time of the wall clock, this many seconds from now."""
        return utc(int(EPOCH + self.time + self.wall_offset + seconds))

    def codes(self) -> list[str]:
        return [one["code"] for one in self.verdict[1]["findings"]]

    def word(self) -> tuple[str, str]:
        status, document = self.verdict
        return status, document["verdict"]

    def series(self) -> list[str]:
        text = Exposition(self.metrics)()[1].decode()
        names = ("bwagent_findings", "bwagent_verified", "bwagent_plan")
        return [line for line in text.splitlines() if line.startswith(names)]

    def finding_lines(self) -> list[str]:
        return [line for line in self.lines if " finding" in line]


def files(path: Path) -> PlanFile:
    """Return a plan file as the agent of n1 has it, read at once where it is due."""
    task = BackgroundTask[Any](lambda work: work())
    return PlanFile((str(path),), ("n1",), Naming(), task, one_node.read)


def settled(**changes: Any) -> Rack:
    """Return a node as planned, with its first verdict."""
    return Rack(**changes).run(5 + DELAY)


def crossed() -> Rack:
    """Return one whose two cables were exchanged, with the verdict on that."""
    rack = settled()
    rack.cable(ibp0="leaf2", ibp1="leaf1")
    return rack.run(DELAY + 20)


def test_before_the_first_verdict() -> None:
    """It is pending, before and after the Node was read, and waits for the delay."""
    rack = Rack()
    assert rack.word() == ("404", "pending")
    reason = "the Node was not read yet"
    assert rack.verdict[1] == {"verdict": "pending", "node": "n1", "reason": reason}
    rack.run(DELAY - 1)
    assert rack.word() == ("404", "pending")
    rack.run(5)
    status, document = rack.verdict
    assert status == "200"
    assert (document["planned"], document["as_planned"]) == (2, 2)
    assert document.items() >= {"verdict": "pass", "node": "n1", "findings": []}.items()
    assert document["time"].endswith("Z")


def test_nothing_is_expected() -> None:
    """404, no series, and nothing about it in the annotation."""
    rack = settled(expected={})
    assert rack.verdict == ("404", {"verdict": "no-plan", "node": "n1", "reason": NO_PLAN})
    assert rack.series() == []
    assert "verdict" not in rack.told


def test_a_swap_and_its_repair() -> None:
    """Each moves the verdict after the delay, without an event, by one line and one request."""
    rack = settled()
    requests, looks = len(rack.api.requests), len(rack.looks)
    rack.cable(ibp0="leaf2", ibp1="leaf1")
    rack.run(DELAY - 5)
    assert (rack.word(), rack.finding_lines()) == (("200", "pass"), [])
    rack.run(20)
    assert (rack.word(), rack.codes()) == (("503", "fail"), ["swapped"])
    [line] = rack.finding_lines()
    assert 'warning finding code=swapped interface=ibp0 text="Exchange the far ends' in line
    assert 'bwagent_findings{code="swapped",interface="ibp0"} 1.0' in rack.series()
    assert "bwagent_plan_rows 2.0" in rack.series()
    verdict = json.loads(rack.told)["verdict"]
    assert (verdict["verdict"], verdict["findings"]) == ("fail", 1)
    assert len(rack.api.requests) - requests <= 2  # the labels, and the verdict
    assert len(rack.looks) - looks <= 12
    rack.cable(**LEAVES)
    rack.run(DELAY - 5)
    assert rack.word() == ("503", "fail")
    rack.run(20)
    assert (rack.word(), rack.codes()) == (("200", "pass"), [])
    assert "info finding gone code=swapped interface=ibp0" in rack.finding_lines()[-1]
    assert not any(line.startswith("bwagent_findings") for line in rack.series())


def test_findings_follow_the_schema_of_verify(repository: Path) -> None:
    """docs/verify.schema.json; the parts of the body are documented, also of a remembered one."""
    schema = json.loads((repository / "docs/verify.schema.json").read_text())
    part = {"$defs": schema["$defs"], **schema["properties"]["findings"]}
    rack = crossed()
    for _ in range(2):
        document = rack.verdict[1]
        jsonschema.validate(document["findings"], part, cls=jsonschema.Draft202012Validator)
        page = (repository / "docs/verdict.md").read_text()
        assert all(f'"{name}"' in page or f"`{name}`" in page for name in document)
        rack.leaves = {}
        rack.start_again()
        rack.run(1)


def test_a_restart_moves_nothing() -> None:
    """The next agent of the same boot has the verdict as soon as it has read the Node, and the
    finding again once the cables are seen; it is no news, and nothing is written.
    """
    rack = crossed()
    writes = len(rack.api.writes)
    leaves, rack.leaves = rack.leaves, {}  # nobody answers yet
    rack.start_again()
    rack.run(1)
    status, document = rack.verdict
    assert (status, rack.codes()) == ("503", [])
    assert document["reason"].endswith("the verdict is that of the agent before (1 finding)")
    rack.run(20)
    assert rack.word() == ("503", "fail")
    rack.leaves = leaves
    rack.look(2 * DELAY)
    assert (rack.word(), rack.codes()) == (("503", "fail"), ["swapped"])
    assert len(rack.api.writes) == writes
    assert rack.finding_lines()[1:] == []
    rack.leaves = dict(LEAVES)
    rack.start_again()
    rack.run(DELAY - 5)
    assert rack.word() == ("503", "fail")
    rack.run(30)
    assert rack.word() == ("200", "pass")


def test_another_boot_forgets() -> None:
    """Somebody may have worked on the node meanwhile: the verdict is pending again."""
    rack = settled()
    assert rack.word() == ("200", "pass")
    rack.write("proc/sys/kernel/random/boot_id", b"another\n")
    rack.start_again()
    rack.run(DELAY - 5)
    assert rack.word() == ("404", "pending")
    assert "verdict" not in rack.told
    rack.run(10)
    assert rack.word() == ("200", "pass")


def test_a_malformed_memory_is_none() -> None:
    """The log has it; the verdict is pending as after a first start."""
    rack = settled()
    document = json.loads(rack.told)
    document["verdict"]["verdict"] = "good"
    rack.api.annotation = json.dumps(document)
    rack.start_again()
    rack.run(5)
    assert rack.word() == ("404", "pending")
    assert any("malformed facts, ignored: verdict" in line for line in rack.lines)


def test_steps_of_the_wall_clock() -> None:
    rack = settled()
    rack.cable(ibp0="leaf2", ibp1="leaf1")
    rack.run(20)
    rack.wall_offset += 86400.0
    rack.look(20)
    assert rack.word() == ("200", "pass")
    rack.wall_offset -= 2 * 86400.0
    rack.run(30)
    assert rack.word() == ("503", "fail")


CONTRADICTION = {f"{IB_PREFIX}/neighbors.expected.ibp0.device": "leaf9"}


def test_labels_that_contradict_each_other() -> None:
    """One line, and never a pass; those of before are compared, and a cable that changes place is
    found.
    """
    rack = settled()
    assert "bwagent_plan_problem 0.0" in rack.series()
    rack.expect({**EXPECTED, **CONTRADICTION})
    rack.run(20)
    assert rack.word() == ("200", "unverified")
    reason = rack.verdict[1]["reason"]
    assert "neighbors.expected.ibp0.device is" in reason
    assert rack.wall(-20) <= reason.partition(BEFORE)[2] <= rack.wall()
    assert "bwagent_plan_problem 1.0" in rack.series()
    rack.look(600)
    assert rack.verdict[1]["reason"] == reason
    assert sum("cables not verified" in line for line in rack.lines) == 1
    rack.cable(ibp0="leaf2", ibp1="leaf1")
    rack.run(DELAY + 20)
    assert (rack.word(), rack.codes()) == (("503", "fail"), ["swapped"])
    rack.expect(EXPECTED)
    rack.run(20)
    assert (rack.word(), "reason" in rack.verdict[1]) == (("503", "fail"), False)
    assert sum("cables verified again" in line for line in rack.lines) == 1
    assert "bwagent_plan_problem 0.0" in rack.series()


def test_labels_that_contradict_each_other_from_the_start() -> None:
    """Nothing was ever compared: there is no verdict, however long it lasts."""
    rack = settled(expected={**EXPECTED, **CONTRADICTION})
    rack.look(3600)
    assert rack.word() == ("404", "pending")
    assert "neighbors.expected.ibp0.device is" in rack.verdict[1]["reason"]
    assert "bwagent_plan_problem 1.0" in rack.series()
    assert sum("cables not verified" in line for line in rack.lines) == 1


def test_devices_that_cannot_be_read() -> None:
    """Nothing was observed, so nothing is compared: not a pass, and no finding comes."""
    rack = settled()
    rack.errors[CLASS] = 5
    rack.look(2 * DELAY)
    assert rack.word() == ("200", "unverified")
    assert rack.finding_lines() == []
    rack.errors.clear()
    rack.run(DELAY)
    assert rack.word() == ("200", "pass")


def test_devices_that_were_never_read() -> None:
    """Nothing was ever compared: there is no verdict, however long it lasts. One of an agent
    before stands, and says that it is that.
    """
    rack = Rack()
    rack.errors[CLASS] = 5
    rack.look(3600)
    assert rack.word() == ("404", "pending")
    assert rack.verdict[1]["reason"].startswith("nothing observed: ")
    rack = settled()
    before = rack.verdict[1]["time"]
    rack.errors[CLASS] = 5
    rack.start_again()
    rack.look(3600)
    assert (rack.word(), rack.verdict[1]["time"]) == (("200", "unverified"), before)
    assert "; nothing was compared since the start; " in rack.verdict[1]["reason"]


def test_a_bug_in_a_comparison_ends_nothing() -> None:
    """A plan that raises is a fault like any other; the labels do not depend on it."""

    class Broken(Expected):
        @property
        def is_empty(self) -> bool:
            return False

        def __iter__(self) -> Any:
            raise RuntimeError("broken")

        @property
        def rows(self) -> Any:
            raise RuntimeError("broken")

    rack = Rack(rows=Broken)
    rack.run(2 * DELAY)
    assert rack.word() == ("404", "pending")
    assert rack.labels["speed.current"] == "800G"
    assert sum("broken" in line for line in rack.lines) == 1


def test_the_expected_half_goes() -> None:
    """The verdict is forgotten, on the Node, too; new labels begin anew."""
    rack = crossed()
    rack.expect({})
    rack.run(20)
    assert rack.word() == ("404", "no-plan")
    assert (rack.series(), "verdict" in rack.told) == ([], False)
    assert "finding gone code=swapped" in rack.finding_lines()[-1]
    rack.expect(EXPECTED)
    rack.run(20)
    assert rack.word() == ("404", "pending")
    rack.run(DELAY)
    assert rack.word() == ("503", "fail")


def test_labels_of_the_hourly_answer() -> None:
    """An agent learns of expected labels from any answer, without SIGHUP."""
    rack = settled(expected={})
    rack.api.hold("site", EXPECTED)
    rack.run(4100 + DELAY)
    assert rack.word() == ("200", "pass")


def planned(**leaves: str) -> Expected:
    return Expected(
        tuple(
            ExpectedRow(port, FilePlace("plan.csv", None, 2), leaf) for port, leaf in leaves.items()
        )
    )


def test_a_port_that_the_file_gives_to_two_nodes(tmp_path: Path) -> None:
    """A finding, as long as the file was read. A metric says whether it is in use."""
    path = tmp_path / "plan.csv"
    path.write_text(
        "node,interface,device,port-id\nn1,ibp0,leaf1,33\nn1,ibp1,leaf2,1\nn9,mlx5_0,leaf1,33\n"
    )
    rack = settled(expected={}, plan=files(path))
    rack.run(LOOK_INTERVAL + DELAY)
    assert "duplicate" in rack.codes()
    assert "bwagent_plan_problem 0.0" in rack.series()
    path.unlink()
    rack.run(2 * LOOK_INTERVAL)
    assert "duplicate" in rack.codes()
    assert "bwagent_plan_problem 1.0" in rack.series()


def test_the_rows_of_plan_files() -> None:
    """They count as labels do, together with labels, and against them."""
    rack = settled(expected={}, rows=lambda: planned(**LEAVES))
    assert (rack.word(), rack.verdict[1]["planned"]) == (("200", "pass"), 2)
    rack = settled(rows=lambda: planned(ibp0="leaf1"))
    assert (rack.word(), rack.verdict[1]["planned"]) == (("200", "pass"), 2)
    rack = settled(rows=lambda: planned(ibp0="leaf9"))
    assert rack.word() == ("404", "pending")
    assert "plan.csv, row 2" in rack.verdict[1]["reason"]
    assert settled(expected={}, rows=Expected).word() == ("404", "no-plan")


def test_files_that_are_not_read_yet() -> None:
    """The remembered verdict stands until they are; without one there is none."""
    rows: list[Expected | None] = [planned(**LEAVES)]
    rack = settled(expected={}, rows=lambda: rows[0])
    assert rack.word() == ("200", "pass")
    rack.cable(ibp0="leaf2", ibp1="leaf1")
    rack.run(DELAY + 20)
    assert rack.word() == ("503", "fail")
    writes, rows[0] = len(rack.api.writes), None
    rack.start_again(rows=lambda: rows[0])
    rack.run(5)
    assert (rack.word(), len(rack.api.writes)) == (("503", "fail"), writes)
    rows[0] = planned(**LEAVES)
    rack.run(2 * DELAY)
    assert rack.word() == ("503", "fail")
    assert not any("cables not verified" in line for line in rack.lines)
    rack = Rack(expected={}, rows=lambda: None)
    for _ in range(2):
        rack.run(DELAY - 5)
        assert rack.word() == ("404", "pending")
        assert rack.verdict[1]["reason"] == "the files of --plan were not read yet"


PLAN = "node,interface,device,port-id\n" + "".join(
    f"n1,{port},{leaf},1\n" for port, leaf in LEAVES.items()
)
TYPO = "node;interfaces\nn1,ibp0\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A plan file that is as the node is cabled."""
    path = tmp_path / "plan.csv"
    path.write_text(PLAN)
    return path


def spoil(path: Path, text: str | None) -> None:
    """Remove the plan, or write another text in its place."""
    path.write_text(text) if text else path.unlink()


WRONG = pytest.mark.parametrize("text", [None, TYPO])


@WRONG
@pytest.mark.parametrize("labels", [{}, EXPECTED])
def test_a_plan_that_was_never_read(path: Path, text: str | None, labels: dict[str, str]) -> None:
    """404 with file and error, however long it lasts, whatever labels there are beside it; a
    verdict once it is readable.
    """
    spoil(path, text)
    rack = Rack(expected=labels, plan=files(path))
    for _ in range(2):
        rack.run(DELAY)
        status, document = rack.verdict
        assert (status, document["verdict"]) == ("404", "no-plan")
        assert document["reason"].startswith(f"{path}: ")
        assert set(document) == {"verdict", "node", "reason"}
        assert rack.series() == ["bwagent_plan_problem 1.0"]
        rack.look(3600)
    path.write_text(PLAN)
    rack.run(LOOK_INTERVAL + 20)
    assert rack.word() == ("404", "pending")
    rack.run(DELAY)
    assert rack.word() == ("200", "pass")


@WRONG
def test_the_last_good_rows_of_a_plan(path: Path, text: str | None) -> None:
    """They are compared, and the verdict says what is wrong, and since when; never a pass."""
    rack = settled(expected={}, plan=files(path))
    assert (rack.word(), "reason" in rack.verdict[1]) == (("200", "pass"), False)
    spoil(path, text)
    rack.run(LOOK_INTERVAL + 20)
    status, document = rack.verdict
    assert (status, document["verdict"], document["planned"]) == ("200", "unverified", 2)
    error, _, since = document["reason"].partition(BEFORE)
    assert error.startswith(f"{path}: ")
    assert rack.wall(-LOOK_INTERVAL - 20) <= since <= rack.wall()
    rack.cable(ibp0="leaf2", ibp1="leaf1")
    rack.run(DELAY + 20)
    assert (rack.word(), rack.codes()) == (("503", "fail"), ["swapped"])
    assert rack.verdict[1]["reason"] == document["reason"]
    rack.cable(**LEAVES)
    path.write_text(PLAN)
    rack.run(LOOK_INTERVAL + DELAY + 20)
    assert (rack.word(), "reason" in rack.verdict[1]) == (("200", "pass"), False)


@WRONG
def test_a_restart_beside_a_plan_that_cannot_be_read(path: Path, text: str | None) -> None:
    """A remembered verdict is not that of the plan of now: without an error it is 404 with file
    and error. The Node keeps it, and it counts again once the plan is readable.
    """
    rack = settled(expected={}, plan=files(path))
    spoil(path, text)
    writes, told = len(rack.api.writes), rack.told
    rack.start_again(plan=files(path))
    rack.run(3 * DELAY)
    assert rack.word() == ("404", "no-plan")
    assert rack.verdict[1]["reason"].startswith(f"{path}: ")
    assert (len(rack.api.writes), rack.told) == (writes, told)
    path.write_text(PLAN)
    rack.run(LOOK_INTERVAL + 20)
    assert rack.word() == ("200", "pass")


@WRONG
def test_a_remembered_error_beside_a_plan_that_cannot_be_read(path: Path, text: str | None) -> None:
    """A cable that was wrong stays wrong, with file and error, and that it is of before."""
    rack = settled(expected={}, plan=files(path))
    rack.cable(ibp0="leaf2", ibp1="leaf1")
    rack.run(DELAY + 20)
    before = rack.verdict[1]["time"]
    spoil(path, text)
    rack.start_again(plan=files(path))
    rack.run(3 * DELAY)
    document = rack.verdict[1]
    assert (rack.word(), rack.codes()) == (("503", "fail"), [])
    assert (document["time"], document["planned"]) == (before, None)
    assert document["reason"].startswith(f"{path}: ")
    assert "; nothing was compared since the start; " in document["reason"]
    assert document["reason"].endswith("the agent before (1 finding)")
    path.write_text(PLAN)
    rack.run(LOOK_INTERVAL + 20)
    assert (rack.word(), rack.verdict[1]["planned"]) == (("503", "fail"), 2)


def test_a_node_that_the_last_good_plan_lacks(path: Path) -> None:
    """It has no plan, as before, and the reason has file and error, too."""
    path.write_text(PLAN.replace("n1", "n9"))
    rack = settled(expected={}, plan=files(path))
    assert (rack.word(), rack.verdict[1]["reason"]) == (("404", "no-plan"), NO_ROWS)
    path.unlink()
    rack.run(LOOK_INTERVAL + 20)
    reason = f"{NO_ROWS}; {path}: No such file or directory"
    assert (rack.word(), rack.verdict[1]["reason"]) == (("404", "no-plan"), reason)


@pytest.mark.slow
def test_pcie_paths_are_read_once_a_minute() -> None:
    """In cycles that refresh, however many there are; never without an expected half."""
    rack = settled()
    assert rack.pcie_reads
    before = rack.pcie_reads
    for second in range(0, 300, 3):
        rack.at(second, HUP)
    rack.run(301)
    assert 5 * 2 <= rack.pcie_reads - before <= 6 * 2  # of two NICs
    assert settled(expected={}).pcie_reads == 0


def test_a_slow_pcie_link_is_no_fail() -> None:
    """It is in the page, the metrics and the log as a warning."""
    rack = settled()
    port, nic = "0000:00:01.0", f"0000:00:01.0/{A}"
    for function in (port, nic):
        for name, text in (("vendor", "0x8086"), ("max_link_speed", "32.0 GT/s PCIe"),
                           ("current_link_speed", "16.0 GT/s PCIe"), ("max_link_width", "16"),
                           ("current_link_width", "16")):  # fmt: skip
            rack.write(f"{HOME}/{function}/{name}", f"{text}\n".encode())
    rack.entries[f"sys/bus/pci/devices/{A}"] = f"../../../devices/pci0000:00/{nic}"
    rack.run(600)
    assert (rack.word(), rack.codes()) == (("200", "pass"), ["pcie"])
    assert 'bwagent_findings{code="pcie",interface="ibp0"} 1.0' in rack.series()


def test_memory_is_spent_on_it_when_something_is_expected() -> None:
    """Until then nothing of agent.cabling is imported."""
    code = "import sys, agent.daemon.main; print([one for one in sys.modules if '.cabling' in one])"
    assert subprocess.check_output([sys.executable, "-c", code], timeout=60) == b"[]\n"


def test_a_ttl_that_is_shorter_than_the_interval_leaves_no_finding() -> None:
    """The neighbor is gone for 27 s of 30, and its labels stay: so does the verdict."""
    key, frame = f"{PREFIX}/neighbors.expected.mlx5_0.device", switch("leaf1", ttl=3)
    api = Api()
    api.hold("site", {key: "leaf1"})
    world = World(nic(0, A), api=api)
    for after in (*range(0, 300, 30), *range(600, 1200, 30)):
        world.at(after, do=partial(world.hear, "eth0", frame))
    assert world.run(300).verdict[1]["verdict"] == "pass"
    assert world.run(300).verdict[1]["verdict"] == "fail"
    assert world.run(300).verdict[1]["verdict"] == "pass"
