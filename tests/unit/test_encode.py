"""Label values and keys, checked against published hash vectors and the rules of Kubernetes, which
are written here a second time.
"""

from __future__ import annotations

import re
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import encode
from agent.errors import Malformed

# apimachinery/pkg/util/validation: labelValueFmt, qualifiedNameFmt, dns1123SubdomainFmt.
LABEL_VALUE = re.compile(r"\A(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
KEY_NAME = re.compile(r"\A([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
KEY_PREFIX = re.compile(r"\A[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")

NAME_FAULT = (
    "its name part may contain letters, digits, '.', '_' and '-', "
    "and must begin and end with a letter or digit"
)

# Of the test vectors that the algorithm's authors publish (test_fnv.c, fnv_1a_64_vector).
AUTHORS = [
    (b"", 0xCBF29CE484222325),
    (b"a", 0xAF63DC4C8601EC8C),
    (b"b", 0xAF63DF4C8601F1A5),
    (b"c", 0xAF63DE4C8601EFF2),
    (b"fo", 0x08985907B541D342),
    (b"foo", 0xDCB27518FED9D577),
    (b"foob", 0xDD120E790C2512AF),
    (b"fooba", 0xCAC165AFA2FEF40A),
    (b"foobar", 0x85944171F73967E8),
    (b"\0", 0xAF63BD4C8601B7DF),
    (bytes.fromhex("d56bb95342870836"), 0),  # the shortest input whose hash is zero
]

# Each printed by Go 1.26: h := fnv.New64a(); h.Write([]byte(s)); fmt.Sprintf("x%x", h.Sum64()).
GO = [
    ("a" * 64, "xdb007849f35ebbe5"),
    ("a" * 65, "x8087e9a889f8a14c"),
    ("0123456789" * 10, "x96eba2c6d6276bbd"),
    ("leaf-01.rack-07.row-3.hall-b." * 3, "xa43fa549e8eac2f2"),
    ("Ethernet1/1 " * 6, "x685a765df0fb0e55"),
    ("-" * 64, "xf6a76d32429ee465"),
    (" " * 64, "x53d4d47c45f8c825"),
    ("leaf14." + "dc" * 30, "x89e88c6e2032c82"),  # 15 digits: the leading zero is not printed
    ("leaf86." + "dc" * 30, "x40963057aca3107"),
    ("\u00e9" * 64, "x88ecaff1e854825"),  # bytes of UTF-8, not code points
    ("\u00e9" * 40, "xb455665747c74705"),  # and bytes are counted: 80 of them
    ("\u4ea4\u6362\u673a" * 22, "x3b6f73313e23df3"),
    # Topograph's own test of a long name: pkg/translate/output.go and
    # pkg/engines/k8s/labeler_test.go.
    ("S3very-very-long-id-to-check-label-value-limits-of-63-characters", "xf946c4acef2d5939"),
]

VALUES = [
    ("L90.1.3", "L90.1.3"),
    ("Ethernet1/1", "Ethernet1-1"),
    ("00:1c:73:aa:bb:cc", "00-1c-73-aa-bb-cc"),
    ("a" * 63, "a" * 63),
    ("a/" * 31, "-".join("a" * 31)),
    ("  spaced out  ", "spaced-out"),
    ("__.-x-.__", "x"),
    ("3200G", "3200G"),
    ("a\0b\nc", "a-b-c"),
    # letters and digits, but not ASCII's: without them these would be caf, t--2, 01, 01 and nothing
    ("caf\u00e9", "x48e8823acfa40d89"),
    ("\u00e9t\u00e9 2", "xb4dc19f6aaa021e5"),
    ("\u6771\u4eac-01", "x81d20dfe766e15c9"),
    ("\u5317\u4eac-01", "x4079fe22dac19757"),
    ("\u0663\uff21", "x81db5fc137087d95"),
    ("leaf\u2013\u2603", "leaf"),  # signs
    ("\udcff\u202e", ""),
    ("", ""),
    ("-", ""),
    ("/" * 63, ""),
]

KEYS = [
    "backend.coreweave.cloud/speed.current",
    "backend.coreweave.cloud/neighbors.current.mlx5_0-3.port-id",
    "a/b",
    "plain",
    "x/" + "n" * 63,
    "p" * 253 + "/n",
]
INVALID_KEYS = [
    *("", "/", "a/", "/a", "a/b/c", "a/b\n", "a\n/b", "A/b", "a_b/c", "-a/b", "a-/b", "a..b/c"),
    *(".a/b", "a/-b", "a/b.", "a/b c", "a/b/" + "n" * 63, "a/" + "n" * 64, "p" * 254 + "/n"),
    *("\u00e4/b", "a/\u00e4", "kubernetes.io/role", "node.kubernetes.io/role"),
    *("k8s.io/x", "x.k8s.io/x"),
]


@pytest.mark.parametrize(("data", "digest"), AUTHORS)
def test_hash_is_the_published_one(data: bytes, digest: int) -> None:
    assert encode.fnv1a_64(data) == digest


@pytest.mark.parametrize(("raw", "text"), GO)
def test_long_text_becomes_the_hash_that_go_prints(raw: str, text: str) -> None:
    """Without leading zeros, so that Topograph's value for the same switch is equal."""
    assert encode.value(raw) == text


@pytest.mark.parametrize(("raw", "text"), VALUES)
def test_values(raw: str, text: str) -> None:
    """Invalid characters become dashes, and both ends are trimmed; the hashes are Go's."""
    assert encode.value(raw) == text


@given(st.text(st.characters(), max_size=80) | st.text("a-._/\u00e9", max_size=80))
def test_any_text_becomes_a_valid_value_or_none(raw: str) -> None:
    """Any name of a neighbor becomes a valid value, and encoding that again changes nothing."""
    text = encode.value(raw)
    assert len(text) <= 63
    assert LABEL_VALUE.match(text)
    assert encode.value(text) == text


@given(st.text(st.characters(codec="utf-8"), min_size=64))
def test_the_hash_covers_the_whole_name(raw: str) -> None:
    """Names that differ only at their ends get different values."""
    step = reduce(
        lambda state, byte: (state ^ byte) * (2**40 + 0x1B3) % 2**64,
        raw.encode(),
        0xCBF29CE484222325,
    )
    assert encode.value(raw) == "x" + f"{step:016x}".lstrip("0").rjust(1, "0")


@given(st.from_regex(LABEL_VALUE).filter(lambda text: len(text) <= 63))
def test_a_valid_value_stays_as_it_is(text: str) -> None:
    assert encode.value(text) == text


@pytest.mark.parametrize("key", KEYS)
def test_keys(key: str) -> None:
    assert encode.key_fault(key) is None


@pytest.mark.parametrize("key", INVALID_KEYS)
def test_invalid_keys(key: str) -> None:
    """The fault of an invalid or reserved key is one short printable line."""
    fault = encode.key_fault(key)
    assert fault
    assert fault.isprintable()
    assert len(fault) < 200


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("a/" + "n" * 64, "its name part has 64 characters, 63 is the limit"),
        ("a/b c", NAME_FAULT),
        ("P" * 70 + "/n", f"'{'P' * 64}' is not a lower-case DNS name"),
        ("x.k8s.io/x", "'x.k8s.io' is reserved for Kubernetes"),
    ],
)
def test_faults(key: str, fault: str) -> None:
    assert encode.key_fault(key) == fault


