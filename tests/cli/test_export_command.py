"""`ratecli export`: files of stored models, and model cards."""

import re
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from people import measured, read, trial
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from ratecli.render import terminal_safe

MAJORIZE = trial("majorize")


@pytest.mark.usefixtures("rows")
def test_files_are_named_after_the_trial(cli, folder):
    missed = measured("first", "majorize", "deterministic")["violation.parity", "test"]
    shown = "variant deterministic"
    shown += f", which violates 'parity' by {missed:.3g} on the test set" * (missed > 1e-6)
    for form, suffix in (("json", "json"), ("sklearn", "skops")):
        answer = cli("export", MAJORIZE, "--format", form)
        assert answer.code == 0
        name = f"majorize-seed=0.{suffix}"
        said = f"{name}: {shown}\nreads number: x, z\nreads text: job, zip\npredicts y\n"
        types = "with pandas: read_csv(FILE, dtype={'job': str, 'zip': str})\n"
        assert answer.out == said + types * (form == "sklearn")
        assert (folder / name).stat().st_size > 100
    assert cli("export", MAJORIZE, "--format", "json", "-o", "mine").code == 0
    assert Path("mine").read_bytes() == Path("majorize-seed=0.json").read_bytes()


def test_an_exported_pipeline_decides_as_predict_does(cli, rows):
    """The groups' column is no feature, and has no numbers."""
    from skops.io import load  # noqa: PLC0415

    model = trial("post_shift")
    assert cli("export", model, "--format", "sklearn", "-o", "m.skops").code == 0
    frame = rows.replace({"job": {"": np.nan}})
    found = load("m.skops", trusted=["numpy.dtype"]).predict(frame)
    known = read(cli("predict", model, "people.csv").out).decision
    assert found.tolist() == known.tolist()


REFUSED = [
    ([trial("ramp"), "--format", "json"], 2, "cannot represent random decisions"),
    ([trial("mixture"), "--format", "json"], 2, "cannot represent trees"),
    (["nothing", "--format", "json"], 4, "error[E405]: 'nothing' does not exist"),
    ([trial("no_model"), "--format", "json"], 4, "has none: trials.csv says why"),
    ([MAJORIZE, "--format", "json", "-o", "no/x.json"], 2, "cannot write to 'no/x.json'"),
    ([MAJORIZE, "--format", "card", "-o", "no/x.md"], 2, "cannot write to 'no/x.md'"),
    (["copied", "--format", "card"], 2, "error[E503]: 'copied' is not in the results of a run"),
]


def test_names_with_control_characters_reach_no_terminal_card_or_page(folder, cli):
    """Columns and groups with escape codes, marks of the text direction, and HTML."""
    names, groups = ["s\u202eex", "a\x1b[31mge", "<img src=x>", "y"], ["m\u2066", "w\x1b[2J"]
    rng = np.random.default_rng(0)
    rows = [[groups[k % 2], rng.normal(), rng.normal(), rng.integers(2)] for k in range(200)]
    pd.DataFrame(rows, columns=names).to_csv(folder / "t.csv", index=False)
    texts = [cli("init", "t.yaml", "--data", "t.csv", "--label", "y", "--group", names[0])]
    assert texts[0].code == 0
    only = ("--set", "algorithms=[unconstrained]", "--set", "seeds=1", "--set", "sweep.limit=[0.8]")
    texts.append(cli("run", "t.yaml", "-j", 1, *only))
    (model,) = (folder / "results" / "t" / "models").iterdir()
    texts += [
        cli("export", model, "--format", "json", "-o", "m.json"),
        cli("export", model, "--format", "card"),
        cli("predict", model, "t.csv", "-o", "out.csv"),
        cli("filter", "t.csv", "--by", names[0], "--label", "y", "-o", "kept.csv"),
        cli("predict", model, "t.yaml"),
    ]
    shown = [text for answer in texts for text in (answer.out, answer.err)]
    pages = [*folder.glob("*card*"), *(folder / "results").rglob("*.md"), folder / "t.yaml"]
    pages += [*(folder / "results").rglob("*.html"), *(folder / "results").rglob("*.svg")]
    assert len(pages) >= 6
    pages = [path.read_text("utf-8") for path in pages]
    assert any("a\ufffd[31mge" in page for page in pages)
    assert all(terminal_safe(text) == text for text in (*shown, *pages))
    assert not any("<img src=x>" in page for page in pages if not page.startswith("#"))


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED)
def test_refused_calls_write_nothing(cli, listing, arguments, code, message):
    shutil.copytree(MAJORIZE, "copied")
    before = listing()
    answer = cli("export", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err
    assert listing() == before


def card_table(text: str, title: str) -> list[dict[str, str]]:
    """Return the table of a section by its columns."""
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    heads, _, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    )
    return [dict(zip(heads, line, strict=True)) for line in lines]


