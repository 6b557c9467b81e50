"""The recorded I/O of a snapshot: LLDP frames, SMP answers, NVML's answer, private flags.

    lldp/<netdev>.pcap or .pcapng      frames, with their times (agent/lldp/pcap.py)
    smp/<device>-<port>.json           requests and replies of one port, in hex (agent/helper)
    nvml.json                          NVML's answer (agent/nvml/library.py, look)
    host.json, "private_flags"         of the netdevs that were asked

A frame file that cannot be read fails its netdev, as a packet socket that cannot be opened does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.sysfs.reader import TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.host import Host
    from agent.lldp.frame import Frame
    from agent.snapshot.tree import Store

LLDP, SMP, NVML = "lldp", "smp", "nvml.json"


@dataclass(slots=True)
class RecordedIo:
    """The results recorded from a Host's I/O, and the I/O of a Host that replays them."""

    heard: dict[str, list[Frame]] = field(default_factory=dict)  # by netdev
    refused: dict[str, str] = field(default_factory=dict)
    answers: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    flags: dict[str, dict[str, bool]] = field(default_factory=dict)
    nvml: dict[str, Any] | None = None
    listened: bool = False  # the folder is there, with or without frames
    left_out: str | None = None  # what could not be written

    def frames(self, netdevs: Mapping[str, bool]) -> tuple[list[Frame], dict[str, str]]:
        """Everything that was heard on these netdevs, in the order of its times."""
        found = [frame for netdev in netdevs for frame in self.heard.get(netdev, ())]
        refused = {netdev: text for netdev, text in self.refused.items() if netdev in netdevs}
        return sorted(found, key=lambda frame: (frame.time, frame.netdev)), refused

    def ask_smp(self, ports: Sequence[tuple[str, int]]) -> dict[str, Any]:
        """The answers for these ports; one that was not recorded is missing."""
        return {"ports": [self.answers[port] for port in ports if port in self.answers]}

    def private_flags(self, netdev: str) -> dict[str, bool]:
        """The flags of a netdev's driver."""
        return self.flags.get(netdev, {})

    def gpus(self) -> dict[str, Any]:
        """NVML's answer."""
        if self.nvml is None:
            raise Unavailable("the snapshot holds no answer of NVML")
        return self.nvml

    def newest(self) -> float | None:
        """When the last frame came."""
        return max((frame.time for frames in self.heard.values() for frame in frames), default=None)


def recording(host: Host) -> tuple[Host, RecordedIo]:
    """Return the host with I/O that is recorded, and the record."""
    io = RecordedIo()

    listen = host.frames
    io.listened = listen is not None

    def frames(netdevs: Mapping[str, bool]) -> tuple[list[Frame], dict[str, str]]:
        found, refused = listen(netdevs) if listen else ([], {})
        for frame in found:
            io.heard.setdefault(frame.netdev, []).append(frame)
        io.refused.update(refused)
        return found, refused

    def ask_smp(ports: Sequence[tuple[str, int]]) -> dict[str, Any]:
        answer = host.ask_smp(ports)
        io.answers.update(_by_port(answer))
        return answer

    def private_flags(netdev: str) -> dict[str, bool]:
        io.flags[netdev] = host.private_flags(netdev)
        return io.flags[netdev]

    def gpus() -> dict[str, Any]:
        io.nvml = host.gpus()
        return io.nvml

    return replace(
        host,
        frames=frames if listen else None,
        ask_smp=ask_smp,
        private_flags=private_flags,
        gpus=gpus,
    ), io


def _by_port(answer: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    try:
        return {(one["device"], one["port"]): one for one in answer["ports"]}
    except (KeyError, TypeError):
        return {}  # whoever asked will say so


def save(io: RecordedIo, folder: Path) -> None:
    """Write frames and answers into a snapshot."""
    if io.listened:
        (folder / LLDP).mkdir()
    from agent.lldp import pcap

    for netdev, frames in io.heard.items():
        try:
            _write(folder / LLDP / f"{netdev}.pcap", pcap.write(frames))
        except Unavailable as error:
            io.left_out = str(error)
    for (device, port), answer in io.answers.items():
        _write(
            folder / SMP / f"{device}-{port}.json", json.dumps(answer, indent=2).encode() + b"\n"
        )
    if io.nvml is not None:
        _write(folder / NVML, json.dumps(io.nvml, indent=2).encode() + b"\n")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def load(store: Store, flags: Any) -> RecordedIo:
    """Load the recorded I/O; raises Malformed for malformed answers or flags."""
    io = RecordedIo(flags=_flags(flags), listened=store.kind(LLDP) == "folder")
    for name in _files(store, LLDP):
        netdev, _, kind = name.rpartition(".")
        if kind in {"pcap", "pcapng"}:
            _load_frames(io, netdev, store, f"{LLDP}/{name}")
    for name in _files(store, SMP):
        answer = _answer(name, _bytes(store, f"{SMP}/{name}", TABLE))
        io.answers[answer["device"], answer["port"]] = answer
    if store.kind(NVML) == "file":
        io.nvml = _object(NVML, _bytes(store, NVML, TABLE))
    return io


def _files(store: Store, folder: str) -> list[str]:
    names = sorted(store.names(folder)) if store.kind(folder) == "folder" else []
    return [name for name in names if store.kind(f"{folder}/{name}") == "file"]


def _bytes(store: Store, path: str, limit: int) -> bytes:
    data = store.read(path, limit + 1)
    if len(data) > limit:
        raise Malformed(f"{path}: longer than {limit} bytes")
    return data


def _load_frames(io: RecordedIo, netdev: str, store: Store, path: str) -> None:
    from agent.lldp import (
        pcap,  # with it comes the decoder, which a snapshot without frames does not need
    )

    try:
        frames, fault = pcap.read(netdev, _bytes(store, path, pcap.MAX_FILE_SIZE))
    except Malformed as error:
        frames, fault = [], str(error).removeprefix(f"{path}: ")
    io.heard.setdefault(netdev, []).extend(frames)
    if fault:
        io.refused[netdev] = f"{path}: {fault}"


def _answer(name: str, data: bytes) -> dict[str, Any]:
    answer = _object(f"{SMP}/{name}", data)
    if not isinstance(answer.get("device"), str):
        raise Malformed(f"{SMP}/{name}: no answer of a port: 'device' is no text")
    if not isinstance(answer.get("port"), int):
        raise Malformed(f"{SMP}/{name}: no answer of a port: 'port' is no number")
    return answer


def _object(path: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path}: no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed(f"{path}: no JSON object")
    return value


def _flags(flags: Any) -> dict[str, dict[str, bool]]:
    fits = isinstance(flags, dict) and all(
        isinstance(of_netdev, dict) for of_netdev in flags.values()
    )
    if not fits:
        raise Malformed("host.json: 'private_flags' is no object of objects")
    return dict(flags)
