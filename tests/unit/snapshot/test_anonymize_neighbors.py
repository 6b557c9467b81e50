"""Anonymized neighbors of a snapshot: other names, the same fabric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.host import Host
from agent.infiniband import smp
from agent.infiniband.anonymize import FACTORY
from agent.infiniband.smp import Attribute
from agent.lldp import frame as lldp
from agent.lldp.frame import Frame
from agent.output.document import Choices
from agent.output.document import document as document_of
from agent.snapshot import capture
from agent.snapshot.anonymize import INTERFACE, Names, anonymize
from agent.snapshot.capture import Record, write_folder
from agent.snapshot.recordings import Recordings
from agent.snapshot.replay import replay
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources.observe import observe
from tests.support.lldp_frames import (
    CASES,
    DOT3_MTU,
    END,
    IPV4,
    JUNIPER,
    MAC,
    capabilities,
    ethernet,
    identity,
    tlv,
    tlv_types,
)
from tests.support.recordings import IB, ROCE, anonymized, hearing, lldp_of, recorded, smps_of, tree
from tests.support.remembering import alone
from tests.support.smps import answer, helper, node_info, port_info, reply

NOW = 1_777_888_999.0
OWN_MAC = "b8:3f:d2:aa:00:01"
SECRETS = (
    "acme", "leaf-nyc", "Rack17", "gpu-host-77", "Secret", "TA3713480228", "203.0.113.7",
)  # fmt: skip
SECRET_OCTETS = [
    *map(bytes.fromhex, ("b83fd2aa0001", "001c73aabbcc", "e09d73000007", "cb007107")),
    *map(bytes.fromhex, ("b0cf0e0300d66c80", "b0cf0e0300d66c81", "b0cf0e0300d66c82")),
    *map(bytes.fromhex, ("00000000000055aa", "feed5ec2e7000001")),
]


def switch(
    name: str | None, port: bytes, description: str | None = None, ttl: int = 120, **where: str
) -> bytes:
    """A talkative switch."""
    texts = (tlv(4, description.encode()) if description else b"") + (
        tlv(5, name.encode()) if name else b""
    )
    model = tlv(6, b"acme Secret build, TAC 203.0.113.7")
    address = IPV4.replace(bytes([192, 0, 2, 17]), bytes([203, 0, 113, 7]))
    extra = capabilities(0x14) + address + tlv(127, JUNIPER) + tlv(127, DOT3_MTU) + END
    return ethernet(identity(b"\x04" + MAC, port, ttl) + texts + model + extra, **where)


OWN = bytes.fromhex("b83fd2aa0001")
ADDRESS = b"\x01" + bytes([203, 0, 113, 7])
NYC_1 = ("leaf-nyc-1.acme.example", b"\x05swp1s0", "to gpu-host-77 Rack17")


FRAMES = {
    "eth0": [
        switch(*NYC_1),
        switch(*NYC_1, source="e09d73000007"),
        ethernet(identity(b"\x04" + OWN, b"\x03" + OWN) + END),
        switch("leaf-nyc-1", b"\x05swp1")[:40] + b"Secret",
    ],
    "eth1": [
        switch("leaf-nyc-2", b"\x07" + b"513", "et-0/0/4", tags="81000064"),
        switch("leaf-nyc-2", b"\x07" + b"513", "et-0/0/4", tags="88a80064810088cc"),
    ],
    "eth2": [switch(None, b"\x01gpu-host-77 rail 3", destination="0180c2000003")],
    "eth3": [
        ethernet(identity(b"\x05" + ADDRESS, b"\x04" + ADDRESS) + END),
        ethernet(identity(b"\x07Secret-1", b"\x07Secret-2") + END, source="e09d73000007"),
    ],
    "eth4": [switch("leaf-nyc-1.acme.example", b"\x05Ethernet1/1", ttl=0)],
}


def conversation(
    description: bytes, kind: int = 2, port: int = 3, guid: int = 0xB0CF0E0300D66C81
) -> list[dict[str, Any]]:
    """The helper's record of one far end, with an M_Key, a GID prefix, LIDs and kernel TIDs."""
    asked = [smp.get(Attribute.NODE_INFO, 1, 1), smp.get(Attribute.NODE_DESCRIPTION, 2, 1)]
    asked.append(smp.get(Attribute.PORT_INFO, 3, 1, modifier=port if kind == 2 else 0))
    state = bytes.fromhex("feed5ec2e7000001" + "00000000000055aa" + "1234") + port_info(4)[18:]
    data = (node_info(kind, guid=guid, local_port=port), description, state)
    replies = [reply(one, value) for one, value in zip(asked, data, strict=True)]
    replies = [one[:24] + bytes.fromhex("feed5ec2e700000112345678") + one[36:] for one in replies]
    return [
        {"request": one.hex(), "reply": told.hex(), "error": None}
        for one, told in zip(asked, replies, strict=True)
    ]


