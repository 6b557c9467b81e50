"""The recorded I/O of a snapshot: written, loaded and replayed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.lldp import pcap
from agent.lldp.frame import Frame
from agent.lldp.reception import LldpNeighbors
from agent.output.document import Choices, document
from agent.snapshot import capture
from agent.snapshot.capture import write_folder
from agent.snapshot.replay import replay
from agent.snapshot.tree import DiskStore, MemoryStore, Tree
from agent.sources.observe import observe
from tests.support.devices import netdev
from tests.support.lldp_frames import CASES, END, MAC, ethernet, identity
from tests.support.recordings import (
    IB,
    ROCE,
    content,
    files_of,
    hearing,
    lldp_of,
    loaded,
    recorded,
    smps_of,
    tree,
)
from tests.support.remembering import alone
from tests.support.smps import answer, exchanges, helper

NOW = 1_777_888_999.25
SPOKEN = ethernet(identity(b"\x04" + MAC, b"\x05swp1") + END)


def host(files: Mapping[str, bytes], **io: Any) -> Host:
    return Host(
        root=Tree(MemoryStore(files), {}), clock=lambda: NOW, name="node-1", kernel="6.1.0", **io
    )


def report(of: Host) -> dict[str, Any]:
    return document(*alone(observe(of)), Choices())


def entry(path: str, data: bytes | str) -> MemoryStore:
    return MemoryStore({path: data.encode() if isinstance(data, str) else data})


names = st.text("abcdefghijklmnopqrstuvwxyz0123456789_.", min_size=1, max_size=15).filter(
    lambda name: name.strip(".")
)
heard = st.dictionaries(
    names,
    st.lists(
        st.tuples(st.integers(0, 2**32 * 10**6 - 1), st.binary(max_size=80)), min_size=1, max_size=5
    ),
    max_size=4,
)
words = st.one_of(st.none(), st.text(max_size=20))
answered = st.lists(
    st.builds(answer, names, st.integers(1, 254), error=words, text=words), max_size=4
)


@pytest.mark.slow
@given(heard=heard, answered=answered, listening=st.booleans())
@settings(deadline=None, max_examples=60)
def test_what_is_saved_is_loaded_again(
    tmp_path_factory: pytest.TempPathFactory,
    heard: dict[str, list[tuple[int, bytes]]],
    answered: list[dict[str, Any]],
    listening: bool,
) -> None:
    """Frames by name and answers by port are the same, with any content."""
    folder = tmp_path_factory.mktemp("snapshot") / "folder"
    answers = {(one["device"], one["port"]): one for one in answered}
    io = recorded(answers=answers, listening=listening or bool(heard))
    for name, told in heard.items():
        frames = [Frame(name, when / 10**6, SPOKEN[:14] + rest) for when, rest in told]
        lldp_of(io).received[name] = sorted(frames, key=lambda frame: frame.time)
    write_folder(files_of(io), str(folder))
    assert content(loaded(DiskStore(str(folder)))) == content(io)


def test_nothing_heard_is_nothing_written(tmp_path: Path) -> None:
    """A node without neighbors has no folders for them, and a snapshot without folders has none."""
    assert files_of(recorded()) == {}
    silent, folder = recorded(listening=True), tmp_path / "folder"
    write_folder(files_of(silent), str(folder))
    assert content(loaded(DiskStore(str(folder)))) == content(silent)
    io = loaded(MemoryStore({}))
    assert content(io) == content(recorded())
    assert lldp_of(io).newest() is None
    assert lldp_of(io).frames({"eth0": True}) == ([], {})
    assert smps_of(io).ask_smp([("mlx5_0", 1)]) == {"ports": []}
    assert lldp_of(io).private_flags("eth0") == {}


def test_the_doors_give_what_was_asked_for() -> None:
    """Other netdevs and ports stay silent, and frames come in the order of their times."""
    times = {"eth0": 3.0, "eth1": 1.0, "eth2": 2.0}
    frames = {name: [Frame(name, when, SPOKEN)] for name, when in times.items()}
    refused = {"eth1": "EPERM", "eth2": "ENODEV"}
    io = recorded(frames, refused, {("mlx5_0", 1): answer()}, {"eth0": {"flag": True}})
    heard = [frames["eth1"][0], frames["eth0"][0]]
    assert lldp_of(io).frames({"eth0": True, "eth1": False}) == (heard, {"eth1": "EPERM"})
    asked = [("mlx5_1", 1), ("mlx5_0", 1), ("mlx5_0", 2)]
    assert smps_of(io).ask_smp(asked) == {"ports": [answer()]}
    assert lldp_of(io).private_flags("eth0") == {"flag": True}
    assert lldp_of(io).newest() == 3.0


def test_two_files_of_one_netdev_are_both_read() -> None:
    """A capture of bwagent and a pcapng added by hand."""
    one, two = (pcap.write([Frame("eth0", when, SPOKEN)]) for when in (2, 1))
    io = loaded(MemoryStore({"lldp/eth0.pcap": one, "lldp/eth0.pcapng": two}))
    assert [frame.time for frame in lldp_of(io).frames({"eth0": True})[0]] == [1, 2]


@pytest.mark.parametrize(
    "path", ["lldp/README", "lldp/eth0.txt", "lldp/eth0.pcap/file", "lldp", "smp"]
)
def test_other_files_are_passed_over(path: str) -> None:
    """Notes beside the frames, folders named like a capture, a file where a folder belongs."""
    empty = recorded(listening=path.startswith("lldp/"))
    assert content(loaded(entry(path, b"whatever"))) == content(empty)


@pytest.mark.parametrize("name", ["eth0.100", "bond0:1", "enp1s0f0np0"])
def test_a_netdev_may_have_dots_in_its_name(name: str) -> None:
    """The last one begins the ending."""
    io = loaded(entry(f"lldp/{name}.pcap", pcap.write([])))
    assert list(lldp_of(io).received) == [name]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"nonsense", "not a pcap"),
        (b"", "not a pcap"),
        (pcap.write([Frame("eth0", 1, SPOKEN)])[:-1], "truncated at octet 24 of 99"),
        (pcap.write([]), "no frame in the file"),
        (bytes(pcap.MAX_SIZE + 1), "longer than 16777216 bytes"),
    ],
    ids=["nonsense", "empty", "cut", "header", "long"],
)
def test_frames_that_cannot_be_read_are_refused_by_file_and_place(data: bytes, fault: str) -> None:
    """The netdev is like one that cannot be listened to; the others are fine."""
    store = MemoryStore(
        {"lldp/eth0.pcap": data, "lldp/eth1.pcap": pcap.write([Frame("eth1", 1, SPOKEN)])}
    )
    frames, refused = lldp_of(loaded(store)).frames({"eth0": True, "eth1": True})
    assert [frame.netdev for frame in frames] == ["eth1"]
    assert list(refused) == ["eth0"]
    text = refused["eth0"] or ""
    assert text.startswith("lldp/eth0.pcap: ")
    assert text.count("lldp/eth0.pcap") == 1
    assert fault in text


def test_the_problem_of_a_file_is_not_one_of_a_socket() -> None:
    """A replay opens none."""
    io = loaded(MemoryStore({"lldp/eth0.pcap": pcap.write([])}))
    replayed = lldp_of(io).replayed(host({}))
    assert replayed.lldp_neighbors
    reception = replayed.lldp_neighbors([netdev("eth0")], lambda: 1.0, lambda _netdev: None)
    assert [(one.subject, one.text) for one in reception.problems] == [
        ("eth0", "lldp/eth0.pcap: no frame in the file")
    ]


def test_a_replay_drops_what_a_socket_drops() -> None:
    """Frames to other addresses and of the node itself are no neighbor and no problem."""
    lldpdu, own = SPOKEN[14:], "020000000001"
    dropped = [
        ethernet(lldpdu, destination="ffffffffffff"),
        ethernet(lldpdu, destination="02000000beef"),
        ethernet(lldpdu, source=own),
        ethernet(lldpdu[3:], source=own),
    ]
    files = tree({"mlx5_0": ROCE}, {"mlx5_0": "eth0"})
    frames = [Frame("eth0", NOW + 5, data) for data in dropped]
    io = loaded(MemoryStore({"lldp/eth0.pcap": pcap.write(frames)}))
    found = report(host(files, lldp_neighbors=LldpNeighbors(lldp_of(io).frames)))
    assert found["neighbors"] == []
    assert [row["reason"] for row in found["missing_neighbors"]] == ["silent"]
    assert [problem for problem in found["problems"] if problem["source"] == "lldp"] == []


def test_a_pcapng_file_without_scapy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay ends, since its labels would lack that neighbor."""
    monkeypatch.setitem(sys.modules, "scapy", None)
    with pytest.raises(Unavailable, match=r"^lldp/eth0\.pcapng: a pcapng file needs scapy"):
        loaded(entry("lldp/eth0.pcapng", b"\x0a\x0d\x0d\x0a"))


