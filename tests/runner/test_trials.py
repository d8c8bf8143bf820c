"""Stored results of trials, compared with numbers counted from their models and rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments import faults, measured_values, people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import BEST_CONSTANT_KEY
from ratecli.models.storage import loads
from ratecli.runner.trial import run_trial
from ratecli.sampling.rows import load_trial_data
from ratecli.solvers.players.options import ThreePlayer

PARITY = "positive_rate[women] >= 0.9 * positive_rate[men]"
BASE = """
name: small
datasets:
  people: {path: people.csv, label: y, drop: [old]}
groups: {women: sex = F, men: sex = M}
objective: error
constraints: {parity: 'positive_rate[women] >= 0.9 * positive_rate[men]'}
algorithms: [unconstrained, majorize: {iterations: 3}]
seeds: 2
metrics: {err: error, women: 'positive_rate[women]', gap: 'max_gap(tpr, by=sex)'}
"""


@pytest.fixture
def folder(tmp_path):
    people(300, 1).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def results_of(store):
    return {(p.label, p.seed, *p.point.values()): (p, store.result(p.key)) for p in store.plan()}


def test_stored_values_are_those_of_the_stored_model(folder):
    path = write(folder, BASE)
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 4}
    for (_, seed), (planned, result) in results_of(store).items():
        rows = load_trial_data(prepare(path).data, seed)
        frame = pd.read_csv(folder / "people.csv").iloc[rows.positions]
        y, women = (frame.y == 1).to_numpy(), (frame.sex == "F").to_numpy()
        for variant, blob in result.models.items():
            p = loads(blob).decide(rows.X)
            measured = measured_values(planned, result, variant)
            for split in ("train", "test"):
                part = rows.sample.part == split
                tpr = [p[part & y & group].mean() for group in (women, ~women)]
                share = [p[part & group].mean() for group in (women, ~women)]
                error = np.where(y, 1 - p, p)[part].mean()
                expected = {
                    "err": error,
                    "objective": error,
                    "women": share[0],
                    "gap": abs(tpr[0] - tpr[1]),
                    "violation.parity": 0.9 * share[1] - share[0],
                }
                found = {name: measured[name, split] for name in expected}
                assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("rule", "decision"), [("recall >= 0.6", 1), ("recall <= 0.6", 0)])
def test_the_best_constant_decision_satisfies_the_constraints(folder, rule, decision):
    path = write(folder, BASE.replace(f"parity: '{PARITY}'", f"r: {rule}"))
    prepared = prepare(path)
    _, store = run_file(path)
    label = (pd.read_csv(folder / "people.csv").y == 1).to_numpy()
    for (name, seed), (_, result) in results_of(store).items():
        rows = load_trial_data(prepared.data, seed)
        for split, found in result.info[BEST_CONSTANT_KEY].items():
            own = label[rows.positions[rows.sample.part == split]]
            errors = [np.mean(own != each) for each in (0, 1)]
            ignores = name == "unconstrained"
            assert found == pytest.approx(min(errors) if ignores else errors[decision])
        assert set(result.info[BEST_CONSTANT_KEY]) == {"train", "test"}


@pytest.mark.parametrize(("rules", "constant"), [("{r: positive_rate <= 0.5}", 1.0), ("{}", None)])
def test_a_constant_satisfies_rules_if_the_algorithm_does_not_minimize_the_objective(
    folder, rules, constant
):
    text = "name: x\ndatasets: {people: {path: people.csv, label: y}}\nobjective: 1 - recall\n"
    _, store = run_file(write(folder, f"{text}constraints: {rules}\nalgorithms: [unconstrained]\n"))
    ((_, result),) = results_of(store).values()
    assert result.info[BEST_CONSTANT_KEY].get("test") == constant


def test_models_depend_on_training_rows_only(folder):
    path = write(folder, BASE)
    _, store = run_file(path)
    before = {key: store.result(p.key).models for key, (p, _) in results_of(store).items()}
    frame = pd.read_csv(folder / "people.csv")
    rows = load_trial_data(prepare(path).data, 0)
    test = rows.positions[rows.sample.part == "test"]
    frame.loc[test, ["x", "z"]] = 99.0
    frame.loc[test, "y"] = 1 - frame.loc[test, "y"]
    frame.to_csv(folder / "people.csv", index=False)
    _, store = run_file(path)
    for key, (planned, _) in results_of(store).items():
        if key[1] == 0:
            assert store.result(planned.key).models == before[key]


def test_of_is_the_value_of_the_other_algorithm_on_the_same_split(folder):
    text = BASE.replace("metrics: {", "metrics: {price: 'error / of(unconstrained, error)', ")
    text = text.replace(
        "constraints: {", "constraints: {cost: 'error <= 1.3 * of(unconstrained, error)', "
    )
    _, store = run_file(write(folder, text))
    found = results_of(store)
    for seed in (0, 1):
        reference = measured_values(*found["unconstrained", seed])
        planned, result = found["majorize", seed]
        for variant in result.models:
            measured = measured_values(planned, result, variant)
            for split in ("train", "test"):
                assert reference["price", split] == 1.0
                error, plain = measured["err", split], reference["err", split]
                assert measured["price", split] == pytest.approx(error / plain)
                assert measured["violation.cost", split] == pytest.approx(error - 1.3 * plain)


def test_several_data_sets_are_measured_as_one_sample(tmp_path):
    for name, rows in (("a", 200), ("b", 120)):
        people(rows, rows).to_csv(tmp_path / f"{name}.csv", index=False)
    people(150, 3).drop(columns="y").to_csv(tmp_path / "c.csv", index=False)
    path = write(tmp_path, """