DESCRIPTIONS = (
    (b"MF0;leaf-nyc-1.acme.example:MQM9700/U1", 2),
    (b"MF0;leaf-nyc-1.acme.example:MQM9700/U2", 2),
    (b"Quantum Mellanox Technologies", 2),
    (b"acme Mellanox Technologies", 2),
    (b"acme spine", 2),
    (b"gpu-host-77 mlx5_3", 1),
    (b"gpu-host-77 HCA-1", 1),
    (b"gpu-host-77 Secret", 1),
    (b"MF0;cs7500:IS5200/L01/U1", 2),
    (b"MF0;leaf-nyc-2:Secret/U3/Secret", 2),
    (b"MF0;:MQM9700/U1", 2),
    (b"", 2),
    (b"\xffacme\n", 3),
)


def describing() -> list[dict[str, Any]]:
    found = [
        answer(
            f"mlx5_{number}",
            exchanges=conversation(text, kind, guid=0xB0CF0E0300D66C81 + (number > 6)),
        )
        for number, (text, kind) in enumerate(DESCRIPTIONS)
    ]
    found.append(
        answer("mlx5_13", exchanges=[], error="refused", text="mlx5_13: b83f:d203:00aa:0001: no")
    )
    broken = conversation(b"acme")
    broken[0]["reply"] = b"Secret".hex()
    return [
        *found,
        answer("mlx5_14", exchanges=broken, error="malformed", text="SMP reply: 6 bytes"),
    ]


def host(files: Mapping[str, bytes]) -> Host:
    heard = [
        Frame(name, NOW - 10 + number, data)
        for name, frames in FRAMES.items()
        for number, data in enumerate(frames)
    ]
    return Host(
        root=Tree(MemoryStore(files), {}),
        clock=lambda: NOW,
        name="gpu-host-77",
        kernel="6.1.0",
        lldp_neighbors=hearing(*heard),
        ask_smp=helper(*describing()),
        private_flags=lambda _netdev: {"disable-fw-lldp": True},
    )


BOOT = {"proc/sys/kernel/random/boot_id": b"6bf1c3f4-1b8a-4f6e-9d0e-1c2d3e4f5a6b\n"}
HCAS = [f"mlx5_{number}" for number in range(len(describing()))]
# Five Ethernet ports; an InfiniBand port for each description, with a far end's GUID, as it were.
NODES = {
    "roce": BOOT
    | tree(
        {f"mlx5_{number}": ROCE for number in range(5)},
        {f"mlx5_{number}": f"eth{number}" for number in range(5)},
        OWN_MAC,
    ),
    "infiniband": tree(dict.fromkeys(HCAS, IB))
    | {f"sys/class/infiniband/{name}/node_guid": b"b0cf:0e03:00d6:6c81\n" for name in HCAS},
}
every_node = pytest.mark.parametrize("node", NODES)


def record_of(node: str) -> Record:
    return capture.record(host(NODES[node]))[0]


def document(captured: Record, folder: Path) -> dict[str, Any]:
    write_folder(capture.entries(captured), str(folder))
    return document_of(*alone(observe(replay(str(folder)))), Choices())


@every_node
def test_nothing_of_the_originals_is_left(node: str, tmp_path: Path) -> None:
    """In no file of the snapshot: not as text, not as octets, not in hex, whole or in groups."""
    before, after = tmp_path / "before", tmp_path / "after"
    write_folder(capture.entries(record_of(node)), str(before))
    write_folder(capture.entries(anonymize(record_of(node))), str(after))
    assert found_in(before)  # the search finds the names before
    assert found_in(after) == []


def found_in(folder: Path) -> list[tuple[str, str]]:
    files = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    patterns = [re.escape(word.encode()) for word in SECRETS] + [
        word.encode().hex().encode() for word in SECRETS
    ]
    for octets in SECRET_OCTETS:
        patterns += [re.escape(octets), b":?".join(f"{octet:02x}".encode() for octet in octets)]
    return [
        (path, pattern.decode("ascii", "backslashreplace"))
        for path, data in files.items()
        for pattern in patterns
        if re.search(pattern, data, re.IGNORECASE)
    ]


def io_of(*frames: bytes) -> Recordings:
    return recorded({"eth0": [Frame("eth0", 1.0, data) for data in frames]})