def test_what_came_before_the_break_counts() -> None:
    files = tree({"mlx5_0": ROCE}, {"mlx5_0": "eth0"})
    data = pcap.write([Frame("eth0", NOW - 1, SPOKEN), Frame("eth0", NOW, SPOKEN)])[:-1]
    io = loaded(MemoryStore({"lldp/eth0.pcap": data}))
    found = report(host(files, lldp_neighbors=LldpNeighbors(lldp_of(io).frames)))
    assert [row["port_id"] for row in found["neighbors"]] == ["swp1"]
    assert [
        problem["subject"] for problem in found["problems"] if "truncated at" in problem["text"]
    ] == ["eth0"]


@pytest.mark.parametrize(
    "data",
    [
        *("", "{", "[]", "null", "5", '"text"', "{}", '{"device": "mlx5_0"}', '{"port": 1}'),
        '{"device": 5, "port": 1}',
        '{"device": null, "port": 1}',
        '{"device": ["mlx5_0"], "port": 1}',
        *(f'{{"device": "mlx5_0", "port": {port}}}' for port in ('"1"', "1.5", "null")),
        "[" * 100_000,
        b"\xff\xfe\x00",
        b'{"device": "\xff"}',
        " " * (1 << 20) + "{}",
    ],
    ids=lambda data: ascii(data[:40]),
)
def test_an_answer_that_is_none_refuses_the_snapshot(data: bytes | str) -> None:
    with pytest.raises(Malformed, match=r"smp/mlx5_0-1\.json: "):
        loaded(entry("smp/mlx5_0-1.json", data))


