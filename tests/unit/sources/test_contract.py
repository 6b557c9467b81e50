"""Roles of random machines are those of the label contract, read a second time.

`expected` is written after the rules in words (docs/labels.md, "Backend ports"), and not after
agent/sources: plain lists, one rule behind the other. The machines have GPUs and NICs behind
switches or alone, rails, storage, front ends and NICs without RDMA, with every port read.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model import RdmaDevice
from agent.sysfs.bus import Function
from tests.support.devices import decide
from tests.support.random_machine import Group, Machine, card, is_ethernet


def expected(machine: Machine) -> set[str]:
    candidates = without_front_end(machine)
    near = near_gpus(machine, candidates)
    candidates = near if is_decisive(machine, candidates) else candidates
    # 4: InfiniBand, but beside GPUs an Ethernet kind of three times its bandwidth
    infiniband = [one for one in candidates if not is_ethernet(one)]
    ethernet = [one for one in candidates if is_ethernet(one)]
    sizes = [machine.total(kind) for kind in machine.kinds(ethernet)]
    is_roce = bool(machine.gpus) and max(sizes, default=0) >= 3 * machine.total(infiniband)
    if infiniband and not machine.gpus:
        return {one.name for one in infiniband}
    # 5: the kind of the greatest bandwidth; a PSID splits one that is at no GPU, whose number does
    # not go with that of the GPUs, if a part has three quarters of that number
    parts: list[Group] = []
    gpus = len(machine.gpus)
    for whole in machine.kinds(infiniband if infiniband and not is_roce else ethernet):
        psids = {one.board_id for one in whole}
        split = [[one for one in whole if one.board_id == psid] for psid in sorted(map(str, psids))]
        largest, number = max(split, key=len), len(whole)
        is_odd = bool(gpus) and bool(number % gpus and gpus % number)
        is_apart = len(split) > 1 and not any(one in near for one in whole)
        if is_odd and is_apart and len(largest) * 4 >= gpus * 3:
            parts += [largest, [one for one in whole if one not in largest]]
        else:
            parts.append(whole)
    chosen = max(parts, key=lambda part: (machine.total(part), lowest(part)), default=[])
    return {one.name for one in chosen}


def without_front_end(machine: Machine) -> Group:
    """2: spare ports of the cards that carry the default route, which never had a link; then
    without GPU all that carry it, else of each kind a minority, or what is beside other NICs.
    """
    routed = [one for one in machine.devices if is_routed(one)]
    cards = {card(one.pci) for one in routed}
    left = [
        one
        for one in machine.devices
        if one in routed or not is_ethernet(one) or card(one.pci) not in cards or ups(one) != 0
    ]
    front: Group = []
    for mine in machine.kinds(routed):
        kind = machine.kind(mine[0])
        every = [one for one in left if machine.kind(one) == kind and is_ethernet(one)]
        others = [one for one in left if machine.kind(one) != kind and one not in routed]
        is_minority = len(mine) <= 2 and len(mine) * 2 <= len(every)
        is_beside = bool(others) and machine.total(others) * 4 >= machine.total(every)
        if not machine.gpus or is_minority or is_beside:
            front += mine
    return [one for one in left if one not in front]


def is_near(one: Function, gpu: Function) -> bool:
    return not set(one.bridges or ()).isdisjoint(gpu.bridges or ())


def near_gpus(machine: Machine, candidates: Group) -> Group:
    """3: those that are near a GPU, and those of the same PCI ids at the same place."""
    at = {one.name: machine.functions[one.pci or ""] for one in candidates}
    places = {
        (one.ids, one.bridge_ids)
        for one in at.values()
        if any(is_near(one, gpu) for gpu in machine.gpus)
    }
    return [one for one in candidates if (at[one.name].ids, at[one.name].bridge_ids) in places]


def is_decisive(machine: Machine, candidates: Group) -> bool:
    """3: two GPUs or more, three quarters have a NIC near, which is not one of the front end."""
    dropped = [one for one in machine.devices if one not in candidates]
    addresses = {one.pci for one in dropped}
    taken = {card(one.pci) for one in dropped} - {card(one.pci) for one in candidates}
    counted = [
        one
        for one in machine.functions.values()
        if one.code != 0x0302 and card(one.address) not in taken and one.address not in addresses
    ]
    served = [gpu for gpu in machine.gpus if any(is_near(one, gpu) for one in counted)]
    return len(machine.gpus) >= 2 and len(served) >= len(machine.gpus) * 0.75


def lowest(group: Group) -> str:
    """Return the lowest address, inverted: the lowest is the greatest."""
    return "".join(chr(0x7F - ord(one)) for one in min(one.pci or "" for one in group))


def is_routed(device: RdmaDevice) -> bool:
    netdev = device.ports[0].netdev
    return is_ethernet(device) and bool(netdev and netdev.default_route)


def ups(device: RdmaDevice) -> int | None:
    netdev = device.ports[0].netdev
    return netdev.carrier_up_count if netdev else None


@given(st.integers(min_value=0, max_value=2**32))
@settings(max_examples=200)
def test_the_roles_of_a_random_machine(seed: int) -> None:
    machine = Machine(seed)
    roles = decide(machine.devices, bus=machine.bus).roles
    assert {role.device.name for role in roles if role.backend} == expected(machine)
