"""The page of a fleet in a real browser: shown, printed, filtered, and judged by axe-core."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.cabling.finding import PortRef
from agent.fleet.model import Judged
from agent.fleet.page.render import page
from tests.support import judged
from tests.support.chromium import Page, chromium, missing
from tests.support.real_parts import lacks, require


def _long() -> Judged:
    fleet = judged.fleet(64, 32)
    for number in range(1, 65):
        fleet = judged.pulled(fleet, PortRef(f"gpu-{number:03}", "mlx5_0"))
    return fleet


def _thirty() -> Judged:
    fleet = judged.fleet(300, 30)
    for number in range(30):
        one, other = (PortRef(f"gpu-{9 * number + at:03}", "mlx5_3") for at in (1, 2))
        fleet = judged.swapped(fleet, one, other)
    return fleet


FLEETS: dict[str, Callable[[], Judged]] = {
    "faulty": judged.faulty,
    "large": lambda: judged.faulty(1000, 32),
    "hostile": judged.hostile,
    "clean": lambda: judged.fleet(24, 8),
    "long": _long,
    "thirty": _thirty,
    "empty": lambda: judged.fleet(0, 8),
}
SHOWN = "[...document.querySelectorAll('.work > tbody > tr')].filter(row => !row.hidden).length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    require(missing())
    with chromium() as page:
        yield page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of a fleet, by its name."""
    folder = tmp_path_factory.mktemp("pages")

    def made(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page(FLEETS[name]()), encoding="utf-8")
        return path

    return made


@pytest.fixture
def opened(browser: Page, pages: Callable[[str], Path]) -> Page:
    browser.size(1300)
    browser.scheme("light")
    browser.open(pages("faulty"))
    return browser


def complaints(browser: Page) -> list[object]:
    """Return what the browser has to say: exceptions, console lines, what its policy refused."""
    kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    return [event["params"] for event in browser.seen(*kinds)]


def requests(browser: Page) -> list[str]:
    """Return the addresses that were asked for, without the file itself."""
    events = browser.seen("Network.requestWillBeSent")
    addresses = [event["params"]["request"]["url"] for event in events]
    return [one for one in addresses[1:] if one != "data:,"]


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("faulty", 1300, "light"),
        ("hostile", 400, "dark"),
        *(
            pytest.param(*one, marks=pytest.mark.sweep)
            for one in (
                ("faulty", 1300, "dark"),
                ("faulty", 400, "light"),
                ("clean", 1300, "light"),
                ("empty", 1300, "light"),
                ("large", 1300, "light"),
            )
        ),
    ],
)
def test_is_accessible_and_silent(
    browser: Page, pages: Callable[[str], Path], name: str, width: int, scheme: str
) -> None:
    """No violation of WCAG 2 A or AA, no error, no request, and nothing wider than the window."""
    browser.size(width)
    browser.scheme(scheme)
    browser.open(pages(name))
    assert browser.axe() == []
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert not complaints(browser)
    assert not requests(browser)


def test_open_groups_are_accessible(browser: Page, pages: Callable[[str], Path]) -> None:
    """The same with hostile names and everything open that can be opened."""
    browser.size(1300)
    browser.scheme("light")
    browser.open(pages("hostile"))
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.axe() == []


def test_hostile_names_run_nothing(browser: Page, pages: Callable[[str], Path]) -> None:
    """No name becomes an element, an attribute or a dialog."""
    browser.open(pages("hostile"))
    assert browser.run("document.querySelectorAll('img, script, style, [onload]').length") == 2
    assert browser.run("document.querySelectorAll('a:not([href^=\"#\"])').length") == 0
    assert not browser.seen("Page.javascriptDialogOpening")
    assert not complaints(browser)


def test_the_policy_refuses_what_is_added(opened: Page) -> None:
    """A script or a picture that got in would not run or load."""
    opened.run("""
        document.body.insertAdjacentHTML('beforeend', '<img src="http://127.0.0.1:9/x.png">');
        const script = document.createElement('script');
        script.textContent = 'window.bad = 1';
        document.body.append(script);
        new Promise(done => setTimeout(done, 200))
    """)
    assert opened.run("window.bad") is None
    assert "Content Security Policy" in str(complaints(opened))


