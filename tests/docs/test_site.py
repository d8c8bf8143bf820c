"""The site is built without a warning, works without a network, and covers every name."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import generate
import pytest
import typer.main

from ratecli.cli.app import app
from ratecli.config.experiment import json_schema
from ratecli.datasets.registry import list_sources
from ratecli.diagnostic_codes import CODES
from ratecli.experiment.registry import list_functions, list_metrics
from ratecli.experiment.schema import option_schemas
from ratecli.files import LEDGER_FILE
from ratecli.ledger.records import STATUSES
from ratecli.report.write import REPORT_FILES, REPORT_FOLDERS
from ratecli.solvers.registry import BUILT_IN_ALGORITHMS

ROOT = Path(__file__).parents[2]


class Found(HTMLParser):
    """The IDs, links, loaded files and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if given.get("id"):
            self.ids.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in {"script", "img", "iframe"} and given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in {"stylesheet", "preconnect", "preload", "icon"}:
            self.loads.append(given["href"])

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of the site by their path in it."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "ignore", "-m", "mkdocs", "build", "--strict", "-q", "-d"]
    command = [sys.executable, *options, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = {
        str(path.relative_to(folder)): Found(path.read_text("utf-8"))
        for path in folder.rglob("*.html")
    }
    assert len(pages) > 20
    return folder, pages


def test_every_link_has_a_target(site):
    folder, pages = site
    for name, page in pages.items():
        if name == "404.html":
            continue
        for link in (*page.links, *page.loads):
            address, _, anchor = unquote(link).partition("#")
            if address.startswith(("http://", "https://", "mailto:")):
                continue
            target = (folder / name).parent / address if address else folder / name
            assert target.exists(), (name, link)
            if anchor and target.suffix == ".html":
                there = str(target.resolve().relative_to(folder.resolve()))
                assert anchor in pages[there].ids, (name, link)


def test_no_page_loads_anything_from_the_network(site):
    folder, pages = site
    loaded = [load for page in pages.values() for load in page.loads]
    assert loaded
    assert not [load for load in loaded if re.match(r"(https?:)?//", load)]
    styles = "".join(path.read_text("utf-8") for path in folder.rglob("*.css"))
    assert not re.findall(r"url\(['\"]?https?:", styles)
    for path in folder.rglob("*.html"):
        assert "<!-- from:" not in path.read_text("utf-8")  # a comment for the tests


def test_the_pages_of_the_reference_are_those_of_the_code():
    stale = [
        path.name
        for path, text in generate.pages().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    assert not stale, f"run `make reference` and commit docs/reference: {stale} differ"


@pytest.mark.parametrize("status", STATUSES)
def test_statuses_are_documented_as_shown(status):
    text = (ROOT / "docs" / "reference" / "results.md").read_text("utf-8")
    assert f"| `{status}` | {STATUSES[status]} |\n" in text


def test_the_reference_contains_every_name(site):
    _, pages = site
    text = {name: pages[f"reference/{name}.html"].text for name in
            ("rates", "algorithms", "datasets", "errors", "yaml", "cli", "results")}  # fmt: skip
    for row in (*list_metrics(), *list_functions()):
        assert row["name"] in text["rates"]
    for algorithm in BUILT_IN_ALGORITHMS:
        assert algorithm.name in text["algorithms"]
        for name, option in option_schemas(algorithm).items():
            assert name in text["algorithms"]
            assert option["description"].split("`")[0] in text["algorithms"]
    for row in list_sources():
        assert row["summary"] in text["datasets"]
    for code in CODES.values():
        assert code.code in text["errors"]
        assert code.means.replace("`", "") in text["errors"]
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        for key in part.get("properties", {}):
            assert key in text["yaml"]
    for command in typer.main.get_command(app).commands:
        assert f"ratecli {command}" in text["cli"]
    for name in (*REPORT_FILES, *REPORT_FOLDERS, LEDGER_FILE):
        assert name in text["results"]
