"""Scores of existing models: thresholds and audits of a column, of a file and of stored models."""

import numpy as np
import pandas as pd
import pytest

from experiments import faults, measured_values, run_file, write
from ratecli.apply.predict import load_applicable_model, predict_table
from ratecli.cli.app import main
from ratecli.datasets.tables import read_table_file
from ratecli.datasets.text_format import PLAIN
from ratecli.errors import FaultError
from ratecli.experiment.prepare import prepare
from ratecli.models.storage import loads
from ratecli.sampling.rows import load_trial_data

FILE = """
name: scores
datasets:
  people: {path: people.csv, label: y, split: {by: part}, scores: [risk]}
groups: {women: sex = F, men: sex = M}
objective: error
constraints: {parity: 'positive_rate[women] >= 0.9 * positive_rate[men]'}
algorithms:
  - unconstrained: {model: {score: {name: risk, threshold: 0.25}}}
  - post_shift: {model: {score: risk}}
  - unconstrained: {as: fitted}
metrics: {error: error, women: 'positive_rate[women]', men: 'positive_rate[men]', auc: roc_auc}
"""
SCORES = "datasets.people.scores="
SMALL = "algorithms=[unconstrained: {model: {score: risk}}]"


def table(n: int = 60) -> pd.DataFrame:
    """Rows whose scores have ties, some of them at the thresholds .25 and .5."""
    rng = np.random.default_rng(0)
    risk, sex = rng.integers(0, 9, size=n) / 8, rng.choice(["F", "M"], n)
    y = (rng.random(n) < 0.7 * risk + 0.2 * (sex == "M")).astype(int)
    part = np.where(np.arange(n) % 3 == 0, "test", "train")
    x = rng.normal(size=n)
    return pd.DataFrame({"sex": sex, "x": x, "risk": risk, "y": y, "part": part})


@pytest.fixture
def folder(tmp_path):
    table().to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def stored_models(store):
    """Return the model of each variant by label and variant, of the only seed."""
    results = {trial.label: store.result(trial.key) for trial in store.plan()}
    return {
        (label, name): loads(blob)
        for label, result in results.items()
        for name, blob in result.models.items()
    }


def parity(rows, decisions):
    women, men = (decisions[rows.sex == sex].mean() for sex in "FM")
    return women >= 0.9 * men - 1e-12


def test_decisions_are_scores_above_the_threshold(folder):
    _, store = run_file(write(folder, FILE))
    for trial in store.plan():
        if trial.label == "unconstrained":
            measured = measured_values(trial, store.result(trial.key))
    for part in ("train", "test"):
        rows = table()[lambda each: each.part == part]  # noqa: B023
        yes = rows.risk > 0.25
        assert measured["error", part] == pytest.approx((yes != rows.y).mean(), abs=1e-12)
        assert measured["women", part] == pytest.approx(yes[rows.sex == "F"].mean(), abs=1e-12)
        order = np.sign(rows.risk[rows.y == 1].to_numpy()[:, None] - rows.risk[rows.y == 0].values)
        assert measured["auc", part] == pytest.approx((1 + order.mean()) / 2, abs=1e-12)


def test_group_thresholds_are_the_best_by_brute_force(folder):
    path = write(folder, FILE)
    _, store = run_file(path)
    found = stored_models(store)["post_shift", "deterministic"]
    case = prepare(path).cases[1]
    rows = load_trial_data(prepare(path).data, 0, None, case.sampling)
    decisions, own = rows.predictions(found).decisions, table().iloc[rows.positions]
    train = (own.part == "train").to_numpy()
    known = own[train]
    cuts = [-1, *sorted(set(known.risk))]
    best = min(
        (yes != known.y).mean()
        for women in cuts
        for men in cuts
        if parity(known, yes := known.risk > np.where(known.sex == "F", women, men))
    )
    assert parity(known, decisions[train])
    assert (decisions[train] != known.y).mean() == pytest.approx(best, abs=1e-12)