def renamed(*frames: bytes) -> list[bytes]:
    """The frames under other names; an address gets its octets turned round."""
    after = anonymized(io_of(*frames), Turned())
    return [frame.data for frame in lldp_of(after).received["eth0"]]


class Turned(Names):
    """Stands in for the names of the rest of the snapshot."""

    def text(self, text: str) -> str:
        return turned(text)


def turned(text: str) -> str:
    """Reverse the groups of every address."""
    return re.sub(
        r"(?i)\b(?:[0-9a-f]{2,4}:)+[0-9a-f]{2,4}\b",
        lambda match: ":".join(match[0].split(":")[::-1]),
        text,
    )


def test_a_frame_keeps_what_decides_and_nothing_else() -> None:
    before = switch("leaf-nyc-1", b"\x05swp1s0", "Ethernet12", tags="81000064")
    lldpdu = (
        tlv(1, b"\x04" + MAC[::-1])
        + tlv(2, b"\x05swp1s0")
        + tlv(3, b"\0\x78")
        + tlv(4, b"Ethernet12")
    )
    lldpdu += tlv(5, b"switch-1") + tlv(7, b"\0\x14\0\x14") + END
    expected = ethernet(lldpdu, source=MAC[::-1].hex(), tags="81000064")
    assert renamed(before)[0][6:] == expected[6:]
    assert renamed(before)[0][:6] == bytes.fromhex("0180c200000e")[::-1]


NAME = re.compile(r"switch-\d|[0-9a-f:]+|\d+\.\d+\.\d+\.\d+")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_vendor_is_read_as_before(case: Any) -> None:
    """Subtypes, TTL and capabilities stay, what was a name is one, and a hostile one is gone."""
    (data,) = renamed(case.data)
    after, before = lldp.decode(data), case.value
    for part in ("chassis_subtype", "port_id_subtype", "ttl", "capabilities"):
        assert getattr(after, part) == getattr(before, part)
    assert (after.system_name is None) == (before.system_name is None)
    assert (after.port_description is None) == (before.port_description is None)
    assert tlv_types(data) <= {0, 1, 2, 3, 4, 5, 7}  # no descriptions, no management addresses
    assert NAME.fullmatch(after.system_name or after.chassis_id)
    if INTERFACE.fullmatch(before.port_id):
        assert after.port_id == before.port_id
    if len(before.chassis_id) == 17 and before.chassis_subtype == 4:
        assert after.chassis_id == turned(before.chassis_id)


POSITIONS = """
swp1, swp1s0, Ethernet1/1, Ethernet 1/1/4, ethernet1/1/4, Eth1/4, Gi1/0/4, GigabitEthernet1/0/4,
et-0/0/4, et-0/0/4:1, xe-0/0/1.0, etp1a, Ethernet0, 25GE1/0/4, 400GE1/0/1, TwentyFiveGigE1/0/1,
HundredGigE0/0/0/1, TenGigabitEthernet1/1, enp193s0f0np0, eno1, 513, 1, port 4, mgmt0
"""


@pytest.mark.parametrize("name", re.split(r",\s+", POSITIONS.strip()))
def test_port_names_of_these_shapes_stay(name: str) -> None:
    """They name a position in any switch of the kind."""
    (after,) = renamed(switch("x", b"\x05" + name.encode(), name))
    told = lldp.decode(after)
    assert (told.port_id, told.port_description) == (name, name)


OTHERS = """
gpu-host-77, to-gpu-node-12 rail 3, node12, leaf7, rack1, swp1 to acme, acme swp1, 1234567,
e09d73000007, 00:1c:73:aa:bb:cc, 192.0.2.1, eth, swp, Ethernet1/1 acme, fabric_link, 10.1/acme,
enx0c42a1aabbcc, swp1acme
"""


@pytest.mark.parametrize("name", [*re.split(r",\s+", OTHERS.strip()), "", "eth0\nacme"])
def test_other_port_names_go(name: str) -> None:
    """Every text that an operator may have written is replaced; an unprintable one is in hex."""
    (after,) = renamed(switch("x", b"\x05" + (name.encode() or b"\0"), name))
    told = lldp.decode(after)
    assert re.fullmatch(r"port-\d", told.port_id)
    assert re.fullmatch(r"port-\d", told.port_description or told.port_id)
    assert told.port_description in {None, told.port_id} or not name.isprintable()


