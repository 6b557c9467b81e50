"""The classic BPF program that passes LLDP frames only (Documentation/networking/filter.rst).

At each of the three offsets of an ethertype, after no VLAN tag, one or two, a block of instructions
loads the ethertype and compares it: LLDP accepts the frame, a TPID continues with the next block,
anything else rejects the frame. The last two instructions accept and reject.
"""

from __future__ import annotations

from agent.lldp.frame import ETHERTYPE, TPIDS

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

OFFSETS = (12, 16, 20)  # of the ethertype
# include/uapi/linux/bpf_common.h
_LDH_ABS = 0x28  # BPF_LD | BPF_H | BPF_ABS
_JEQ = 0x15  # BPF_JMP | BPF_JEQ
_RET = 0x06  # BPF_RET
_BLOCK = 2 + len(TPIDS)  # instructions: load, compare with LLDP and with each TPID
_ACCEPT = len(OFFSETS) * _BLOCK  # the index of an instruction, as the next
_REJECT = _ACCEPT + 1
_WHOLE_FRAME = 0xFFFFFFFF  # octets to pass


def lldp_program() -> list[Instruction]:
    """Return the program."""
    program: list[Instruction] = []
    for offset in OFFSETS:
        program += _block(len(program), offset)
    return [*program, (_RET, 0, 0, _WHOLE_FRAME), (_RET, 0, 0, 0)]


def _block(start: int, offset: int) -> list[Instruction]:
    """Return the block at an index, which examines the ethertype at an offset of the frame."""
    tagged = start + _BLOCK if offset != OFFSETS[-1] else _REJECT
    targets = [(ETHERTYPE, _ACCEPT), *((tpid, tagged) for tpid in TPIDS)]
    compares = [_compare(at, *target) for at, target in enumerate(targets, start + 1)]
    return [(_LDH_ABS, 0, 0, offset), *compares]


def _compare(at: int, ethertype: int, target: int) -> Instruction:
    """Return the instruction that jumps to `target` if the frame has this ethertype.

    Otherwise the next instruction follows; after the last comparison of a block, rejection.
    """
    otherwise = _REJECT if ethertype == TPIDS[-1] else at + 1
    return _JEQ, target - at - 1, otherwise - at - 1, ethertype
