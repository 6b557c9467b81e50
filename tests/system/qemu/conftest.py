"""The boot of the emulated machine that several files share."""

from __future__ import annotations

import pytest

from tests.support import switch
from tests.support.qemu.machine import missing
from tests.support.qemu.shared import Shared, boot
from tests.support.real_parts import require


@pytest.fixture(scope="package")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Boot once, for the files of which there are tests."""
    require(missing() or switch.missing())
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "file"
    files = {item.path.stem for item in request.session.items}
    return boot(tmp_path_factory.mktemp("shared"), elsewhere, files)
