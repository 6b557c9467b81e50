"""Fleets from files, from captures and from the API server."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.encode import Naming
from agent.errors import Malformed, Unavailable
from agent.facts import parse_time
from agent.fleet.model import Fleet, Nic
from agent.fleet.read import Selection, read_cluster, read_file
from agent.fleet.snapshots import read_snapshots
from agent.kube.answers import Answer
from tests.support.fleet_nodes import TIME, P, annotation, leaf, listed, node, whole
from tests.support.snapshots import FIXTURES, SMALL, lay, members, tar

ALL = Selection(Naming())
CLOCK = TIME + 1e6
CPU_NODE = {"kind": "Node", "metadata": {"name": "cpu-1"}}
GLOBS: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def read(tmp_path: Path, text: str | bytes, selection: Selection = ALL) -> Fleet:
    path = tmp_path / "nodes.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(str(path), selection, CLOCK)


def complaint(tmp_path: Path, text: str | bytes, selection: Selection = ALL) -> str:
    """Return the error of a file, behind its name."""
    with pytest.raises((Malformed, Unavailable)) as caught:
        read(tmp_path, text, selection)
    line = str(caught.value)
    assert line.isprintable()
    assert line.startswith(f"{tmp_path}/nodes.json: ")
    return line.removeprefix(f"{tmp_path}/nodes.json: ")


TEXTS = {
    "a List of kubectl": listed([whole(10), CPU_NODE, whole(9)]),
    "a NodeList": listed([node(10), {"metadata": {"name": "cpu-1"}}, node(9)], "NodeList"),
    "metadata only": listed([node(10), node(9), CPU_NODE], "PartialObjectMetadataList"),
    "a bare list": json.dumps([whole(10), whole(9), CPU_NODE]),
    "lines": "\n".join(map(json.dumps, [whole(10), CPU_NODE, whole(9)])),
    "two lists": listed([whole(10)]) + listed([whole(9), CPU_NODE]),
    "a byte order mark": "\ufeff" + listed([whole(10), CPU_NODE, whole(9)]),
    "the lines of Windows": listed([whole(10), CPU_NODE, whole(9)]).replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_nodes_of_a_file(tmp_path: Path, name: str) -> None:
    """In natural order; Nodes without the agent are counted."""
    found = read(tmp_path, TEXTS[name])
    assert [one.name for one in found.nodes] == ["gpu-00009", "gpu-00010"]
    assert (found.others, found.problems) == (1, ())
    assert found.source == f"{tmp_path}/nodes.json"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(listed([whole(9)]).encode())))
    assert read_file("-", ALL, CLOCK).source == "standard input"


def test_a_file_is_of_the_time_of_its_nodes(tmp_path: Path) -> None:
    """The newest heartbeat or annotation; a time to come is the clock's."""
    heartbeat = parse_time("2026-09-21T14:20:00Z")
    assert heartbeat > TIME
    assert read(tmp_path, listed([node(9)])).now == TIME
    assert read(tmp_path, listed([node(9), whole(10)])).now == heartbeat
    late = listed([whole(9)]).replace("2026-09-21T14:20:00Z", "9999-09-21T14:20:00Z")
    assert read(tmp_path, late).now == CLOCK
    for odd in ("2026", "2026-99-99T00:00:00Z", "\u0661"):
        text = listed([whole(9)]).replace("2026-09-21T14:20:00Z", odd)
        assert read(tmp_path, text).now == TIME
    assert read(tmp_path, listed([CPU_NODE])).now == CLOCK


def test_nodes_by_name(tmp_path: Path) -> None:
    text = listed([whole(number) for number in range(30)] + [CPU_NODE])
    found = read(tmp_path, text, Selection(Naming(), ("gpu-0001*", "gpu-00003", "cpu-1")))
    assert len(found.nodes) == 11
    assert found.others == 1
    line = complaint(tmp_path, text, Selection(Naming(), ("gpu-0001*", "gpu-3", "x\x1b*")))
    assert line == r"none of 31 Nodes is named gpu-3, x\x1b*"


def test_a_switch_has_one_identity(tmp_path: Path) -> None:
    """Also at a Node whose annotation is missing or behind its labels."""
    found = read(tmp_path, listed([node(1), node(2, observed=None), node(3)]))
    ends = [one.ports[4].far_end for one in found.nodes]
    assert len({end.switch for end in ends if end}) == 1
    assert {end.device for end in ends if end} == {leaf(1, 4)}


def test_a_name_of_two_switches_identifies_none(tmp_path: Path) -> None:
    """Then the label is the identity of the port without an annotation."""
    other = node(33, {f"{P}/neighbors.current.ibp4.device": leaf(1, 4)})
    text = other["metadata"]["annotations"][f"{P}/observed"]
    other["metadata"]["annotations"][f"{P}/observed"] = text.replace(leaf(33, 4), leaf(1, 4))
    found = read(tmp_path, listed([node(1), node(2, observed=None), other]))
    assert len({one.ports[4].far_end.switch for one in found.nodes if one.ports[4].far_end}) == 3