def test_without_script(browser: Page, pages: Callable[[str], Path]) -> None:
    """Findings, pictures and matrices are there, and no control that would do nothing."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages("faulty"))
        browser.call("DOM.enable")
        visible = browser.call("Page.createIsolatedWorld", frameId=_frame(browser))
        count = browser.call(
            "Runtime.evaluate",
            contextId=visible["executionContextId"],
            expression=f"{SHOWN} + ':' + document.querySelectorAll('details[open] td').length "
            "+ ':' + document.querySelectorAll('button').length "
            "+ ':' + getComputedStyle(document.getElementById('tools')).display",
        )
        rows, cells, buttons, tools = count["result"]["value"].split(":")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert int(rows) == 7
    assert int(cells) > 2 * 8 * 8
    assert (buttons, tools) == ("2", "none")


def _frame(browser: Page) -> str:
    return str(browser.call("Page.getFrameTree")["frameTree"]["frame"]["id"])


def test_sorts_by_keyboard(opened: Page) -> None:
    """Tab leads past the skip link to a heading; Enter sorts up, then down."""
    opened.press("Tab")
    assert opened.run("document.activeElement.className") == "skip"
    assert opened.run("document.activeElement.getBoundingClientRect().left >= 0")
    for _ in range(30):
        opened.press("Tab")
        if opened.run("document.activeElement.textContent.trim()") == "Severity":
            break
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert opened.run(outline) == "solid"
    severities = "[...document.querySelectorAll('#work ~ table .sign')].map(x => x.textContent)"
    opened.press("Enter")
    assert opened.run("document.activeElement.parentNode.ariaSort") == "ascending"
    assert opened.run(severities)[-1] == "! warning"
    opened.press("Enter")
    assert opened.run("document.activeElement.parentNode.ariaSort") == "descending"
    assert opened.run(severities)[0] == "! warning"


def test_filters(opened: Page) -> None:
    """Rows without the text are hidden, and groups without such rows."""
    opened.run("""
        const filter = document.getElementById('filter');
        filter.value = 'gpu-009';
        filter.dispatchEvent(new Event('input'));
        new Promise(done => setTimeout(done, 400))
    """)
    assert opened.run(SHOWN) == 2
    hidden = "[...document.querySelectorAll('.group')].map(one => one.hidden)"
    assert opened.run(hidden) == [True, False, True]
    assert "1 of 3 groups" in opened.run("document.getElementById('status').textContent")


def test_a_link_opens_its_group(opened: Page) -> None:
    """A closed group opens when the overview leads to it."""
    assert opened.run("document.getElementById('g3').open") is False
    opened.run("document.querySelector('a[href=\"#g3\"]').click()")
    opened.run("new Promise(done => setTimeout(done, 100))")
    assert opened.run("document.getElementById('g3').open") is True


def test_ticks_survive_a_reload(opened: Page, pages: Callable[[str], Path]) -> None:
    """What was ticked is ticked after the tab was thrown away."""
    opened.run("document.getElementById('d2').click()")
    opened.open(pages("faulty"))
    assert opened.run("document.getElementById('d2').checked") is True
    opened.run("document.getElementById('d2').click()")


def test_prints_on_a4(opened: Page, tmp_path: Path) -> None:
    """A4 upright, every finding on the first page; the wiring if it is wanted."""
    printed = text_of(opened, tmp_path).split("\f")
    assert "(A4)" in _output("pdfinfo", tmp_path / "page.pdf")
    assert "Work list" in printed[0]
    assert all(f"gpu-{number:03}" in printed[0] for number in (2, 3, 5, 7, 9))
    assert "Filter" not in "".join(printed)
    assert re.search(r"1 ?/ ?\d", printed[0])
    assert len(printed) - 1 <= 2
    assert "Wiring matrix" not in "".join(printed)
    opened.run("document.getElementById('print-all').click()")
    printed = text_of(opened, tmp_path).split("\f")
    opened.run("document.getElementById('print-all').click()")
    assert "Wiring matrix" in "".join(printed)
    assert 3 <= len(printed) - 1 <= 6


def test_thirty_findings_are_a_few_sheets(
    browser: Page, pages: Callable[[str], Path], tmp_path: Path
) -> None:
    """Of 300 nodes: a row for each cable, no name broken."""
    browser.open(pages("thirty"))
    printed = text_of(browser, tmp_path)
    assert printed.count("\f") <= 4
    for number in range(30):
        assert re.search(rf"gpu-{9 * number + 1:03} mlx5_3 .*su\d\d-leaf\d\d/\d+", printed)


@pytest.mark.sweep
def test_headings_are_on_every_printed_page(
    browser: Page, pages: Callable[[str], Path], tmp_path: Path
) -> None:
    """A list of several pages has its headings on each, although a script made buttons of them."""
    browser.open(pages("long"))
    printed = text_of(browser, tmp_path).split("\f")
    for text in printed[:2]:
        assert re.search("Done +Cable +From +To +Finding", text)


def text_of(browser: Page, folder: Path) -> str:
    """Return the text of the printed page, a form feed after each sheet."""
    require(lacks("pdftotext"))
    (folder / "page.pdf").write_bytes(browser.pdf())
    return _output("pdftotext", "-layout", folder / "page.pdf", "-")


def _output(*command: object) -> str:
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True
    ).stdout
