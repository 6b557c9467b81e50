"""The reporter: the log lines of a running agent, in simulated time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from agent.events.event import Event
from agent.kube.answers import MAX_RETRY_AFTER, Answer
from tests.support.kernel_tree import HOME, hca, netdev
from tests.support.lldp_frames import switch
from tests.support.nodes import FLAVOR, PREFIX, SPEED
from tests.support.running import EPOCH, HUP, Api, World
from tests.support.smps import answer, exchanges

A, B = "0000:18:00.0", "0000:19:00.0"
IB = hca("ibp0", A) | hca("ibp1", B)
PORT = f"{HOME}/{B}/infiniband/ibp1/ports/1"
OTHER_PORT = f"{HOME}/{A}/infiniband/ibp0/ports/1"
DEVICE = f"{PREFIX}/neighbors.current.ibp1.device"
LEAVES = "ib.coreweave.cloud/leaves.current"


def lines(world: World, *words: str) -> list[str]:
    """Return the lines with all of these words, without their time, and forget all lines."""
    found = [line.partition(" ")[2] for line in world.lines if all(word in line for word in words)]
    world.lines.clear()
    return found


def started(**changes: Any) -> World:
    """An agent that has labeled its Node, without the lines of that."""
    world = World(IB, **changes).run(30)
    world.lines.clear()
    return world


def set_port(world: World, name: str, text: str, seconds: float = 15) -> None:
    """Change a file of ibp1's port, and let the agent apply that."""
    world.at(0, HUP, do=lambda: world.write(f"{PORT}/{name}", text.encode()))
    world.run(seconds)


def test_a_label_is_added_changed_and_removed() -> None:
    """One line with the old and the new value, and the reason."""
    world = World(IB).run(30)
    assert lines(world, SPEED) == [f"info label added key={SPEED} to=800G"]
    set_port(world, "state", "1: DOWN", 10)
    changed = f'info label changed key={SPEED} from=800G to=400G reason="ibp1 is DOWN"'
    assert lines(world, SPEED) == [changed]
    world.start_again(sources=("ib",))
    world.run(30)
    [removed] = lines(world, "label removed", SPEED)
    assert removed.startswith(f"info label removed key={SPEED} from=400G")


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("1G", 'changed key={} from=1G to=800G reason="another writer had changed it from 800G"'),
        (None, 'added key={} to=800G reason="another writer had removed it"'),
    ],
)
def test_what_another_writer_did_is_repaired(value: str | None, line: str) -> None:
    """The line does not say of a false label that it was the agent's before."""
    world = started()
    others = {key: found for key, found in world.api.labels.items() if key != SPEED}
    world.api.labels = {**others, SPEED: value} if value else others
    world.at(0, HUP)
    world.run(30)
    assert lines(world, "info label", SPEED) == [f"info label {line.format(SPEED)}"]


def test_what_another_writer_did_while_a_link_went_down() -> None:
    """Both are in the reason."""
    world = started()
    world.api.labels = {**world.api.labels, SPEED: "1G"}
    set_port(world, "state", "1: DOWN")
    why = "another writer had changed it from 800G; ibp1 is DOWN"
    changed = f'info label changed key={SPEED} from=1G to=400G reason="{why}"'
    assert changed in lines(world, SPEED)


def test_a_node_that_was_created_again_was_changed_by_nobody() -> None:
    """Its labels are missing, and nobody removed them."""
    world = started()
    world.api.server.recreate()
    world.at(0, HUP)
    world.run(5)
    assert lines(world, "label added", SPEED) == [f"info label added key={SPEED} to=800G"]


def reason(world: World, key: str) -> str:
    """Return the reason of the one change of a label."""
    [line] = lines(world, f"key={key} ")
    return line.partition(" reason=")[2].strip('"')


def test_the_reasons_of_a_speed() -> None:
    """The port that went down, came up, or has another rate; not one that was down before."""
    world = World(IB).run(30)
    for name, text, because in (
        ("state", "1: DOWN", "ibp1 is DOWN"),
        ("state", "4: ACTIVE", "ibp1 is ACTIVE"),
        ("rate", "200 Gb/sec (4X HDR)", "ibp1 has 200 Gb/s"),
        ("state", "2: INIT", "ibp1 is INIT"),
    ):
        lines(world)
        set_port(world, name, text)
        assert reason(world, SPEED) == because
    world.at(0, HUP, do=lambda: world.write(f"{OTHER_PORT}/rate", b"100 Gb/sec (4X EDR)\n"))
    world.run(15)
    assert reason(world, SPEED) == "ibp0 has 100 Gb/s"


