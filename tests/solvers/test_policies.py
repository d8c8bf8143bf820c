"""Policies of logged episodes in experiments: certificates on returns, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from oracles.episodes import episodes_of, simulate
from scipy import stats

from experiments import faults, measured_values, run_file, write
from ratecli.api.runs import load_results
from ratecli.certify.base import BoundedSample
from ratecli.certify.bounds import BOUNDS
from ratecli.experiment.prepare import prepare
from ratecli.models.policy import EpisodeReturns

DELTA = 0.1
FILE = """
name: steps
datasets:
  log:
    path: log.csv
    features: [place]
    logged:
      {{episode: episode, step: step, action: action, propensity: chance, horizon: 4,
       outcomes: {{reward: [0, 1], cost: [0, 1]}}}}
    split: {{test: 0.2}}
objective: -return(reward)
constraints: {{rule: '{rule}'}}
safety: {{delta: 0.05}}
algorithms: [{algorithm}]
metrics: {{reward: return(reward), weighted: return_weighted(reward), cost: return(cost)}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    log = simulate(4000, np.random.default_rng(0))
    words = np.where(log["action"] == 1, "right", "left")
    log.assign(action=words).to_csv(folder / "log.csv", index=False)
    return folder


@pytest.mark.parametrize(
    "rule", ["return(reward) >= 1.2 * return_logged(reward)", "return(cost) <= 1.6"]
)
def test_a_certified_policy_keeps_its_rule(folder, rule):
    _, store = run_file(write(folder, FILE.format(rule=rule, algorithm="seldonian")))
    ((trial, result),) = [(each, store.results()[each.key]) for each in store.plan()]
    assert result.status == "ok", result.reason
    (certificate,) = result.info["certificates"]
    assert certificate["passed"]
    assert "betting" in str(certificate)  # an exact bound, by the known end of returns
    values = measured_values(trial, result)
    assert values["violation.rule", "test"] < 0
    assert values["reward", "test"] == pytest.approx(values["weighted", "test"], abs=0.25)
    assert values["reward", "train"] > 1.4  # a uniform policy gets 1.0


@pytest.mark.parametrize("draws", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_exact_bounds_on_returns_fail_at_most_as_often_as_delta(draws):
    """The policy is fixed and its true return known; weights of episodes are up to 3.2."""
    chances = np.array([[0.2, 0.8], [0.7, 0.3]])
    steps = simulate(100_000, np.random.default_rng(9), chances)
    true = float(steps["reward"].sum()) / 100_000
    rng, failed = np.random.default_rng(1), {"betting": 0, "anderson": 0}
    for _ in range(draws):
        episodes = episodes_of(simulate(60, rng))
        values = EpisodeReturns(episodes, np.log(chances))["return_above(reward)"]
        sample = BoundedSample(values, (0.0, np.inf), -1.0)
        for name in failed:
            failed[name] += -BOUNDS[name].upper([sample], DELTA, rng) > true
    # so many failures have a probability above 1/1000 at a failure rate of DELTA
    assert stats.binom.sf(max(failed.values()) - 1, draws, DELTA) > 1e-3


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("[seldonian]", "[mixture]"), "E308", "'mixture' learns no policies of episodes"),
        (("objective: -return", "objective: value"), "E304", "rows are episodes"),
        (
            ("reward: return(reward)", "reward: 'return(reward)[action = left]'"),
            "E304",
            "is known only after the logged decision",
        ),
        (("path: log.csv", "path: log.csv\n    weight: cost"), "E104", "cannot be combined"),
        (("weighted: return", "weighted: error, other: return"), "E304", "rows are episodes"),
        ((", step: step", ""), "E102", "'episode' needs 'step'"),
        ((", horizon: 4", ", horizon: 3"), "E406", "more than the horizon 3"),
        (("propensity: chance", "propensity: 0.5"), "E104", "'propensity' of episodes"),
    ],
)
def test_what_episodes_exclude_is_refused(folder, change, code, message):
    text = FILE.format(rule="return(cost) <= 2", algorithm="seldonian").replace(*change)
    found = faults(write(folder, text, f"{code}.yaml"))
    assert (code, True) in {(each.code, message in each.message) for each in found}, found


def test_unconstrained_policies_maximize_the_objective(folder):
    text = FILE.format(rule="return(cost) <= 4", algorithm="unconstrained: {safety: false}")
    _, store = run_file(write(folder, text, "plain.yaml"))
    ((trial, result),) = [(each, store.results()[each.key]) for each in store.plan()]
    assert measured_values(trial, result)["reward", "test"] > 1.8  # 2 is the largest return
    policy = load_results(folder / "results").model("unconstrained")
    assert (policy.chances(np.array([[0.0], [1.0]]))[:, 1] > 0.9).all()
    assert pd.notna(result.info["effective rows"]["return(reward)"])


def test_without_a_horizon_no_bound_on_returns_is_exact(folder):
    """A discount limits no return: episodes may be longer than those of the log."""
    text = FILE.format(rule="return(cost) <= 1.6", algorithm="seldonian")
    text = text.replace("horizon: 4", "discount: 0.9")
    _, store = run_file(write(folder, text, "endless.yaml"))
    (result,) = [store.results()[each.key] for each in store.plan()]
    (certificate,) = result.info["certificates"]
    assert not certificate["exact"]


def test_true_returns_are_metrics_only(folder):
    text = FILE.format(rule="return(cost) <= 4", algorithm="seldonian")
    (fault,) = faults(write(folder, text.replace("cost: return", "cost: return_true"), "t.yaml"))
    assert (fault.code, "generated environments only" in fault.message) == ("E304", True)
    world = "name: w\ndatasets: {d: {source: gridworld, rows: 20}}\nalgorithms: [unconstrained]\n"
    (fault,) = faults(write(folder, f"{world}objective: -return_true(reward)\n", "w.yaml"))
    assert fault.code == "E309"


@pytest.mark.parametrize(("chance", "warned"), [(0.5, []), (0.4, ["left", "right"])])
def test_propensities_that_do_not_fit_the_actions_of_episodes_give_a_warning(
    folder, chance, warned
):
    log = pd.read_csv(folder / "log.csv").assign(chance=chance)
    log.to_csv(folder / f"log{chance}.csv", index=False)
    text = FILE.format(rule="return(cost) <= 4", algorithm="seldonian")
    found = prepare(write(folder, text.replace("log.csv", f"log{chance}.csv"))).warnings
    words = [each.message for each in found if each.code == "W409"]
    assert [name for name in warned for each in words if f"action {name} " in each] == warned
    assert len(words) == len(warned)