def test_a_score_is_no_feature_and_its_trial_has_no_other(folder):
    path = write(folder, FILE)
    prepared, risk = prepare(path), table().risk
    data = [load_trial_data(prepared.data, 0, None, case.sampling) for case in prepared.cases]
    np.testing.assert_array_equal(data[0].X, risk.to_numpy()[data[0].positions, None])
    assert data[2].X.shape[1] == 3  # sex and x
    assert "risk" not in data[2].encoding.partition("others")[0]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The models of a run; tests leave them as they are."""
    place = tmp_path_factory.mktemp("scores")
    table().to_csv(place / "people.csv", index=False)
    path = write(place, FILE)
    assert main(["run", str(path), "-q", "-j", "1", "-o", str(place / "results")]) == 0
    return place / "results" / "scores" / "models"


def test_models_predict_new_rows_from_the_score_alone(folder, models):
    model = load_applicable_model(models / "unconstrained-seed=0")
    new = folder / "new.csv"
    pd.DataFrame({"risk": [0.25, 0.26, -3, 7]}).to_csv(new, index=False)
    found, warnings = predict_table(model, *read_table_file(new, PLAIN), 0)
    assert found.columns["decision"].tolist() == [0, 1, 0, 1]
    assert not warnings
    new.write_text("risk\n1\nNA\n")
    with pytest.raises(FaultError, match=r"column 'risk' has no number in row 2"):
        predict_table(model, *read_table_file(new, PLAIN), 0)


def test_new_rows_of_an_unknown_group_are_reported(folder, models, capsys):
    stored, new = str(models / "post_shift-seed=0"), folder / "new.csv"
    pd.DataFrame({"risk": [0.4, 0.6, 0.6], "sex": ["F", "X", None]}).to_csv(new, index=False)
    capsys.readouterr()
    assert main(["predict", stored, str(new), "-o", f"{new}.csv"]) == 0
    said = capsys.readouterr().err
    assert "W404]: rows in a group that no training row was in: 2;" in said
    assert "W404]: column 'sex': 1 row with a value that did not occur" in said
    pd.DataFrame({"risk": [0.4, 0.6], "sex": ["F", "M"]}).to_csv(new, index=False)
    assert main(["predict", stored, str(new), "-o", f"{new}.csv"]) == 0
    assert not capsys.readouterr().err


def test_a_file_of_scores_is_like_a_column(folder):
    rows = table()
    rows.drop(columns="risk").to_csv(folder / "people.csv", index=False)
    rows[["risk"]].to_csv(folder / "s.csv", index=False)
    path = write(folder, FILE)
    values = []
    for sets in ("{risk: s.csv}", "[risk]"):
        _, store = run_file(path, SCORES + sets)
        results = [(trial, store.result(trial.key)) for trial in store.plan()]
        values.append([measured_values(*each) for each in results])
        rows.to_csv(folder / "people.csv", index=False)
    assert values[0] == values[1]


def keys(path, *overrides):
    return {task.key for task in prepare(path, overrides).plan.tasks}


def test_keys_change_with_the_file_and_the_threshold(folder):
    path = write(folder, FILE.replace("[risk]", "{old: s.csv}").replace("risk", "old"))
    table()[["risk"]].to_csv(folder / "s.csv", index=False)
    first = keys(path)
    assert first == keys(path)
    other = keys(path, "algorithms.0.unconstrained.model.score.threshold=0.3")
    assert len(first - other) == 1
    (1 - table()[["risk"]]).to_csv(folder / "s.csv", index=False)
    assert not first & keys(path)


def test_a_safety_test_certifies_a_score(folder):
    table(3000).to_csv(folder / "people.csv", index=False)
    text = FILE.partition("  - post_shift")[0].replace("name: risk, threshold: 0.25", "name: risk")
    text = text.replace("objective: error", "safety: {delta: 0.05}")
    _, store = run_file(write(folder, text), "constraints={few: 'positive_rate <= 0.6'}")
    (trial,) = store.plan()
    result = store.result(trial.key)
    assert result.status == "ok"
    assert list(result.models) == ["deterministic"]


@pytest.mark.parametrize("more", ["", ", levels: 2"])
def test_scores_of_rows_whose_features_are_ready_made(folder, more):
    chances = np.random.default_rng(0).random(600).round(3)
    pd.DataFrame({"s": chances}).to_csv(folder / "s.csv", index=False)
    data = f"{{source: clicks, rows: 600, scores: {{s: s.csv}}{more}}}"
    text = f"name: x\ndatasets: {{clicks: {data}}}\n{SMALL.replace('=', ': ').replace('risk', 's')}"
    path = write(folder, text)
    _, store = run_file(path)
    model = stored_models(store)["unconstrained", "deterministic"]
    rows = load_trial_data(prepare(path).data, 0, None, prepare(path).cases[0].sampling)
    wanted = np.repeat(chances > 0.5, rows.levels)
    np.testing.assert_array_equal(rows.predictions(model).decisions, wanted)


def test_a_score_is_the_deployed_model(folder):
    """Its decisions are those that other algorithms are compared with, and can be audited."""
    text = FILE.replace("objective: error", "deployed: {algorithm: now}")
    text = text.replace("unconstrained: {model", "unconstrained: {as: now, model")
    text = text.replace("{as: fitted}", "{as: fitted}\n  - audit").replace(
        "auc: roc_auc", "c: churn"
    )
    _, store = run_file(write(folder, text))
    values = {each.label: measured_values(each, store.result(each.key)) for each in store.plan()}
    assert values["audit"]["error", "test"] == values["now"]["error", "test"]
    assert values["audit"]["c", "test"] == 0 < values["fitted"]["c", "test"]
    models = stored_models(store)
    sampling = prepare(folder / "exp.yaml").cases[2].sampling
    rows = load_trial_data(prepare(folder / "exp.yaml").data, 0, None, sampling)
    own = table().iloc[rows.positions]
    changed = rows.predictions(models["fitted", "deterministic"]).decisions != (own.risk > 0.25)
    test = own.part == "test"
    assert values["fitted"]["c", "test"] == pytest.approx(changed[test].mean(), abs=1e-12)


def test_a_score_is_compared_with_a_stored_model(folder):
    """The stored model takes all features, the score's algorithm only one."""
    path, results = write(folder, FILE), folder / "results"
    assert main(["run", str(path), "-q", "-j", "1", "-o", str(results)]) == 0
    old = next(results.glob("scores/models/fitted*/deterministic.npz")).rename(folder / "old.npz")
    text = (
        FILE.partition("  - post_shift")[0] + f"deployed: {{model: {old}}}\nmetrics: {{c: churn}}"
    )
    _, store = run_file(write(folder, text, "next.yaml"))
    (trial,) = store.plan()
    assert 0 < measured_values(trial, store.result(trial.key))["c", "test"] < 1