@pytest.mark.parametrize(
    "flags", [None, [], "text", 5, {"eth0": None}, {"eth0": []}, {"eth0": "disable-fw-lldp"}]
)
def test_private_flags_of_a_wrong_type_refuse_the_snapshot(flags: Any) -> None:
    with pytest.raises(Malformed, match=r"host\.json: 'private_flags'"):
        loaded(MemoryStore({}), private_flags=flags)


def test_recording_changes_nothing() -> None:
    """Recorded reads return the same values, and refused ones stay refused."""
    frame = Frame("eth0", NOW, SPOKEN)
    live = host({}, ask_smp=helper(answer()), private_flags=lambda netdev: {netdev: True})
    live = live._replace(lldp_neighbors=hearing(frame, refused={"eth1": "ENODEV"}))
    taped, io = capture.recording(live)
    assert taped.lldp_neighbors
    reception = taped.lldp_neighbors([netdev("eth0"), netdev("eth1")], taped.clock, lambda _: None)
    assert (reception.frames, reception.errors) == ((frame,), {"eth1": "ENODEV"})
    assert taped.ask_smp([("mlx5_0", 1)]) == {"ports": [answer()]}
    assert taped.private_flags("eth0") == {"eth0": True}
    expected = recorded(
        {"eth0": [frame]},
        {"eth1": "ENODEV"},
        {("mlx5_0", 1): answer()},
        {"eth0": {"eth0": True}},
        listening=True,
    )
    assert content(io) == content(expected)


