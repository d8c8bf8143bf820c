"""Softmax policies: estimators against all episodes of small problems, slopes, storage."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from ratecli.config.dataset import LoggedSpec
from ratecli.datasets.logged import episode_table
from ratecli.errors import FaultError
from ratecli.models.policy import EpisodeReturns, Episodes, SoftmaxPolicy
from ratecli.models.storage import dumps, loads
from ratecli.solvers.seldonian.policy import (
    PessimisticObjective,
    PolicyModel,
    ReturnTerm,
)

LOGGED = LoggedSpec(
    action="action",
    propensity="chance",
    outcomes={"reward": (-1.0, 2.0), "cost": (0.0, 1.0)},
    episode="episode",
    step="step",
    discount=0.9,
    horizon=3,
)
LOG_CHANCE = np.array([[0.3, 0.7], [0.6, 0.4]])
"""The log's chance of each action (columns) in each state (rows)."""


def gain(state: int, action: int) -> tuple[float, float]:
    return float(action - state * (1 - action)), float(state == action)


def every_episode() -> tuple[pd.DataFrame, np.ndarray]:
    """All episodes of a problem with states 0 and 1, and the chance of each in the log.

    An episode begins in state 0. Action a leads to state a; a second 1 in a row ends it.
    """
    rows, chances = [], []
    for number, actions in enumerate(itertools.product((0, 1), repeat=3)):
        state, chance, before = 0, 1.0, 0
        for step, action in enumerate(actions):
            own = LOG_CHANCE[state, action]
            reward, cost = gain(state, action)
            rows.append((number, step, state, action, own, reward, cost))
            chance, state = chance * own, action
            if action and before:
                break
            before = action
        chances.append(chance)
    names = ["episode", "step", "state", "action", "chance", "reward", "cost"]
    frame = pd.DataFrame(rows, columns=names)
    content = (
        frame.drop(columns="episode")
        .groupby(frame["episode"])
        .apply(lambda part: tuple(part.to_numpy().ravel()))
    )
    unique = content.drop_duplicates().index
    return frame[frame["episode"].isin(unique)], np.array(chances)[unique]


def expected_return(chances: np.ndarray, outcome: int) -> float:
    """The expected return of a policy by recursion over states and steps."""

    def value(state: int, step: int, before: int) -> float:
        if step == 3:
            return 0.0
        total = 0.0
        for action in (0, 1):
            later = 0.0 if action and before else value(action, step + 1, action)
            total += chances[state, action] * (gain(state, action)[outcome] + 0.9 * later)
        return total

    return value(0, 0, 0)


def given(**changes) -> tuple[Episodes, np.ndarray]:
    frame, chances = every_episode()
    columns = LOGGED.model_copy(update=changes)
    table = episode_table(frame.sample(frac=1, random_state=0), ["state"], columns, digest="")
    order = pd.factorize(frame.sample(frac=1, random_state=0)["episode"])[1]
    position = {number: k for k, number in enumerate(dict.fromkeys(frame["episode"]))}
    return Episodes.of(table.matrix, table.episodes), chances[[position[each] for each in order]]


def test_estimators_have_the_true_return_as_their_expectation():
    episodes, chances = given()
    assert chances.sum() == pytest.approx(1)
    policy = softmax(np.random.default_rng(0).normal(size=(2, 2)), axis=1)
    returns = EpisodeReturns(episodes, np.log(policy))
    means = {key: float(chances @ returns[key]) for key in returns}
    for outcome, name in enumerate(("reward", "cost")):
        true = expected_return(policy, outcome)
        for estimator in ("return", "return_ordinary", "return_above", "return_below"):
            assert means[f"{estimator}({name})"] == pytest.approx(true, abs=1e-10)
        logged = expected_return(LOG_CHANCE, outcome)
        assert means[f"return_logged({name})"] == pytest.approx(logged, abs=1e-10)
    assert means["episode_weight"] == pytest.approx(1, abs=1e-10)
    span = 1 + 0.9 + 0.81
    assert (returns["return_above(reward)"] >= -span - 1e-12).all()
    assert (returns["return_below(reward)"] <= 2 * span + 1e-12).all()


def test_clipped_weights_err_on_the_side_that_a_bound_allows():
    episodes, chances = given(max_weight=1.1)
    policy = softmax(np.random.default_rng(0).normal(size=(2, 2)), axis=1)
    returns = EpisodeReturns(episodes, np.log(policy))
    true = expected_return(policy, 0)
    assert chances @ returns["return_above(reward)"] < true - 0.01
    assert chances @ returns["return_below(reward)"] > true + 0.01