POD = {"kind": "Pod", "metadata": {"name": "p"}}
FAULTS: dict[str, tuple[str | bytes, str]] = {
    "a list of Pods": (listed([POD]), "line 4, column 9: no Node: its kind is 'Pod'"),
    "a PodList": (
        listed([{"metadata": {"name": "p"}}], "PodList"),
        "line 1, column 1: no Node: its kind is 'PodList'",
    ),
    "a Pod": (json.dumps(POD), "line 1, column 1: no Node: its kind is 'Pod'"),
    "an odd kind": ('[{"kind": ["\x7f"]}]', r"line 1, column 2: no Node: its kind is ['\x7f']"),
    "no Node": (listed([]), "no Node in it"),
    "nothing": ("", "no Node in it"),
    "a number": ("[7]", "line 1, column 2: no Node, and not a JSON object"),
    "a Node without a name": (
        '[{"metadata": {"name": 7}}]',
        "line 1, column 2: no Node: it has no metadata.name",
    ),
    "a Node twice": (
        json.dumps([node(1), node(2)], indent=1).replace("gpu-00002", "gpu-00001"),
        "Node gpu-00001 again, the first is at line 2",
    ),
    "UTF-16": (listed([whole(1)]).encode("utf-16"), "no text in UTF-8: invalid start byte"),
    "an archive": (b"\x1f\x8b\x08\x00\x00\xff\xfe", "no text in UTF-8"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_without_nodes_is_one_line(tmp_path: Path, name: str) -> None:
    """It names the file, and the place where there is one."""
    text, reason = FAULTS[name]
    assert reason in complaint(tmp_path, text)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="Is a directory"):
        read_file(str(tmp_path), ALL, CLOCK)


def test_captures_are_nodes(tmp_path: Path) -> None:
    """Folders and archives, all of one time; other files are passed over."""
    (tmp_path / "dgx").symlink_to(FIXTURES / "dgx-h100")
    tar(tmp_path / "small.tar", members(SMALL))
    lay(tmp_path / "again", {path: data for path, data in SMALL.items() if path != "host.json"})
    (tmp_path / "README.md").touch()
    (tmp_path / ".git").mkdir()
    found = read_snapshots(str(tmp_path), ALL, GLOBS)
    assert [one.name for one in found.nodes] == ["again", "dgx-01", "node-17"]
    dgx = found.nodes[1]
    assert (dgx.flavor, dgx.speed_gbps, len(dgx.ports)) == ("infiniband", 3200.0, 8)
    assert {one.time for one in found.nodes} == {found.now}
    assert {port.nic for port in dgx.ports} == {Nic("MT_0000000891", "28.43.2026")}
    assert found.problems == ()


def test_a_broken_capture_is_a_problem(tmp_path: Path) -> None:
    """The others are read; of two of one node the first."""
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(FIXTURES / "dgx-h100")
    (tmp_path / "c").mkdir()
    (tmp_path / "d.tar").write_bytes(b"x" * 512)
    found = read_snapshots(str(tmp_path), ALL, GLOBS)
    assert len(found.nodes) == 1
    first, second, third = found.problems
    assert first == f"{tmp_path}/b: another snapshot of node dgx-01, left out"
    assert second.startswith(f"{tmp_path}/c: no snapshot: ")
    assert third.startswith(f"{tmp_path}/d.tar: ")


def test_a_folder_without_captures(tmp_path: Path) -> None:
    """So is a capture itself."""
    with pytest.raises(Unavailable, match="no snapshot in it"):
        read_snapshots(str(tmp_path), ALL, GLOBS)
    with pytest.raises(Unavailable, match="itself a snapshot"):
        read_snapshots(str(FIXTURES / "dgx-h100"), ALL, GLOBS)
    with pytest.raises(Unavailable, match="No such file"):
        read_snapshots(f"{tmp_path}/x", ALL, GLOBS)


def page(numbers: range, token: str = "", left: int | None = None) -> Answer:
    nodes = [node(number) for number in numbers]
    return Answer(200, nodes=nodes, following=token, remaining=left, server="https://k")


def gone(token: str) -> Answer:
    return Answer(410, reason="Expired", message="too old", following=token, server="https://k")


class Server:
    """An API server with these replies, the last one again and again."""

    def __init__(self, *replies: Answer) -> None:
        self._replies = list(replies)
        self.requests: list[Any] = []

    def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        return self._replies.pop(0) if self._replies[1:] else self._replies[0]

    @property
    def tokens(self) -> list[str]:
        return [request["continue"] for request in self.requests]


def test_pages_of_nodes() -> None:
    """With the number of Nodes that are still to come."""
    seen = list[tuple[int, int | None]]()
    server = Server(page(range(3), "x", 2), page(range(3, 5)))
    selection = Selection(Naming(), (), lambda read, total: seen.append((read, total)))
    found = read_cluster(server, "pool=gpu", selection, CLOCK)
    assert len(found.nodes) == 5
    assert (found.source, found.now) == ("https://k", CLOCK)
    assert seen == [(1, 5), (2, 5), (3, 5), (4, None), (5, None)]
    assert server.tokens == ["", "x"]
    assert server.requests[0]["selectors"] == [("labelSelector", "pool=gpu")]


def test_one_name_is_selected_by_the_server() -> None:
    """A glob, or several names, by the command."""
    server = Server(page(range(7, 8)))
    assert len(read_cluster(server, "", Selection(Naming(), ("gpu-00007",)), CLOCK).nodes) == 1
    assert server.requests[0]["selectors"] == [("fieldSelector", "metadata.name=gpu-00007")]
    server = Server(page(range(12)))
    selection = Selection(Naming(), ("gpu-0000?", "gpu-00011"))
    assert len(read_cluster(server, "", selection, CLOCK).nodes) == 11
    assert server.requests[0]["selectors"] == []


def test_an_expired_token_is_replaced_by_that_of_the_answer() -> None:
    """As often as it expires, if a page comes between."""
    server = Server(
        page(range(2), "a"), gone("b"), page(range(2, 4), "c"), gone("d"), page(range(4, 6))
    )
    assert len(read_cluster(server, "", ALL, CLOCK).nodes) == 6
    assert server.tokens == ["", "a", "b", "c", "d"]


def test_without_a_token_the_listing_begins_again_once() -> None:
    """The Nodes of the first attempt are forgotten."""
    server = Server(page(range(2), "a"), gone(""), page(range(1, 3), "b"), page(range(3, 4)))
    found = read_cluster(server, "", ALL, CLOCK)
    assert [one.name for one in found.nodes] == ["gpu-00001", "gpu-00002", "gpu-00003"]
    server = Server(page(range(2), "a"), gone(""), page(range(2), "b"), gone(""))
    with pytest.raises(Unavailable, match=r"^listing Nodes failed after 2: .*too old"):
        read_cluster(server, "", ALL, CLOCK)


def test_a_token_that_is_refused_at_once_is_not_sent_for_ever() -> None:
    """After the second refusal the listing begins again, and then fails."""
    server = Server(page(range(2), "a"), *[gone("b")] * 2, page(range(2), "a"), *[gone("b")] * 2)
    with pytest.raises(Unavailable, match=r"listing Nodes failed after 2: .*too old"):
        read_cluster(server, "", ALL, CLOCK)
    with pytest.raises(Unavailable, match="listing Nodes failed: "):
        read_cluster(Server(gone("")), "", ALL, CLOCK)


FORBIDDEN = 'nodes is forbidden: User "jane\x1b" cannot list resource "nodes" at the cluster scope'
FAILURES: dict[str, tuple[Answer, str]] = {
    "forbidden": (
        Answer(403, reason="Forbidden", message=FORBIDDEN),
        r"listing Nodes failed after 2: account jane\x1b lacks the right to list nodes",
    ),
    "forbidden by a webhook": (
        Answer(403, reason="Forbidden", message="no"),
        "this account lacks the right to list nodes (all of the cluster): no",
    ),
    "cut": (
        Answer(error="cut", message="EOF", server="https://k"),
        "connection to https://k lost: EOF",
    ),
    "busy": (
        Answer(429, message="slow down", retry_after=0.01),
        "is overloaded: slow down",
    ),
    "no page": (
        Answer(200, error="garbage", message="<html>"),
        "is it a proxy?): <html>",
    ),
    "wrong selector": (Answer(400, message="unable to parse"), "unable to parse"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_listing_that_fails_in_the_middle_is_an_error(name: str) -> None:
    """Half a fleet is no fleet."""
    reply, text = FAILURES[name]
    with pytest.raises(Unavailable) as caught:
        read_cluster(Server(page(range(2), "a"), reply), "", ALL, CLOCK)
    assert text in str(caught.value)
    assert str(caught.value).isprintable()


def test_no_nodes_at_all() -> None:
    """A selection that fits none is named."""
    with pytest.raises(Unavailable, match=r"^https://k: no Nodes$"):
        read_cluster(Server(page(range(0))), "", ALL, CLOCK)
    with pytest.raises(Unavailable, match="no Nodes that --selector and --node select"):
        read_cluster(Server(page(range(0))), "a=b", ALL, CLOCK)


def test_the_annotation_is_not_newer_than_the_clock(tmp_path: Path) -> None:
    found = read(tmp_path, listed([node(1, observed=annotation(1, time=int(CLOCK) + 9999))]))
    assert found.nodes[0].time is None
    assert "in the future" in found.nodes[0].problems[0]