name: several
datasets:
  a: {path: a.csv, label: y, features: [x, z]}
  b: {path: b.csv, label: y, features: [x, z]}
  c: {path: c.csv, features: [x, z]}
objective: error[a]
constraints: {cover: 'positive_rate[c] <= 0.4', stay: 'tpr[b] >= 0.5'}
algorithms: [majorize: {iterations: 3}]
metrics: {all: error, a: 'error[a]', b: 'error[b]', cover: 'positive_rate[c]', ab: 'error[a, b]'}
""")  # fmt: skip
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 1}
    (planned,) = store.plan()
    measured = measured_values(planned, store.result(planned.key))
    a, b, pooled, both, cover = (
        measured[name, "train"] for name in ("a", "b", "all", "ab", "cover")
    )
    assert pooled == pytest.approx((133 * a + 80 * b) / 213, abs=5e-3)
    assert both == pytest.approx(pooled)
    assert cover <= 0.4 + 1e-9


@pytest.mark.parametrize(
    ("overrides", "same"), [([], False), (["datasets.people.split.seed=5"], True)]
)
def test_a_split_seed_fixes_the_split_for_all_seeds(folder, overrides, same):
    data = prepare(write(folder, BASE), overrides).data
    one, two = (load_trial_data(data, seed).positions for seed in (0, 1))
    assert (one == two).all() == same


def test_a_model_compared_with_itself_has_exactly_no_churn_and_no_win_loss_ratio(folder):
    text = BASE.replace("metrics: {", "metrics: {churn: churn, wins: wins, ratio: win_loss_ratio, ")
    _, store = run_file(write(folder, text + "deployed: {algorithm: unconstrained}\n"))
    measured = measured_values(*results_of(store)["unconstrained", 0])
    assert measured["churn", "train"] == measured["wins", "train"] == 0.0
    assert np.isnan(measured["ratio", "train"])


def test_the_deployed_column_is_not_a_feature(folder):
    text = BASE.replace(", drop: [old]", "") + "deployed: {column: old}\n"
    X = load_trial_data(prepare(write(folder, text)).data, 0).X
    assert X.shape[1] == 4  # sex=F, sex=M, x, z


def test_decisions_of_the_deployed_model_may_be_words_that_the_file_names(folder):
    text = BASE.replace(", drop: [old]", "") + "deployed: {column: old, positive: keep}\n"
    frame = pd.read_csv(folder / "people.csv")
    decided = frame.old.to_numpy() == 1
    frame["old"] = np.where(decided, "keep", "remove")
    frame.to_csv(folder / "people.csv", index=False)
    rows = load_trial_data(prepare(write(folder, text)).data, 0, "old")
    np.testing.assert_array_equal(rows.sample.deployed, decided[rows.positions])
    (fault,) = faults(write(folder, text.replace("keep", "stay")))
    assert "one must be 'stay'" in fault.help


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        *(("seeds: 2", f"sweep: {{{name}: [0.1]}}", "E106") for name in ("error", "max_gap", "of")),
        ("objective: error", "objective: 0.3 + 0.1", "the objective contains no rate"),
        ("seeds: 2", "seeds: 1000\nsweep: {a: 'linspace(0, 1, 999)'}", "this makes 1998000 trials"),
        (PARITY, "positive_rate[women] >= 1.2", "'parity' can never hold"),
    ],
)
def test_impossible_experiments_are_refused(folder, old, new, message):
    assert old in BASE
    (fault,) = faults(write(folder, BASE.replace(old, new)))
    assert message in f"{fault.code}: {fault.message}"


@pytest.mark.parametrize("factor", [2.0**990, 2.0**-990, 2.0**60])  # exact in binary
def test_a_constant_factor_of_row_weights_changes_nothing(folder, factor):
    frame = people(300, 1).assign(w=np.random.default_rng(0).uniform(0.5, 2, 300))
    text = BASE.replace("label: y,", "label: y, weight: w,")
    text = text.replace("majorize: {iterations: 3}", "mixture, three_player: {steps: 20}")
    text = text.replace("seeds: 2", "seeds: 1")
    found = []
    for times in (1, factor):
        frame.assign(w=times * frame.w).to_csv(folder / "people.csv", index=False)
        outcome, store = run_file(write(folder, text))
        assert sum(outcome.counts.values()) == 3
        found.append({name: result.values for name, (_, result) in results_of(store).items()})
    assert found[0] == found[1]
    assert all(found[0].values())


def test_data_sets_whose_weights_are_too_far_apart_are_refused(folder):
    for name, times in (("few", 1e-20), ("many", 1e20)):
        people(300, 1).assign(w=times).to_csv(folder / f"{name}.csv", index=False)
    data = "{a: {path: few.csv, label: y, weight: w}, b: {path: many.csv, label: y, weight: w}}"
    path = write(folder, f"name: far\ndatasets: {data}\nalgorithms: [unconstrained]\n")
    (fault,) = faults(path)
    assert fault.code == "E411"
    assert fault.message.startswith("the weight of all data sets together ranges from 1e-20 to")


SWEPT = """
name: swept
datasets: {people: {path: people.csv, label: y, drop: [old]}}
groups: {women: sex = F, men: sex = M}
sweep: {kappa: [0.5, 0.7, 0.9]}
objective: error
constraints: {parity: 'positive_rate[women] >= kappa * positive_rate[men]'}
algorithms:
  - unconstrained
  - three_player: {sweep: {steps: [20, 30]}}
  - three_player: {as: new_rows, steps: 30, holds: new_rows}
