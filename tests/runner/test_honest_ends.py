"""What trials end as where a goal, the rows or an option leave nothing better to say."""

from __future__ import annotations

import pytest

from experiments import people, run_file, write

FILE = """
name: ends
datasets: {people: {path: people.csv, label: y, drop: [old]}}
groups: {women: sex = F, men: sex = M}
objective: OBJECTIVE
constraints: {RULES}
algorithms: [unconstrained, ALGORITHM]
"""


@pytest.fixture
def ends(tmp_path):
    """The last algorithm's result, given goals and its entry."""
    people(200, 1).to_csv(tmp_path / "people.csv", index=False)

    def run(algorithm, *, objective="error", rules=""):
        text = FILE.replace("OBJECTIVE", objective).replace("RULES", rules)
        _, store = run_file(write(tmp_path, text.replace("ALGORITHM", algorithm)))
        return store.result(store.plan()[-1].key)

    return run


@pytest.mark.parametrize("algorithm", ["three_player: {steps: 20}", "mixture", "post_shift"])
def test_a_goal_whose_class_hangs_on_another_result(ends, algorithm):
    """Convex while a number stands in, concave by what `unconstrained` measures."""
    found = ends(algorithm, objective="of(unconstrained, fpr - tpr) * kl(0.3, positive_rate)")
    assert (found.status, found.values) == ("error", ())
    assert found.reason.startswith("E308: algorithm")
    assert found.reason.endswith("at the numbers that of(...) has")
