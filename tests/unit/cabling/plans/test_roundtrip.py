"""Plans of every kind are read as they were written, in any order of rows, columns and ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cabling.plans import headers
from agent.cabling.plans.model import End, PlanCable, date_fault
from agent.cabling.plans.sheets import BLANK
from tests.support import plans

Writer = Callable[[Sequence[PlanCable]], str]


DOUBLED = ("doubled", "hosts")
CARRIED = ("Label", "Length", "PN")
ODD = {headers.key(name) for form in plans.FORMS.values() for name in form}
# Names as sites have them: letters of any language, digits, the punctuation of port names.
TEXT = (
    st.text(
        st.characters(categories=("L", "N"), include_characters="-_./: @"), min_size=1, max_size=12
    )
    .map(str.strip)
    .filter(lambda text: text and headers.key(text) not in ODD)
    .filter(lambda text: not date_fault(text) and text not in BLANK)
)
WORD = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9]", fullmatch=True)
PLACE = st.none() | st.from_regex(r"[A-Z]?[0-9]{1,3}", fullmatch=True)
RATE = st.sampled_from([None, 100.0, 200.0, 400.0, 800.0])
MARK = st.sampled_from([None, "ignore", "link-state-only"])
FIELDS = st.dictionaries(st.sampled_from(CARRIED), TEXT, max_size=3)


@st.composite
def cables(
    draw: st.DrawFn, *, rated: bool = False, marked: bool = False, placed: bool = False
) -> list[PlanCable]:
    """Cables between ports of which none occurs twice."""
    ends = draw(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=12, unique=True))
    found = []
    for (node, port), (far, far_port) in zip(ends[::2], ends[1::2], strict=False):
        racks = [draw(PLACE) for _ in range(4)] if placed else [None] * 4
        found.append(
            PlanCable(
                End(node, port, None, racks[0], racks[1]),
                End(far, far_port, None, racks[2], racks[3]),
                plans.NOWHERE,
                draw(RATE) if rated else None,
                draw(MARK) if marked else None,
                draw(FIELDS) if placed else {},
            )
        )
    return found


@st.composite
def fabric(draw: st.DrawFn, rate: float | None = 400.0) -> list[PlanCable]:
    """Cables between ports of InfiniBand switches, by number, and HCAs."""
    leaves = draw(st.lists(WORD, min_size=1, max_size=3, unique=True))
    hosts = draw(
        st.lists(WORD.filter(lambda w: w not in leaves), min_size=1, max_size=6, unique=True)
    )
    return [
        plans.cable(f"{leaves[i % len(leaves)]} {i + 1}", f"{host} mlx5_{i}", rate_gbps=rate)
        for i, host in enumerate(hosts)
    ]


def read(content: str) -> list[object]:
    return plans.of(plans.read(content))


def permuted(draw: st.DataObject) -> Callable[[list[int]], list[int]]:
    return lambda columns: draw.draw(st.permutations(columns))


def cased(data: st.DataObject, row: list[str]) -> list[str]:
    """Return a header in a mixture of cases, but for the columns that are carried through."""
    return [
        name if name in CARRIED else data.draw(st.sampled_from([name, name.upper(), name.lower()]))
        for name in row
    ]


@pytest.mark.slow
@settings(max_examples=20)
@given(st.data(), st.sampled_from([form for form in plans.FORMS if form not in DOUBLED]))
def test_sheets_in_any_order(data: st.DataObject, form: str) -> None:
    """Rows and columns may be in any order, the header in any case, with any separator."""
    placed = form in {"sided", "suffix"}
    written = data.draw(cables(rated=True, marked=True, placed=placed))
    table = plans.rows(data.draw(st.permutations(written)), form, permuted(data))
    table[0] = cased(data, table[0])
    separator = data.draw(st.sampled_from(",;\t|"))
    assert read(plans.csv_text(table, separator)) == plans.meaning(written)


@settings(max_examples=20)
@given(st.data(), st.sampled_from(DOUBLED))
def test_doubled_headers(data: st.DataObject, form: str) -> None:
    """The columns of each end may be in any order within its half; either end may be the left."""
    written = data.draw(cables(rated=True, placed=form == "doubled"))
    turned = [plans.swapped(one) for one in written] if data.draw(st.booleans()) else written
    assert read(plans.csv_text(plans.rows(turned, form, permuted(data)))) == plans.meaning(written)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.data())
def test_workbooks(data: st.DataObject) -> None:
    """Several sheets of different forms are read, each as a plan of its own."""
    written = data.draw(cables(placed=True))
    pages = {"One": plans.rows(written, "sided"), "Two": plans.rows(written, "doubled")}
    found = plans.read(plans.workbook(pages))
    assert [plan.sheet for plan in found] == ["One", "Two"]
    assert all(plans.of([plan]) == plans.meaning(written) for plan in found)


@pytest.mark.slow
@pytest.mark.parametrize("write", [plans.netbox, plans.netbox_before_3_3, plans.dot])
@settings(max_examples=20)
@given(data=st.data())
def test_names_of_any_kind(write: Writer, data: st.DataObject) -> None:
    """JSON and DOT hold any name; the order of cables and of ends is of no account."""
    written = data.draw(cables(marked=write in (plans.netbox, plans.dot)))
    turned = [
        plans.swapped(one) if data.draw(st.booleans()) else one
        for one in data.draw(st.permutations(written))
    ]
    assert read(write(turned)) == plans.meaning(written)


@pytest.mark.slow
@pytest.mark.parametrize("write", [plans.ibnetdiscover, plans.iblinkinfo])
@settings(max_examples=20)
@given(data=st.data())
def test_infiniband_fabrics(write: Writer, data: st.DataObject) -> None:
    """Topologies and dumps give each cable once, though they list it at both ends."""
    written = data.draw(fabric())
    found = plans.read(write(data.draw(st.permutations(written))))
    bare = [
        one._replace(a=End(*one.a[:2]), b=End(*one.b[:2]), fields={})
        for plan in found
        for one in plan.cables
    ]
    assert plans.meaning(bare) == plans.meaning(written)
