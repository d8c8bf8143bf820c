"""`ratecli filter` samples rows of a table, and `ratecli predict` applies the stored filter."""

import json
import math
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from people import read

from ratecli.cli.app import main

ROWS = 1500
FOLDER = ["encoder.json", "expected.npz", "filter.json"]


def people(seed: int = 0, n: int = ROWS) -> pd.DataFrame:
    """Return rows: `sex` depends on hours and job, not on age; `skin` is independent of both."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], n, p=[0.3, 0.7])
    hours = (38 + 6 * (sex == "M") + rng.normal(0, 8, n)).round(1)
    typical = np.where(sex == "M", "driver", "nurse")
    job = np.where(rng.random(n) < 0.5, typical, rng.choice(["clerk", "driver", ""], n))
    skin = rng.choice([1, 2, 3], n, p=[0.5, 0.3, 0.2])
    hired = np.where(hours + rng.normal(0, 5, n) > 42, "yes", "no")
    return pd.DataFrame({"sex": sex, "age": rng.integers(18, 80, n), "hours": hours, "job": job,
                         "skin": skin, "hired": hired})  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Learn a filter by sex; return the folder with the filter `f` and the rows `kept.csv`."""
    place = tmp_path_factory.mktemp("made")
    people().to_csv(place / "people.csv", index=False)
    given = [place / "people.csv", "-o", place / "kept.csv", "--filter", place / "f"]
    options = ["--by", "sex", "--label", "hired", "--drop", "skin", "--disclosivity", "0.15"]
    assert main(["filter", *map(str, given), *options]) == 0
    return place


@pytest.fixture
def table(folder) -> pd.DataFrame:
    people().to_csv(folder / "people.csv", index=False)
    return people()


def filter_json(folder) -> dict:
    return json.loads((folder / "filter.json").read_text("utf-8"))


def by_sex(*more: str) -> tuple[str, ...]:
    return ("filter", "people.csv", "--by", "sex", "--label", "hired", *more)


def test_filter_json_matches_the_predictions(made, cli):
    found, before = filter_json(made / "f"), people().sex == "F"
    assert sorted(path.name for path in (made / "f").iterdir()) == FOLDER
    assert (found["features"], found["limit"]) == (["age", "hours", "job"], 0.15)
    train = found["expected"]["train"]
    assert train["disclosivity"] <= 0.15 + 1e-6
    shown = cli("predict", made / "f", made / "people.csv")
    rows = read(shown.out)
    assert list(rows.columns) == [*people().columns, "chance", "value", "kept"]
    chance = rows.chance.to_numpy()
    share = (chance * before).sum() / chance.sum()
    assert share > before.mean() + 0.1
    sample = rows[rows.kept == 1]
    drawn = (sample.sex == "F").mean()
    for value, expected in (
        (train["kept"], chance.mean()),
        (train["before"]["shares"]["sex"]["F"], before.mean()),
        (train["after"]["shares"]["sex"]["F"], share),
        (train["after"]["imbalance"], abs(share - 0.5) * math.sqrt(2)),
        (found["sample"]["shares"]["sex"]["F"], drawn),
        (found["sample"]["kept"], len(sample) / ROWS),
        (found["sample"]["rows"], len(sample)),
    ):
        assert value == pytest.approx(expected, abs=1e-9)
    summary = f"people.csv: {ROWS} rows, {len(sample)} of them kept, sampled with --seed 0"
    assert summary in shown.err
    # the command wrote the same rows as they are in the table
    lines = (made / "people.csv").read_text().splitlines()
    assert (made / "kept.csv").read_text().splitlines() == [
        lines[0], *(lines[k + 1] for k in sample.index)
    ]  # fmt: skip


