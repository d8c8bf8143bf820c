"""`ratecli predict`: stored classifiers applied to tables."""

from __future__ import annotations

import io
import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from small import read_rows

from ratecli.cli.app import main

EXPERIMENT = """\
name: first
datasets:
  people: {path: people.csv, label: y, drop: [part, sex], categorical: [zip], split: {by: part}}
groups: {women: sex = F, men: sex = M}
constraints: {parity: 'positive_rate[women] >= 0.95 * positive_rate[men]'}
algorithms:
  - unconstrained
  - majorize: {iterations: 2}
  - post_shift
  - mixture: {oracle: {DecisionTreeClassifier: {max_depth: 2}}}
metrics: {error: error, women: 'positive_rate[women]', auc: roc_auc}
"""
NUMBERS = """\
name: numbers
datasets:
  people: {path: people.csv, label: z, target: number, drop: [part], split: {by: part}}
algorithms: [unconstrained: {loss: squared}]
metrics: {mse: mse}
"""
LEVELS = """\
name: levels
datasets: {people: {path: people.csv, label: y, drop: [part], split: {by: part}, levels: 3}}
algorithms: [unconstrained]
"""
CLICKS = """\
name: clicks
datasets: {clicks: {source: clicks, rows: 600}}
algorithms: [unconstrained]
"""
TEXTS = {"first": EXPERIMENT, "numbers": NUMBERS, "levels": LEVELS, "clicks": CLICKS}
VARIANTS = [
    ("unconstrained", "deterministic"),
    ("majorize", "deterministic"),
    ("majorize", "stochastic"),
    ("post_shift", "stochastic"),
    ("mixture", "stochastic"),
]