def test_equal_names_are_equal_everywhere() -> None:
    """In names, chassis, port descriptions and NodeDescriptions; other names are other ones."""
    io = io_of(
        switch("leaf", b"\x05swp1", "host"),
        ethernet(identity(b"\x07leaf", b"\x07host") + END),
        switch("other", b"\x05swp1", "leaf"),
    )
    smps_of(io).answers["mlx5_0", 1] = answer(exchanges=conversation(b"MF0;leaf:MQM9700/U2"))
    smps_of(io).answers["mlx5_1", 1] = answer(
        "mlx5_1", exchanges=conversation(b"host mlx5_3", kind=1)
    )
    after = anonymized(io, Turned())
    first, second, third = (lldp.decode(frame.data) for frame in lldp_of(after).received["eth0"])
    assert first.system_name == second.chassis_id == third.port_description
    assert first.port_description == second.port_id
    assert third.system_name not in {first.system_name, first.port_description}
    descriptions = [described(after, number) for number in (0, 1)]
    assert descriptions == [
        f"MF0;{first.system_name}:MQM9700/U2",
        f"{first.port_description} mlx5_3",
    ]


def described(io: Recordings, number: int) -> str | None:
    return smp.replay(exchanges_of(io, number)).node_description


def exchanges_of(io: Recordings, number: int) -> list[smp.Exchange]:
    return [*map(smp.Exchange.from_json, smps_of(io).answers[f"mlx5_{number}", 1]["exchanges"])]


def other_names(answers: list[dict[str, Any]]) -> Recordings:
    by_port = {(one["device"], one["port"]): one for one in answers}
    return anonymized(recorded(answers=by_port), Turned())


def other_answers(*answers: dict[str, Any]) -> list[dict[str, Any]]:
    return list(smps_of(other_names(list(answers))).answers.values())


def test_descriptions() -> None:
    """Host names go, models, places and factory texts stay."""
    after = other_names(describing())
    assert [described(after, number) for number in range(len(DESCRIPTIONS))] == [
        *("MF0;switch-1:MQM9700/U1", "MF0;switch-1:MQM9700/U2", "Quantum Mellanox Technologies"),
        *("Mellanox Technologies", "switch-2", "peer-3 mlx5_3", "peer-3 HCA-1", "peer-4"),
        *("MF0;switch-5:IS5200/L01/U1", "MF0;switch-6:X", "MF0;:MQM9700/U1", "", "peer-7"),
    ]


FACTORY_TEXTS = (
    *("Quantum Mellanox Technologies", "SwitchIB Mellanox Technologies", "ISR9024D Voltaire"),
    *("SwitchX -  Mellanox Technologies", "MT53000 Mellanox Technologies"),
    *("Infiniscale-IV Mellanox Technologies", "MT47396 Infiniscale-III Mellanox Technologies"),
)


@pytest.mark.parametrize("text", FACTORY_TEXTS)
def test_factory_texts_stay(text: str) -> None:
    """They are the same on every switch of a model."""
    assert FACTORY.fullmatch(text)
    assert described(other_names([answer(exchanges=conversation(text.encode()))]), 0) == text


def test_replies_are_built_anew() -> None:
    """GUIDs as in the rest of the snapshot, PortInfo only a state; no M_Key, LID or kernel TID."""
    (one,) = other_answers(answer(exchanges=conversation(b"MF0;leaf:MQM9700/U1")))
    replies = [bytes.fromhex(exchange["reply"]) for exchange in one["exchanges"]]
    requests = [bytes.fromhex(exchange["request"]) for exchange in one["exchanges"]]
    for told, asked in zip(replies, requests, strict=True):
        assert (told[:3], told[6:64], told[128:]) == (asked[:3], asked[6:64], asked[128:])
        assert told[3:6] == b"\x81\x80\0"
        assert not any(told[24:32])
        assert told[32:36] == b"\xff" * 4  # the permissive LID of any one-hop packet
    before = smp.replay(map(smp.Exchange.from_json, conversation(b"")))
    after = smp.replay([smp.Exchange(*pair) for pair in zip(requests, replies, strict=True)])
    assert after == before._replace(
        node_guid="6c8100d60e03b0cf",
        sys_image_guid="6c8000d60e03b0cf",
        node_description="MF0;switch-1:MQM9700/U1",
    )
    assert replies[2][64:128] == bytes(32) + b"\x04" + bytes(31)


def test_guids_and_addresses_are_those_of_sysfs(tmp_path: Path) -> None:
    """One table for all: a looped cable leads to this node still, and one chassis is one."""
    after = document(anonymize(record_of("infiniband")), tmp_path / "ib")
    assert (
        after["neighbors"][0]["node_guid"] == after["ports"][0]["node_guid"] != "b0cf0e0300d66c81"
    )
    roce = document(anonymize(record_of("roce")), tmp_path / "roce")
    assert {row["chassis_id"] for row in roce["neighbors"] if row["interface"] == "mlx5_0"} == {
        row["chassis_id"] for row in roce["neighbors"] if row["interface"] == "mlx5_1"
    }


