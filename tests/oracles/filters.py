"""Rows whose groups depend on features, and the effect of filters, counted row by row."""

import numpy as np
from oracles.goals import Rows, Rules, problem
from oracles.problem1 import directions

from ratecli.models.base import Array
from ratecli.models.linear import Threshold
from ratecli.models.proxies import ProxyFilter
from ratecli.solvers.problem import Problem


def people(seed: int, n: int = 600, d: int = 4, groups: int = 4, *, weighted: bool = False) -> Rows:
    """Return groups of different sizes whose features differ slightly."""
    rng = np.random.default_rng(seed)
    sizes = rng.dirichlet(np.full(groups, 1.5)) * 0.9 + 0.1 / groups
    code = np.append(np.arange(groups), rng.choice(groups, size=n - groups, p=sizes / sizes.sum()))
    X = rng.normal(size=(n, d)) + rng.normal(scale=0.8, size=(groups, d))[code]
    names = np.array([chr(ord("a") + k) for k in range(groups)], dtype=object)
    weight = rng.uniform(0.2, 3.0, size=n) if weighted else None
    return Rows(X, np.zeros(n), names[code], weight=weight)


def filtering(rows: Rows, alpha: float | None = None) -> Problem:
    """Return the problem of balancing groups with a disclosivity of at most alpha."""
    rules = {} if alpha is None else {"secret": f"disclosivity(by=g) <= {alpha!r}"}
    return problem(rows, Rules(rules, "imbalance(by=g)"))


def counted(rows: Rows, found: ProxyFilter) -> tuple[Array, Array, Array]:
    """Return A (L, K), shares of values (L,) and base rates (K,), by loops over rows."""
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    names = sorted(set(rows.group.tolist()))
    table = np.zeros((found.proxy.values, len(names)))
    for chances, group, w in zip(found.proxy.memberships(rows.X), rows.group, weight, strict=True):
        table[:, names.index(group)] += chances * w
    sizes = table.sum(axis=1)
    return table / sizes[:, None], sizes / sizes.sum(), table.sum(axis=0) / table.sum()


def kept_shares(rows: Rows, found: ProxyFilter) -> Array:
    """Return the expected shares (K,) of the groups among kept rows."""
    A, sizes, _ = counted(rows, found)
    mass = (found.keep * sizes) @ A
    return mass / mass.sum()


def lines(X: Array) -> list[Threshold]:
    """Return a classifier for each set of decisions that a line in the plane can make."""
    found: dict[bytes, Threshold] = {}
    for weights in directions(np.unique(X, axis=0).astype(int)):
        scores = np.sort(X @ weights)
        cuts = np.append(scores[0] - 1, 0.5 * (scores + np.append(scores[1:], scores[-1] + 2)))
        for cut in cuts:
            line = Threshold(weights.astype(float), -float(cut))
            found.setdefault(line.decide(X).tobytes(), line)
    return list(found.values())
