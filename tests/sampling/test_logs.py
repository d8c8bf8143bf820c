"""Logged decisions: values compared with enumeration of all logs, propensities, warnings, notes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from experiments import faults, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.ledger.view import Ledger
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.sample import Logs, Sample
from ratecli.rates.scope import LoggedRanges, Scope
from ratecli.report.groups import trial_values
from ratecli.report.write import summary_markdown
from ratecli.sampling.logs import effective_rows
from ratecli.sampling.rows import load_trial_data

SCOPE = Scope(logged=LoggedRanges({"gain": (-9.0, 9.0)}))
ROWS = 6


class Bandit:
    """Six rows whose outcomes of both decisions and whose propensities are known."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.chance = rng.uniform(0.1, 0.9, ROWS)
        self.yes, self.no, *self.model = rng.normal(size=(4, ROWS))
        self.weight = rng.uniform(0.5, 2, ROWS)
        self.decisions = rng.choice([0.0, 1.0, 0.3], ROWS)

    def log(self, action: np.ndarray, max_weight: float) -> Logs:
        taken = action == 1
        chance = np.where(taken, self.chance, 1 - self.chance)
        return Logs(
            action,
            np.minimum(1 / chance, max_weight),
            {"gain": np.where(taken, self.yes, self.no)},
            {"gain": (self.model[0], self.model[1])},
            {"gain": (self.yes, self.no)},
        )

    def expected(self, rule: str, max_weight: float = np.inf) -> float:
        """Return the mean of an expression over the logs of all actions, by their chances."""
        expression, total = resolve(parse_expression(rule), SCOPE), 0.0
        names = np.full(ROWS, "d"), np.full(ROWS, "train")
        for actions in product((0.0, 1.0), repeat=ROWS):
            action = np.array(actions)
            logs = self.log(action, max_weight)
            sample = Sample({}, np.full(ROWS, np.nan), *names, self.weight, logs=logs)
            said = Predictions(self.decisions, self.decisions, self.decisions)
            chance = np.where(action == 1, self.chance, 1 - self.chance).prod()
            total += chance * measure([expression], sample, "train", said)[0]
        return total

    def mean(self, yes: np.ndarray, no: np.ndarray) -> float:
        each = self.decisions * yes + (1 - self.decisions) * no
        return float(np.average(each, weights=self.weight))


