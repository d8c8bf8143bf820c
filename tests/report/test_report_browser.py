"""The page in a browser, opened from disk."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic_ledger
from bitmaps import leave_out_bitmaps
from synthetic_ledger import HOSTILE

from ratecli.ledger.view import Ledger
from ratecli.report.html import write_joined
from ratecli.report.write import write_report

sync_api = pytest.importorskip("playwright.sync_api")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 600_000
"""Milliseconds after which a browser hangs, also on a slow and busy machine."""
INJECT = "\"><img src=x onerror=\"throw 'injected'\"><script>throw 'injected'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=found, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A folder with two experiments and a page over them; wherever text may be, some is hostile."""
    place = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        leave_out_bitmaps(patch)
        write_results(place)
    return place


def write_results(place: Path) -> None:
    known = synthetic_ledger.example()
    entry = {"algorithm": "majorize", "variant": "stochastic", "metric": "error", "split": "test"}
    expect = [
        entry | {"kappa": 0.5, "paper": 0.126, "within": 0.05, "source": f"Table 3 {INJECT}"},
        entry | {"kappa": 0.8, "paper": 0.3, "within": 0.01, "source": "Table 3"},
        entry | {"kappa": 0.9, "at_most": 0.5},
    ]
    stack = f"Traceback:\n  {HOSTILE}{INJECT}\n" + "  a long line " * 40
    told = {
        key: replace(each, reason=f"{each.reason} {INJECT}", info={"traceback": stack})
        if each.status == "error"
        else each
        for key, each in known.results.items()
    }
    experiment = {**known.experiment, "description": f"Why? {HOSTILE} {INJECT}", "expect": expect}
    data = {INJECT: {"rows": 4000, "digest": HOSTILE}}
    meta = {**known.meta, "experiment": experiment, "datasets": data, "warnings": [INJECT]}
    for name, report in (("first", experiment["report"]), ("second", {})):
        asked = experiment | {"name": name, "report": report}
        ledger = Ledger(known.plan, told, meta | {"experiment": asked})
        (place / name).mkdir()
        write_report(synthetic_ledger.store(place / name, ledger, ledger.plan))
    write_joined([place / "first", place / "second", place / "absent"], place / "report.html")


@pytest.fixture
def opened(browser, results):
    """Opens a page of the results; whatever went wrong with one fails the test at its end."""
    contexts, wrong = [], []

    def act(name="first/report.html", *, unfold=True, **options) -> sync_api.Page:
        context = browser.new_context(**{"viewport": WIDE, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: _only_files(asked.url, wrong))
        page.goto((results / name).as_uri())
        if unfold:
            page.evaluate(
                "document.querySelectorAll('.parts > details').forEach(e => e.open = true)"
            )
        return page

    yield act
    for context in contexts:
        context.close()
    assert wrong == []


def _only_files(address: str, wrong: list[str]) -> None:
    if not address.startswith(("file:", "data:")):
        wrong.append(address)


def sheet(page, title):
    return page.locator(".sheet", has=page.get_by_role("heading", name=title, exact=True))


def ground(page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def column(found, title) -> list[str]:
    """The texts of a column, of the rows that are seen."""
    heads = found.locator("thead th").all_inner_texts()
    at = next(k for k, text in enumerate(heads) if title in text) + 1
    return found.locator(f"tbody tr:not([hidden]) td:nth-child({at})").all_inner_texts()


@pytest.mark.parametrize("name", ["first/report.html", "report.html"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_page_is_no_wider_than_the_screen(opened, name, size):
    page = opened(name, viewport=size)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= size["width"]
    plots = page.locator(".plot").evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)")
    assert set(plots) <= {0}
    assert page.locator("h1").is_visible()


def test_a_click_or_key_on_a_column_head_sorts_by_the_mean(opened):
    page = opened()
    found = sheet(page, "Table 1 (test)")
    head = found.locator("th", has_text="error")
    head.get_by_role("button").click()
    means = [float(text.split(" ")[0]) for text in column(found, "error") if text]
    assert means == sorted(means)
    assert len(means) > 20
    assert column(found, "error")[-1] == "", "without a number last"
    assert head.get_attribute("aria-sort") == "ascending"
    head.get_by_role("button").press("Enter")
    assert [float(text.split(" ")[0]) for text in column(found, "error") if text] == means[::-1]
    assert column(found, "error")[-1] == ""
    assert head.get_attribute("aria-sort") == "descending"


def test_words_filter_rows(opened):
    page = opened()
    found = sheet(page, "Table 1 (test)")
    box = found.get_by_role("searchbox")
    every = len(column(found, "algorithm"))
    box.fill("MAJ stoch")
    assert set(column(found, "algorithm")) == {"majorize"}
    assert set(column(found, "variant")) == {"stochastic"}
    assert found.locator(".shown").inner_text() == f"6 of {every} rows"
    box.fill("")
    assert len(column(found, "algorithm")) == every


def test_links_open_folded_parts(opened):
    page = opened(unfold=False)
    table = sheet(page, "Table 1 (test)")
    assert not table.is_visible()
    page.get_by_role("link", name="Tables", exact=True).click()
    assert table.is_visible()


def test_rows_on_a_phone_are_cards_of_labelled_numbers(opened):
    page = opened(viewport=PHONE)
    cells = page.locator("#answer tbody tr").first.locator("td")
    titles = cells.evaluate_all("cells => cells.map(cell => cell.dataset.title)")
    assert titles == [
        "kappa",
        "best model",
        "error",
        "cost",
        "expected",
        "verdict",
        "measured",
    ]
    for cell in cells.all():
        box = cell.bounding_box()
        assert box["x"] + box["width"] <= PHONE["width"]
        assert box["x"] >= 0


def test_the_button_changes_light_to_dark_and_back(opened):
    page = opened(color_scheme="light")
    before = ground(page)
    assert before == "rgb(255, 255, 255)"
    assert ground(opened(color_scheme="dark")) == "rgb(21, 24, 27)"
    page.get_by_role("button", name="Dark", exact=True).click()
    assert ground(page) == "rgb(21, 24, 27)"
    plot = page.locator(".canvas svg").first.evaluate("svg => getComputedStyle(svg).filter")
    assert plot == "invert(0.91) hue-rotate(180deg)"
    page.get_by_role("button", name="Light", exact=True).click()
    assert ground(page) == before


def test_print_expands_everything_and_is_light(opened):
    page = opened(color_scheme="dark", unfold=False)
    stack, fold = page.locator("td pre").first, page.locator("#provenance pre").first
    assert not stack.is_visible()
    assert not fold.is_visible()
    page.emulate_media(media="print")
    assert stack.is_visible()
    assert fold.is_visible()
    assert ground(page) == "rgb(255, 255, 255)"
    cut = "boxes => boxes.filter(box => getComputedStyle(box).overflowY !== 'visible').length"
    assert page.locator(".scroll, .plot").evaluate_all(cut) == 0
    assert not page.locator("nav").is_visible()
    page.emulate_media(media="screen")
    sync_api.expect(fold).to_be_hidden()
