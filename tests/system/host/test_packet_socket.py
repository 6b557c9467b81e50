"""The LLDP listener over real packet sockets, with lldpd as the switches and as a second
decoder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.errors import Malformed, Unavailable
from agent.lldp import pcap
from agent.lldp.frame import MAX_LLDPDU, Frame, decode
from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import MAX_FRAMES, Listener
from agent.lldp.snapshot import RecordedLldp
from agent.model import LldpNeighbor
from agent.snapshot.tree import MemoryStore, SnapshotFiles
from tests.support.lldp_frames import END, MAC, ethernet, identity, tlv
from tests.support.real_parts import require
from tests.support.switch import (
    PATIENCE,
    Leaf,
    Lldpd,
    Namespace,
    bring_up,
    cable,
    missing,
    wait_for,
)

NAMED = identity(b"\x04" + MAC, b"\x05swp1") + tlv(5, b"leaf-1") + END
CHASSIS_TYPES = {"mac": 4, "ip": 5, "ifname": 6, "local": 7}
PORT_TYPES = {"mac": 3, "ip": 4, "ifname": 5, "local": 7}
GONE = {"eth0": "ENODEV: No such device"}
NO_TEXT = os.fsdecode(b"\xff\xfe0")  # a netdev name that is not UTF-8


@pytest.fixture(scope="module", autouse=True)
def parts() -> None:
    """Skip without the real parts that all tests of this module need."""
    require(missing())


@pytest.fixture(scope="module")
def node() -> Iterator[Namespace]:
    """The node's network, where the listener is."""
    with Namespace() as namespace:
        yield namespace


@pytest.fixture(scope="module")
def leaf(node: Namespace) -> Iterator[Leaf]:
    """A leaf switch, its port swp1 plugged into the node's eth1."""
    with Leaf("leaf-1") as switch:
        cable(switch, "swp1", node, "eth1")
        switch.ip("address", "add", "192.0.2.17/24", "dev", "swp1")
        yield switch


@pytest.fixture
def peer(node: Namespace) -> Iterator[Namespace]:
    """A silent far end, its port wire0 plugged into the node's eth0."""
    with Namespace() as namespace:
        cable(namespace, "wire0", node, "eth0")
        yield namespace


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A listener that watches nothing yet."""
    opened = Listener()
    yield opened
    opened.close()


@pytest.fixture
def all_ethertypes() -> Iterator[Listener]:
    """A listener for ports of an Open vSwitch."""
    opened = Listener(openvswitch=True)
    yield opened
    opened.close()


def receive(listener: Listener, wanted: Callable[[LldpNeighbor], bool]) -> LldpNeighbor:
    """Wait for a neighbor of this kind."""
    heard = []
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for frame in listener.receive(0.5):
            heard.append(decode(frame.data))
            if wanted(heard[-1]):
                return heard[-1]
    pytest.fail(f"not heard; but {heard}")


def frames(listener: Listener, count: int = 0) -> list[bytes]:
    """Receive this many frames, and those that follow within a moment."""
    found: list[bytes] = []
    end = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < end:
        found += [frame.data for frame in listener.receive(0.5)]
    return found + [frame.data for frame in listener.receive(0.1)]


def is_received(peer: Namespace, listener: Listener) -> bool:
    """Return True if a frame of the far end is received, and nothing else."""
    peer.send("wire0", ethernet(NAMED))
    return frames(listener, 1) == [ethernet(NAMED)]


def only(value: Any) -> Any:
    """The value of an lldpcli element that comes once."""
    return value[0]["value"] if value else None


def by_lldpd(item: dict[str, Any]) -> dict[str, object]:
    """A neighbor of `lldpcli -f json0`, by our field names."""
    chassis, port = item["chassis"][0], item["port"][0]
    return {
        "chassis_id": only(chassis["id"]),
        "chassis_subtype": CHASSIS_TYPES[chassis["id"][0]["type"]],
        "port_id": only(port["id"]),
        "port_id_subtype": PORT_TYPES[port["id"][0]["type"]],
        "ttl": int(only(port["ttl"])),
        "port_description": only(port.get("descr")),
        "system_name": only(chassis.get("name")),
    }


@pytest.mark.parametrize(
    "orders",
    [
        [("lldp", "portidsubtype", "ifname"), ("system", "description", "A leaf\nof two lines")],
        [("lldp", "portidsubtype", "macaddress"), ("system", "hostname", "leaf-é")],
        [("ports", "swp1", "lldp", "portidsubtype", "local", "Eth1/1")],
        [
            ("ports", "swp1", "lldp", "portdescription", "to node-1"),
            ("system", "chassisid", "rack 7, unit 42"),
        ],
    ],
    ids=["ifname", "macaddress", "local", "local-chassis"],
)
def test_lldpd_decodes_the_same_frames_the_same(
    node: Namespace, leaf: Leaf, listener: Listener, orders: list[tuple[str, ...]]
) -> None:
    """A second lldpd on the node's end decodes the switch's frames as we do, whatever forms its
    identifiers have.
    """
    for order in orders:
        leaf.lldpd.configure(*order)
    node.call(listener.watch, ["eth1"])
    with Lldpd(node, "-r") as second:
        wait_for(lambda: agreed(second, listener))


def agreed(second: Lldpd, listener: Listener) -> bool:
    """Both decoders have the switch's frames, with the same values."""
    ours = [decode(frame.data) for frame in listener.receive(1.5)]
    theirs = [by_lldpd(item) for item in second.neighbors()]
    print(f"{ours = }\n{theirs = }")  # noqa: T201 - pytest shows it when it never comes true
    return bool(theirs and ours) and all(
        getattr(ours[-1], name) == value for name, value in theirs[-1].items()
    )