def test_the_reason_of_a_change_that_is_applied_late() -> None:
    """The API server fails at first."""
    world = World(IB).run(30)
    set_port(world, "state", "1: DOWN")
    lines(world)
    world.api.trouble = lambda _request: Answer(503, message="busy")
    set_port(world, "state", "4: ACTIVE", 60)
    world.api.trouble = lambda _request: None
    world.run(600)
    assert reason(world, SPEED) == "ibp1 is ACTIVE"


CUT = Answer(error="cut", message="EOF", server="https://k", maybe_done=True)
TIMED_OUT = Answer(504, message="etcd timed out", server="https://k", maybe_done=True)


def losing(world: World, *, made: bool, answer: Answer = CUT) -> None:
    """Lose the answers to writes, which are made or not."""

    def trouble(request: Mapping[str, Any]) -> Answer | None:
        if request["operation"] != "apply":
            return None
        if made:
            world.api.trouble = lambda _request: None
            world.api(request)
            world.api.trouble = trouble
        return answer

    world.api.trouble = trouble


def failing_once(world: World, answer: Answer) -> None:
    """Answer the next write so, and no other."""

    def trouble(request: Mapping[str, Any]) -> Answer | None:
        if request["operation"] != "apply":
            return None
        world.api.trouble = lambda _request: None
        return answer

    world.api.trouble = trouble


def flap(world: World) -> None:
    """Lose ibp1's link for a moment; the write of the lower speed is stored and answered by 504."""
    losing(world, made=True, answer=TIMED_OUT)
    world.at(0, HUP, do=lambda: world.write(f"{PORT}/state", b"1: DOWN\n"))
    world.at(1.2, Event("device", ""), do=lambda: world.write(f"{PORT}/state", b"4: ACTIVE\n"))
    world.run(5)
    assert world.labels["speed.current"] == "400G"
    world.api.trouble = lambda _request: None


def test_a_write_that_was_stored_by_a_server_that_failed_is_taken_back() -> None:
    """The link is up again before the retry: the Node as known needs no change, the Node does."""
    world = World(IB).run(30)
    flap(world)
    world.run(15)
    assert world.labels["speed.current"] == "800G"
    assert world.state.readiness() == (True, "ok\n")


def test_an_own_write_of_unknown_outcome_is_no_second_agent() -> None:
    """However often the API server fails and stores."""
    world = World(IB).run(4000)
    for _ in range(3):
        flap(world)
        world.run(420)
    assert lines(world, "second agent") == []
    assert world.metrics.snapshot.keys_contended == 0


def test_no_contact_is_no_recovery() -> None:
    """While the server fails the agent is unready, and backs off, whatever the link does."""
    world = World(IB).run(4000)
    losing(world, made=False, answer=Answer(503, message="not ready", maybe_done=True))
    world.at(0, HUP, do=lambda: world.write(f"{PORT}/state", b"1: DOWN\n"))
    world.at(1.2, Event("device", ""), do=lambda: world.write(f"{PORT}/state", b"4: ACTIVE\n"))
    world.run(240)
    assert lines(world, "reachable again") == []
    assert not world.state.readiness()[0]
    [(before, _), (last, _)] = world.api.requests[-2:]
    assert last - before > 60


def test_no_contact_is_no_recovery_of_a_dry_run() -> None:
    """Its looks fail, and what it would change does."""
    world = World(IB, dry_run=True).run(30)
    world.api.trouble = lambda _request: Answer(503, message="not ready")
    world.run(400)
    assert lines(world, "node request failed")
    change = Event("device", "")
    world.at(0, change, do=lambda: world.write(f"{PORT}/state", b"1: DOWN\n"))
    world.run(400)
    assert lines(world, "reachable again") == []


def test_a_change_whose_answer_was_lost_is_found() -> None:
    """The line of the request says that its outcome is unknown; the change has a line once the Node
    is read, with the time of the request.
    """
    world = started()
    losing(world, made=True)
    set_port(world, "state", "1: DOWN", 60)
    [failed] = [line for line in world.lines if "node request failed" in line]
    assert 'reason="outcome unknown: connection to https://k lost: EOF"' in failed
    [changed] = [line for line in world.lines if f"label changed key={SPEED} " in line]
    assert 'from=800G to=400G reason="ibp1 is DOWN" sent=2' in changed
    assert " found=2" in changed
    assert "not made" not in "".join(world.lines)
    lines(world)
    world.run(7200)
    assert not [line for line in world.lines if "label changed" in line]