def test_only_domains_of_kubernetes_are_reserved() -> None:
    """kubernetes.io and its subdomains, not every domain that ends in these letters."""
    assert encode.prefix_fault("node.kubernetes.io")
    assert encode.prefix_fault("my-kubernetes.io") is None
    assert encode.prefix_fault("kubernetes.io.example.com") is None


@given(
    st.text(st.characters(), max_size=70)
    | st.from_regex(r"[a-zA-Z0-9_.-]{0,70}/[a-zA-Z0-9_./-]{0,70}")
)
def test_a_key_without_fault_is_valid(key: str) -> None:
    """A DNS name, one slash, and a qualified name of at most 63 characters."""
    if encode.key_fault(key) is None:
        prefix, slash, name = key.partition("/")
        assert KEY_NAME.match(name if slash else prefix)
        assert len(name if slash else prefix) <= 63
        assert not slash or (KEY_PREFIX.match(prefix) and len(prefix) <= 253)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([f"ibleaf-su1-r{n}" for n in range(1, 9)], "ibleaf-su1-r1..8"),
        ([f"ibleaf-su001-r{n:02}" for n in range(1, 9)], "ibleaf-su001-r01..08"),
        ([f"leaf-number-{n:03}-of-pod-a" for n in (8, 9, 10)], "leaf-number-008..010-of-pod-a"),
        # 9 and 010 are not written alike
        ([f"a-very-long-name-of-leaf-{number}" for number in ("9", "010", "11")],
         "a-very-long-name-of-leaf-9_a-very-long-name-of-leaf-010_a-very-long-name-of-leaf-11"),
        # two are no range
        ([*(f"ibleaf-of-superpod-1-rail-{n}" for n in (1, 2, 5, 6, 7)), "z"],
         "ibleaf-of-superpod-1-rail-1_ibleaf-of-superpod-1-rail-2_ibleaf-of-superpod-1-rail-5..7_z"),
        # a name with `..` is in none
        ([f"a..very-long-name-of-a-leaf-{n}" for n in (1, 2, 3)],
         "a..very-long-name-of-a-leaf-1_a..very-long-name-of-a-leaf-2_a..very-long-name-of-a-leaf-3"),
        (["leaf1", "leaf2", "leaf3"], "leaf1_leaf2_leaf3"),
        (["", "leaf2", "leaf2"], "leaf2"),
    ],
)  # fmt: skip
def test_a_long_list_is_written_in_ranges(names: list[str], text: str) -> None:
    """Names that are consecutive in their last number; a short list stays as it is."""
    assert encode.ranged(names) == text