def test_interfaces_named_after_addresses_are_renamed_with_them() -> None:
    """Everywhere: in the frames, the refusals, the answers, the flags."""
    io = recorded(
        {"enx:a:b": [Frame("enx:a:b", 1.0, CASES[0].data)]},
        {"aa:bb": "lldp/aa:bb.pcap: no pcap"},
        {("cc:dd", 1): answer("cc:dd", exchanges=[], text="cc:dd port 1")},
        {"ee:ff": {"flag": True}},
    )
    after = anonymized(io, Turned())
    assert lldp_of(after).failed == {"bb:aa": "lldp/bb:aa.pcap: no pcap"}
    assert smps_of(after).answers["dd:cc", 1]["device"] == "dd:cc"
    assert smps_of(after).answers["dd:cc", 1]["text"] == "dd:cc port 1"
    assert lldp_of(after).flags == {"ff:ee": {"flag": True}}
    assert [frame.netdev for frame in lldp_of(after).received[turned("enx:a:b")]] == [
        turned("enx:a:b")
    ]


def test_a_malformed_frame_is_dropped() -> None:
    """Its private text cannot be recognized."""
    assert renamed(CASES[0].data[:30], CASES[0].data, b"", b"Secret") == renamed(CASES[0].data)


ASKED = smp.get(Attribute.NODE_INFO, 1, 1).hex()


@pytest.mark.parametrize(
    "changes",
    [
        {"exchanges": None},
        {"exchanges": ["Secret"]},
        {"exchanges": [{"request": "Secret", "reply": None, "error": None}]},
        {"exchanges": [{"request": "00" * 256, "reply": None, "error": None}]},
        {"exchanges": [{"request": ASKED, "reply": 5, "error": None}]},
        {"exchanges": [{"request": ASKED, "reply": None, "error": "Secret"}]},
        {"error": "Secret host"},
        {"error": 5},
        {"text": 5},
    ],
    ids=str,
)
def test_an_answer_that_makes_no_sense_is_one_word(changes: dict[str, Any]) -> None:
    """The error is `malformed` for the whole port."""
    (after,) = other_answers(answer(exchanges=conversation(b"leaf")) | changes)
    assert after == answer(exchanges=[], error="malformed")


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_broken_reply_leaves_its_word(broken: int) -> None:
    """Without NodeInfo there is no neighbor, as before; the other replies only add to it."""
    exchanges = conversation(b"MF0;leaf:MQM9700/U1")
    exchanges[broken]["reply"] = b"Secret".hex()
    after = other_names([answer(exchanges=exchanges)])
    assert smps_of(after).answers["mlx5_0", 1]["exchanges"][broken] == exchanges[broken] | {
        "reply": None,
        "error": "malformed",
    }
    if broken:
        assert smp.replay(exchanges_of(after, 0)).node_type == "switch"


def test_an_unanswered_question_stays_one() -> None:
    exchanges = [conversation(b"")[0] | {"reply": None, "error": "no-answer"}]
    (after,) = other_answers(answer(exchanges=exchanges))
    assert after["exchanges"] == exchanges


marked = st.text("\u00e9AQZ9 :;/_-.\x1b", min_size=1, max_size=12).map(lambda text: f"Zq{text}qZ")
names = st.one_of(st.none(), marked)


@given(
    name=names,
    port=marked,
    description=names,
    chassis=marked,
    kind=st.sampled_from((1, 2, 5, 6, 7)),
)
@settings(deadline=None)
def test_no_word_of_a_frame_survives(
    name: str | None, port: str, description: str | None, chassis: str, kind: int
) -> None:
    texts = b"".join(
        tlv(at, text.encode()) for at, text in ((4, description), (5, name), (6, name)) if text
    )
    data = ethernet(
        identity(bytes((kind,)) + chassis.encode(), bytes((kind,)) + port.encode()) + texts + END
    )
    try:
        lldp.decode(data)
    except Malformed:
        return
    (after,) = renamed(data)
    assert b"Zq" not in after
    assert b"qZ" not in after


@given(
    description=st.one_of(
        marked, marked.map("MF0;{}:MQM9700/U1".format), marked.map("MF0;leaf:{}".format)
    )
)
@settings(deadline=None)
def test_no_word_of_a_description_survives(description: str) -> None:
    """However it is composed."""
    (after,) = other_answers(answer(exchanges=conversation(description.encode()[:64])))
    assert b"Zq" not in b"".join(bytes.fromhex(one["reply"]) for one in after["exchanges"])