def test_a_change_of_a_failed_request_has_both_times() -> None:
    """A server error leaves the outcome unknown; the Node is not read again, and the request that
    repeats the change is accepted, so it was made at one of the two.
    """
    world = started()
    losing(world, made=False, answer=TIMED_OUT)
    set_port(world, "state", "1: DOWN", 12)
    [failed] = [line for line in world.lines if "node request failed" in line][:1]
    assert 'reason="outcome unknown: https://k failed: etcd timed out"' in failed
    world.api.trouble = lambda _request: None
    world.run(600)
    [changed] = [line for line in world.lines if f"label changed key={SPEED} " in line]
    assert 'from=800G to=400G reason="ibp1 is DOWN" sent=2' in changed
    assert " found=2" in changed


@pytest.mark.parametrize(
    "repeated",
    [
        Answer(error="unreachable", message="refused"),
        Answer(429, message="slow down"),
        Answer(200, error="garbage", message="a proxy's page"),
        Answer(403, message="denied"),
    ],
)
def test_a_repeat_that_fails_otherwise_forgets_no_change(repeated: Answer) -> None:
    """Only an accepted request and a read tell whether the first one was made."""
    world = started()
    losing(world, made=True, answer=TIMED_OUT)
    set_port(world, "state", "1: DOWN", 5)
    failing_once(world, repeated)
    world.run(900)
    [changed] = lines(world, f"label changed key={SPEED} ")
    assert 'from=800G to=400G reason="ibp1 is DOWN" sent=2' in changed


def test_a_change_that_is_found_by_a_read_and_changed_again() -> None:
    """SIGHUP has the Node read after a server error: a line for each of the two changes."""
    world = started()
    losing(world, made=True, answer=TIMED_OUT)
    set_port(world, "state", "1: DOWN", 5)
    world.api.trouble = lambda _request: None
    world.at(0, HUP, do=lambda: world.write(f"{OTHER_PORT}/rate", b"100 Gb/sec (4X EDR)\n"))
    world.run(60)
    found, changed = lines(world, f"label changed key={SPEED} ")
    assert ("from=800G to=400G" in found, " sent=2" in found) == (True, True)
    assert ("from=400G to=100G" in changed, " sent=" in changed) == (True, False)


def test_a_change_that_was_lost_with_its_answer_is_made_later() -> None:
    world = World(IB).run(30)
    losing(world, made=False)
    set_port(world, "state", "1: DOWN", 60)
    lines(world)
    world.api.trouble = lambda _request: None
    world.run(600)
    [changed] = [line for line in world.lines if f"label changed key={SPEED} " in line]
    assert changed.endswith('reason="ibp1 is DOWN"')


def test_a_port_that_is_down_is_no_reason_for_the_flavor() -> None:
    """It stands at the speed, at the first apply, too."""
    world = World(IB)
    world.write(f"{PORT}/state", b"1: DOWN\n")
    world.run(30)
    [flavor] = [line for line in world.lines if f"key={FLAVOR} " in line]
    assert flavor.endswith("to=infiniband")
    assert reason(world, SPEED) == "ibp1 is DOWN"


def leaf(address: tuple[str, int]) -> dict[str, Any]:
    """Return the SMP answer of a port: ibp0 is on leaf 3, ibp1 on leaf 4."""
    number = 3 + (address[0] == "ibp1")
    far_end = exchanges(b"MF0;L90.1.%d:MQM9700/U1" % number, guid=0xB0CF0E0300D66C80 + number)
    return answer(*address, exchanges=far_end)


def test_a_start_that_changes_nothing_is_one_line() -> None:
    """It has the speed, the ports and the neighbors; a change later adds none."""
    world = World(IB, smp=leaf).run(30)
    assert lines(world, "verified") == []
    world.start_again()
    world.run(100)
    verified = 'info labels verified speed=800G ports="2 of 2" neighbors=2'
    assert [line for line in lines(world) if "agent started" not in line] == [verified]
    set_port(world, "state", "1: DOWN")
    set_port(world, "state", "4: ACTIVE")
    assert lines(world, "verified") == []