"""


REFERRING = (
    SWEPT.replace("sweep: {kappa: [0.5, 0.7, 0.9]}\n", "")
    .replace("sweep: {steps", "sweep: {kappa: [0.5, 0.7, 0.9], steps")
    .replace("as: new_rows", "sweep: {kappa: [0.5]}, as: new_rows")
    .replace("'positive_rate", "'of(unconstrained, error) + positive_rate")
    .replace("drop: [old]", "drop: [old], split: {train: 0.6, validation: 0.2, test: 0.2}")
)


@pytest.mark.parametrize(
    ("text", "fails"),
    [(SWEPT, True), (REFERRING, False)],
    ids=["plain", "of and validation rows"],
)
def test_trials_that_differ_in_goals_alone_are_solved_together_with_equal_results(
    folder, monkeypatch, text, fails
):
    """If the common work fails, each trial is solved alone."""
    started = list[int]()

    def start(solver, problems, *more):
        started.append(len(problems))
        return 1 / 0 if fails else solve_together(solver, problems, *more)

    solve_together = ThreePlayer.solve_together
    monkeypatch.setattr(ThreePlayer, "solve_together", start)
    path = write(folder, text)
    tasks = [task.payload for task in prepare(path).plan.tasks]
    points = {spec.key: {**spec.case.point, "seed": spec.seed} for spec in tasks}
    for spec in tasks:
        together = [points[key] for key in spec.together]
        assert len(together) == (3 if spec.case.label == "three_player" else 0)
        assert all(each | {"kappa": 0} == points[spec.key] | {"kappa": 0} for each in together)
    free = {spec.key: run_trial(spec, {}) for spec in tasks if spec.case.label == "unconstrained"}
    for spec in filter(lambda spec: spec.together, tasks):
        found, alone = run_trial(spec, free), run_trial(replace(spec, together={}), free)
        assert (found.models, found.values) == (alone.models, alone.values)
    assert started == [3] * 2
