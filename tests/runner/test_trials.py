"""What a trial stores, against numbers counted by hand from its own model and rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments import people, run_file, write
from ratecli.errors import FaultError
from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import BEST_CONSTANT_KEY
from ratecli.models.storage import loads
from ratecli.sampling.rows import load_trial_data

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


def test_stored_numbers_are_those_of_the_stored_model(folder):
    path = write(folder, BASE)
    prepared = prepare(path)
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 4}
    frame = pd.read_csv(folder / "people.csv")
    for (_, seed), (planned, result) in results_of(store).items():
        rows = load_trial_data(prepared.data, seed)
        for variant, blob in result.models.items():
            p = loads(blob).decide(rows.X)
            for split in ("train", "test"):
                part = rows.sample.part == split
                known = {v.metric: v.value for v in result.values
                         if v.variant == variant and v.split == split}  # fmt: skip

                def rate(mask, part=part, p=p):
                    return p[part & mask].mean()

                y, women = frame.y == 1, frame.sex == "F"
                wrong = np.where(frame.y == 1, 1 - p, p)
                expected = {
                    "err": wrong[part].mean(),
                    "objective": wrong[part].mean(),
                    "women": rate(women),
                    "gap": abs(rate(y & women) - rate(y & ~women)),
                    "violation.parity": 0.9 * rate(~women) - rate(women),
                }
                for name, value in expected.items():
                    assert known[planned.metrics[name]] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("rule", "decision"), [("recall >= 0.6", 1), ("recall <= 0.6", 0)])
def test_the_best_constant_decision_satisfies_the_constraints(folder, rule, decision):
    path = write(
        folder,
        BASE.replace("parity: 'positive_rate[women] >= 0.9 * positive_rate[men]'", f"r: {rule}"),
    )
    prepared = prepare(path)
    _, store = run_file(path)
    label = (pd.read_csv(folder / "people.csv").y == 1).to_numpy()
    for (_, seed), (_, result) in results_of(store).items():
        part = load_trial_data(prepared.data, seed).sample.part
        assert result.info[BEST_CONSTANT_KEY] == pytest.approx(
            {split: np.mean(label[part == split] != decision) for split in ("train", "test")}
        )


def test_training_rows_alone_decide_a_model(folder):
    path = write(folder, BASE)
    _, store = run_file(path)
    before = {key: store.result(p.key).models for key, (p, _) in results_of(store).items()}
    frame = pd.read_csv(folder / "people.csv")
    test = load_trial_data(prepare(path).data, 0).sample.part == "test"
    frame.loc[test, ["x", "z"]] = 99.0
    frame.loc[test, "y"] = 1 - frame.loc[test, "y"]
    frame.to_csv(folder / "people.csv", index=False)
    _, store = run_file(path)
    for key, (planned, _) in results_of(store).items():
        if key[1] == 0:
            assert store.result(planned.key).models == before[key]


def test_of_takes_the_number_of_the_other_algorithm_on_the_same_split(folder):
    text = BASE.replace("metrics: {", "metrics: {price: 'error / of(unconstrained, error)', ")
    text = text.replace(
        "constraints: {", "constraints: {cost: 'error <= 1.3 * of(unconstrained, error)', "
    )
    _, store = run_file(write(folder, text))
    found = results_of(store)
    for seed in (0, 1):
        plain, result = found["unconstrained", seed]
        errors = {v.split: v.value for v in result.values if v.metric == "error"}
        ours, theirs = found["majorize", seed]
        for value in theirs.values:
            same = {v.metric: v.value for v in theirs.values
                    if v.variant == value.variant and v.split == value.split}  # fmt: skip
            error = same["error"]
            assert same[ours.metrics["price"]] == pytest.approx(error / errors[value.split])
            cost = error - 1.3 * errors["train"]
            assert same[ours.metrics["violation.cost"]] == pytest.approx(cost)
        own = {v.value for v in result.values if v.metric == plain.metrics["price"]}
        assert own == {1.0}


@pytest.mark.parametrize("deployed", ["{column: old}", "{algorithm: unconstrained}"])
def test_churn_compares_with_the_deployed_model(folder, deployed):
    text = BASE.replace("metrics: {", "metrics: {churn: churn, wins: wins, losses: losses, ")
    text += f"deployed: {deployed}\n"
    text = text.replace("constraints: {", "constraints: {stay: churn <= 0.45, ")
    path = write(folder, text)
    _, store = run_file(path)
    frame = pd.read_csv(folder / "people.csv")
    found = results_of(store)
    for seed in (0, 1):
        rows = load_trial_data(prepare(path).data, seed)
        old = frame.old.to_numpy()
        if "algorithm" in deployed:
            blob = next(iter(found["unconstrained", seed][1].models.values()))
            old = loads(blob).decide(rows.X)
        planned, result = found["majorize", seed]
        assert result.status == "ok"
        for variant, blob in result.models.items():
            p = loads(blob).decide(rows.X)
            test = rows.sample.part == "test"
            differs = np.where(old == 1, 1 - p, p)[test].mean()
            right = np.where(frame.y == 1, p, 1 - p)
            wins = np.where(old != frame.y, right, 0)[test].mean()
            losses = np.where(old == frame.y, 1 - right, 0)[test].mean()
            known = {v.metric: v.value for v in result.values
                     if v.variant == variant and v.split == "test"}  # fmt: skip
            measured = [known[planned.metrics[name]] for name in ("churn", "wins", "losses")]
            assert measured == pytest.approx([differs, wins, losses])


def test_several_data_sets_are_one_sample(tmp_path):
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
    values = store.result(planned.key).values
    known = {v.metric: v.value for v in values if v.variant == "stochastic" and v.split == "train"}
    sizes = {"a": 133, "b": 80}
    pooled = sum(known[planned.metrics[k]] * n for k, n in sizes.items()) / sum(sizes.values())
    assert known["error"] == pytest.approx(pooled, abs=5e-3)
    assert known[planned.metrics["ab"]] == pytest.approx(known["error"])
    assert known[planned.metrics["cover"]] <= 0.4 + 1e-9


def test_names_do_not_enter_a_key_and_everything_else_does(folder):
    keys = {t.key for t in prepare(write(folder, BASE)).plan.tasks}

    def changed(text: str, *overrides: str) -> bool:
        plan = prepare(write(folder, text, "other.yaml"), overrides).plan
        return {t.key for t in plan.tasks} != keys

    assert not changed("# a comment\n" + BASE)
    assert not changed(BASE.replace("women", "ladies").replace("parity", "fair"))
    assert not changed(BASE.replace("name: small", "name: other").replace("err:", "mistakes:"))
    reordered = "\n".join(reversed([line for line in BASE.strip().split("\n") if line[0] != " "]))
    reordered = reordered.replace(
        "datasets:", "datasets: {people: {path: people.csv, label: y, drop: [old]}}"
    )
    assert not changed(reordered)
    assert not changed(BASE.replace("error\n", "error_rate\n"))
    assert changed(BASE, "regularization.l2=2/n")
    assert changed(BASE, "seeds=[0, 2]")
    assert changed(BASE.replace("0.9", "0.8"))
    assert changed(BASE.replace("iterations: 3", "iterations: 4"))
    assert changed(BASE, "datasets.people.split.test=0.2", "datasets.people.split.train=0.8")
    people(300, 2).to_csv(folder / "people.csv", index=False)
    assert changed(BASE)


def test_a_stated_split_seed_fixes_the_split_for_all_seeds(folder):
    free = prepare(write(folder, BASE)).data
    fixed = prepare(write(folder, BASE), ["datasets.people.split.seed=5"]).data
    one, two = (load_trial_data(free, seed).sample.part for seed in (0, 1))
    assert (one != two).any()
    one, two = (load_trial_data(fixed, seed).sample.part for seed in (0, 1))
    assert (one == two).all()


def test_zero_is_zero_and_zero_over_zero_is_nothing(folder):
    """A classifier that is the deployed model neither wins nor loses: no rounding pretends it does."""
    text = BASE.replace("metrics: {", "metrics: {churn: churn, wins: wins, ratio: win_loss_ratio, ")
    path = write(folder, text + "deployed: {algorithm: unconstrained}\n")
    _, store = run_file(path)
    planned, result = results_of(store)["unconstrained", 0]
    known = {v.metric: v.value for v in result.values if v.split == "train"}
    assert known[planned.metrics["churn"]] == known[planned.metrics["wins"]] == 0.0
    assert np.isnan(known[planned.metrics["ratio"]])


def test_the_deployed_column_is_no_feature(folder):
    text = BASE.replace(", drop: [old]", "") + "deployed: {column: old}\n"
    assert (
        load_trial_data(prepare(write(folder, text)).data, 0).X.shape[1] == 4
    )  # sex=F, sex=M, x, z


@pytest.mark.parametrize("name", ["error", "recall", "max_gap", "of", "sqrt"])
def test_a_swept_name_may_not_hide_the_language(folder, name):
    text = BASE.replace("seeds: 2", "seeds: 2\nsweep: {" + name + ": [0.1, 0.2]}")
    with pytest.raises(FaultError) as caught:
        prepare(write(folder, text))
    (fault,) = caught.value.faults
    assert (fault.code, fault.place.line, fault.place.column) == ("E106", 10, 9)


def test_an_objective_without_a_rate_says_nothing(folder):
    with pytest.raises(FaultError, match="E305: the objective contains no rate"):
        prepare(write(folder, BASE.replace("objective: error", "objective: 0.3 + 0.1")))


def test_too_many_trials_are_refused_at_once(folder):
    text = BASE.replace("seeds: 2", "seeds: 1000\nsweep: {a: 'linspace(0, 1, 999)'}")
    with pytest.raises(FaultError, match="E105: this makes 1998000 trials, over 100000"):
        prepare(write(folder, text))


@pytest.mark.parametrize(
    "rule", ["0.5 <= positive_rate[women] <= 0.4", "0.9 <= tpr[men] - tnr[men] <= tpr[men] - 0.2"]
)
def test_a_chain_that_nothing_can_meet_is_refused(folder, rule):
    """Each comparison alone can be met."""
    text = BASE.replace("positive_rate[women] >= 0.9 * positive_rate[men]", rule)
    with pytest.raises(FaultError, match="E305: 'parity' can never hold"):
        prepare(write(folder, text))


def test_a_chain_that_can_be_met_is_taken(folder):
    rule = "0.3 <= positive_rate[women] <= 0.4"
    text = BASE.replace("positive_rate[women] >= 0.9 * positive_rate[men]", rule)
    assert prepare(write(folder, text)).plan.tasks


@pytest.mark.parametrize("factor", [2.0**990, 2.0**-990, 2.0**60])  # exact in binary
def test_a_constant_factor_of_row_weights_changes_nothing(folder, factor):
    frame = people(300, 1).assign(w=np.random.default_rng(0).uniform(0.5, 2, 300))
    text = BASE.replace("label: y,", "label: y, weight: w,")
    text = text.replace("majorize: {iterations: 3}", "mixture, three_player: {steps: 100}")
    found = []
    for times in (1, factor):
        frame.assign(w=times * frame.w).to_csv(folder / "people.csv", index=False)
        outcome, store = run_file(write(folder, text))
        assert sum(outcome.counts.values()) == 6
        found.append({name: result.values for name, (_, result) in results_of(store).items()})
    assert found[0] == found[1]
    assert all(found[0].values())


def test_data_sets_weighed_in_units_too_far_apart_are_refused(folder):
    for name, times in (("few", 1e-20), ("many", 1e20)):
        people(300, 1).assign(w=times).to_csv(folder / f"{name}.csv", index=False)
    data = "{a: {path: few.csv, label: y, weight: w}, b: {path: many.csv, label: y, weight: w}}"
    path = write(folder, f"name: far\ndatasets: {data}\nalgorithms: [unconstrained]\n")
    with pytest.raises(FaultError) as caught:
        prepare(path)
    (fault,) = caught.value.faults
    assert fault.code == "E411"
    assert fault.message.startswith("the weight of all data sets together ranges from 1e-20 to")