def test_lldpd_tells_the_same_stations_apart(
    node: Namespace, peer: Namespace, listener: Listener
) -> None:
    """By chassis and port, not by source address: a switch that changes its address and its name is
    one neighbor, two switches behind one address are two, and a shutdown frame from any address
    ends its own.
    """
    table = NeighborTable(0, 2)

    def ours() -> set[tuple[str, str | None]]:
        for frame in listener.receive(0.2):
            table.receive(frame)
        table.expire("eth0", time.time())
        found = [one.effective for one in table.neighbors("eth0")]
        return {(one.chassis_id, one.system_name) for one in found}

    def theirs() -> set[tuple[str, str | None]]:
        found = [by_lldpd(item) for item in second.neighbors()]
        return {(str(one["chassis_id"]), str(one["system_name"])) for one in found}

    def send(chassis: str, name: str, source: str, ttl: int = 120) -> None:
        lldpdu = identity(b"\x07" + chassis.encode(), b"\x05swp1", ttl)
        lldpdu += tlv(5, name.encode()) if ttl else b""
        peer.send("wire0", *[ethernet(lldpdu + END, source=source)] * 2)

    def agree_on(*expected: tuple[str, str]) -> None:
        wait_for(lambda: (ours(), theirs()) == (set(expected), set(expected)))

    first, other = "020000000001", "020000000002"
    node.call(listener.watch, ["eth0"])
    with Lldpd(node, "-r") as second:
        send("a", "old", first)
        agree_on(("a", "old"))
        send("a", "new", other)
        send("b", "leaf-b", other)
        agree_on(("a", "new"), ("b", "leaf-b"))
        send("a", "", first, ttl=0)
        agree_on(("b", "leaf-b"))


def test_two_neighbors_behind_a_dumb_switch_are_both_received(
    node: Namespace, leaf: Leaf, listener: Listener
) -> None:
    """A bridge that forwards LLDP shows two leaves on one port."""
    leaf.rename("leaf-1")
    with Namespace() as bridge, Leaf("leaf-2") as second:
        bridge.ip("link", "add", "br0", "type", "bridge", "group_fwd_mask", "0x4000")
        bridge.ip("link", "set", "br0", "up")
        for far, port, near in ((leaf, "swp7", "p1"), (second, "swp1", "p2"), (node, "eth7", "p3")):
            cable(far, port, bridge, near)
            bridge.ip("link", "set", near, "master", "br0")
        assert node.call(listener.watch, ["eth7"]) == {}
        assert receive(listener, lambda neighbor: neighbor.system_name == "leaf-1").source_mac
        assert receive(listener, lambda neighbor: neighbor.system_name == "leaf-2").source_mac


