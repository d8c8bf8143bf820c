"""`explain`: goals, their classes and normal forms, and which algorithms support them."""

import numpy as np
import pytest

from ratecli.errors import FaultError
from ratecli.experiment.explain import explain
from ratecli.experiment.prepare import check_available, check_file
from ratecli.models.linear import Ramp
from ratecli.models.storage import dumps
from ratecli.solvers.registry import all_algorithms, ranked_algorithms

FILE = """\
name: explained
datasets: {{d: {{source: loans, rows: 100}}}}
groups: {{women: sex = Female, men: sex = Male}}
sweep: {{kappa: [0.5, 0.8, 1.0]}}
algorithms: [unconstrained, majorize]
objective: {objective}
constraints:
  rule: {rule}
"""


@pytest.fixture
def explained(tmp_path):
    """The lines up to the objective, and those on the rule and on the choice of an algorithm."""

    def of(rule="tpr >= 0.5", objective="error"):
        path = tmp_path / "exp.yaml"
        path.write_text(FILE.format(rule=rule, objective=objective))
        lines = explain(check_available(path, refuse=False))
        cut = lines.index("constraint rule")
        end = lines.index("metrics")
        return [line.strip() for line in lines[:cut]], [line.strip() for line in lines[cut:end]]

    return of


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ("", None),
        ("holds: validation", "on validation rows"),
        ("{holds: validation, level: 0.8}", "in the population of the validation rows with prob"),
        ("holds: new_rows", "in the population of the training rows with probability 0.9"),
    ],
)
def test_where_constraints_hold_is_said_of_algorithms_that_enforce_them(tmp_path, keys, where):
    path, keys = tmp_path / "exp.yaml", keys.strip("{}").replace(", ", "\n")
    text = FILE.replace("rows: 100", "rows: 100, split: {{validation: 0.3}}")
    path.write_text(text.format(rule="tpr >= 0.5", objective="error") + keys)
    lines = [line.strip() for line in explain(check_available(path, refuse=False))]
    found = [k for k, line in enumerate(lines) if "constraints are tightened" in line]
    assert len(found) == (where is not None)
    for k in found:
        assert lines[k - 1].startswith("majorize: ")
        assert lines[k].startswith(f"constraints are tightened to hold {where}")


def test_goals_are_shown_as_written_and_as_understood(explained):
    objective, rule = explained(
        "recall[women]  >= 50%", "(131840 * error + 53877 * fall_out[men]) / 185717"
    )
    assert "as written  (131840 * error + 53877 * fall_out[men]) / 185717" in objective
    assert "as written  recall[women] >= 50%" in rule
    assert "understood  -tpr[sex = Female] + 0.5 <= 0" in rule
    options = "iterations=8, gap=0.0001, intercept=regularized, inner=newton, chooser=center"
    options = f"randomize=false, variants=[], {options}, cuts=100"
    assert f"majorize: {options}; 3 sweep points" in objective
    assert any(line.endswith("a local optimum)") for line in rule)
    named = [line.split()[0] for line in rule[rule.index("which algorithm") + 1 :] if line]
    filters = {"balanced_tree", "qp_proxy", "naive_proxy"}
    assert named == [each.name for each in ranked_algorithms() if each.name not in filters]
    assert {*named, *filters} == set(all_algorithms())


@pytest.mark.parametrize(
    ("deployed", "line"),
    [
        ("{column: approved}", "decisions of the column 'approved'"),
        (
            "{column: approved, positive: 'yes'}",
            "decisions of the column 'approved', of which 'yes' is positive",
        ),
        (
            "{algorithm: unconstrained}",
            "more likely decisions of the algorithm 'unconstrained', same seed and sweep point",
        ),
        ("{model: old.npz}", "more likely decisions of the model 'old.npz'"),
    ],
)
def test_deployed_model_is_described(tmp_path, deployed, line):
    (tmp_path / "old.npz").write_bytes(dumps(Ramp(np.ones(15))))
    text = FILE.format(rule="churn <= 0.5", objective="error")
    text = text.replace("rows: 100", "rows: 100, preparation: deployed")
    (tmp_path / "exp.yaml").write_text(f"{text}deployed: {deployed}\n")
    lines = explain(check_available(tmp_path / "exp.yaml"))
    assert lines[lines.index("deployed model") + 1] == f"  {line}"


def test_an_affine_rule_at_every_sweep_point(explained):
    _, rule = explained("positive_rate[women] >= kappa * positive_rate[men]")
    canonical = "0.5 * positive_rate[sex = Male] - positive_rate[sex = Female] <= 0"
    assert {f"understood  {canonical}", "class       affine"} <= set(rule)
    assert [line for line in rule if line.endswith("<= 0") and "understood" not in line] == [
        "0.5 * positive_rate[sex = Male] - positive_rate[sex = Female] <= 0",
        "0.8 * positive_rate[sex = Male] - positive_rate[sex = Female] <= 0",
        "positive_rate[sex = Male] - positive_rate[sex = Female] <= 0",
    ]
    points = [line for line in rule if line.startswith("at kappa")]
    assert points == ["at kappa=0.5", "at kappa=0.8", "at kappa=1.0"]


def test_rule_that_does_not_vary_is_shown_once(explained):
    _, rule = explained("0.1 <= tpr[women] <= 0.9")
    assert not [line for line in rule if "kappa" in line]
    bounds = [line for line in rule if "Female] <= " in line and "understood" not in line]
    assert bounds == ["-tpr[sex = Female] <= -0.1", "tpr[sex = Female] <= 0.9"]


