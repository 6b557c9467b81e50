"""The program of a socket for all ethertypes."""

from __future__ import annotations

from agent.lldp.packet_socket import lldp_program

JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ, include/uapi/linux/bpf_common.h


def test_the_filter_jumps_forward_only() -> None:
    """The kernel would refuse it otherwise; and both ends are reached."""
    program = lldp_program()
    jumps = [
        (at, true, false)
        for at, (code, true, false, _) in enumerate(program)
        if code == JUMP_IF_EQUAL
    ]
    targets = {at + 1 + jump for at, true, false in jumps for jump in (true, false)}
    assert {len(program) - 1, len(program) - 2} < targets <= set(range(len(program)))
