from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.inert import pytest_collection  # noqa: F401 - a hook

# Tests assert no times: the load of the machine is no property of the code under test.
# The same examples in every run: `nox -s explore` searches for others.
settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.register_profile(
    "explore",
    deadline=None,
    derandomize=False,
    database=None,
    print_blob=True,
    max_examples=500,
)
settings.load_profile("fixed")  # before --hypothesis-profile, which loads another one

# jsonschema imports it for the formats of IRIs, if it is there: 38 grammars, two seconds of each
# process. `python -m release`, whose schema has such formats, is tested as a process of its own.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite expected.labels of every machine"
    )
    parser.addoption(
        "--sweep", action="store_true", help="run the tests marked sweep, and no others"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests marked `sweep` if --sweep is given, else the others."""
    wanted = bool(config.getoption("--sweep"))
    left = [one for one in items if (one.get_closest_marker("sweep") is not None) is not wanted]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [one for one in items if (one.get_closest_marker("sweep") is not None) is wanted]


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> Path:
    return request.config.rootpath
