"""README and the documents: every command, file and program is run and its output compared."""

import re
from contextlib import nullcontext

import pytest
from compare import same, same_line
from execute import DiffersError, Run, missing
from pages import ROOT, Page, all_pages, read

PAGES = all_pages()
RUN = ("console", "sh", "yaml", "python", "text", "csv")
NOT_RUN = 12
"""Maximum number of parts of all pages that are not run; each has a reason."""
COMMAND = re.compile(r"^(?: {4}|\t)(?:\$ )?(?:ratecli|make|pip|python3?) ")


def is_slow(page: Page) -> bool:
    return "slow" in page.said or any("slow" in part.said for part in page.parts)


@pytest.mark.parametrize(
    ("page", "slow"),
    [
        *(pytest.param(page, False, id=page.name) for page in PAGES),
        *(
            pytest.param(page, True, id=f"{page.name}-slow", marks=pytest.mark.slow)
            for page in filter(is_slow, PAGES)
        ),
    ],
)
def test_a_page_shows_the_actual_output(page, slow, folder):
    if need := missing(page.said):
        pytest.skip(f"needs {need}")
    Run(page, folder, slow=slow).all()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_known_kind(page):
    for part in page.parts:
        assert part.kind in (*RUN, "table", "picture") or "not run" in part.said, part.start + 1
    assert not [line for line in page.lines if COMMAND.match(line)]  # hidden ones


def test_few_parts_are_not_run():
    told = [part.said["not run"] for page in PAGES for part in page.parts if "not run" in part.said]
    assert len(told) <= NOT_RUN
    assert all(len(reason.split()) > 2 for reason in told)


def test_links_of_the_readme_exist():
    (readme,) = (page for page in PAGES if page.path.name.startswith("README"))
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", "\n".join(readme.lines))
    assert len(links) > 10
    for link in links:
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_files_named_in_contributing_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    families = [path.parent.name for path in (ROOT / "ratecli/solvers").glob("*/options.py")]
    assert len(families) > 5
    named = re.findall(r"`((?:\w+/)+[a-z_]+\.(?:py|toml))`", text)
    named = {name.replace("FAMILY", family) for name in named for family in families}
    found = {name for name in named for top in (ROOT, ROOT / "ratecli") if (top / name).exists()}
    assert not named - found


SHOWN = "kappa  0.4874 ± 0.0114   17 rows, 0.7 s"


def test_numbers_are_compared_to_the_digits_shown_and_times_are_not():
    assert same_line(SHOWN, "kappa 0.4875 ± 0.0113 17 rows, 12 s")
    for printed in (
        "kappa 0.4876 ± 0.0114 17 rows, 0.7 s",
        "kappa 0.4874 ± 0.0114 18 rows, 0.7 s",
        "lambda 0.4874 ± 0.0114 17 rows, 0.7 s",
        "kappa 0.4874 ± 0.0114 17 rows",
    ):
        assert not same_line(SHOWN, printed)
    assert same_line('"w": 0.02553633623819993', '"w": 0.02553633623819872')
    assert not same_line('"w": 0.02553633623819993', '"w": 0.02553633723819993')


def test_dots_match_any_lines_or_text():
    assert same(["a", "...", "d 1...3"], ["a", "b", "c", "d 1, 2, 3"])
    assert same(["..."], [])
    assert not same(["a", "...", "d"], ["a", "b"])


PAGE = """\
```yaml
# x.yaml
name: x
datasets: {d: {source: loans, rows: 200}}
algorithms: [unconstrained]
```

```console
$ ratecli validate x.yaml
x.yaml: no errors, %d trial
```

<!-- exits: 2 -->
```console
$ ratecli validate x.yaml --set seeds=none
...
```

```python
print(1 + 1)
```

```text
%d
```
"""


@pytest.mark.parametrize(
    ("trials", "sum_", "line"),
    [(1, 2, None), (2, 2, 8), (1, 3, 23)],
    ids=["right", "printed", "python"],
)
def test_wrong_output_is_reported_at_its_line(folder, trials, sum_, line, monkeypatch):
    monkeypatch.setattr("pages.ROOT", folder)
    (folder / "page.md").write_text(PAGE % (trials, sum_))
    run = Run(read(folder / "page.md"), folder, slow=False)
    raises = pytest.raises(DiffersError, match=rf"page\.md:{line}: not so")
    with raises if line else nullcontext():
        run.all()
        assert run.ran == 5


BLOCKS = ("yaml\nname: x", "console\nratecli ls plots", "sh\nratecli ls plottz", "java")


@pytest.mark.parametrize("block", BLOCKS)
def test_malformed_blocks_are_refused(folder, block, monkeypatch):
    monkeypatch.setattr("pages.ROOT", folder)
    (folder / "page.md").write_text(f"```{block}\n```\n")
    with pytest.raises(DiffersError):
        Run(read(folder / "page.md"), folder, slow=False).all()
