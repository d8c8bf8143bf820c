"""Shares, imbalance and disclosivity: vectors of the paper, definitions, forms and errors."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import rule_strategies
from entries import load_entry_table
from full_scope import FULL, value
from hypothesis import given
from hypothesis import strategies as st
from naive_rates import WORDS, node, number, random_sample
from oracles.goals import tangent, values

from ratecli.rates import expression as ex
from ratecli.rates.affine import Balance, affine, balance, disclosure_bound
from ratecli.rates.analysis import Curvature, Shape, curvature, interval, shape
from ratecli.rates.expression import Disclosure
from ratecli.rates.matrix import Predictions, disclosivity, measure
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.sample import Floats, Sample
from ratecli.rates.scope import Scope

SEEDS = st.integers(0, 2**32 - 1)


goal = partial(rule_strategies.goal, scope=FULL)


def shares(sample: Sample, chosen: Floats, column: str, datasets: str) -> list[float]:
    """The share of each value among the chosen training rows, summed by row; NaN without any."""
    weight = dict.fromkeys(WORDS[column], 0.0)
    total = 0.0
    for i in range(len(sample)):
        if sample.part[i] == "train" and sample.dataset[i] in datasets:
            total += sample.weight[i] * chosen[i]
            if sample.columns[column][i] is not None:
                weight[sample.columns[column][i]] += sample.weight[i] * chosen[i]
    return [each / total if total else math.nan for each in weight.values()]


@given(seed=SEEDS, rows=st.integers(1, 40), some=st.booleans())
def test_metrics_of_shares_agree_with_their_definitions(seed, rows, *, some):
    sample, said = random_sample(seed, rows)
    datasets, where = ("d1 d2", "d1, d2") if some else ("d1 d2 d3", "")
    at = f"[{where}]" if some else ""
    sex, zips = (shares(sample, said.decisions, each, datasets) for each in WORDS)
    near = pytest.approx
    for name, expected in zip(WORDS["sex"], sex, strict=True):
        slice_ = f"[{where}, sex={name}]" if some else f"[sex={name}]"
        assert number(f"share{slice_}", sample, said) == near(expected, nan_ok=True)
    uneven = [*(each - 1 / 2 for each in sex), *(each - 1 / 3 for each in zips)]
    wanted = {
        f"min(share{at}, by=sex)": min(sex),
        f"max(share{at}, by=(zip, sex))": max(sex + zips),
        f"mean(share{at}, by=(zip, sex))": sum(sex + zips) / 5,
        f"rms(share{at}, by=zip)": math.sqrt(sum(each**2 for each in zips) / 3),
        f"imbalance(by=zip){at}": math.sqrt(sum((each - 1 / 3) ** 2 for each in zips)),
        f"imbalance(by=(sex, zip)){at}": math.sqrt(sum(each**2 for each in uneven)),
        f"rms(share{at.replace(']', ', sex=f]') or '[sex=f]'} - 0.2) * 2": 2 * abs(sex[0] - 0.2),
    }
    for text, expected in wanted.items():
        assert number(text, sample, said) == near(expected, nan_ok=True, abs=1e-12), text


def test_a_share_bounded_below_is_one_affine_form():
    found = goal("share[women, d1] >= 0.4")
    joint, whole = value("joint_rate[d1, women]"), value("positive_rate[d1]")
    assert found.shape is Shape.AFFINE
    assert [affine(piece).coefficients for piece in found.pieces] == [{joint: -1.0, whole: 0.4}]
    assert goal("min(share, by=race) >= 0.2").shape is Shape.AFFINE
    assert len(goal("min(share, by=(race, sex)) >= 0.2").pieces) == 5


@pytest.mark.skipif(
    not os.environ.get("RATECLI_DATA_MIRROR"),
    reason="needs the real files: set RATECLI_DATA_MIRROR",
)
@pytest.mark.parametrize(
    ("source", "column", "expected"), [("adult", "race", 0.7358), ("bank", "job", 0.2518)]
)
def test_imbalance_of_all_rows_is_the_papers(source, column, expected, monkeypatch, tmp_path):
    monkeypatch.setenv("RATECLI_DATA", str(tmp_path))
    table = load_entry_table({"source": source}, Path())
    n = len(table)
    column_values = table.frame[column].to_numpy(dtype=object)
    words = np.full(n, "d"), np.full(n, "train")
    sample = Sample({column: column_values}, np.zeros(n), *words, np.ones(n))
    known = sorted(set(column_values))
    scope = Scope(values=lambda _: known, columns=frozenset({column}))
    everyone = Predictions(np.ones(n), np.ones(n), np.ones(n))
    found = number(f"imbalance(by={column})", sample, everyone, scope=scope)
    assert found == pytest.approx(expected, abs=5e-5)


def proxied(mixed: list[list[float]], said: list[float]) -> tuple[Floats, Floats, Floats]:
    """Proxy, groups and weights: value j has probability `said`, and then group k `mixed`."""
    pairs = [(j, k) for j in range(len(said)) for k in range(len(mixed[0]))]
    proxy = np.array([np.eye(len(said))[j] for j, _ in pairs])
    groups = np.array([np.eye(len(mixed[0]))[k] for _, k in pairs])
    return proxy, groups, np.array([said[j] * mixed[j][k] for j, k in pairs])


@pytest.mark.parametrize(
    ("mixed", "said", "base", "expected"),
    [
        ([[0.6, 0.3, 0.1], [0.35, 0.3, 0.35]], [0.6, 0.4], [0.5, 0.3, 0.2], 0.15),
        ([[0.8, 0.2], [0.4, 0.6]], [0.75, 0.25], [0.7, 0.3], 0.3),
    ],
)
def test_vectors_of_disclosivity(mixed, said, base, expected):
    proxy, groups, weight = proxied(mixed, said)
    np.testing.assert_allclose(weight @ groups, base)
    assert disclosivity(proxy, groups, weight) == pytest.approx(expected)
    assert disclosivity(proxy, groups, 7 * weight) == pytest.approx(expected)


def test_unused_proxy_values_and_rows_without_a_group_are_left_out():
    proxy, groups, weight = proxied([[0.8, 0.2], [0.4, 0.6], [0.0, 1.0]], [0.75, 0.25, 1e-14])
    assert disclosivity(proxy, groups, weight) == pytest.approx(0.3)
    lost = np.vstack([proxy, np.eye(3)]), np.vstack([groups, np.zeros((3, 2))])
    assert disclosivity(*lost, np.append(weight, [5, 6, 7])) == pytest.approx(0.3)
    assert math.isnan(disclosivity(proxy, 0 * groups, weight))
    assert math.isnan(disclosivity(proxy, groups, 0 * weight))


@given(seed=SEEDS, rows=st.integers(1, 40), kinds=st.integers(2, 4), own=st.booleans())
def test_disclosivity_agrees_with_its_definition(seed, rows, kinds, *, own):
    sample, said = random_sample(seed, rows)
    chances = np.stack([said.decisions, 1 - said.decisions], axis=1)
    if own:
        chances = np.random.default_rng(seed).dirichlet(np.ones(kinds), rows)
        said = Predictions(said.decisions, said.scores, said.estimates, chances)

    def naive(column: str) -> float:
        kept = [i for i in range(rows) if sample.part[i] == "train" and sample.columns[column][i]]
        total = sum(sample.weight[i] for i in kept)
        worst = math.nan
        for j in range(chances.shape[1]):
            spoken = sum(sample.weight[i] * chances[i, j] for i in kept)
            for name in WORDS[column]:
                of = [i for i in kept if sample.columns[column][i] == name]
                if spoken > 0:
                    told = sum(sample.weight[i] * chances[i, j] for i in of) / spoken
                    gap = abs(told - sum(sample.weight[i] for i in of) / total)
                    worst = gap if math.isnan(worst) else max(worst, gap)
        return worst

    sex, zips = naive("sex"), naive("zip")
    near = pytest.approx
    assert number("disclosivity(by=sex)", sample, said) == near(sex, nan_ok=True, abs=1e-12)
    both = math.nan if math.isnan(sex + zips) else max(sex, zips)
    found = number("1 - disclosivity(by=(sex, zip))", sample, said)
    assert found == near(1 - both, nan_ok=True, abs=1e-12)
    other = number("disclosivity(by=sex)@test", sample, said)
    assert other == measure([node("disclosivity(by=sex)")], sample, "test", said)[0] or (
        math.isnan(other)
    )


def test_a_disclosivity_has_groups_but_no_value_as_a_function_of_rates():
    node = value("disclosivity(by=(race, sex))[d1]@test")
    assert isinstance(node, Disclosure)
    assert [len(groups) for groups in node.columns] == [3, 2]
    assert ex.leaves(node) == list(node.groups)
    assert {leaf.rate.name for leaf in node.groups} == {"joint_rate"}
    assert (str(node.where), node.split) == ("d1", "test")
    assert [*ex.measured_nodes(value("1 - 2 * disclosivity(by=sex) / tpr"))] == [
        value("disclosivity(by=sex)"),
        value("tpr"),
    ]
    assert interval(node) == (0, 1)
    assert curvature(node) is Curvature.UNKNOWN
    for ask in (values, tangent):
        with pytest.raises(ValueError, match="disclosivity"):
            ask(node, np.zeros((5, 1)), {leaf: k for k, leaf in enumerate(node.groups)})


def test_an_imbalance_is_a_balance_of_equal_shares():
    found = balance(value("imbalance(by=(race, sex))"))
    groups = [f"race = {race}" for race in ("Asian", "Black", "White")]
    groups += ["sex = Female", "sex = Male"]
    assert [str(leaf.where) for leaf in found.groups] == groups
    assert found.target == pytest.approx([1 / 3] * 3 + [1 / 2] * 2)


@pytest.mark.parametrize(
    ("text", "target", "factor"),
    [
        ("rms(share[women] - 0.2, share[men] - 0.8) * sqrt(2)", (0.2, 0.8), 1),
        ("3 * rms(0.2 - share[women], 2 * (share[men] - 0.8) - share[men] + 0.8)",
         (0.2, 0.8), 3 / math.sqrt(2)),
        ("rms((joint_rate[women] - 0.2 * positive_rate) / positive_rate)", (0.2,), 1),
        ("rms(share[women, d1], share[men, d1])", (0, 0), math.sqrt(1 / 2)),
        ("imbalance(by=sex)@train", (0.5, 0.5), 1),
    ],
)  # fmt: skip
def test_other_spellings_of_distances_of_shares(text, target, factor):
    found = balance(value(text))
    assert isinstance(found, Balance)
    assert found.target == pytest.approx(target)
    assert shape(value(text)) is Shape.BALANCE
    sample, said = random_sample(1, 80)
    own = balance(node(text))
    each = [group.where for group in own.groups]
    got = shares(sample, said.decisions, "sex", "d1" if "d1" in text else "d1 d2 d3")
    picked = [got[WORDS["sex"].index(where.conditions[0].values[0])] for where in each]
    by_hand = factor * math.dist(picked, own.target)
    assert number(text, sample, said) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    "text",
    [
        "-imbalance(by=sex)",
        "imbalance(by=sex) + 0.1",
        "imbalance(by=sex) + imbalance(by=race)",
        "rms(share[women] - 0.2, 2 * share[men] - 0.8)",
        "rms(share[women, d1] - 0.2, share[men] - 0.8)",
        "rms(share[women] - 0.2, positive_rate[men])",
        "rms(share[women] - share[men], 0.1 - share[men])",
        "rms(joint_rate[women] / positive_rate[men] - 0.2, share[men])",
        "rms(joint_rate[women] / (positive_rate + 0.1), share[men])",
        "rms(share[women], tpr / (tpr + fpr))",
        "sqrt((share[women] - 0.2) ** 2 + (share[men] - 0.8) ** 2)",
    ],
)
def test_expressions_that_are_no_distances_of_shares(text):
    assert balance(value(text)) is None
    assert shape(value(text)) is not Shape.BALANCE


RULES_BY_SHAPE = {
    Shape.OTHER: "imbalance(by=sex) <= 0.1; imbalance(by=sex) <= 0",
    Shape.DISCLOSURE: (
        "disclosivity(by=sex) <= 0.1; kappa >= disclosivity(by=(sex, race))[d1]@train; "
        "disclosivity(by=sex) <= 0"
    ),
    Shape.REPORTED: (
        "disclosivity(by=sex) >= 0.1; 2 * disclosivity(by=sex) <= 0.1; "
        "disclosivity(by=sex) <= error; 0.1 <= disclosivity(by=sex) <= 0.2; "
        "max(disclosivity(by=sex), disclosivity(by=race)) <= 0.2; "
        "max(disclosivity(by=sex), error) <= 0.2; disclosivity(by=sex) * roc_auc <= 0.1"
    ),
}


@pytest.mark.parametrize("expected", RULES_BY_SHAPE)
def test_shapes_of_rules_with_imbalance_and_disclosivity(expected):
    for rule in RULES_BY_SHAPE[expected].split("; "):
        assert goal(rule).shape is expected, rule


def test_a_disclosivity_has_a_bound_and_is_not_minimized():
    for objective in ("disclosivity(by=sex)", "error + disclosivity(by=sex)"):
        assert shape(value(objective)) is Shape.REPORTED
    both = ex.to_text(value("disclosivity(by=(race,sex))[d2, d1]@test"))
    assert both == "disclosivity(by=(race, sex))[d1, d2]@test"
    (piece,) = goal("disclosivity(by=sex) + 0.1 <= kappa - 0.2").pieces
    node, alpha = disclosure_bound(piece)
    assert node == value("disclosivity(by=sex)")
    assert alpha == pytest.approx(0.5)
    assert disclosure_bound(goal("disclosivity(by=sex) <= 0").pieces[0])[1] == 0
    assert disclosure_bound(goal("error <= 0.1").pieces[0]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("share[women]", (0, 1)),
        ("(joint_rate[women] + joint_rate[men]) / positive_rate", (0, 1)),
        ("0.5 * joint_rate[women] + 2 * joint_rate[men] - positive_rate", (-1, 1)),
        ("positive_rate - joint_rate[women]", (0, 1)),
        ("joint_rate[women] + joint_rate[old]", (0, 2)),
        ("joint_rate[women] + joint_rate[women]@test", (0, 2)),
        ("joint_rate[women, d1] - positive_rate", (-1, 1)),
        ("joint_rate[age = 20] + joint_rate[age = '20.0']", (0, 2)),
        ("imbalance(by=sex)", (0, math.sqrt(1 / 2))),
    ],
)
def test_ranges_of_sums_of_joint_rates(text, expected):
    scope = Scope(FULL.datasets, FULL.groups)
    node = value(text) if "age" not in text else resolve(parse_expression(text), scope)
    assert interval(node) == pytest.approx(expected)


@given(seed=SEEDS, weights=st.lists(st.integers(-3, 3), min_size=5, max_size=5))
def test_ranges_contain_values_on_samples(seed, weights):
    sample, said = random_sample(seed, 12)
    names = ("positive_rate", *(f"joint_rate[{each}]" for each in ("sex=f", "sex=m", "zip=1", "")))
    text = " + ".join(
        f"({w}) * {name.replace('[]', '')}" for w, name in zip(weights, names, strict=True)
    )
    found = number(text, sample, said)
    low, high = interval(node(text))
    assert math.isnan(found) or low - 1e-9 <= found <= high + 1e-9