@pytest.mark.parametrize("seed", range(3))
def test_values_are_unbiased(seed):
    bandit = Bandit(seed)
    true = bandit.mean(bandit.yes, bandit.no)
    assert bandit.expected("value_true(gain)") == pytest.approx(true, abs=1e-10)
    assert bandit.expected("value(gain)") == pytest.approx(true, abs=1e-10)
    assert bandit.expected("value_doubly_robust(gain)") == pytest.approx(true, abs=1e-10)
    assert bandit.expected("importance_weight") == pytest.approx(1, abs=1e-10)
    chance = bandit.chance
    logged = np.average(chance * bandit.yes + (1 - chance) * bandit.no, weights=bandit.weight)
    assert bandit.expected("value_logged(gain)") == pytest.approx(logged, abs=1e-10)
    squares = bandit.mean(1 / chance, 1 / (1 - chance))
    assert bandit.expected("squared_importance_weight") == pytest.approx(squares, abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_clipping_biases_by_what_it_leaves_out(seed):
    bandit, most = Bandit(seed), 1.5
    kept = [np.minimum(1, most * chance) for chance in (bandit.chance, 1 - bandit.chance)]
    biased = bandit.mean(kept[0] * bandit.yes, kept[1] * bandit.no)
    assert bandit.expected("value(gain)", most) == pytest.approx(biased, abs=1e-10)
    assert abs(biased - bandit.mean(bandit.yes, bandit.no)) > 1e-4


FILE = """
name: logged
datasets:
  log:
    path: log.csv
    drop: [chance, other, part]
    split: {by: part}
    logged: {action: taken, propensity: chance, outcomes: {gain: [0, 1], cost: [0, 1]}}
groups: {a: g = a}
objective: -value(gain)
constraints: {budget: value(cost) <= 0.6}
algorithms: [unconstrained]
metrics:
  value: value(gain)
  normalized: value_self_normalized(gain)
  share: 'effective_share[a]'
"""
ESTIMATED = ("propensity: chance", "propensity: {estimate: GaussianNB}")
SAFE = "safety: {delta: 0.05}\n"
MORE = """{path: log.csv, drop: [chance, other, part, gain], split: {test: 0.5},
    logged: {action: taken, propensity: chance, outcomes: [cost]}}"""


def log_rows(rows: int = 600) -> pd.DataFrame:
    """Return a log: the gain of action 1 depends on x and z, and the cost is the action."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, rows))
    chance = np.clip(1 / (1 + np.exp(-x)), 0.1, 0.9)
    taken = rng.random(rows) < chance
    gain = np.where(taken, rng.random(rows) < 1 / (1 + np.exp(-z)), 0.4)
    part = np.where(np.arange(rows) % 3 == 0, "test", "train")
    return pd.DataFrame(
        {
            "x": x,
            "z": z,
            "g": rng.choice(["a", "b"], rows),
            "part": part,
            "taken": np.where(taken, "yes", "no"),
            "gain": gain,
            "cost": taken * 1.0,
            "chance": chance,
            "other": np.where(taken, chance, 1 - chance),
        }
    )


@pytest.fixture
def folder(tmp_path):
    log_rows().to_csv(tmp_path / "log.csv", index=False)
    return tmp_path


def loaded(folder, text):
    return load_trial_data(prepare(write(folder, text)).data, 0)


def trials(folder, text):
    _, store = run_file(write(folder, text))
    return [store.result(planned.key) for planned in store.plan()], Ledger(*store.read())


def test_metrics_by_hand(folder):
    _, ledger = trials(folder, FILE)
    rows = loaded(folder, FILE)
    (planned,) = ledger.plan
    found = {tuple(place): value for _, *place, value in trial_values(ledger, planned)}
    frame, test = log_rows().iloc[rows.positions], rows.sample.part == "test"
    assert found["test", "value"] == pytest.approx(-found["test", "objective"])
    weight = 1 / frame.other.to_numpy()
    assert rows.sample.logs.weight == pytest.approx(weight)
    assert rows.sample.logs.exact
    for decisions in (np.ones(600), np.zeros(600), (frame.z > 0).to_numpy(float)):
        said = Predictions(decisions, decisions, decisions)
        same = decisions == (frame.taken == "yes")
        scope = Scope(logged=LoggedRanges({"gain": (0, 1)}))
        texts = ["value(gain)", "value_self_normalized(gain)", "effective_share"]
        nodes = [resolve(parse_expression(text), scope) for text in texts]
        each = (same * weight)[test]
        value, normalized, share = measure(nodes, rows.sample, "test", said)
        assert value == pytest.approx((each * frame.gain[test]).mean())
        assert normalized == pytest.approx((each * frame.gain[test]).sum() / each.sum())
        assert share == pytest.approx(each.mean() ** 2 / (each**2).mean())
        leaf = nodes[0]
        count = effective_rows(rows.sample, "test", [leaf], said)["value(gain)"]
        assert count == pytest.approx(each.sum() ** 2 / (each**2).sum())


def test_estimated_propensities(folder):
    text = FILE.replace(*ESTIMATED)
    rows = loaded(folder, text)
    logs, train = rows.sample.logs, rows.sample.part == "train"
    assert not logs.exact

    def chances(logs):
        return np.where(logs.action == 1, 1 / logs.weight, 1 - 1 / logs.weight)

    fitted = GaussianNB().fit(rows.X[train], logs.action[train])
    direct = fitted.predict_proba(rows.X)[:, 1]
    assert chances(logs)[~train] == pytest.approx(direct[~train])
    assert not np.isclose(chances(logs)[train], direct[train]).any()
    # the estimate of a training row does not depend on its own action
    frame = log_rows()
    row = int(np.flatnonzero(train)[7])
    place = rows.positions[row]
    frame.loc[place, "taken"] = "no" if frame.loc[place, "taken"] == "yes" else "yes"
    frame.to_csv(folder / "log.csv", index=False)
    other = loaded(folder, text).sample.logs
    same = np.isclose(chances(other), chances(logs), rtol=1e-12)
    assert same[row]
    assert 0.1 < same[train].mean() < 0.3, "the rows of its fold"
    assert not same[~train].any()


@pytest.mark.parametrize(("column", "value"), [("chance", 1e-300), ("gain", 1e300)])
def test_numbers_whose_squares_overflow_are_refused(folder, column, value):
    frame = log_rows()
    frame.loc[frame["taken"] == "yes", column] = value
    frame.to_csv(folder / "log.csv", index=False)
    (fault,) = faults(write(folder, FILE))
    assert fault.code == "E406"
    assert f"column '{column}' has {value:g}" in fault.message


def test_an_estimate_of_0_or_1_is_an_error(folder):
    text = FILE.replace("propensity: chance", "propensity: {estimate: DecisionTreeClassifier}")
    (fault,) = faults(write(folder, text))
    assert (fault.code, fault.message) == ("E406", "an estimated propensity of 'taken' is 0 or 1")
    clipped = text.replace("outcomes:", "max_weight: 4, outcomes:")
    assert loaded(folder, clipped).sample.logs.weight.max() == 4


@pytest.mark.parametrize(
    ("old", "new", "note", "exact"),
    [
        ("", "", "", True),
        (*ESTIMATED, "propensities are estimated by GaussianNB, so values are approximate", False),
        ("chance, outcomes", "chance, max_weight: 100, outcomes", "", True),
        (
            "chance, outcomes",
            "chance, max_weight: 2, outcomes",
            "weights above 2 count as 2",
            False,
        ),
    ],
)
def test_values_that_are_not_exact_are_named_with_every_table(folder, old, new, note, exact):
    text = FILE.replace(old, new).replace("value(cost) <= 0.6", "value(gain) >= 0.05") + SAFE
    (result,), ledger = trials(folder, text)
    assert [each["exact"] for each in result.info["certificates"]] == [exact]
    assert ("approximate" in result.info["certificates"][0]["explanation"]) == (not exact)
    head, *tables = summary_markdown(ledger).split("\n## ")
    for part in (head, tables[1]):
        assert (note in part) if note else ("In the data set" not in part)


def test_only_certificates_of_values_are_approximate(folder):
    text = FILE.replace(*ESTIMATED).replace("value(cost) <= 0.6", "positive_rate <= 0.99") + SAFE
    (result,), _ = trials(folder, text)
    assert [each["exact"] for each in result.info["certificates"]] == [True]


@pytest.mark.parametrize(
    ("logged", "rule", "bounded"),
    [
        ("propensity: 0.5, outcomes: {gain: [0, 1]}", "value(gain)[a] <= 1.9", True),
        ("propensity: chance, max_weight: 10, outcomes: {gain: [0, 1]}", "value(gain) <= 9", True),
        ("propensity: chance, outcomes: {gain: [0, 1]}", "value(gain) >= 0.05", True),
        ("propensity: chance, outcomes: {gain: [0, 1]}", "value(gain) <= 100", False),
        ("propensity: 0.5, outcomes: [gain]", "value(gain) <= 100", False),
    ],
)
def test_a_certificate_needs_the_range_of_measurements(folder, logged, rule, bounded):
    frame = log_rows()
    if "0.5" in logged:
        frame["taken"] = np.random.default_rng(0).choice(["yes", "no"], len(frame))
        frame.to_csv(folder / "log.csv", index=False)
    start, end = FILE.index("propensity"), FILE.index("}}")
    text = FILE[:start] + logged + FILE[end + 1 :]
    text = text.replace("value(cost) <= 0.6", f"'{rule}'") + SAFE
    (result,), _ = trials(folder, text)
    (certificate,) = result.info["certificates"]
    assert (result.status == "ok", certificate["passed"]) == (
        bounded or not certificate["exact"],
    ) * 2
    assert certificate["exact"] == bounded


def test_propensities_that_do_not_fit_the_actions_give_a_warning(folder):
    found = prepare(write(folder, FILE)).warnings
    assert [each.code for each in found if each.code == "W409"] == []
    found = prepare(write(folder, FILE.replace("propensity: chance", "propensity: other"))).warnings
    wrong = [each for each in found if each.code == "W409"]
    assert wrong[0].message.startswith(
        "the propensities of 'log' do not fit its actions: rows with action"
    )


def test_a_rare_action_that_was_not_drawn_makes_certificates_approximate(folder):
    """The weight of the other action would be reduced, so that the range is too small."""
    frame = log_rows()
    frame["chance"], frame["taken"] = 0.0005, "no"
    frame.loc[frame.index % 2 == 0, "chance"] = 0.5
    frame.loc[frame.index % 4 == 0, "taken"] = "yes"
    frame.to_csv(folder / "log.csv", index=False)
    text = FILE.replace("propensity: chance", "propensity: chance, max_weight: 10") + SAFE
    (result,), _ = trials(folder, text)
    assert not result.info["certificates"][0]["exact"]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("value: value(gain)", "value: 'value(gain)[taken = yes]'"), "E304", "only after the"),
        (("value: value(gain)", "value: 'of(deployed, value(gain))'"), "E308", "value_logged"),
        (("[unconstrained]", "[audit]"), "E308", "value_logged"),
        (("value: value(gain)", "value: churn"), "", ""),
    ],
)
def test_values_that_depend_on_the_drawn_action_are_refused(folder, change, code, message):
    """Rows with a certain action are no sample of all rows, so that weights do not make up."""
    path = write(
        folder, FILE.replace("groups:", "deployed: {column: taken}\ngroups:").replace(*change)
    )
    found = faults(path) if code else prepare(path).warnings
    assert {each.code for each in found if each.is_error} == {code} - {""}
    assert all(message in f"{each.message}; {each.help}" for each in found)


def test_an_audit_measures_rates_that_count_rows_without_an_action(folder):
    """A constraint on them is refused."""
    frame = log_rows()
    frame.loc[frame.index % 4 == 1, ["taken", "gain", "cost", "chance"]] = np.nan
    frame.to_csv(folder / "log.csv", index=False)
    text = FILE[: FILE.index("objective")] + (
        "deployed: {column: taken}\nalgorithms: [audit]\nobjective: -value_logged(gain)\n"
        "metrics: {share: positive_rate}\nconstraints: {low: value_logged(cost) <= 0.6}\n"
    )
    prepare(write(folder, text))
    (fault,) = faults(write(folder, text.replace("value_logged(cost)", "positive_rate")))
    assert (fault.code, "no decision on 150 of the 600 rows" in fault.message) == ("E311", True)


@pytest.mark.parametrize("other", [{"gain": "many"}, {}])
def test_an_outcome_counts_only_where_it_is_logged(folder, other):
    """Columns of the same name in other data sets are not read, whatever they hold."""
    text = FILE.replace(
        "groups:",
        "  more: {path: more.csv, features: [x, z, g], label: y, positive: 'yes', split: {test: 0.5}}\ngroups:",
    )
    frame = log_rows(200).drop(columns=["taken", "chance", "gain", "cost"])
    frame.assign(y=frame["g"].eq("a").map({True: "yes", False: "no"}), **other).to_csv(
        folder / "more.csv", index=False
    )
    found = []
    for content in (FILE, text):
        _, ledger = trials(folder, content.replace("value: value(", "value: value_logged("))
        values = trial_values(ledger, ledger.plan[0])
        found += [value for _, *place, value in values if place == ["test", "value"]]
    assert found[0] == pytest.approx(found[1])


def test_an_outcome_that_another_log_does_not_have_is_refused(folder):
    text = FILE.replace("groups:", f"  more: {MORE}\ngroups:")
    (fault,) = faults(write(folder, text))
    assert (fault.code, "logs decisions, but no outcome" in fault.message) == ("E304", True)