@pytest.mark.slow
def test_samples_of_20_seeds_agree_with_the_report(made, cli):
    """Disclosivity (by its definition), the number of kept rows and their groups."""
    calls = (("predict", made / "f", made / "people.csv", "--seed", k) for k in range(20))
    shown = [read(cli(*call).out) for call in calls]
    train, first = filter_json(made / "f")["expected"]["train"], shown[0]
    every = pd.concat(shown).assign(women=lambda rows: rows.sex == "F")
    shift = every.groupby("value").women.mean() - (first.sex == "F").mean()
    assert shift.abs().max() == pytest.approx(train["disclosivity"], abs=2.5 / math.sqrt(ROWS))
    counts = np.array([each.kept.sum() for each in shown])
    error = math.sqrt((first.chance * (1 - first.chance)).sum() / 20)
    assert abs(counts.mean() - first.chance.sum()) < 4 * error
    assert len(set(counts)) > 5
    women = np.array([(each.sex[each.kept == 1] == "F").mean() for each in shown])
    gap = abs(women.mean() - train["after"]["shares"]["sex"]["F"])
    assert gap < 4 * women.std() / math.sqrt(20)


def test_new_rows_need_no_group_and_no_label(made, folder, cli):
    new = people(7, 400)
    new.drop(columns=["sex", "skin", "hired"]).to_csv(folder / "new.csv", index=False)
    new.to_csv(folder / "all.csv", index=False)
    less, all_ = (read(cli("predict", made / "f", name).out) for name in ("new.csv", "all.csv"))
    assert less[["chance", "value", "kept"]].equals(all_[["chance", "value", "kept"]])
    assert less.chance.nunique() > 5
    share = (all_.chance * (all_.sex == "F")).sum() / all_.chance.sum()
    assert share > (new.sex == "F").mean() + 0.05


@pytest.mark.usefixtures("table")
def test_the_same_seed_gives_the_same_files(folder, cli):
    said = []
    for seed in (3, 3, 4):  # the files of the run before are replaced
        assert cli(*by_sex("-o", "a.csv", "--filter", "deep/a", "--seed", seed)).code == 0
        written = (folder / "a.csv", *(folder / "deep" / "a" / name for name in FOLDER))
        said.append([path.read_bytes() for path in written])
    assert said[0] == said[1]
    assert said[0][0] != said[2][0]


@pytest.mark.parametrize(("rows", "test"), [(ROWS, "1/3"), (120, "0.5")])
def test_held_out_rows_over_the_limit_are_a_warning(folder, cli, rows, test):
    people(3 if rows < ROWS else 0, rows).to_csv(folder / "people.csv", index=False)
    answer = cli(*by_sex("-o", "k.csv", "--filter", "f", "--test", test, "--drop", "skin"))
    assert answer.code == 0
    assert "training rows  expected  held-out rows  expected  sampled" in answer.out
    found = filter_json(folder / "f")["expected"]
    assert found["train"]["rows"] + found["test"]["rows"] == rows
    assert found["train"]["disclosivity"] <= 0.1 + 1e-6
    is_over = found["test"]["disclosivity"] > 0.1 + 1e-6
    assert ("warning[W402]: disclosivity is" in answer.err) == is_over == (rows < ROWS)
    shares = [found[part]["before"]["shares"]["sex"]["F"] for part in ("train", "test")]
    assert shares[0] == pytest.approx(shares[1], abs=0.01)  # stratified


@pytest.mark.usefixtures("table")
def test_two_columns_and_other_algorithms(folder, cli):
    options = ("-o", "kept.csv", "--filter", "f", "--by", "skin")
    assert cli(*by_sex(*options)).code == 0
    found = filter_json(folder / "f")
    assert found["features"] == ["age", "hours", "job"]
    assert list(found["sample"]["shares"]["skin"]) == ["1", "2", "3"]
    for name in ("qp_proxy", "naive_proxy"):
        refused = cli(*by_sex("-o", "kept.csv", "--filter", "f", "--algorithm", name))
        assert refused.code == 1
        assert f"error[E501]: the output of {name} shifts the probability" in refused.err
        assert found == filter_json(folder / "f")
        other = by_sex("-o", "kept.csv", "--filter", name, "--algorithm", name)
        assert cli(*other, "--disclosivity", "0.7").code == 0
        sample = read((folder / "kept.csv").read_text())
        assert (sample.sex == "F").mean() > 0.35
        assert read(cli("predict", name, "people.csv").out).kept.sum() == len(sample)