def returns(model, w):
    return model.outputs(model.scores(w))


@pytest.mark.parametrize("most", [np.inf, 1.1])
@pytest.mark.parametrize("fourier", [0, 2])
def test_slopes_are_those_of_finite_differences(most, fourier):
    episodes, _ = given(max_weight=most, fourier=fourier)
    model = PolicyModel(np.zeros((1, 1)), episodes, np.zeros(1), np.ones(1))
    by = np.random.default_rng(1).normal(size=len(episodes.action))
    w = np.random.default_rng(2).normal(size=model.width)
    for key in episodes.factors:
        ahead, behind = (
            [by @ returns(model, w + sign * step)[key] for step in 1e-5 * np.eye(len(w))]
            for sign in (1, -1)
        )
        found = model.pull(returns(model, w).slopes(key, by[:, None]))[:, 0]
        np.testing.assert_allclose(found, np.subtract(ahead, behind) / 2e-5, rtol=1e-6, atol=1e-7)


def test_the_pessimistic_objective_has_the_slopes_of_finite_differences():
    episodes, _ = given()
    model = PolicyModel(np.zeros((1, 1)), episodes, np.zeros(1), np.ones(1))
    share = np.random.default_rng(3).dirichlet(np.ones(len(episodes.action)))
    terms = ReturnTerm(-1.0, 0, share), ReturnTerm(0.3, 1, np.full(len(share), 1 / len(share)))
    objective = PessimisticObjective(terms, 0.5)
    w = np.random.default_rng(2).normal(size=model.width)
    steps = 1e-5 * np.eye(len(w))
    ahead, behind = (
        [objective.value(returns(model, w + sign * step)) for step in steps] for sign in (1, -1)
    )
    slopes = model.pull(objective.slopes(returns(model, w)))
    np.testing.assert_allclose(slopes, np.subtract(ahead, behind) / 2e-5, rtol=1e-6, atol=1e-8)


def test_a_pessimistic_estimate_is_never_better_than_the_best_outcomes():
    episodes, _ = given()
    model = PolicyModel(np.zeros((1, 1)), episodes, np.zeros(1), np.ones(1))
    share = np.full(len(episodes.action), 1 / len(episodes.action))
    objective = PessimisticObjective((ReturnTerm(-1.0, 0, share),), 0.0)
    best = float((episodes.outcomes[:, :, 0].max(axis=0) * episodes.layout.discounts).sum())
    for seed in range(20):
        w = 20 * np.random.default_rng(seed).normal(size=model.width)
        assert objective.value(returns(model, w)) >= -best - 1e-12


def test_a_stored_policy_gives_the_same_returns():
    frame, _ = every_episode()
    table = episode_table(frame, ["state"], LOGGED, digest="")
    weights = np.random.default_rng(0).normal(size=(table.episodes.basis_size, 2))
    policy = SoftmaxPolicy(weights, np.zeros(1), np.ones(1), table.episodes)
    stored = loads(dumps(policy))
    for key, values in policy.returns(table.matrix).items():
        np.testing.assert_array_equal(values, stored.returns(table.matrix)[key])


def test_rows_of_an_episode_may_come_in_any_order():
    frame, _ = every_episode()
    text = frame.assign(state=np.where(frame["state"] == 1, "far", "near"))
    one = episode_table(text, ["state"], LOGGED, digest="")
    other = episode_table(text[::-1], ["state"], LOGGED, digest="")
    np.testing.assert_array_equal(one.matrix, other.matrix[::-1])
    assert one.episodes.states == ("state = far", "state = near")
    assert one.frame["episode"].tolist() == sorted(set(frame["episode"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 0}, "are not consecutive whole numbers"),
        ({"chance": 0.0}, "has 0 in row 1, which is not above 0 and at most 1"),
        ({"reward": 3.0}, "which is not between -1 and 2"),
        ({"action": 1}, "has one action only"),
        ({"cost": "high"}, "column 'cost' holds text"),
        ({"step": range(20)}, "an episode has"),
    ],
)
def test_invalid_steps_are_refused(change, message):
    frame = every_episode()[0].reset_index(drop=True)
    ((name, value),) = change.items()
    if name == "step" and value != 0:
        frame, value = frame.iloc[:20].assign(episode=0), np.arange(20)
    with pytest.raises(FaultError, match=message):
        episode_table(frame.assign(**{name: value}), ["state"], LOGGED, digest="")