def test_a_start_with_held_labels_is_verified_later() -> None:
    """Nothing is verified that nobody has seen yet; after a minute the line has the number."""
    world = started(smp=leaf)
    world.smp = world.no_smp
    world.start_again()
    world.run(50)
    assert lines(world, "verified") == []
    world.run(60)
    [line] = lines(world, "verified")
    assert line.startswith('info labels verified speed=800G ports="2 of 2" neighbors=0 held=')


@pytest.mark.parametrize("at", [2.0, 20.0], ids=["before the first apply", "while labels are held"])
def test_nothing_is_verified_on_a_node_that_was_deleted(at: float) -> None:
    """The line is about the Node as it is, not as it was when the agent started."""
    world = started(smp=leaf)
    world.smp = world.no_smp
    world.start_again()
    gone = Answer(404, "NotFound", 'nodes "n1" not found')

    def delete() -> None:
        world.api.trouble = lambda _request: gone

    world.at(at, do=delete)
    world.at(at + 5, Event("port", "ibp1/1"), do=lambda: setattr(world, "smp", leaf))
    world.run(600)
    assert lines(world, "verified") == []
    world.api.trouble = lambda _request: None
    world.run(600)
    assert len(lines(world, "verified")) == 1


def test_a_start_that_changes_a_label_late() -> None:
    """A link goes down while labels are held: nothing is verified before the Node says so."""
    world = started(smp=leaf)
    world.smp = world.no_smp
    world.start_again(min_interval=30.0)
    set_port(world, "state", "1: DOWN", 20)
    world.smp = leaf
    set_port(world, "state", "1: DOWN", 100)
    assert lines(world, "verified") == []


def test_a_start_with_a_refused_key_verifies_nothing() -> None:
    """The line about the refusal stands alone."""

    def refuse(request: Mapping[str, Any]) -> Answer | None:
        if request["operation"] == "get":
            return None
        return Answer(403, message="nothing is allowed")

    world = World(IB, api=Api(trouble=refuse)).run(200)
    assert lines(world, "verified") == []


def test_a_dry_run_logs_each_change_once() -> None:
    """The Node stays as it is, so every plan has all changes."""
    world = World(IB, dry_run=True).run(300)
    assert lines(world, SPEED) == [f"info label would be added key={SPEED} to=800G"]
    set_port(world, "state", "1: DOWN", 300)
    changed = f'info label would be changed key={SPEED} from=800G to=400G reason="ibp1 is DOWN"'
    assert lines(world, SPEED) == [changed]


def test_a_problem_begins_changes_and_ends() -> None:
    """A line for each, and none while it lasts; several texts of one subject are one line."""
    world = started()
    good = world.entries[f"{PORT}/rate"]
    for data in (b"fast\n", b"fast\n", b"faster\n", good):
        world.at(0, HUP, do=lambda data=data: world.write(f"{PORT}/rate", data))  # type: ignore[misc]  # mypy has no types for a lambda's defaults
        world.run(10)
    first, second, end = lines(world, "rdma problem", "ibp1/ports/1/rate")
    assert first.startswith("warning rdma problem subject=/")
    assert ("fast" in first, "faster" in first, "faster" in second) == (True, False, True)
    assert end.startswith("info rdma problem resolved subject=/")


def test_a_name_that_is_no_label_is_logged_once() -> None:
    """While the neighbor has it."""
    world = World(hca("mlx5_0", A, "Ethernet") | netdev("eth0", A))
    for after in range(0, 300, 30):
        name = "leaf-1" if after > 200 else "---"
        world.at(after, Event("frames", ""), do=lambda name=name: world.hear("eth0", switch(name)))  # type: ignore[misc]  # as above
    world.run(150)
    began = "warning labels problem subject=mlx5_0 reason="
    [line] = lines(world, "subject=mlx5_0")
    assert line.startswith(began)
    assert "name '---' is valid" in line
    world.run(150)
    assert lines(world, "labels problem") == ["info labels problem resolved subject=mlx5_0"]


def test_labels_of_others_that_are_not_published() -> None:
    """A line for each manager when there are such labels, when they change, and when they are
    gone; the first of them is named.
    """
    stale = {f"{PREFIX}/neighbors.current.x{number}.device": "a" for number in range(7)}
    world = World(IB)
    world.api.hold("kubectl-label", stale)
    world.api.hold("nfd", {f"{PREFIX}/rack": "1"})
    world.run(30)
    first = f"{PREFIX}/neighbors.current.x0.device=a"
    begin = f'warning labels not published owner=kubectl-label count=7 first="{first}"'
    assert lines(world, "not published") == [begin]
    assert world.metrics.snapshot.keys_foreign == 7
    world.api.hold("kubectl-label", {})
    world.api.hold("nfd", {})
    world.look(10)
    end = "info labels not published are gone owner=kubectl-label"
    assert lines(world, "not published") == [end]
    assert world.metrics.snapshot.keys_foreign == 0