@pytest.mark.parametrize("forwards", [False, True])
def test_a_bridge_that_forwards_lldp_takes_it_from_its_port(
    node: Namespace, listener: Listener, all_ethertypes: Listener, *, forwards: bool
) -> None:
    """A socket for all ethertypes receives the frames still, and sysfs tells which it is."""
    with Namespace() as far:
        cable(far, "far0", node, "eth8")
        mask = "0x4000" if forwards else "0"
        node.ip("link", "add", "br8", "type", "bridge", "group_fwd_mask", mask)
        node.ip("link", "set", "br8", "up")
        node.ip("link", "set", "eth8", "master", "br8")
        for one in (listener, all_ethertypes):
            assert node.call(one.watch, ["eth8"]) == {}
        far.send("far0", ethernet(NAMED))
        assert frames(all_ethertypes, 1) == [ethernet(NAMED)]
        assert frames(listener) == ([] if forwards else [ethernet(NAMED)])
        asks = f"print(is_taken_by_bridge(Host(LiveRoot(), time.time), {'eth8'!r}))"
        imports = (
            "import time",
            "from agent.host import Host",
            "from agent.sources.lldp import is_taken_by_bridge",
            "from agent.sysfs.reader import LiveRoot",
        )
        script = "\n".join([*imports, asks])
        command = node.command(sys.executable, "-c", script)  # with the namespace's /sys
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout.strip() == str(forwards)
        node.ip("link", "delete", "br8")


def test_a_switch_shuts_down_and_comes_back_under_another_name(
    node: Namespace, leaf: Leaf, listener: Listener
) -> None:
    """A switch that ends sends a TTL of 0; when it is back, its frames have its new name."""
    node.call(listener.watch, ["eth1"])
    before = receive(listener, lambda neighbor: neighbor.ttl > 0)
    leaf.lldpd.stop()
    shutdown = receive(listener, lambda neighbor: neighbor.ttl == 0)
    assert (shutdown.chassis_id, shutdown.port_id) == (before.chassis_id, before.port_id)
    leaf.lldpd.start()
    leaf.rename("leaf-9")
    assert receive(listener, lambda neighbor: neighbor.system_name == "leaf-9").ttl > 0


@pytest.mark.parametrize("first", ["watched", "down"])
def test_a_link_that_is_down_is_received_when_it_is_up(
    node: Namespace, peer: Namespace, listener: Listener, first: str
) -> None:
    """A link that is down is no error, when it is watched already and when it is not; its socket
    receives when it is up, without another call.
    """
    if first == "watched":
        node.call(listener.watch, ["eth0"])
    node.ip("link", "set", "eth0", "down")
    if first == "down":
        assert node.call(listener.watch, ["eth0"]) == {}
    assert frames(listener) == []
    bring_up(peer, "wire0", node, "eth0")
    assert is_received(peer, listener)


@pytest.mark.parametrize("looked", [True, False])
def test_a_netdev_made_again_is_received_again(
    node: Namespace, peer: Namespace, listener: Listener, *, looked: bool
) -> None:
    """A netdev that was deleted and created again under the same name gets a new socket at the next
    call, be there a call in between or none.
    """
    node.call(listener.watch, ["eth0"])
    node.ip("link", "delete", "eth0")
    if looked:
        assert frames(listener) == []
        assert node.call(listener.watch, ["eth0"]) == GONE
    cable(peer, "wire0", node, "eth0")
    assert node.call(listener.watch, ["eth0"]) == {}
    assert is_received(peer, listener)


