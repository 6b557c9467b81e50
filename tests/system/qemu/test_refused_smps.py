"""SMPs over libibumad on a real kernel that has no InfiniBand port."""

from __future__ import annotations

import json

import pytest

from tests.support.qemu.shared import Shared


@pytest.mark.parametrize("word", ["no-umad", "refused", "not-permitted"])
def test_a_real_kernel_refuses_in_words(shared: Shared, word: str) -> None:
    """Soft-RoCE without ib_umad, with it, and with a device node that we may not open."""
    [port] = json.loads((shared.results("test_refused_smps") / word).read_text())["ports"]
    assert port["error"] == word, port["text"]