def people() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 240
    sex, job = rng.choice(["F", "M"], n), rng.choice(["smith", "clerk, junior", ""], n)
    x, z = rng.normal(size=n) + 1.2 * (sex == "M"), 5 + 2 * rng.normal(size=n)
    y = (x + 0.5 * (z - 5) + 0.3 * (job == "smith") + 0.7 * rng.normal(size=n) > 0.6).astype(int)
    part = np.where(np.arange(n) % 3 == 0, "test", "train")
    code = rng.choice(["01", "02", "3a"], n)
    return pd.DataFrame({"sex": sex, "x": x, "z": z, "job": job, "zip": code, "y": y, "part": part})


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run the experiments once; return the folder with the table and the results."""
    place = tmp_path_factory.mktemp("ran")
    people().to_csv(place / "people.csv", index=False)
    for name, text in TEXTS.items():
        (place / f"{name}.yaml").write_text(text)
        results = str(place / "results")
        assert main(["run", str(place / f"{name}.yaml"), "-q", "-j", "1", "-o", results]) == 0
    return place


@pytest.fixture
def rows(folder, ran) -> pd.DataFrame:
    """Copy the table and the results to the working folder; return the table."""
    shutil.copytree(ran, folder, dirs_exist_ok=True)
    return people()


def trial(algorithm: str, experiment: str = "first") -> str:
    return f"results/{experiment}/models/{algorithm}-seed=0"


def read(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), keep_default_na=False, dtype={"zip": str})


def measured(folder, algorithm, variant, experiment="first"):
    return {
        (row["metric"], row["split"]): float(row["value"])
        for row in read_rows(folder / "results" / experiment / "metrics.csv")
        if (row["algorithm"], row["variant"]) == (algorithm, variant)
    }


@pytest.mark.parametrize(("algorithm", "variant"), VARIANTS)
def test_predictions_have_the_measured_rates(folder, cli, rows, algorithm, variant):
    answer = cli("predict", f"{trial(algorithm)}/{variant}.npz", "people.csv")
    assert answer.code == 0
    found = read(answer.out)
    added = ["score", "chance", "decision"]
    assert list(found.columns) == [*rows.columns, *added]
    pd.testing.assert_frame_equal(found.drop(columns=added), rows)
    known = measured(folder, algorithm, variant)
    for split in ("train", "test"):
        of = found[rows.part == split]
        error = np.where(of.y == 1, 1 - of.chance, of.chance).mean()
        assert 0 < error < 0.5
        assert known["error", split] == pytest.approx(error, abs=1e-12)
        women = of.chance[of.sex == "F"].mean()
        assert known["women", split] == pytest.approx(women, abs=1e-12)
        yes, no = (of.score[of.y == label].to_numpy() for label in (1, 0))
        order = np.sign(yes[:, None] - no)
        assert known["auc", split] == pytest.approx((1 + order.mean()) / 2, abs=1e-12)
    settled = found.chance.isin((0, 1))
    assert settled.all() == (variant == "deterministic" or "by chance" not in answer.err)
    assert (found.decision == found.chance)[settled].all()
    assert f"people.csv: 240 rows, {found.decision.sum()} yes" in answer.err


@pytest.mark.usefixtures("rows")
def test_other_fields_are_written_unchanged(folder, cli):
    text = 'x, z ,job,zip,id\n+1.50,2e0,"a ""b"", c",02,007\n-0.0,3,smith,01, 1\n'
    (folder / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    answer = cli("predict", trial("unconstrained"), "t.csv")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "x,z,job,zip,id,score,chance,decision"
    assert lines[1].startswith('+1.50,2e0,"a ""b"", c",02,007,')
    assert lines[2].startswith("-0.0,3,smith,01, 1,")


MISFITS = [
    ("x;z;job;zip\n1;2;smith;01\n", 2, ["say --separator ';'"]),
    (
        "X,z,zip,sex\n1,old,01,F\n1,2,02,M\n",
        2,
        [
            "error[E205]: there is no column 'x', which the model needs",
            "did you mean 'X'? columns: X, sex, z, zip",
            "error[E205]: there is no column 'job'",
            "error[E411]: column 'z' held numbers in training, and here 'old' in row 1",
        ],
    ),
    ("x,z,job,zip\n1,\u0663,smith,01\n", 4, ["held numbers in training, and here '\u0663'"]),
    ("x,z,job,zip\n", 4, ["error[E404]: 't.csv' is not a table: it has no rows"]),
]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(("text", "code", "messages"), MISFITS)
def test_tables_that_do_not_fit(folder, cli, text, code, messages):
    (folder / "t.csv").write_text(text)
    answer = cli("predict", trial("unconstrained"), "t.csv", "-o", "out.csv")
    assert (answer.code, answer.out) == (code, "")
    assert all(message in answer.err for message in messages)
    assert not (folder / "out.csv").exists()


def test_decisions_are_sampled_by_seed_and_position(folder, cli, rows):
    model = f"{trial('majorize')}/stochastic.npz"
    found = [
        read(cli("predict", model, "people.csv", "--seed", seed).out).decision for seed in (0, 1)
    ]
    again = cli("predict", trial("majorize"), "people.csv")  # the main variant, the usual seed
    chance = read(again.out).chance
    assert (read(again.out).decision == found[0]).all()
    drawn = (chance > 0) & (chance < 1)
    assert drawn.sum() > 20
    assert f"; {drawn.sum()} of them by chance, sampled with --seed 0" in again.err
    differ = found[0] != found[1]
    assert differ.any()
    assert drawn[differ].all()
    # 20,000 copies of one row: the share of positive decisions is the chance
    row = int(drawn.idxmax())
    rows.iloc[[row] * 20_000].to_csv(folder / "many.csv", index=False)
    many = read(cli("predict", model, "many.csv").out)
    assert (many.chance == many.chance[0]).all()
    assert many.decision.mean() == pytest.approx(chance[row], abs=5 * 0.5 / np.sqrt(20_000))
    # later rows have no effect
    rows.head(50).to_csv(folder / "head.csv", index=False)
    assert read(cli("predict", model, "head.csv").out).decision.equals(found[0].head(50))


@pytest.mark.usefixtures("rows")
def test_variant_option(cli):
    named = cli("predict", trial("majorize"), "people.csv", "--variant", "deterministic")
    assert named.out == cli("predict", f"{trial('majorize')}/deterministic.npz", "people.csv").out
    answer = cli("predict", trial("majorize"), "people.csv", "--variant", "determinstic")
    assert answer.code == 2
    assert "did you mean 'deterministic'?" in answer.err
    file = f"{trial('majorize')}/deterministic.npz"
    answer = cli("predict", file, "people.csv", "--variant", "stochastic")
    assert answer.code == 2
    assert "error[E104]: '--variant' needs the folder of a trial" in answer.err


def test_regressors_add_estimates(folder, cli, rows):
    model = f"{trial('unconstrained', 'numbers')}/estimate.npz"
    answer = cli("predict", model, "people.csv")
    found = read(answer.out)
    assert answer.code == 0
    assert list(found.columns) == [*rows.columns, "estimate"]
    known = measured(folder, "unconstrained", "estimate", "numbers")
    for split in ("train", "test"):
        of = found[rows.part == split]
        assert known["mse", split] == pytest.approx(((of.estimate - of.z) ** 2).mean(), rel=1e-12)
    low, high = found.estimate.min(), found.estimate.max()
    assert f"people.csv: 240 rows, estimates from {low:g} to {high:g}" in answer.err


def test_parquet_and_other_separators(folder, cli, rows):
    known = read(cli("predict", trial("unconstrained"), "people.csv").out)
    table = pa.Table.from_pandas(rows, preserve_index=False).append_column(
        "more", pa.array([[1, 2]] * len(rows))
    )
    pa.parquet.write_table(table, folder / "t.parquet")
    answer = cli("predict", trial("unconstrained"), "t.parquet", "-o", "out.parquet")
    assert (answer.code, answer.err) == (0, "")
    found = pa.parquet.read_table(folder / "out.parquet")
    assert found.select(table.column_names).equals(table)
    assert found["score"].to_pylist() == known.score.tolist()
    assert found["decision"].to_pylist() == known.decision.tolist()
    rows.to_csv(folder / "t.tsv", index=False, sep="\t")
    found = pd.read_csv(io.StringIO(cli("predict", trial("unconstrained"), "t.tsv").out), sep="\t")
    assert found.score.tolist() == known.score.tolist()
    rows.to_csv(folder / "t.csv", index=False, sep=";")
    answer = cli("predict", trial("unconstrained"), "t.csv", "--separator", ";")
    assert answer.out.splitlines()[0] == ";".join(known.columns)
    assert "E404" in cli("predict", trial("unconstrained"), "t.csv").err


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "out.parquet"), "'out.parquet' would be Parquet, and 'people.csv' does not say"),
        (("-o", "out.xlsx"), "'out.xlsx' does not say which format it is to have"),
        (("-o", "people.csv"), "'people.csv' is the table itself"),
        (("-o", "no/out.csv"), "cannot write to 'no/out.csv'"),
        (("--separator", ""), "cannot separate columns"),
        (("--separator", "ab"), "cannot separate columns"),
        (("--separator", "é"), "cannot separate columns"),
    ],
)
def test_invalid_outputs_and_separators(cli, listing, options, message):
    before = listing()
    answer = cli("predict", trial("unconstrained"), "people.csv", *options)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert listing() == before


@pytest.mark.usefixtures("rows")
def test_prefix_of_added_columns(folder, cli):
    assert cli("predict", trial("unconstrained"), "people.csv", "-o", "one.csv").code == 0
    answer = cli("predict", trial("majorize"), "one.csv", "-o", "two.csv")
    assert answer.code == 4
    assert "error[E411]: the table already has a column 'score'" in answer.err
    answer = cli("predict", trial("majorize"), "one.csv", "-o", "two.csv", "--prefix", "fair_")
    assert answer.code == 0
    found = read((folder / "two.csv").read_text())
    assert list(found.columns)[-6:] == [
        "score", "chance", "decision", "fair_score", "fair_chance", "fair_decision",
    ]  # fmt: skip


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("model", "table", "message"),
    [
        ("nothing.npz", "people.csv", "error[E405]: 'nothing.npz' does not exist"),
        ("people.csv", "people.csv", "error[E404]: 'people.csv' holds no stored classifier: it is"),
        ("results", "people.csv", "error[E405]: 'results/encoder.json' does not exist"),
        ("results/first", "people.csv", "such as results/first/models/majorize-seed=0"),
        (None, "nothing.csv", "error[E405]: 'nothing.csv' "),
        (None, "results", "error[E405]: 'results' "),
        (None, "first.yaml", "error[E404]: 'first.yaml' ends in neither"),
    ],
)
def test_unusable_models_and_tables(cli, model, table, message):
    answer = cli("predict", model or trial("unconstrained"), table)
    assert answer.code == 4
    assert message in answer.err


@pytest.mark.usefixtures("rows")
def test_a_copied_model_needs_its_encoder(folder, cli):
    place, other = folder / trial("unconstrained"), folder / trial("unconstrained", "numbers")
    known = cli("predict", place, "people.csv").out
    (folder / "copied").mkdir()
    model = folder / "copied" / "mine.npz"
    shutil.copy(place / "deterministic.npz", model)
    answer = cli("predict", "copied/mine.npz", "people.csv")
    assert answer.code == 4
    assert "error[E405]: 'copied/encoder.json' does not exist" in answer.err
    assert "copy it along with a model" in answer.err
    shutil.copy(other / "encoder.json", model.parent)
    answer = cli("predict", "copied/mine.npz", "people.csv")
    assert answer.code == 4
    assert "the 'encoder.json' beside 'copied/mine.npz' describes other models" in answer.err
    shutil.copy(place / "encoder.json", model.parent)
    assert cli("predict", "copied/mine.npz", "people.csv").out == known


@pytest.mark.usefixtures("rows")
def test_broken_encoders(folder, cli):
    path = folder / trial("unconstrained") / "encoder.json"
    good = json.loads(path.read_text())
    changes = [
        {"models": []},
        {"models": [{"variant": "deterministic", "file": "../x.npz", "sha256": ""}]},
        {"blocks": []},
        {"blocks": [{"column": "x", "mean": "1", "scale": 1}]},
        {"others": {"sex": "word"}},
        {"others": ["sex"]},
        {"levels": 0},
        {"levels": "1"},
    ]
    without = {name: part for name, part in good.items() if name != "others"}
    contents = [json.dumps(each) for each in ([], {}, without, *(good | each for each in changes))]
    for text in contents:
        path.write_text(text)
        for model in (path.parent, path.parent / "deterministic.npz"):
            answer = cli("predict", model, "people.csv")
            assert (answer.code, answer.out) == (4, ""), text
            assert "encoder.json' does not describe the features: " in answer.err
            assert "`ratecli report FILE` writes it again" in " ".join(answer.err.split())
    assert cli("report", "first.yaml").code == 0
    assert cli("predict", path.parent, "people.csv").code == 0
    path.write_text(json.dumps(good | {"blocks": good["blocks"][:-1]}))
    answer = cli("predict", path.parent, "people.csv")
    assert answer.code == 4
    assert "takes 8 features, and 'encoder.json' makes 5" in answer.err
    for content in (b"", b"{", b"\xff", b"[" * 100_000, b"9" * 10_000):
        path.write_bytes(content)
        answer = cli("predict", path.parent, "people.csv")
        assert (answer.code, "E404" in answer.err) == (4, True), content[:9]


def test_a_date_out_of_range_is_an_error(folder, cli, rows):
    table = pa.Table.from_pandas(rows, preserve_index=False)
    when = pa.array([2**50] * len(rows), pa.timestamp("ms"))
    pa.parquet.write_table(table.append_column("when", when), folder / "t.parquet")
    answer = cli("predict", trial("unconstrained"), "t.parquet")
    assert (answer.code, answer.out) == (4, "")
    assert "column 'when' holds timestamp[ms] values that cannot be read" in answer.err
    assert cli("predict", trial("unconstrained"), "t.parquet", "-o", "out.parquet").code == 0


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        ("levels", "decides each row at 3 levels"),
        ("clicks", "came ready-made: they are not made of columns"),
    ],
)
def test_models_that_tables_cannot_use(cli, experiment, message):
    answer = cli("predict", trial("unconstrained", experiment), "people.csv")
    assert answer.code == 4
    assert "error[E411]: " in answer.err
    assert message in answer.err