names_of_leaves = st.lists(
    st.tuples(st.sampled_from(["leaf", "su1-r", "a.", "x_"]), st.integers(0, 120),
              st.sampled_from(["", "-b"]), st.sampled_from([1, 2, 3])),
    max_size=30, unique=True,
)  # fmt: skip


@given(names_of_leaves)
def test_ranges_tell_their_names(found: list[tuple[str, int, str, int]]) -> None:
    """Different sets of names have different texts, and each name is found in its range."""
    names = {f"{head}{number:0{width}}{tail}" for head, number, tail, width in found}
    text = encode.ranged(names)
    for name in names:
        assert f"_{name}_" in f"_{text}_" or encode.is_in_range(name, text)
    assert not encode.is_in_range("leaf121", text)
    for name in list(names)[:3]:
        assert encode.ranged(names - {name}) != text


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("fabric.topograph.run/tier-{n}", ("tier-0", "tier-1", "tier-2")),
        ("network.topology.nvidia.com/{leaf,spine,core}", ("leaf", "spine", "core")),
        ("a.b/x-{n}.current", ("x-0.current", "x-1.current", "x-2.current")),
    ],
)
def test_the_keys_of_tiers(pattern: str, keys: tuple[str, ...]) -> None:
    """The leaf group, and the two tiers above it."""
    prefix = pattern.partition("/")[0]
    assert encode.tier_keys(pattern) == tuple(f"{prefix}/{name}" for name in keys)


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("", "neither one {n} nor one list"),
        ("a.b/tier", "neither one {n} nor one list"),
        ("a.b/tier-n", "neither one {n} nor one list"),
        ("a.b/{n", "neither one {n} nor one list"),
        ("a.b/{n}{n}", "neither one {n} nor one list"),
        ("a.{b,c,d}/tier", "neither one {n} nor one list in braces after its slash"),
        ("{a.b/x,a.b/y,a.b/z}", "neither one {n} nor one list"),
        ("a.b/{}", "has not three names"),
        ("a.b/{a,b}", "has not three names"),
        ("a.b/{a,b,c,d}", "has not three names"),
        ("a.b/tier{,a,b}", "has not three names"),
        ("a.b/{a,b,a}", "has 'a.b/a' for two tiers"),
        ("a.b/{a,,c}", "has not three names"),
        ("a.b/{a,b,.}", "'a.b/.': its name part"),
        ("a.b/{a,b ,c}", "'a.b/b ': its name part"),
        ("tier-{n}", "no prefix with a slash"),
        ("kubernetes.io/tier-{n}", "reserved for Kubernetes"),
        ("topology.k8s.io/{a,b,c}", "reserved for Kubernetes"),
        ("A.b/tier-{n}", "not a lower-case DNS name"),
        (f"a.b/{'x' * 63}{{n}}", "64 characters"),
        (f"{'a' * 254}/{{n}}", "not a lower-case DNS name"),
    ],
)
def test_no_keys_of_tiers(pattern: str, fault: str) -> None:
    with pytest.raises(Malformed) as caught:
        encode.tier_keys(pattern)
    assert fault in str(caught.value)
    assert len(str(caught.value)) < 300
