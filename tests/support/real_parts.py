"""Skipping of tests whose real parts a host lacks; the project's own CI must have them all."""

from __future__ import annotations

import os

import pytest


def require(missing: str | None) -> None:
    """Skip the test when a part is missing, with the reason; fail it in CI, where a skip would hide
    it for ever.
    """
    if missing is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)