def test_a_renamed_netdev_is_received_under_its_new_name(
    node: Namespace, peer: Namespace, listener: Listener
) -> None:
    """After a rename frames carry the new name, and the old one is gone."""
    node.call(listener.watch, ["eth0"])
    node.ip("link", "set", "eth0", "down")
    node.ip("link", "set", "eth0", "name", "rail0")
    bring_up(peer, "wire0", node, "rail0")
    assert node.call(listener.watch, ["eth0", "rail0"]) == GONE
    peer.send("wire0", ethernet(NAMED))
    assert [frame.netdev for frame in listener.receive(PATIENCE)] == ["rail0"]


def test_a_netdev_whose_name_is_no_text_is_gone(
    node: Namespace, peer: Namespace, listener: Listener
) -> None:
    """Nothing is received on it, and nothing breaks; under its old name it is received again."""
    node.call(listener.watch, ["eth0"])
    node.ip("link", "set", "eth0", "name", NO_TEXT)
    peer.send("wire0", *[ethernet(NAMED)] * 3)
    assert frames(listener) == []
    assert node.call(listener.watch, ["eth0"]) == GONE
    node.ip("link", "set", NO_TEXT, "name", "eth0")
    assert node.call(listener.watch, ["eth0"]) == {}
    assert is_received(peer, listener)


@pytest.mark.parametrize("looked", [True, False])
def test_a_netdev_lent_to_another_namespace_is_received_when_it_is_back(
    node: Namespace, peer: Namespace, listener: Listener, *, looked: bool
) -> None:
    """It returns with its old ifindex, and the old socket would receive nothing."""
    node.call(listener.watch, ["eth0"])
    with Namespace() as pod:
        node.ip("link", "set", "eth0", "netns", pod.name)
        if looked:
            assert node.call(listener.watch, ["eth0"]) == GONE
        pod.ip("link", "set", "eth0", "netns", node.name)
    bring_up(peer, "wire0", node, "eth0")
    assert node.call(listener.watch, ["eth0"]) == {}
    assert is_received(peer, listener)


def test_what_is_no_longer_watched_is_closed(
    node: Namespace, peer: Namespace, listener: Listener
) -> None:
    """A netdev that is left out of the next call has its socket closed; one that stays
    keeps its own.
    """
    node.call(listener.watch, ["eth0", "lo"])
    kept = listener.filenos()
    node.call(listener.watch, ["eth0"])
    assert len(kept) == len(listener.filenos()) + 1
    assert set(listener.filenos()) < set(kept)
    listener.close()
    assert listener.filenos() == []
    peer.send("wire0", ethernet(NAMED))
    assert frames(listener) == []


def test_time_comes_from_the_clock(node: Namespace, peer: Namespace) -> None:
    """Frames carry the time of the clock."""
    listener = Listener(clock=lambda: 1234.5)
    node.call(listener.watch, ["eth0"])
    peer.send("wire0", ethernet(NAMED))
    assert [frame.time for frame in listener.receive(PATIENCE)] == [1234.5]
    listener.close()


@pytest.mark.parametrize(
    ("destination", "dropped"),
    [
        pytest.param("0180c200000e", 0, id="nearest bridge"),
        pytest.param("0180c2000003", 0, id="nearest non-TPMR bridge"),
        pytest.param("0180c2000000", 0, id="nearest customer bridge"),
        # may come from anywhere in the broadcast domain
        *((address, 1) for address in ("ffffffffffff", "02000000cafe", "01005e000001")),
    ],
)
def test_each_group_address_is_received_and_no_other(
    node: Namespace, peer: Namespace, listener: Listener, destination: str, dropped: int
) -> None:
    """Frames that bridges forward are dropped, and counted."""
    node.call(listener.watch, ["eth0"])
    frame = ethernet(NAMED, destination=destination)
    peer.send("wire0", frame, ethernet(NAMED))
    assert frames(listener, 2 - dropped) == [frame, ethernet(NAMED)][dropped:]
    assert listener.dropped == {"destination": dropped, "own": 0}


