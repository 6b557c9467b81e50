"""Each fault with each change of the node: no label is wrong, in whatever order they come.

`python -m tests.simulation --combinations ""` runs all of the product.
"""

from __future__ import annotations

import pytest

from tests.simulation.combinations import Case, cases, run

PAIRS = [*cases(every=False)]
STEP = 31  # one pair of so many; the sweep takes all


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if number % STEP == 0 else pytest.mark.sweep)
        for number, case in enumerate(PAIRS)
    ],
    ids=str,
)
def test_no_order_of_fault_and_change_makes_a_label_wrong(case: Case) -> None:
    """The agent is killed, and the node boots again, in between or not."""
    report = run(case)
    assert not report.violations, report.told()
