"""`ratecli predict`: stored classifiers applied to tables."""

import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from people import measured, read, trial

VARIANTS = [
    ("unconstrained", "deterministic"),
    ("majorize", "deterministic"),
    ("ramp", "stochastic"),
    ("ramp", "deterministic"),
    ("post_shift", "deterministic"),
    ("mixture", "deterministic"),
]


@pytest.mark.parametrize(("algorithm", "variant"), VARIANTS)
def test_predictions_have_the_measured_rates(cli, rows, algorithm, variant):
    answer = cli("predict", f"{trial(algorithm)}/{variant}.npz", "people.csv")
    assert answer.code == 0
    found = read(answer.out)
    added = ["score", "chance", "decision"]
    assert list(found.columns) == [*rows.columns, *added]
    pd.testing.assert_frame_equal(found.drop(columns=added), rows)
    known = measured("first", algorithm, variant)
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
    assert settled.all() == (variant == "deterministic" or "random" not in answer.err)
    assert (found.decision == found.chance)[settled].all()
    assert f"people.csv: 240 rows, {found.decision.sum()} positive" in answer.err


def test_regressors_add_estimates(cli, rows):
    found = read(cli("predict", trial("unconstrained", "numbers"), "people.csv").out)
    assert list(found.columns) == [*rows.columns, "estimate"]
    known = measured("numbers", "unconstrained", "estimate")
    for split in ("train", "test"):
        of = found[rows.part == split]
        assert known["mse", split] == pytest.approx(((of.estimate - of.z) ** 2).mean(), rel=1e-12)


