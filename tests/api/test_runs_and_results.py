import json
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import ratecli
from ratecli import FaultError, RatecliWarning
from ratecli.apply.predict import predict_file
from ratecli.cli.app import main
from ratecli.config.trials import SafetySpec

EXPERIMENT = {
    "name": "small",
    "datasets": {"loans": {"source": "loans", "rows": 400}},
    "constraints": {"parity": "positive_rate[sex = Female] >= kappa * positive_rate[sex = Male]"},
    "sweep": {"kappa": np.array([0.6, 0.9])},
    "algorithms": [
        "unconstrained",
        {"majorize": {"iterations": 2, "randomize": True, "variants": ["deterministic"]}},
    ],
    "seeds": 2,
}
pytestmark = pytest.mark.filterwarnings("ignore:W402::")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def results(folder):
    with pytest.warns(RatecliWarning, match="W402: 'majorize' violates 'parity' on"):
        return ratecli.run(EXPERIMENT, output=folder / "results")


def test_results_equal_the_files_of_the_run(results, folder):
    assert results.folder == folder / "results" / "small"
    pd.testing.assert_frame_equal(
        results.metrics.astype({"kappa": float, "seed": int}),
        pd.read_csv(results.folder / "metrics.csv"),
        check_dtype=False,
    )
    assert list(results.trials["status"].unique()) == ["ok"]
    assert len(results.trials) == 8
    assert (results.trials["seconds"] > 0).all()
    assert list(results.summary["n"].unique()) == [2]
    assert results.experiment["seeds"] == [0, 1]


def test_load_results_needs_no_data(results, folder):
    (folder / "small.yaml").write_text((results.folder / "resolved.yaml").read_text())
    copy = shutil.copytree(results.folder, folder / "copy.yaml")  # not a file
    for path in (results.folder, results.folder / "trials.sqlite", folder / "small.yaml", copy):
        again = ratecli.load_results(path, output=folder / "results")
        pd.testing.assert_frame_equal(again.metrics, results.metrics)
        pd.testing.assert_frame_equal(again.summary, results.summary)


def test_executor_names(results, folder):
    with pytest.raises(ValueError, match="'threads' is not one of "):
        ratecli.run(EXPERIMENT, output=folder / "named", executor="threads")
    assert not (folder / "named").exists()
    named = ratecli.run(EXPERIMENT, output=folder / "named", executor="serial")
    pd.testing.assert_frame_equal(named.metrics, results.metrics)


def test_stored_trials_do_not_run_again(folder, results):
    again = ratecli.run(EXPERIMENT, output=folder / "results")
    pd.testing.assert_frame_equal(again.trials, results.trials)  # seconds, too
    as_before = ratecli.run(EXPERIMENT, output=folder / "results", settings="seeds=2")
    pd.testing.assert_frame_equal(as_before.trials, results.trials)
    settings = {"seeds": 3, "sweep.kappa": [0.6]}
    more = ratecli.run(EXPERIMENT, output=folder / "more", settings=settings)
    assert more.trials.groupby("algorithm").size().to_dict() == {"majorize": 3, "unconstrained": 3}


def test_models_predict_like_the_command(folder, results):
    X, _ = ratecli.load_dataset("loans", rows=50, seed=9)
    X.to_csv(folder / "new.csv", index=False)
    for variant in (None, "stochastic", "deterministic"):
        model = results.model("majorize", variant, seed=1, kappa=0.9)
        stored = results.folder / "models" / "majorize-kappa=0.9-seed=1"
        predict_file(stored, folder / "new.csv", folder / "out.csv", variant=variant, seed=3)
        told = pd.read_csv(folder / "out.csv")
        answers = model.answers(X.set_index(X.index + 7), seed=3)
        assert (answers.index == X.index + 7).all()
        np.testing.assert_allclose(answers["score"], told["score"], rtol=1e-12)
        np.testing.assert_allclose(model.chances(X), told["chance"], rtol=1e-12)
        assert (model.predict(X, seed=3) == told["decision"]).all()
    assert (model.predict(X[model.columns], seed=3) == told["decision"]).all()
    with pytest.raises(ValueError, match="there is no column 'income'"):
        model.predict(X.drop(columns="income"))


def test_columns_of_a_model_include_those_of_its_groups(folder):
    """A trial whose features leave out the groups of its thresholds."""
    X, y = ratecli.load_dataset("loans", rows=400, seed=9)
    X.assign(repaid=y).to_csv(folder / "table.csv", index=False)
    table = {"path": str(folder / "table.csv"), "label": "repaid", "drop": ["sex"]}
    file = {
        "name": "shift",
        "datasets": {"table": table},
        "constraints": {"parity": "positive_rate[sex = Female] >= 0.8 * positive_rate[sex = Male]"},
        "algorithms": ["post_shift"],
    }
    found = ratecli.run(file, output=folder / "shift")
    model = found.model("post_shift")
    assert "sex" in model.columns
    assert (model.predict(X[model.columns]) == model.predict(X)).all()
    manifest = json.loads((found.folder / "manifest.json").read_text("utf-8"))
    assert manifest["command"] == []  # `sys.argv` is not a ratecli command