def test_events_that_are_unavailable() -> None:
    world = World(IB)
    world.unavailable["links"] = "no netlink"
    world.run(30)
    begin = 'warning events unavailable, polling instead monitor=links reason="no netlink"'
    assert lines(world, "events") == [begin]
    world.unavailable.clear()
    world.look(10)
    assert lines(world, "events") == ["info events available again monitor=links"]


def test_labels_refused_with_different_statuses() -> None:
    def refuse(request: Mapping[str, Any]) -> Answer | None:
        labels = request.get("body", {}).get("metadata", {}).get("labels", {})
        if SPEED in labels:
            return Answer(403, message=f"not {SPEED}")
        return Answer(422, message=f"not {FLAVOR}") if FLAVOR in labels else None

    world = World(IB, api=Api(trouble=refuse)).run(50)
    assert lines(world, "label refused") == [
        f'warning label refused key={FLAVOR} status=422 reason="not {FLAVOR}"',
        f'warning label refused key={SPEED} status=403 reason="not {SPEED}"',
    ]


def test_an_api_server_that_is_away() -> None:
    world = started()
    world.api.trouble = lambda _request: Answer(error="unreachable", message="no route")
    set_port(world, "state", "1: DOWN", 600)
    world.api.trouble = lambda _request: None
    world.run(600)
    failed = lines(world, "node=n1")
    assert failed[0].startswith("warning node request failed node=n1 reason=")
    assert failed[-1] == "info node reachable again node=n1"


def test_a_busy_api_server() -> None:
    """The line has the status and the time of the next request, that of Retry-After."""
    world = started()
    busy = Answer(429, message="too many requests", retry_after=3000)
    world.api.trouble = lambda _request: busy
    at = EPOCH + world.time
    world.look(60)
    (line,) = lines(world, "node request failed")
    assert "node=n1 status=429 reason=" in line
    time = datetime.fromisoformat(line.partition("next_attempt=")[2]).timestamp()
    assert at + MAX_RETRY_AFTER <= time <= at + 1.25 * MAX_RETRY_AFTER + 1


def test_the_start_and_signals() -> None:
    world = World(IB).run(10)
    world.look(10)
    line = 'info signal received signal=SIGHUP action="observe and repair the Node"'
    assert lines(world, "signal") == [line]


class Server:
    """A metrics server that has both faults at first."""

    fault = "Cannot assign requested address"
    certificate_fault = "tls.key is not the key of tls.pem"


def test_the_metrics_server() -> None:
    """A line at the beginning and at the end of a fault, without an observation between."""
    world, server = World(IB), Server()
    world.reporter.server = server
    world.run(30)
    address, certificate = 'flag="--metrics-address"', 'flag="--metrics-cert"'
    old = Server.certificate_fault
    assert lines(world, "metrics") == [
        f'warning metrics address not available {address} reason="{Server.fault}"',
        f'warning metrics certificate not reloaded {certificate} reason="{old}"',
    ]
    server.certificate_fault = ""
    world.run(25)
    assert lines(world, "metrics") == [f"info metrics certificate reloaded {certificate}"]
    server.fault = ""
    world.run(25)
    assert lines(world, "metrics") == [f"info metrics address available {address}"]


def test_two_agents_with_one_prefix_are_one_line() -> None:
    """The other one writes another speed again and again; once is no second agent."""
    world = World(IB).run(60)
    lines(world)

    def interfere() -> None:
        world.api.labels = {**world.api.labels, SPEED: "1G"}

    interfere()
    world.run(400)
    assert world.api.labels[SPEED] == "800G"
    assert "a second agent" not in "".join(world.lines)
    for _ in range(9):
        interfere()
        world.run(400)
    [line] = [line for line in world.lines if "a second agent writes these labels" in line]
    assert line.endswith(f"count=1 first={SPEED}")
    assert world.metrics.snapshot.keys_contended == 1
    world.run(2 * 3600)
    [line] = [line for line in world.lines if "no second agent writes" in line]
    assert world.metrics.snapshot.keys_contended == 0