@pytest.mark.usefixtures("table")
def test_option_kept_is_the_least_share(folder, cli):
    for more, least in (("0.1", 0.1), ("0.6", 0.6), ("0", 1)):
        limit = "1" if least < 1 else "0"  # a filter may keep every row
        options = ("-o", "k.csv", "--filter", "f", "--kept", more, "--disclosivity", limit)
        answer = cli(*by_sex(*options))
        assert answer.code == 0
        kept = filter_json(folder / "f")["expected"]["train"]["kept"]
        assert least - 1e-6 <= kept < least + 0.4
        told = "warning[W407]: most of the imbalance is left: it was 0."
        assert (told in answer.err) == (least == 1)
    assert (folder / "k.csv").read_bytes() == (folder / "people.csv").read_bytes()


def test_parquet_and_odd_column_names(folder, cli):
    rows = people().rename(columns={"sex": 'who "is" it', "job": "métier: no", "hours": "a,b"})
    table = pa.Table.from_pandas(rows, preserve_index=False)
    pa.parquet.write_table(table, folder / "t.parquet")
    options = ("--by", 'who "is" it', "--label", "hired", "--filter", "f")
    assert cli("filter", "t.parquet", *options, "-o", "kept.parquet").code == 0
    kept = pa.parquet.read_table(folder / "kept.parquet")
    assert kept.schema.equals(table.schema)
    rows.to_csv(folder / "t.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    signs = ("--separator", ";", "--encoding", "utf-16")
    assert "--decimal ," in cli("filter", "t.csv", *options, *signs).err
    answer = cli("filter", "t.csv", *options, "-o", "kept.csv", *signs, "--decimal", ",")
    assert answer.code == 0
    form = {"sep": ";", "decimal": ",", "encoding": "utf-16"}
    same = pd.read_csv(folder / "kept.csv", keep_default_na=False, **form)
    pd.testing.assert_frame_equal(same, kept.to_pandas())


def test_row_ids_and_small_groups_are_warnings(folder, cli):
    rows = people().assign(name=[f"person {k}" for k in range(ROWS)])
    rows.loc[:9, "sex"] = "X"
    rows.to_csv(folder / "people.csv", index=False)
    answer = cli(*by_sex("-o", "kept.csv"))
    assert answer.code == 0
    assert "[W406]: the feature 'name' has 1,500 different texts in 1,500 rows" in answer.err
    assert "warning[W401]: the group 'sex = X' has few rows" in answer.err
    assert "-->" not in answer.err  # the generated experiment is no file
    assert "W406" not in cli(*by_sex("-o", "kept.csv", "--drop", "name")).err


BAD = [
    (["--by", "Sex"], 2, "error[E205]: 'Sex' under 'drop' is not a column"),
    (["--drop", "ages"], 2, "error[E205]: 'ages' under 'drop' is not a column"),
    (["--by", "sex"], 2, "'sex' is named twice"),
    (["--by", "one"], 2, "error[E304]: 'one' has 1 value, 'imbalance' takes 2 to 1000"),
    (["--by", "hours"], 2, "values, 'imbalance' takes 2 to 30\n   = help: cut it"),
    (["--disclosivity", "1.5"], 2, "error[E104]: disclosivity must be from 0 to 1, not 1.5"),
    (["--test", "1"], 2, "error[E104]: the parts of the split"),
    (["--test", "half"], 2, "error[E104]: 'test' must be a number such as 0.5"),
    (["--algorithm", "balanced"], 2, "error[E202]: no algorithm is called 'balanced'"),
    (["--algorithm", "mixture"], 2, "error[E308]: 'mixture' is not a filter"),
    (["-o", "people.csv"], 2, "error[E104]: 'people.csv' is the table itself"),
    (["-o", "no/kept.csv"], 2, "error[E505]: cannot write to 'no/kept.csv'"),
    (["--filter", "people.csv"], 2, "error[E104]: 'people.csv' is not a folder"),
    (["--filter", "trial"], 2, "error[E104]: 'trial' holds the models of a trial"),
    (["--filter", "half"], 2, "error[E505]: cannot write to 'half/filter.json'"),
    ([part for name in ("age", "hours", "job", "skin", "one") for part in ("--drop", name)], 4,
     "error[E411]: no column is left"),
]  # fmt: skip


@pytest.mark.parametrize("case", BAD, ids=lambda case: " ".join(case[0])[:40])
def test_errors_write_nothing(folder, cli, listing, case):
    more, code, message = case
    rows = people(0, 200).assign(one="x", gaps=["a", "b"] * 100)
    rows.loc[[2, 5], "gaps"] = ""
    rows.to_csv(folder / "people.csv", index=False)
    (folder / "trial").mkdir()
    (folder / "trial" / "encoder.json").write_text("{}")
    (folder / "half" / "filter.json").mkdir(parents=True)
    before = listing()
    usual = by_sex("-o", "kept.csv", "--filter", "new", "--drop", "gaps")
    answer = cli(*usual, *more)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err
    assert "-->" not in answer.err
    assert listing() == before


def test_rows_of_unknown_groups_are_filtered_by_the_others(folder, cli):
    rows = people()
    rows.loc[::10, "sex"] = ""
    rows.to_csv(folder / "people.csv", index=False)
    answer = cli(*by_sex("-o", "kept.csv"))
    assert answer.code == 0
    assert f"warning[W401]: 'sex' is empty in {ROWS // 10} rows: the filter is fit" in answer.err
    shares = re.findall(r"sex = \w+ +(\S+) +(\S+) +(\S+)", answer.out)
    assert np.sum(np.array(shares, dtype=float), axis=0) == pytest.approx(1, abs=2e-4)
    assert (pd.read_csv("kept.csv").sex.isna()).any()


def test_missing_numbers(folder, cli):
    rows = people(0, 300)
    rows.loc[::4, "hours"] = np.nan
    rows.to_csv(folder / "people.csv", index=False)
    refused = cli(*by_sex("-o", "kept.csv"))
    assert "error[E407]: column 'hours' has no number in row 1" in refused.err
    assert "set missing to mean, fill in the values, or drop the column" in refused.err
    wrong = cli(*by_sex("-o", "kept.csv", "--missing", "men"))
    assert (wrong.code, "did you mean 'mean'?" in wrong.err) == (2, True)
    answer = cli(*by_sex("-o", "kept.csv", "--filter", "f", "--missing", "mean"))
    assert (answer.code, re.findall(r"\[(\w+)\]: ", answer.err)) == (0, ["W407"])
    assert filter_json(folder / "f")["missing"] == "mean"
    again = cli("predict", "f", "people.csv", "-o", "told.csv")
    assert (again.code, again.err) == (0, "")


def test_an_empty_sample_is_an_error(folder, cli, listing):
    """Each of three rows is kept by chance; at a few seeds none is."""
    (folder / "people.csv").write_text("sex,x\nF,1\nM,1\nM,3\n")
    before = listing()
    options = ("--by", "sex", "--disclosivity", "0.05", "-o", "k.csv", "--seed")
    answers = (cli("filter", "people.csv", *options, seed) for seed in range(35, 60))
    answer = next(answer for answer in answers if answer.code)
    (folder / "k.csv").unlink(missing_ok=True)
    assert answer.code == 1
    assert "error[E501]: none of 3 rows is kept with --seed" in answer.err
    assert listing() == before