def test_ambiguous_models_are_errors(results):
    assert results.model("unconstrained", kappa=0.6, seed=1).name.startswith("unconstrained kappa")
    with pytest.raises(ValueError, match="2 trials match"):
        results.model("majorize")
    with pytest.raises(ValueError, match="no trials match"):
        results.model("majorize", kappa=0.7)
    with pytest.raises(ValueError, match="no variant 'best'"):
        results.model("majorize", "best", kappa=0.6)


def test_errors_have_a_location_in_the_mapping(folder):
    with pytest.raises(FaultError, match="did you mean 'majorize'") as caught:
        ratecli.run(EXPERIMENT | {"algorithms": ["majorise"]}, output=folder)
    assert "--> algorithms.0:1:1" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ratecli.run(EXPERIMENT, settings=["seds=2"]), "unknown key 'seds'"),
        (lambda: ratecli.run(EXPERIMENT, settings={"seeds": {1, 2}}), "a setting is a set"),
        (lambda: ratecli.load_results("."), "there is no ledger"),
        (lambda: ratecli.run("absent.yaml"), "absent"),
        (lambda: ratecli.run(EXPERIMENT, jobs=0), "jobs must be at least 1"),
        (lambda: ratecli.load_dataset("loan"), "did you mean 'loans'"),
        (lambda: ratecli.load_dataset("loans", split="test"), "no rows called 'test'"),
        (lambda: ratecli.load_dataset("loans", row=3), "unknown key 'row'"),
        (lambda: ratecli.load_dataset("loans", rows="many"), "'rows' must be a whole number"),
    ],
)
def test_invalid_arguments_are_value_errors(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        call()
    assert not list(tmp_path.iterdir())


def test_load_dataset():
    X, y = ratecli.load_dataset("loans", rows=300)
    assert X.shape == (300, 8)
    assert set(y) == {0, 1}
    assert "repaid" not in X


def test_importing_ratecli_imports_nothing_slow():
    code = (
        "import sys, ratecli; assert 'RateConstrainedClassifier' in dir(ratecli); "
        "print({'numpy', 'pandas', 'sklearn', 'pydantic'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"
    assert all(getattr(ratecli, name).__doc__ for name in ratecli._WHERE)
    with pytest.raises(AttributeError, match="no attribute 'runs'"):
        ratecli.runs  # noqa: B018


RULES = "error <= 0.5"
WRONG_TYPES = [
    (ratecli.RateConstrainedClassifier, {"constraints": 5}, "'constraints' must be a rule, a list"),
    (ratecli.RateConstrainedClassifier, {"constraints": {None: RULES}}, "text, not None"),
    (ratecli.RateConstrainedClassifier, {"constraints": None}, "of names to rules, not None"),
    (ratecli.RateConstrainedClassifier, {"groups": ["a"]}, "'groups' must be a mapping of names"),
    (ratecli.RateConstrainedClassifier, {"solver": None}, "the name of an algorithm, not None"),
    (ratecli.RateConstrainedClassifier, {"solver_options": [1]}, "names to values, not [1]"),
    (ratecli.RateConstrainedClassifier, {"drop": None}, "a list of column names, not None"),
    (ratecli.RateConstrainedClassifier, {"drop": [None]}, "a list of column names, not [None]"),
    (ratecli.RateConstrainedRegressor, {"parameters": 5}, "to values, not the number 5"),
    (ratecli.BalancedFilter, {"by": 5}, "'by' must be a column name, or a list of them"),
    (ratecli.BalancedFilter, {"solver_options": [1]}, "names to values, not [1]"),
    (partial(ratecli.SafetyTest, LogisticRegression()), {"constraints": 5}, "a rule, a list"),
    (ratecli.SafetyTest, {"estimator": 5}, "'estimator' must be a classifier, not the number 5"),
]


@pytest.mark.parametrize(("make", "options", "message"), WRONG_TYPES)
def test_arguments_of_wrong_types_are_named(make, options, message):
    X, y = pd.DataFrame({"x": range(20), "sex": ["f", "m"] * 10}), np.arange(20) % 2
    with pytest.raises(ValueError, match="E103") as caught:
        make(**options).fit(X, y)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ratecli.rate_score("error", [0, 1], [0, 1], groups=[1]), "'groups' must be a map"),
        (lambda: ratecli.run(5), "'source' must be a path or a mapping, not the number 5"),
        (lambda: ratecli.run(EXPERIMENT, settings=None), "'settings' must be a mapping, or a list"),
        (lambda: ratecli.run(EXPERIMENT, jobs=None), "'jobs' must be a whole number, not None"),
        (lambda: ratecli.load_results(None), "'path' must be a path, not None"),
        (lambda: ratecli.load_dataset(None), "'name' must be the name of a data set, not None"),
    ],
)
def test_arguments_of_functions_of_wrong_types_are_named(call, message):
    with pytest.raises(FaultError, match="E103") as caught:
        call()
    assert message in str(caught.value)


def test_the_folder_of_a_mapping_is_an_experiment_for_other_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = EXPERIMENT | {"seeds": 1, "algorithms": ["unconstrained"], "report": {"plots": []}}
    ratecli.run(content, settings={"sweep.kappa": [0.7]})
    assert [main([name, "results/small"]) for name in ("report", "pin", "check")] == [0, 0, 0]
    assert " same" in capsys.readouterr().out


def test_the_default_share_of_safety_rows_is_that_of_files():
    default = SafetySpec.model_fields["fraction"].default
    assert ratecli.SafetyTest(LogisticRegression()).fraction == default