@pytest.mark.parametrize(
    "nonsense", [{}, {"ports": None}, {"ports": 5}, {"ports": [5]}, {"ports": [{}]}, [], None]
)
def test_nonsense_is_recorded_as_nothing(nonsense: Any) -> None:
    """The caller gets malformed data unchanged, and reports it."""
    taped, io = capture.recording(host({}, ask_smp=lambda _ports: nonsense))
    assert taped.ask_smp([("mlx5_0", 1)]) == nonsense
    assert smps_of(io).answers == {}


def test_a_shut_door_stays_shut_while_recording() -> None:

    def shut(_subject: object) -> Any:
        raise Unavailable("CAP_NET_RAW is missing")

    taped, io = capture.recording(host({}, lldp_neighbors=LldpNeighbors(shut), ask_smp=shut))
    assert taped.lldp_neighbors
    (problem,) = taped.lldp_neighbors([netdev("eth0")], taped.clock, lambda _: None).problems
    assert problem.text == "CAP_NET_RAW is missing"
    with pytest.raises(Unavailable, match="CAP_NET_RAW"):
        taped.ask_smp([("mlx5_0", 1)])
    assert content(io) == content(recorded(listening=True))


REFUSED = "mlx5_1 port 1: umad_register: Operation not permitted"
HOSTS: dict[str, Callable[[], Host]] = {
    "RoCE": lambda: host(
        tree(
            {f"mlx5_{number}": ROCE for number in range(3)},
            {f"mlx5_{number}": f"eth{number}" for number in range(3)},
        ),
        lldp_neighbors=hearing(
            *(Frame("eth0", NOW - 60 + number / 3, case.data) for number, case in enumerate(CASES)),
            Frame("eth1", NOW - 2, SPOKEN[:30]),
        ),
        private_flags=lambda netdev: {"disable-fw-lldp": netdev != "eth2"},
    ),
    "InfiniBand": lambda: host(
        tree({f"mlx5_{number}": IB for number in range(4)}),
        ask_smp=helper(
            answer("mlx5_0"),
            answer("mlx5_1", exchanges=[], error="refused", text=REFUSED),
            answer("mlx5_2", exchanges=[exchanges()[0] | {"reply": "00" * 256}]),
        ),
    ),
}


@pytest.mark.parametrize("name", HOSTS)
def test_a_capture_replays_to_the_same_document(name: str, tmp_path: Path) -> None:
    """Neighbors, reasons and problems; what was not recorded is reported missing."""
    live = HOSTS[name]
    captured, _ = capture.record(live())
    write_folder(capture.entries(captured), str(tmp_path / "node"))
    expected = report(live())
    assert report(replay(str(tmp_path / "node"))) == expected
    assert expected["neighbors"]
    assert expected["missing_neighbors"]


@pytest.mark.parametrize(
    ("meta", "age"),
    [
        ({"time": "2026-05-04T10:00:00Z"}, 60.0),
        ({"time": "2026-05-04T10:00:00.5+00:00"}, 60.5),
        ({}, 0.0),
        (None, 0.0),
    ],
)
def test_the_now_of_a_replay(meta: dict[str, str] | None, age: float, tmp_path: Path) -> None:
    """That of meta.json, else that of the newest frame."""
    spoken = 1_777_888_800 - 60.0
    for path, data in tree({"mlx5_0": ROCE}, {"mlx5_0": "eth0"}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    frames = [Frame("eth0", spoken - 100, SPOKEN), Frame("eth0", spoken, SPOKEN)]
    pcap = files_of(recorded({"eth0": frames}))["lldp/eth0.pcap"]
    write_folder({"eth0.pcap": pcap}, str(tmp_path / "lldp"))
    if meta is not None:
        (tmp_path / "meta.json").write_text(json.dumps(meta))
    assert [row["age_s"] for row in report(replay(str(tmp_path)))["neighbors"]] == [age]