def test_a_card_has_the_measured_numbers(cli, rows):
    answer = cli("export", MAJORIZE, "--format", "card")
    assert answer.out.split() == ["majorize-seed=0-card.md", "majorize-seed=0-card.html"]
    text = Path("majorize-seed=0-card.md").read_text("utf-8")
    assert "- split: 160 training rows, 80 new rows" in text
    assert "- constraint parity: `positive_rate[women] >= 0.95 * positive_rate[men]`" in text
    assert "- missing values in training rows: job" in text
    assert "- predicts: y" in text
    assert "- options: iterations = 2\n" in text  # all others are the defaults
    assert "- group low: `x<0`" in text
    known = measured("first", "majorize", "deterministic")
    metrics = {row["metric"]: row for row in card_table(text, "Results")}
    assert "objective" not in metrics  # it is the error
    assert float(metrics["error"]["new rows"]) == pytest.approx(known["error", "test"], abs=5e-5)
    found = read(cli("predict", MAJORIZE, "people.csv").out)[rows.part == "test"]
    groups = {row["group"]: row for row in card_table(text, "Groups")}
    masks = {"women": found.sex == "F", "men": found.sex == "M", "low": found.x < 0}
    assert groups.keys() == {"all rows", *masks}
    summary = Path("results/first/summary.md").read_text("utf-8")
    (heads,) = (line for line in summary.splitlines() if "largest gap" in line)
    assert ("women" in heads, " low " in heads) == (True, False)  # of metrics alone
    for group, own in {**masks, "all rows": True}.items():
        some = found[own] if group != "all rows" else found
        assert groups[group]["rows"] == str(len(some))
        for rate, among in (
            ("positive decisions", some),
            ("true positive rate", some[some.y == 1]),
            ("false positive rate", some[some.y == 0]),
        ):
            share = binomtest(int(among.decision.sum()), len(among))
            low, high = share.proportion_ci()
            shown = f"{share.statistic:.4f} [{low:.4f}, {high:.4f}]"
            assert groups[group][rate] == shown
    scores = {row["group"]: row for row in card_table(text, "Scores by group")}
    assert "ROC of the new rows, with 95% intervals of the rates." in text
    area = {k: f"{roc_auc_score(found.y[m], found.score[m]):.4f}" for k, m in masks.items()}
    assert {group: row["area"] for group, row in scores.items()} == area
    page = Path("majorize-seed=0-card.html").read_text("utf-8")
    assert page.count('aria-label="Curves by group (test)"') == 1


def test_a_card_states_limits(cli, rows):
    del rows
    assert cli("export", MAJORIZE, "--format", "card", "-o", "c.md").out == "c.md\n"
    text = Path("c.md").read_text("utf-8")
    violation = measured("first", "majorize", "deterministic")["violation.parity", "test"]
    said = "- parity is violated on new rows by"
    assert (said in text) == (violation > 1e-6)
    assert "Decisions are random" not in text
    assert "No safety test was run" in text
    assert "smoke" not in text
    assert "\n    ratecli run" not in text
    cli("export", trial("ramp"), "--format", "card", "-o", "s.md")
    text = Path("s.md").read_text("utf-8")
    assert "- Decisions are random; `ratecli predict --seed` makes them repeatable." in text


def test_a_card_has_the_label_of_a_registered_data_set(cli, folder):
    data = "datasets: {loans: {source: loans, rows: 60}}"
    (folder / "l.yaml").write_text(f"name: l\n{data}\nalgorithms: [unconstrained]\n")
    cli("run", "l.yaml", "-q", "-j", "1")
    cli("export", trial("unconstrained", "l"), "--format", "card", "-o", "c.md")
    assert "- predicts: repaid = yes\n" in Path("c.md").read_text("utf-8")


def test_a_card_names_the_column_of_weights(cli, folder):
    x = np.arange(90)
    pd.DataFrame({"x": x, "y": x % 2, "w": 1.0 + x % 3}).to_csv(folder / "t.csv", index=False)
    data = "datasets: {t: {path: t.csv, label: y, weight: w}}"
    (folder / "t.yaml").write_text(f"name: t\n{data}\nalgorithms: [unconstrained]\n")
    assert cli("run", "t.yaml", "-q").code == 0
    assert cli("export", trial("unconstrained", "t"), "--format", "card", "-o", "c.md").code == 0
    assert "- rows are weighted by: w\n" in Path("c.md").read_text("utf-8")


def test_a_page_has_the_same_text_as_markdown(cli, rows):
    del rows
    assert cli("export", trial("post_shift"), "--format", "card", "-o", "c.html").code == 0
    assert cli("export", trial("post_shift"), "--format", "card", "-o", "c.md").code == 0
    page, text = (Path(name).read_text("utf-8") for name in ("c.html", "c.md"))
    shown = unescape(re.sub(r"<[^>]*>", " ", page.partition("<body>")[2]))
    words = " ".join(shown.split())
    for line in text.splitlines():
        for cell in re.split(r"[|]|: ", line.strip("-|# ")) if line[:3] != "```" else ():
            plain = " ".join(cell.replace("`", "").replace("\\", "").split())
            assert plain in words or set(plain) <= set(":- "), plain


def test_a_regressor_has_errors_by_group(cli, rows):
    cli("export", trial("unconstrained", "numbers"), "--format", "card", "-o", "c.md")
    (row,) = card_table(Path("c.md").read_text("utf-8"), "Groups")
    found = read(cli("predict", trial("unconstrained", "numbers"), "people.csv").out)
    error = (found.estimate - found.z)[rows.part == "test"]
    half = 1.959964 * error.std() / len(error) ** 0.5
    ends = (f"{error.mean() - half:.4f}", f"{error.mean() + half:.4f}")
    assert row["mean error"] == f"{error.mean():.4f} [{', '.join(ends)}]"