@pytest.mark.parametrize(
    ("rule", "objective", "expected"),
    [
        # times the denominator
        ("precision[women] >= 0.7", "error", "class affine"),
        ("error <= 1.1 * of(unconstrained, error)", "error", "error <= 0.55"),
        ("error <= 1.1 * of(unconstrained, error)", "error", "0.5 stands for it"),
        ("f1[women] - f1[men] <= 0.1", "error", "class a comparison of ratios of rates"),
        (
            "precision[women] - precision[men] <= 0.1",
            "error",
            "majorize does not support 'rule': it is a comparison of ratios of rates; the",
        ),
        ("f1[women] - f1[men] <= 0.1", "error", "unconstrained ignores the goals: to know"),
        ("tpr >= 0.5", "exp(fpr) + kl(0.3, positive_rate)", "class convex in the rates"),
        ("tpr >= 0.5", "exp(fpr)", "majorize does not support 'objective': it is convex in"),
    ],
)
def test_classes_normal_forms_and_algorithms(explained, rule, objective, expected):
    lines = [" ".join(line.split()) for part in explained(rule, objective) for line in part]
    assert any(expected in line for line in lines)


def test_long_goals_are_cut(explained):
    _, rule = explained("max_gap(tpr, by=region) <= 0.05")
    assert len(rule) < 35
    assert "... 8 more parts ..." in rule


@pytest.mark.parametrize(
    ("objective", "warned"),
    [("accuracy", True), ("-accuracy", False), ("error", False), ("tpr - fpr", True)],
)
def test_an_objective_that_should_be_large_is_warned_of(tmp_path, objective, warned):
    text = f"name: o\ndatasets: {{d: {{source: loans}}}}\nobjective: {objective}\n"
    path = tmp_path / "exp.yaml"
    path.write_text(f"{text}algorithms: [unconstrained]\n")
    assert [fault.code for fault in check_file(path).warnings] == ["W307"] * warned


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ("metrics: {m: error}", ["W308"]),
        ("metrics:\n  m: |\n    error *\n    k\n", []),
        ("metrics: {m: k * error}", []),
        ("metrics: {m: error}\nreport: {tables: [{rows: [k], columns: [m]}]}", ["W308"]),
    ],
)
def test_a_swept_name_without_use_is_warned_of(tmp_path, more, warned):
    text = "name: k\ndatasets: {d: {source: loans}}\nsweep: {k: [1, 2]}\n"
    path = tmp_path / "exp.yaml"
    path.write_text(f"{text}algorithms: [unconstrained]\n{more}\n")
    assert [fault.code for fault in check_file(path).warnings] == warned


def test_labels_of_points_need_no_other_use(tmp_path):
    path = tmp_path / "exp.yaml"
    head = "name: k\ndatasets: {d: {source: loans}}\nalgorithms: [unconstrained]\n"
    for sweep in (
        "{a: [x, y], include: [{a: x, k: 1}, {a: y, k: 2}]}",
        "{a: [x, y], k: [1, 2], zip: [[a, k]]}",
    ):
        path.write_text(f"{head}sweep: {sweep}\nmetrics: {{m: k * error}}\n")
        assert not check_file(path).warnings


@pytest.mark.parametrize("objective", ["-mcc", "error - tpr * tnr", "-min(mcc[women], mcc[men])"])
def test_objectives_without_a_certificate_are_named_as_such(explained, objective):
    head, tail = explained(objective=objective)
    assert any(line.startswith("optimum     local, ") for line in head)
    offered = [line.split()[0] for line in tail if " if " in line and "not support" not in line]
    assert {"post_shift", "mixture", "thresholded"} <= {*offered}
    assert not {"three_player", "majorize", "coco"} & {*offered}


def test_objectives_with_a_certificate_are_not_called_local(explained):
    for objective in ("error", "1 - f1", "-g_mean"):
        assert not any("local" in line for line in explained(objective=objective)[0])


@pytest.mark.parametrize(
    ("keys", "quoted"),
    [
        ({"objective": "error + 0.5 - tpr * tnr"}, "'tpr * tnr' is smooth"),
        ({"objective": "-mcc"}, "'-mcc' is smooth"),
        ({"rule": "mcc[women] >= 0.3"}, "'mcc[women]' is smooth"),
        ({"objective": "fpr + tpr * abs(fpr - 0.1)"}, "'tpr * abs(fpr - 0.1)' is neither"),
    ],
)
def test_algorithms_refuse_with_the_part_and_who_takes_it(tmp_path, keys, quoted):
    path = tmp_path / "exp.yaml"
    path.write_text(FILE.format(**({"rule": "tpr >= 0.5", "objective": "error"} | keys)))
    with pytest.raises(FaultError) as error:
        check_file(path)
    (fault,) = error.value.faults
    assert fault.code == "E308"
    assert quoted in fault.message
    able = fault.help.partition("algorithms that can: ")[2]
    assert ("mixture" in able) == (keys.keys() == {"objective"} and "abs" not in keys["objective"])
    assert able.endswith("add safety: {delta: 0.05}") == ("mixture" not in able)


def test_the_bound_of_a_goal_on_another_algorithm_is_on_the_difference(tmp_path):
    path, rule = tmp_path / "exp.yaml", "error <= 1.2 * of(unconstrained, error)"
    text = FILE.format(rule=rule, objective="error") + "safety: {delta: 0.1}\n"
    path.write_text(text)
    lines = [line.strip() for line in explain(check_available(path))]
    assert "upper bound of error - 1.2 * of(unconstrained, error), delta 0.1" in lines
