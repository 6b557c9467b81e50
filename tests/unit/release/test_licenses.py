"""Which parts may be shipped."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from release.errors import Refused
from release.licenses import checked, is_allowed, listing, policy
from release.parts import Part, python_part

ALLOW = ["MIT", "Apache-2.0", "GPL-3.0-or-later WITH GCC-exception-3.1"]


def part(name: str, stated: str | None, kind: str = "pypi") -> Part:
    return Part(kind, name, "1", f"pkg:{kind}/{name}@1", stated)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("MIT", True),
        ("GPL-3.0-or-later", False),
        ("MIT AND Apache-2.0", True),
        ("MIT AND GPL-2.0-only", False),
        ("MIT OR GPL-2.0-only", True),
        ("GPL-2.0-only OR LGPL-2.1-only", False),
        ("(GPL-2.0-only OR MIT) AND Apache-2.0", True),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", True),
        ("GPL-2.0-or-later WITH Classpath-exception-2.0", False),
        ("Apache-2.0 WITH LLVM-exception", False),
    ],
)
def test_expressions(expression: str, result: bool) -> None:
    """AND needs all, OR one, and a license with an exception is a license of its own."""
    assert is_allowed(expression, ALLOW) is result


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (part("copyleft", "GPL-3.0-only"), "copyleft: GPL-3.0-only is not allowed"),
        (part("odd", "BSD"), "odd: 'BSD' is no SPDX expression"),
        (part("odd", "((("), "odd: '(((' is no SPDX expression"),
        (part("odd", "Permission\nis hereby"), "odd: 'Permission' is no SPDX expression"),
        (part("silent", None), "silent: its metadata states no license"),
        (part("silent", " "), "silent: its metadata states no license"),
        (part("libfoo1", None, "deb"), "libfoo1: a Debian package without an entry"),
        (part("certifi", "GPL-3.0-only"), "certifi: GPL-3.0-only is not allowed"),
        (part("libc6", "MIT", "generic"), "libc6: MIT is not allowed"),
    ],
)
def test_parts_that_may_not_be_shipped(one: Part, said: str) -> None:
    """The error names the part and what is wrong. An exception is for one license, not for what
    the package has later.
    """
    rules = policy() | {"allow": ["Apache-2.0"]}
    with pytest.raises(Refused, match=re.escape(said)):
        checked([one], rules)


def test_all_faults_are_named() -> None:
    """One run tells everything that has to be decided."""
    with pytest.raises(Refused, match=r"a: .*; b: "):
        checked([part("a", None), part("good", "MIT"), part("b", "GPL-2.0-only")])


def test_the_listing() -> None:
    """One line a part; what is an exception has its reason."""
    found = checked(
        [part("x", "mit"), part("pyudev", "LGPL-2.1-or-later"), part("libssl3", None, "deb")]
    )
    lines = listing(found).splitlines()
    assert lines[0] == "x\t1\tMIT"
    assert lines[1].startswith("pyudev\t1\tLGPL-2.1-or-later\timported")
    assert lines[2] == "libssl3\t1\tApache-2.0\tOpenSSL 3"


def test_no_exception_is_a_copyleft_python_package_but_pyudev() -> None:
    """The image has no GPL-only Python package, by the policy itself."""
    rules = policy()
    named = {name: entry["license"] for name, entry in rules["exceptions"].items()}
    assert {name for name, text in named.items() if "GPL" in text} == {"pyudev"}
    assert not [text for text in [*rules["allow"], *rules["declared"].values()] if "GPL" in text]


def test_every_exception_has_a_reason() -> None:
    """An exception without a reason cannot be reviewed."""
    rules = policy()
    for table in (rules["exceptions"], rules["debian"]):
        assert all(entry["license"] and entry["reason"] for entry in table.values())


def test_what_is_pinned_may_be_shipped(repository: Path) -> None:
    """The image's packages, as far as they are installed here, pass the check."""
    text = (repository / "manifests/image/requirements.txt").read_text()
    found = []
    for name in re.findall(r"^([a-z0-9.-]+)==", text, re.MULTILINE):
        try:
            found.append(python_part(distribution(name)))
        except PackageNotFoundError:
            continue
    assert {"click", "kubernetes"} <= {one.name for one in found}
    assert len(checked(found)) == len(found)