@pytest.mark.parametrize(
    ("sets", "code", "words"),
    [
        (["algorithms=[unconstrained: {model: {score: rsik}}]"], "E205", "did you mean 'risk'"),
        ([SCORES + "[rsik]"], "E205", "scores: rsik"),
        ([SCORES + "[risk, yy]"], "E205", "did you mean 'y'"),
        ([SCORES + "[risk, y]"], "E411", "another role"),
        ([SCORES + "[risk]", "datasets.people.features=[risk]"], "E411", "another role"),
        ([SCORES + "[risk, sex]"], "E411", "holds text"),
        ([SCORES + "{s: gaps.csv}"], "E407", "'s' has no number in row 3"),
        ([SCORES + "{risk: few.csv}"], "E411", "already has a column 'risk'"),
        ([SCORES + "{s: few.csv}"], "E411", "'few.csv' has 2 rows, but the table has 60"),
        ([SCORES + "{s: words.csv}"], "E411", "holds text, such as 'a0'"),
        ([SCORES + "{risk2: odds.csv}", SMALL.replace("risk", "risk2")], "E411", "threshold: T"),
        ([SCORES + "{s: people.csv}"], "E205", "'people.csv' has 5 columns"),
        ([SCORES + "{s: none.csv}"], "E405", "'none.csv' does not exist"),
        ([SCORES + "{s: exp.yaml}"], "E404", "no file of scores"),
        ([SCORES + "3"], "E103", "a list of columns or a mapping"),
        ([SCORES + "[]"], "E103", "not an empty list"),
        ([SCORES + "{s: 3}"], "E103", "'s' must be text"),
        ([SCORES + "[risk]", "datasets.people.stream=true"], "E104", "cannot be combined"),
        (["algorithms=[unconstrained: {model: {score: {names: risk}}}]"], "E101", "'name'"),
        (
            ["algorithms=[unconstrained: {max_depth: 3}]"],
            "E101",
            "`model`: {NAME: {max_depth: ...}}",
        ),
        (["algorithms=[unconstrained: {model: {score: {name: risk, threshold: x}}}]"], "E103", ""),
        (["algorithms=[unconstrained: {model: {score: [risk]}}]"], "E103", "write {score: NAME}"),
        (["algorithms=[mixture: {model: {score: risk}}]"], "E104", "an existing score"),
        (["algorithms=[unconstrained: {model: score}]"], "E103", "write {score: NAME}"),
        (["algorithms=[unconstrained: {model: {score: risk}, tune: {a: [1]}}]"], "E101", "neither"),
        (["algorithms=[unconstrained: {model: {score: risk}, loss: hinge}]"], "E104", "fitted"),
        (["algorithms=[post_shift: {model: {score: risk}, scores: in_sample}]"], "E104", "fitted"),
    ],
)
def test_mistakes_are_located(folder, sets, code, words):
    gaps = table().risk.where(table().index != 2)
    gaps.to_csv(folder / "gaps.csv", index=False, na_rep="NA")
    (folder / "few.csv").write_text("s\n1\n2\n")
    (folder / "odds.csv").write_text("s\n" + "-1\n" * 30 + "2.5\n" * 30)
    (folder / "words.csv").write_text("s\n" + "".join(f"a{k}\n" for k in range(60)))
    used = SMALL if sets[0] == SCORES + "[rsik]" else "algorithms=[unconstrained]"
    found = faults(write(folder, FILE), used, *sets)
    assert {fault.code for fault in found} == {code}
    assert words in f"{found[0].message} {found[0].help}"
    assert found[0].place


def test_scores_of_any_range_have_thresholds(folder):
    (folder / "odds.csv").write_text("s\n" + "-1\n" * 30 + "2.5\n" * 30)
    others = (
        "post_shift: {model: {score: s}}, thresholded: {model: {score: s}}, "
        "unconstrained: {model: {score: {name: s, threshold: 0}}}"
    )
    sets = [SCORES + "{s: odds.csv}", f"algorithms=[{others}]"]
    prepare(write(folder, FILE), sets)  # raises FaultError for an error