@pytest.mark.usefixtures("rows")
def test_other_fields_are_written_unchanged(folder, cli):
    text = 'x, z ,job,zip,id\n+1.50,2e0,"a ""b"", c",02,007\n-0.0,3,smith,01, 1\n'
    (folder / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    lines = cli("predict", trial("unconstrained"), "t.csv").out.splitlines()
    assert lines[0] == "x,z,job,zip,id,score,chance,decision"
    assert lines[1].startswith('+1.50,2e0,"a ""b"", c",02,007,')
    assert lines[2].startswith("-0.0,3,smith,01, 1,")


@pytest.mark.usefixtures("rows")
def test_options_seed_and_variant(cli):
    """Without options the main variant decides; random decisions are sampled with seed 0."""
    usual = cli("predict", trial("majorize"), "people.csv")
    assert usual.out == cli("predict", f"{trial('majorize')}/deterministic.npz", "people.csv").out
    model = trial("ramp")
    other = cli("predict", model, "people.csv", "--variant", "deterministic")
    assert other.out == cli("predict", f"{model}/deterministic.npz", "people.csv").out
    drawn_with = {seed: cli("predict", model, "people.csv", "--seed", seed) for seed in (0, 1)}
    assert drawn_with[0].out == cli("predict", f"{model}/stochastic.npz", "people.csv").out
    found, other = (read(answer.out) for answer in drawn_with.values())
    drawn = found.chance.between(0, 1, inclusive="neither")
    assert f"; {drawn.sum()} of them random, sampled with --seed 0" in drawn_with[0].err
    missed = measured("first", "ramp", "stochastic")["violation.parity", "test"]
    shown = f"; variant stochastic, which violates 'parity' by {missed:.3g} on the test set\n"
    assert drawn_with[0].err.endswith(shown)
    differ = found.decision != other.decision
    assert differ.any()
    assert drawn[differ].all()


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
    for name, separator, options in (("t.tsv", "\t", ()), ("t.csv", ";", ("--separator", ";"))):
        rows.to_csv(folder / name, index=False, sep=separator)
        text = cli("predict", trial("unconstrained"), name, *options).out
        assert pd.read_csv(io.StringIO(text), sep=separator).score.tolist() == known.score.tolist()


def test_a_model_reads_the_format_of_its_table_or_a_stated_one(folder, cli, rows):
    """The scores are those of the same model trained on the plain table."""
    rows = rows[["x", "z", "job", "y"]]
    rows.to_csv(folder / "plain.csv", index=False)
    rows.to_csv(folder / "other.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    stated = {"plain": "", "other": "separator: ';', decimal: ',', encoding: utf-16, "}
    for name, keys in stated.items():
        data = f"{{t: {{path: {name}.csv, {keys}label: y}}}}"
        lines = [f"name: {name}", f"datasets: {data}", "algorithms: [unconstrained]", "seeds: 1"]
        (folder / f"{name}.yaml").write_text("\n".join(lines))
        assert cli("run", f"{name}.yaml", "-q", "-j", 1).code == 0
    known = read(cli("predict", trial("unconstrained", "plain"), "plain.csv").out)
    model = trial("unconstrained", "other")
    assert cli("predict", model, "other.csv", "-o", "out.csv").code == 0
    form = {"sep": ";", "decimal": ",", "encoding": "utf-16", "keep_default_na": False}
    same = pd.read_csv(folder / "out.csv", **form)
    pd.testing.assert_frame_equal(same, known)
    options = ("--separator", ",", "--decimal", ".", "--encoding", "utf-8")
    assert read(cli("predict", model, "plain.csv", *options).out).equals(known)
    assert "--encoding utf-8" in cli("predict", model, "plain.csv").err
    assert "--decimal ." in cli("predict", model, "plain.csv", *options[:2], *options[4:]).err


@pytest.mark.usefixtures("rows")
def test_prefix_of_added_columns(folder, cli):
    assert cli("predict", trial("unconstrained"), "people.csv", "-o", "one.csv").code == 0
    answer = cli("predict", trial("majorize"), "one.csv", "-o", "two.csv")
    assert answer.code == 4
    assert "error[E411]: the table already has a column 'score'" in answer.err
    assert cli("predict", trial("majorize"), "one.csv", "-o", "two.csv", "--prefix", "b_").code == 0
    found = read((folder / "two.csv").read_text())
    assert list(found.columns)[-4:] == ["decision", "b_score", "b_chance", "b_decision"]


TABLES = {
    "semicolons": "x;z;job;zip\n1;2;smith;01\n",
    "commas": "x;z;job;zip\n1,5;2;smith;01\n",
    "misfit": "X,z,zip,sex\n1,old,01,F\n1,2,02,M\n",
    "digits": "x,z,job,zip\n1,\u0663,smith,01\n",
    "empty": "x,z,job,zip\n",
}
MODEL = trial("unconstrained")
MAJORIZE = trial("majorize")
REFUSED = [
    ([MODEL, "semicolons.csv"], 2, "--separator ';'"),
    ([MODEL, "commas.csv", "--separator", ";"], 4, "--decimal ,)\n"),
    ([MODEL, "misfit.csv", "-o", "out.csv"], 2, "did you mean 'X'? columns: X, sex, z, zip"),
    ([MODEL, "digits.csv"], 4, "held numbers in training, but has '\u0663'"),
    ([MODEL, "empty.csv"], 4, "error[E404]: 'empty.csv' is not a table: it has no rows"),
    ([MODEL, "people.csv", "-o", "out.parquet"], 2, "'out.parquet' would be Parquet, but 'people"),
    ([MODEL, "people.csv", "-o", "out.xlsx"], 2, "the format of 'out.xlsx' is unknown"),
    ([MODEL, "people.csv", "-o", "people.csv"], 2, "'people.csv' is the table itself"),
    ([MODEL, "people.csv", "-o", "no/out.csv"], 2, "cannot write to 'no/out.csv'"),
    ([MODEL, "people.csv", "--separator", ""], 2, "cannot separate columns"),
    ([MAJORIZE, "people.csv", "--variant", "determinstic"], 2, "did you mean 'deterministic'?"),
    ([f"{MAJORIZE}/deterministic.npz", "people.csv", "--variant", "stochastic"], 2,
     "error[E104]: '--variant' needs the folder of a trial"),
    (["nothing.npz", "people.csv"], 4, "error[E405]: 'nothing.npz' does not exist"),
    (["people.csv", "people.csv"], 4, "error[E404]: 'people.csv' holds no stored classifier: it"),
    (["results", "people.csv"], 4, "it describes the features: name a trial's folder"),
    ([MODEL, "nothing.csv"], 4, "error[E405]: 'nothing.csv' "),
    ([MODEL, "results"], 4, "error[E405]: 'results' "),
    ([MODEL, "first.yaml"], 4, "error[E404]: 'first.yaml' ends in neither"),
    ([trial("unconstrained", "levels"), "people.csv"], 4, "makes a decision for each row and level (3 levels)"),
    ([trial("unconstrained", "clicks"), "people.csv"], 4,
     "are ready-made, not computed from columns"),
]  # fmt: skip


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED)
def test_refused_calls_say_why_and_write_nothing(cli, listing, arguments, code, message):
    for name, text in TABLES.items():
        Path(f"{name}.csv").write_text(text, encoding="utf-8")
    before = listing()
    answer = cli("predict", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err
    assert listing() == before


@pytest.mark.usefixtures("rows")
def test_a_copied_model_needs_its_encoder(folder, cli):
    place, other = folder / trial("unconstrained"), folder / trial("unconstrained", "numbers")
    known = cli("predict", place, "people.csv").out
    (folder / "copied").mkdir()
    shutil.copy(place / "deterministic.npz", "copied/mine.npz")
    for encoder, message in (
        (None, "error[E405]: 'copied/encoder.json' does not exist"),
        (None, "it describes the features: name a trial's folder"),
        (other, "the 'encoder.json' beside 'copied/mine.npz' describes other models"),
    ):
        if encoder:
            shutil.copy(encoder / "encoder.json", "copied")
        answer = cli("predict", "copied/mine.npz", "people.csv")
        assert (answer.code, message in answer.err) == (4, True)
    shutil.copy(place / "encoder.json", "copied")
    assert cli("predict", "copied/mine.npz", "people.csv").out == known


def signed(content: dict) -> str:
    """The content of encoder.json with the checksum that it should have."""
    others = {key: value for key, value in content.items() if key != "sha256"}
    known = hashlib.sha256(json.dumps(others, sort_keys=True).encode()).hexdigest()
    return json.dumps(others | {"sha256": known})


@pytest.mark.usefixtures("rows")
def test_broken_encoders_are_reported_and_written_again_by_report(folder, cli):
    """Changes within the blocks: test_encode.py."""
    path = folder / trial("unconstrained") / "encoder.json"
    good = json.loads(path.read_text())
    outside = {"variant": "deterministic", "file": "../x.npz", "sha256": ""}
    changes = [{"models": value} for value in ([], [outside])]
    changes += [{"others": value} for value in ({"sex": "word"}, ["sex"])]
    changes += [{"levels": value} for value in (0, "1")]
    models = good["models"]
    wrong = [True, [], {"parity": "0.1"}, {"parity": True}]
    changes += [{"models": [{**models[0], "violations": value}, *models[1:]]} for value in wrong]
    changes += [{"predicts": 1}, {"format": {"decimal": 5}}, {"format": {"decimal": ";"}}]
    describes = "encoder.json' does not describe the features: "
    for text, message in (
        ("[]", describes),
        *((signed(good | change), describes) for change in changes),
        (signed(good | {"blocks": good["blocks"][:-1]}), "it makes 5 of "),
        (json.dumps(good | {"seed": 1}), "it was changed: its checksum differs"),
        *((text, "E404") for text in ("", "{", "[" * 100_000, "9" * 10_000)),
    ):
        path.write_text(text)
        answer = cli("predict", path.parent, "people.csv")
        assert (answer.code, answer.out, message in answer.err) == (4, "", True), text[:99]
        if message == describes:
            assert "`ratecli report FILE` writes it again" in " ".join(answer.err.split())
    assert cli("report", "first.yaml").code == 0
    assert cli("predict", path.parent, "people.csv").code == 0