@pytest.mark.parametrize("tags", ["81000000", "8100e064", "88a80064"])
def test_a_tagged_frame_is_received(
    node: Namespace, peer: Namespace, listener: Listener, all_ethertypes: Listener, tags: str
) -> None:
    """The kernel takes the tag off before it sorts by ethertype; on all ethertypes the tag comes
    beside the frame.
    """
    for listening in (listener, all_ethertypes):
        node.call(listening.watch, ["eth0"])
    peer.send("wire0", ethernet(NAMED, tags=tags))
    [bare] = frames(listener, 1)
    assert bare.rstrip(b"\0") == ethernet(NAMED).rstrip(b"\0")
    assert frames(all_ethertypes, 1) == [ethernet(NAMED, tags=tags)]


@pytest.mark.parametrize("tags", ["88a80064" + "81000065", "91000064", "91000064" + "81000065"])
def test_two_tags_and_old_tags_are_received_on_all_ethertypes_only(
    node: Namespace, peer: Namespace, listener: Listener, all_ethertypes: Listener, tags: str
) -> None:
    """A socket bound to LLDP's ethertype never gets these: after the removed tag there is
    another.
    """
    for listening in (listener, all_ethertypes):
        node.call(listening.watch, ["eth0"])
    peer.send("wire0", ethernet(NAMED, tags=tags))
    assert frames(all_ethertypes, 1) == [ethernet(NAMED, tags=tags)]
    assert frames(listener) == []


def test_nothing_but_lldp_passes_the_filter(
    node: Namespace, peer: Namespace, all_ethertypes: Listener
) -> None:
    """On a socket for all ethertypes the kernel drops what is not LLDP."""
    node.call(all_ethertypes.watch, ["eth0"])
    for ethertype in ("0800", "86dd", "88cb", "810000010800", "88a80001" + "81000001" + "0806"):
        peer.send("wire0", bytes.fromhex("0180c200000e" + "02" * 6 + ethertype) + NAMED)
    peer.send("wire0", ethernet(NAMED))
    assert frames(all_ethertypes, 1) == [ethernet(NAMED)]
    assert all_ethertypes.dropped == {"destination": 0, "own": 0}


def test_own_frames_are_not_received(
    node: Namespace, peer: Namespace, listener: Listener, all_ethertypes: Listener
) -> None:
    """Frames that an lldpd on this node sends leave the node, and do not arrive."""
    assert peer.name
    for listening in (listener, all_ethertypes):
        node.call(listening.watch, ["eth0"])
    node.send("eth0", ethernet(NAMED))
    assert frames(listener) == frames(all_ethertypes) == []


def test_a_frame_is_as_long_as_the_link_carries(
    node: Namespace, peer: Namespace, all_ethertypes: Listener
) -> None:
    """The largest LLDPDU is a neighbor, with a tag too; one octet more is refused by name."""
    for namespace, netdev in ((peer, "wire0"), (node, "eth0")):
        namespace.ip("link", "set", netdev, "mtu", "9300")
    node.call(all_ethertypes.watch, ["eth0"])
    lldpdu = NAMED.ljust(MAX_LLDPDU, b"\0")
    peer.send("wire0", *(ethernet(lldpdu, tags=tags) for tags in ("", "81000001")))
    peer.send("wire0", ethernet(lldpdu) + bytes(60))
    received = frames(all_ethertypes, 3)
    assert [decode(frame).system_name for frame in received[:2]] == ["leaf-1"] * 2
    with pytest.raises(Malformed, match="of more than 9216 octets"):
        decode(received[2])


def test_a_replay_has_the_frames_that_were_received(
    node: Namespace, peer: Namespace, listener: Listener
) -> None:
    """Of all that a capture on the wire has."""
    for namespace, netdev in ((peer, "wire0"), (node, "eth0")):
        namespace.ip("link", "set", netdev, "mtu", "9000")
    destinations = ("0180c200000e", "ffffffffffff", "0180c2000003", "02000000cafe", "0180c2000000")
    sent = [ethernet(NAMED, destination=destination) for destination in destinations]
    sent += [ethernet(NAMED).ljust(length, b"\0") for length in (1518, 1519, 9000)]
    node.call(listener.watch, ["eth0"])
    peer.send("wire0", *sent)
    captured = pcap.write([Frame("eth0", when, data) for when, data in enumerate(sent)])
    replayed = RecordedLldp.load(SnapshotFiles(MemoryStore({"lldp/eth0.pcap": captured})), {})
    assert [frame.data for frame in replayed.received["eth0"]] == frames(listener, 6)


def test_a_flood_on_one_port_leaves_the_others_their_turn(
    node: Namespace, leaf: Leaf, peer: Namespace, listener: Listener
) -> None:
    """The number of frames returned at once is bounded for each port, and frames of other
    ports arrive.
    """
    assert leaf.name
    node.call(listener.watch, ["eth0", "eth1"])
    heard: list[str] = []
    end = time.monotonic() + PATIENCE
    while "eth1" not in heard and time.monotonic() < end:
        peer.send("wire0", *[ethernet(NAMED)] * 1000)
        heard = [frame.netdev for frame in listener.receive(1)]
        assert heard.count("eth0") == MAX_FRAMES
    assert "eth1" in heard


def test_malformed_frames_come_through(
    node: Namespace, peer: Namespace, listener: Listener
) -> None:
    """The listener does not check content: a capture has the frames as sent."""
    node.call(listener.watch, ["eth0"])
    peer.send("wire0", ethernet(b"\xff" * 100))
    [frame] = frames(listener, 1)
    with pytest.raises(Malformed):
        decode(frame)


def test_no_trace_is_left(
    node: Namespace, peer: Namespace, listener: Listener, all_ethertypes: Listener
) -> None:
    """No promiscuous mode; the group addresses are joined while listening and left on close."""
    assert peer.name
    groups = {"01:80:c2:00:00:00", "01:80:c2:00:00:03", "01:80:c2:00:00:0e"}
    for listening in (listener, all_ethertypes):
        node.call(listening.watch, ["eth0"])
        [link] = json.loads(node.ip("-d", "-j", "link", "show", "eth0"))
        assert link["promiscuity"] == 0
        assert not {"PROMISC", "ALLMULTI"} & {*link["flags"]}
        assert groups < set(node.ip("maddress", "show", "dev", "eth0").split())
        listening.close()
        assert not groups & set(node.ip("maddress", "show", "dev", "eth0").split())


LISTEN = """
import sys
from agent.errors import Unavailable
from agent.lldp.packet_socket import Listener
from agent.lldp.frame import decode

status = [line.split() for line in open("/proc/self/status")]
[capabilities] = [words[1] for words in status if words[0] == "CapEff:"]
listener = Listener(openvswitch="openvswitch" in sys.argv)
try:
    listener.watch(["eth1"])
except Unavailable as error:
    print(capabilities, error)
else:
    print(capabilities, decode(listener.receive(15)[0].data).port_id_subtype)
"""


def listen(node: Namespace, capabilities: str, *arguments: str) -> list[str]:
    """The output of a child that is root with these capabilities only: the effective ones in hex,
    and a subtype received.
    """
    bounded = ["setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}"]
    command = node.command(*bounded, sys.executable, "-c", LISTEN, *arguments)
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
    return run.stdout.strip().split(" ", 1)


@pytest.mark.parametrize("arguments", [(), ("openvswitch",)])
def test_cap_net_raw_is_enough(node: Namespace, leaf: Leaf, arguments: tuple[str, ...]) -> None:
    """A process with CAP_NET_RAW and no other capability receives LLDP."""
    assert leaf.name
    capabilities, subtype = listen(node, "-all,+net_raw", *arguments)
    assert int(capabilities, 16) == 1 << 13
    assert int(subtype) in PORT_TYPES.values()


def test_without_cap_net_raw_it_is_an_error(node: Namespace, leaf: Leaf) -> None:
    """The error names the capability that is missing."""
    assert leaf.name
    capabilities, error = listen(node, "-all")
    assert int(capabilities, 16) == 0
    assert error == "eth1: no packet socket for LLDP: CAP_NET_RAW is missing"
    assert issubclass(Unavailable, Exception)
