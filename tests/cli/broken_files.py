"""Broken experiments: each has its error code and, between ⟦ and ⟧, the expected location."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ratecli.models.linear import Threshold


class Broken(NamedTuple):
    what: str
    text: str

    @property
    def code(self) -> str:
        return self.what[:4]


def table(header: str, row: str, count: int = 120) -> str:
    """Return a table whose rows are `row` with the values of `k`, `sex`, `x` and `y`."""
    values = ({"k": k, "sex": "FM"[k % 2], "x": k * 7 % 11, "y": k // 2 % 2} for k in range(count))
    return f"{header}\n" + "".join(f"{row.format(**each)}\n" for each in values)


TABLES = {
    "people.csv": table("sex,x,y", "{sex},{x},{y}"),
    "nan.csv": "sex,x,y\n" + "F,,1\nM,2,0\n" * 20,
    "ragged.csv": "sex,x,y\nF,1\nM,2,0,4\n",
    "level.csv": "level,x,y\n" + "F,2,1\nM,2,0\n" * 20,
    "barren.csv": "sex,x,y\n" + "F,1,0\nM,2,1\nF,3,0\nM,4,0\n" * 30,
    "scores.csv": table("sex,x,z,y", "{sex},{x},{k}.5,{y}"),
    "gaps.csv": "sex,x,y,old\n" + "F,1,1,1\nM,7,0,0\nF,5,1,\nM,2,0,1\n" * 30,
    "log.csv": "x,a,p,r\n" + "1,yes,0.4,3\n2,no,0.6,0\n3,,,\n" * 30,
    "badlog.csv": "x,a,p,r,b\n" + "1,yes,1,3,up\n2,no,0.6,,\n3,,,,\n" * 30,
    "marks.csv": "sex,x,y\n" + "F,1,0.5\nM,2,4\nF,3,2\nM,4,0\n" * 30,
}
MODELS = {"two.npz": Threshold(np.ones(2)), "nan.npz": Threshold(np.ones(3))}
object.__setattr__(MODELS["nan.npz"], "weights", np.full(3, np.nan))  # as in a damaged file


def bomb() -> str:
    """Return 10^10 values in ten lines; the fifth exceeds the limit."""
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{k}: &x{k} [{', '.join([f'*x{k - 1}'] * 10)}]" for k in range(1, 10)]
    lines[4] = lines[4].replace("&x4", "⟦&x4⟧", 1)
    return "\n".join(lines) + "\n"


LOANS = "name: x\ndatasets: {d: {source: loans, rows: 200}}\n"
GROUPS = f"{LOANS}groups: {{women: sex = Female, men: sex = Male}}\n"
HEAD = f"{GROUPS}algorithms: [majorize]\n"
PLAIN = f"{LOANS}algorithms: [unconstrained]\n"
OWN = "name: x\nalgorithms: [unconstrained]\n"
SWEPT = f"""\
{LOANS}sweep: {{k: [0.5, 1], l: [1, 2], exclude: [{{k: 1, l: 2}}]}}
algorithms:
  - unconstrained
  - majorize: {{sweep: {{j: [1]}}}}
"""
HALVES = """\
name: x
datasets:
  a: {source: loans, rows: 200, split: {validation: 1/3}}
  b: {source: loans, rows: 200}
sweep: {dataset: [a, b]}
algorithms: [unconstrained]
metrics: {error: error}
"""
"""Two data sets swept one by one, of which only the first has validation rows."""
GUARANTEED = f"""\
{PLAIN}constraints: {{cover: positive_rate <= 0.4}}
sweep: {{k: [1, 2], mode: [low, high]}}
report: {{plots: [{{kind: guarantee, %s}}]}}
"""
FILTERED = f"""\
{LOANS}objective: imbalance(by=sex)
sweep: {{k: [0.1, 0.2], l: [1, 2], exclude: [{{k: 0.1, l: 2}}]}}
constraints: {{secret: disclosivity(by=sex) <= k}}
algorithms: [unconstrained, balanced_tree]
metrics: {{m: l * error}}
report: {{plots: [{{%s}}]}}
"""
RULE = f"{LOANS}constraints: {{a: tpr >= 0.5}}\n"
TESTED = f"{RULE}algorithms: [majorize]\nsafety: {{%s}}\n"
LABELLED = """\
name: x
datasets:
  d: {path: people.csv, label: y, features: [sex, x]}
  e: {path: people.csv, features: [sex, x]}
algorithms: [majorize]
"""
BARREN = """\
name: x
datasets: {d: {path: barren.csv, label: y}}
groups: {women: sex = F, men: sex = M}
algorithms: [mixture]
"""
GAPS = """\
name: x
datasets: {d: {path: gaps.csv, label: y}}
deployed: {column: old}
algorithms: [majorize]
"""
MARKS = """\
name: x
datasets:
  d: {path: marks.csv, label: y, target: number, label_range: [0, 4]}
groups: {women: sex = F, men: sex = M}
"""

# (code and case, lines in the place of %s or after the base) by what the files have in common
ROWS: dict[str, list[tuple[str, ...]]] = {
    "%s": [
        ("E003 alias bomb", bomb() + "name: x\n"),
        ("E004 empty", "⟦#⟧ nothing here", ""),
        ("E106 name of the folder of pins", PLAIN.replace("name: x", "name: ⟦reference⟧")),
    ],
    "name: x\nalgorithms: [unconstrained]\ndatasets:\n": [
        ("E406 a propensity of 1",
         "  d: {path: badlog.csv, logged: {action: a, propensity: ⟦p⟧, outcomes: [x]}}"),
        ("E104 no classifier of propensities",
         "  d: {path: a.csv, logged: {action: a, propensity: {estimate: ⟦Forest⟧}, outcomes: [x]}}"),
        ("E406 a missing outcome",
         "  d: {path: badlog.csv, logged: {action: a, propensity: 0.5, outcomes: ⟦[r]⟧}}"),
        ("E406 an outcome out of range",
         "  d: {path: log.csv, logged: {action: a, propensity: p, outcomes: ⟦{r: [0, 2]}⟧}}"),
        ("E406 an action",
         "  d: {path: badlog.csv, logged: {action: ⟦b⟧, propensity: 0.5, outcomes: [x]}}"),
        ("E411 an outcome of text",
         "  d: {path: log.csv, logged: {action: a, propensity: p, outcomes: ⟦[a]⟧}}"),
        ("E205 a column of the log",
         "  d: {path: log.csv, logged: ⟦{action: a, propensity: q, outcomes: [r]}⟧}"),
        ("E304 an unknown outcome",
         "  d: {path: log.csv, logged: {action: a, propensity: p, outcomes: [r]}}",
         "objective: -value(⟦s⟧)"),
        ("E304 true values of a log",
         "  d: {path: log.csv, logged: {action: a, propensity: p, outcomes: [r]}}",
         "objective: -value(r)", "metrics: {a: ⟦value_true(r)⟧}"),
        ("E408 rows without actions",
         "  d: {path: log.csv, logged: {action: a, propensity: p, outcomes: [r]}}",
         "objective: '-⟦value(r)[x = 3]⟧'"),
        ("E306 error of a log",
         "  d: {path: log.csv, logged: {action: a, propensity: p, outcomes: [r]}}",
         "objective: -value(r) + ⟦error⟧"),
    ],
    "name: x\n": [
        ("E208 rows that one data set lacks", "algorithms: [unconstrained]", "datasets:",
         "  d: {source: loans, rows: 200, split: {validation: 1/3}}",
         "  e: {source: loans, rows: 200}", "metrics: {a: '⟦tpr[e]@validation⟧ - tpr[d]'}"),
        ("E208 shares of several columns",
         "datasets: {d: {path: people.csv, label: y, split: {test: 1/3}}}",
         "objective: imbalance(by=sex)", "constraints: {secret: disclosivity(by=y) <= 0.1}",
         "algorithms: [balanced_tree]", "report: {plots: [⟦{kind: group_shares}⟧]}"),
        ("E406 number out of range", "datasets:",
         "  d: {path: marks.csv, label: y, target: number, label_range: ⟦[0, 3.5]⟧}",
         "groups: {women: sex = F, men: sex = M}", "algorithms: [unconstrained: {loss: squared}]"),
        ("E308 loss of numbers of one data set", "datasets:",
         "  d: {path: marks.csv, label: y, target: number, label_range: [0, 4]}",
         "  e: {path: people.csv, label: y}", "groups: {women: sex = F, men: sex = M}",
         "sweep: {dataset: [d, e]}", "objective: mse", "metrics: {a: mse}", "algorithms:",
         "  - ⟦unconstrained⟧: {loss: squared}"),
        ("E102 a group without one data set",
         "datasets: {d: {source: loans, rows: 200}, e: {source: loans}}",
         "algorithms: [unconstrained]", "sweep: {dataset: [d]}",
         "groups: {⟦old⟧: {d: sex = Female}}"),
        ("E410 column of too many values", "algorithms: [unconstrained]",
         "constraints: {a: tpr >= 0.5}", "⟦safety⟧: {stratify: [sex, x, z]}", "datasets:",
         "  d: {path: scores.csv, label: y}"),
        ("E208 no test rows", "datasets: {d: {source: loans, rows: 200, split: {train: 1}}}",
         "algorithms: [unconstrained]",
         "report: {tables: [{rows: [algorithm], columns: [error], split: ⟦test⟧}]}"),
        ("E311 audit of no decisions", "datasets: {d: {path: gaps.csv, label: y}}",
         "deployed: {column: old}", "algorithms: [audit]", "constraints: {a: '⟦tpr⟧ >= 0.5'}",
         "safety: {}"),
        ("E410 tuning copies", "datasets: {d: {source: loans, rows: 200, levels: 2}}",
         "algorithms: [mixture: {⟦tune⟧: {calls: [3]}}]"),
        ("E104 drawn and split", "datasets: {d: {source: loans, rows: 200, ⟦split⟧: {train: 0.5}}}",
         "algorithms: [unconstrained]", "resample: 1"),
    ],
    LOANS: [
        ("E301 a group that a rule uses", "groups: {late: age >= ⟦June⟧}",
         "algorithms: [majorize]", "constraints: {a: 'tpr[late] >= 0.5', b: 'tpr[late] <= tpr'}"),
        ("E203 name that no algorithm has together", "algorithms:",
         "  - unconstrained: {sweep: {k: [1]}}", "  - unconstrained: {as: u, sweep: {m: [1]}}",
         "metrics: {a: ⟦k⟧ * m * tpr}"),
        ("E410 judging without validation rows", "constraints: {a: tpr >= 0.5}",
         "algorithms: [majorize, mixture: {as: m, ⟦holds⟧: validation}]"),
        ("E104 parameter of a model out of range", "sweep: {deep: [2, 0]}", "algorithms:",
         "  - mixture: {model: {DecisionTreeClassifier: {max_depth: ⟦deep⟧}}}"),
        ("E104 option by sweep", "sweep: {g: [0.1, -1]}", "algorithms: [majorize: {gap: ⟦g⟧}]"),
        ("E202 algorithm", "algorithms: [⟦majorise⟧]"),
        ("E203 constraint of an option", "constraints: {cover: positive_rate <= 0.3}",
         "algorithms: [thresholded: {meets: ⟦covr⟧}]"),
        ("E104 shares of too many panels", "objective: imbalance(by=sex)",
         "sweep: {k: 'linspace(0.1, 0.9, 9)'}", "constraints: {secret: disclosivity(by=sex) <= k}",
         "algorithms: [balanced_tree]", "report: {plots: [{kind: ⟦group_shares⟧}]}"),
        ("E310 circle", "algorithms: [majorize, majorize: {as: b}]",
         "constraints: {a: 'error <= of(b, error) + ⟦of(majorize, error)⟧'}"),
        ("E104 data sets of one algorithm",
         "algorithms: [unconstrained, majorize: {sweep: {⟦dataset⟧: [d]}}]"),
    ],
    f"{LOANS}algorithms:\n  - ": [
        ("E104 option not a choice", "unconstrained: {loss: ⟦hinged⟧}"),
        ("E104 model without weights",
         "mixture: {model: {⟦KNeighborsClassifier⟧: {n_neighbors: 3}}}"),
        ("E101 unknown option", "majorize: {⟦iteration⟧: 3}"),
        ("E104 option out of range", "majorize: {gap: ⟦-0.1⟧}"),
        ("E104 split of no such name to judge", "majorize: {holds: ⟦test⟧}"),
        ("E104 margin of what promises nothing", "unconstrained: {holds: ⟦new_rows⟧}"),
        ("E104 margin of less than a half", "majorize: {holds: new_rows, level: ⟦0.4⟧}"),
        ("E104 level on training rows", "majorize: {⟦level⟧: 0.9}"),
        ("E104 level of a file on training rows", "majorize", "⟦level⟧: 0.9"),
        ("E101 option to tune of no such name", "three_player: {tune: {⟦stepz⟧: [1, 2]}}"),
        ("E101 option to tune without a model", "zafar: {tune: {⟦C⟧: [1, 2]}}"),
        ("E104 range of a tuned penalty", "majorize: {tune: {l2: [1/n, ⟦0⟧]}}"),
        ("E104 tuned penalty of a model without",
         "mixture: {model: GaussianNB, tune: {⟦l2⟧: [1, 2]}}"),
        ("E101 tuned option of a tuned model",
         "mixture: {tune: {model: [linear, GaussianNB: {⟦depth⟧: 3}]}}"),
        ("E103 type of a tuned option", "mixture: {tune: {calls: [3, ⟦few⟧]}}"),
        ("E103 tuned value without a list", "mixture: {tune: {calls: ⟦3⟧}}"),
        ("E104 range of a tuned option", "majorize: {tune: {gap: [0.1, ⟦-0.1⟧]}}"),
        ("E104 range of a tuned parameter",
         "mixture: {model: DecisionTreeClassifier, tune: {max_depth: [2, ⟦0⟧]}}"),
        ("E104 nothing to tune", "mixture: {tune: ⟦{}⟧}"),
        ("E104 nothing to tune by log loss", "unconstrained: {model: lightgbm, tune: ⟦{}⟧}"),
        ("E104 no values to tune", "mixture: {tune: {calls: ⟦[]⟧}}"),
        ("E104 option set and tuned", "mixture: {calls: 3, tune: {⟦calls⟧: [3, 4]}}"),
        ("E104 option swept and tuned", "mixture: {sweep: {calls: [3]}, tune: {⟦calls⟧: [3, 4]}}"),
        ("E104 parameter set and tuned",
         "mixture: {model: {GaussianNB: {var_smoothing: 1}}, tune: {⟦var_smoothing⟧: [1, 2]}}"),
        ("E104 too many settings",
         f"mixture: {{⟦tune⟧: {{calls: {[*range(1, 41)]}, gap: {[k / 100 for k in range(1, 41)]}}}}}"),
        ("E104 too many settings of one that tunes itself",
         f"unconstrained: {{model: GaussianNB, ⟦tune⟧: {{var_smoothing: {[*range(1, 1002)]}}}}}"),
        ("E104 tuned filter", "balanced_tree: {⟦tune⟧: {gap: [1, 2]}}"),
        ("E104 tuned option without effect",
         "post_shift: {tune: {min_support: [0], ⟦small_groups⟧: [pool]}}"),
        ("E104 option without effect for all tuned models",
         "mixture: {⟦scores⟧: in_sample, tune: {model: [linear, GaussianNB]}}"),
        ("E308 tuned loss of numbers", "⟦unconstrained⟧: {tune: {loss: [hinge, squared]}}"),
        ("E410 tuning resampled rows", "mixture: {⟦tune⟧: {calls: [3]}}", "resample: 0.5"),
        ("E104 too many folds", "post_shift: {scores: ⟦{folds: 100000}⟧}"),
        ("E104 hardly any row to fit to", "post_shift: {scores: ⟦{held_out: 0.99999}⟧}"),
        ("E104 surrogate rates of an oracle", "three_player: ⟦{⟧oracle: linear, rates: surrogate}"),
        ("E101 option of the plug-in", "three_player: {oracle: {plugin: {⟦chances⟧: GaussianNB}}}"),
        ("E104 option against a preset", "coco: ⟦{⟧rates: surrogate}"),
        ("E104 options against each other",
         "majorize: ⟦{⟧inner: liblinear, intercept: unregularized}"),
        ("E101 former name of an option", "mixture: {⟦oracle⟧: linear}"),
        ("E101 former name of a filter's option", "qp_proxy: {⟦classifier⟧: GaussianNB}"),
        ("E104 model", "mixture: {model: ⟦DecisionTree⟧}"),
        ("E101 model's parameter", "mixture: {model: {DecisionTreeClassifier: {⟦depth⟧: 3}}}"),
        ("E104 no probabilities", "mixture: {model: {plugin: {probabilities: ⟦LinearSVC⟧}}}"),
        ("E104 groups of a filter's oracle", "balanced_tree: ⟦{⟧oracle: {plugin: {groups: true}}}"),
        ("E104 offset of another split", "balanced_tree: {⟦offset⟧: literal}"),
        ("E104 least share of naive weights", "naive_proxy: {⟦kept⟧: 0.2}"),
        ("E106 label of the deployed model", "majorize: {as: ⟦deployed⟧}"),
        ("E310 unclear result", "unconstrained: {sweep: {k: [1, 2]}}", "  - majorize",
         "constraints: {a: 'error <= ⟦of(unconstrained, error)⟧'}"),
        ("E308 loss of numbers", "⟦unconstrained⟧: {loss: squared}"),
        ("E308 swept loss of numbers", "⟦unconstrained⟧: {sweep: {loss: [hinge, squared]}}"),
        ("E410 tuning without rows", "three_player: {⟦tune⟧: {learning_rate: [0.1, 1]}}"),
    ],
    PLAIN: [
        ("E104 share by a sweep", "resample: ⟦amount⟧", "sweep: {amount: [0.5, -1]}"),
        ("E001 open bracket", "seeds: ⟦[⟧1, 2"),
        ("E102 plot without an axis", "report: {plots: [⟦{kind: tradeoff, x: error}⟧]}"),
        ("E104 too many panels", "sweep: {k: 'linspace(0, 1, 13)'}",
         "report: {plots: [{kind: ⟦convergence⟧, by: k}]}"),
        ("E106 metric named as a sweep", "sweep: {⟦k⟧: [0.5]}", "metrics: {k: error}"),
        ("E205 column of the deployed model", "deployed: {column: ⟦old⟧}"),
        ("E208 column of a table", "report: {tables: [{rows: [algorithm], columns: [⟦errr⟧]}]}"),
        ("E208 axis along a word", "sweep: {mode: [low, 1]}",
         "report: {plots: [{kind: tradeoff, x: ⟦mode⟧, y: error}]}"),
        ("E208 failures where nothing is constrained", "sweep: {k: [1, 2]}",
         "report: {plots: [{kind: ⟦guarantee⟧, x: k, y: error}]}"),
        ("E104 too many panels of two splits", "sweep: {k: 'linspace(0, 1, 7)'}",
         "report: {plots: [{kind: ⟦tradeoff⟧, x: error, y: error, split: [train, test], by: k}]}"),
        ("E208 failures in a table",
         "report: {tables: [{rows: [algorithm], columns: [solution_rate, ⟦failure_rate⟧]}]}"),
        ("E208 metric of rows of no test", "metrics: {a: ⟦error@safety⟧}"),
        ("E305 share below 0", "filter: {objective: 'rms(⟦share[sex = Female]⟧ + 0.1)'}"),
        ("E209 split", "metrics: {a: tpr@⟦tets⟧}"),
        ("E304 estimates of the deployed model", "metrics: {a: 'of(deployed, ⟦mse⟧)'}"),
        ("E104 unknown data set swept", "sweep: {dataset: [d, ⟦e⟧]}"),
        ("E104 a group for each data set, all in one", "groups: {⟦old⟧: {d: sex = Female}}"),
        ("E104 a group of an unknown data set", "sweep: {dataset: [d]}",
         "groups: {old: {d: sex = Female, ⟦e⟧: sex = Male}}"),
        ("E104 test of nothing", "⟦safety⟧: {}"),
        ("E208 no test",
         "report: {tables: [{rows: [algorithm], columns: [error], split: ⟦safety⟧}]}"),
        ("E103 share left empty", "⟦resample⟧:"),
        ("E410 share of less than a row", "resample: ⟦amount⟧", "sweep: {amount: [1, 0.001]}"),
    ],
    f"{PLAIN}report: {{plots: [{{%s}}]}}\n": [
        ("E101 key of another kind of plot", "kind: convergence, ⟦y⟧: error"),
        ("E104 convergence along what no trace has", "kind: convergence, x: ⟦steps⟧"),
    ],
    f"{PLAIN}report: {{plots: [{{kind: tradeoff, %s}}]}}\n": [
        ("E208 violation of none", "x: ⟦violation.a⟧, y: error"),
        ("E208 line of a plot", "x: error, y: error, lines: [⟦unconstraint⟧]"),
        ("E208 algorithm of a plot", "x: error, y: error, algorithms: [unconstrained, ⟦majorize⟧]"),
        ("E208 panels by what does not vary", "x: error, y: error, by: ⟦dataset⟧"),
        ("E104 a split twice", "x: error, y: error, split: ⟦[test, test]⟧"),
    ],
    GUARANTEED: [
        ("E208 guarantee along a metric", "x: ⟦error⟧, y: error"),
        ("E208 performance that is no metric", "x: k, y: ⟦k⟧"),
        ("E208 failures of no constraint", "x: k, y: error, constraint: ⟦parity⟧"),
        ("E208 truth without rows", "x: k, y: objective, truth: ⟦validation⟧"),
        ("E208 share in a trade-off",
         "x: k, y: error}, {kind: tradeoff, x: error, y: ⟦failure_rate⟧"),
    ],
    FILTERED: [
        ("E208 no filter's posteriors",
         "kind: posteriors, algorithms: ⟦[balanced_tree, unconstrained]⟧"),
        ("E208 shares of a column that tells no groups", "kind: group_shares, column: ⟦income⟧"),
        ("E208 posteriors of a seed that is not run", "kind: posteriors, seed: ⟦7⟧"),
        ("E208 posteriors at what does not vary", "kind: posteriors, at: {alpha: ⟦[0.1]⟧}"),
        ("E104 posteriors at a value that is not run", "kind: posteriors, ⟦at⟧: {k: [0.3]}"),
        ("E104 a value that is not run, beside one that is",
         "kind: posteriors, at: {k: [0.1, ⟦0.3⟧]}"),
        ("E104 shares at values not run together", "kind: group_shares, ⟦at⟧: {k: [0.1], l: [2]}"),
        ("E208 shares of a split without rows", "kind: group_shares, split: ⟦[train, validation]⟧"),
    ],
    f"{SWEPT}metrics: {{m: j * error}}\nexpect:\n  - ": [
        ("E101 expected by no name",
         "{algorithm: unconstrained, metric: objective, ⟦kapa⟧: 1, at_most: 1}"),
        ("E104 expected of no run",
         "⟦{algorithm: unconstrained, metric: objective, paper: 1, k: 0.8}⟧"),
        ("E104 expected of values apart",
         "⟦{algorithm: unconstrained, metric: objective, paper: 1, k: 1, l: 2}⟧"),
        ("E104 expected by another's name",
         "⟦{algorithm: unconstrained, metric: objective, paper: 1, j: 1}⟧"),
        ("E208 expected failures of no constraint",
         "{algorithm: majorize, metric: ⟦failure_rate.a⟧, at_most: 0.1}"),
        ("E208 expected of no algorithm", "{algorithm: ⟦majorise⟧, metric: objective, paper: 1}"),
        ("E208 expected of a split without rows",
         "{algorithm: majorize, metric: objective, paper: 1, split: ⟦validation⟧}"),
    ],
    f"{HEAD}constraints:\n  a: ": [
        ("E203 rate", "⟦recal⟧[women] >= 0.8"),
        ("E204 group in a slice", "tpr[⟦woman⟧] >= 0.8"),
        ("E206 value", "tpr[⟦sex = female⟧] >= 0.8"),
        ("E301 hat", "tpr⟦^⟧2 <= 0.5"),
        ("E304 values without a log", "⟦value(r)⟧ >= 1"),
        ("E304 power that is no number", "tpr ** ⟦fpr⟧ <= 0.5"),
        ("E311 power that is too large", "⟦9**9**9⟧ <= tpr"),
        ("E302 deep parenthesis", f"⟦{'(' * 10_000}tpr{')' * 10_000} <= 1⟧"),
        ("E303 no relation", "⟦tpr[women]⟧"),
        ("E304 of of of", "error <= of(majorize, ⟦of(majorize, error)⟧)"),
        ("E304 scores of the deployed model", "error <= of(deployed, 1 - ⟦roc_auc⟧)"),
        ("E305 always holds", "⟦tpr[women] <= 1.5⟧"),
        ("E305 never holds", "⟦tpr[women] >= 1.5⟧"),
        ("E305 contradiction", "tpr[women] <= 0.4\n  b: ⟦tpr[women] >= 0.6⟧"),
        ("E305 ratio above 1", "⟦demographic_parity_ratio(by=sex) >= 1.2⟧"),
        ("E305 difference below 0", "⟦equalized_odds_difference(by=sex) <= -0.1⟧"),
        ("E308 reversed", "⟦demographic_parity_ratio(by=sex) <= 0.8⟧"),
        ("E305 no rate", "⟦1 <= 2⟧"),
        ("E307 churn without deployed", "⟦churn⟧ <= 0.1"),
        ("E307 decisions of no deployed model", "tpr >= ⟦of(deployed, tpr)⟧"),
        ("E309 rows of the test in a goal", "⟦tpr@safety⟧ >= 0.8"),
    ],
    GROUPS: [
        ("E310 own decisions", "algorithms: [majorize]",
         "constraints: {a: 'tpr >= of(deployed, tpr)'}", "deployed: {algorithm: ⟦majorize⟧}"),
        ("E203 another's name", "algorithms: [majorize, unconstrained: {sweep: {k: [0.5]}}]",
         "constraints: {a: tpr >= ⟦k⟧}"),
        ("E308 pushes all one way at a sweep point", "algorithms: [zafar: {sweep: {k: [0, 1]}}]",
         "constraints: {a: ⟦'positive_rate[women] >= 0.1 + k * positive_rate[men]'⟧}"),
        ("E310 number from tested rows", "algorithms: [majorize, unconstrained: {safety: false}]",
         "constraints: {a: 'error <= 1.1 * ⟦of(unconstrained, error)⟧'}", "safety: {}"),
        ("E310 decisions from tested rows",
         "algorithms: [majorize, unconstrained: {safety: {fraction: 0.4}}]",
         "constraints: {a: churn <= 0.1}", "safety: {}", "deployed: {algorithm: ⟦unconstrained⟧}"),
        ("E310 audit of the audit", "algorithms: [audit]", "deployed: {algorithm: ⟦audit⟧}"),
        ("E307 audit of nothing", "algorithms: [⟦audit⟧]"),
        ("E410 validation of drawn rows", "algorithms: [majorize: {⟦holds⟧: validation}]",
         "constraints: {a: tpr >= 0.5}", "resample: 1"),
    ],
    HEAD.replace("majorize", "three_player"): [
        ("E308 absolute difference", "objective: error + ⟦abs(tpr[women] - tpr[men])⟧"),
        ("E308 divergence of two rates", "constraints: {a: 'error <= 0.4 - ⟦kl(tpr, fpr)⟧'}"),
        ("E308 mean of differences",
         "constraints: {a: '⟦rms(tpr[women] - tpr[men], fpr)⟧ <= 0.2'}"),
    ],
    HEAD.replace("majorize", "post_shift"): [
        ("E308 slice of labels",
         "constraints: {a: 'tpr >= 0.5', b: '⟦positive_rate[repaid = yes]⟧ >= 0.5'}"),
    ],
    RULE: [
        ("E104 delta by a sweep", "algorithms: [majorize]", "safety: {delta: {a: ⟦k⟧}}",
         "sweep: {k: [0.1, 1]}"),
        ("E104 a constraint to meet and none",
         "algorithms: [thresholded: ⟦{⟧free: true, meets: a}]"),
        ("E104 delta by an own sweep", "safety: {delta: ⟦k⟧}",
         "algorithms: [majorize: {sweep: {k: [1]}}]"),
        ("E104 room for a test and a margin", "safety: {aim: 0.9}",
         "algorithms: [majorize: {holds: ⟦new_rows⟧}]"),
        ("E104 aim of the model in use",
         "algorithms: [unconstrained, audit: {safety: {aim: ⟦0.9⟧}}]", "safety: {}",
         "deployed: {algorithm: unconstrained}"),
        ("E102 algorithm for a test, without one", "algorithms: [⟦seldonian⟧]"),
    ],
    TESTED: [
        ("E203 delta of no constraint", "delta: {a: 0.1, ⟦b⟧: 0.1}"),
        ("E104 fraction by a sweep", "fraction: ⟦k⟧}", "sweep: {k: [0.5, true]"),
        ("E410 fraction of too few rows", "fraction: ⟦0.001⟧"),
        ("E104 last rows, stratified", "order: positional, ⟦stratify⟧: [sex]"),
    ],
    TESTED.replace("[majorize]", "[seldonian: {%s}]").replace("safety: {%s}", "safety: {}"): [
        ("E104 optimizer of decisions", "decisions: deterministic, ⟦optimizer⟧: sequential"),
        ("E104 step without descent", "⟦step⟧: 0.1"),
        ("E104 step of decisions by a sweep", "decisions: deterministic, sweep: {⟦step⟧: [0.1]}"),
        ("E104 margin of what leaves room itself", "holds: ⟦new_rows⟧"),
    ],
    f"{OWN}datasets:\n  ": [
        ("E104 too few rows", "d: {source: loans, rows: ⟦3⟧}"),
        ("E104 too many levels", "d: {path: people.csv, label: y, levels: ⟦31⟧}"),
        ("E201 data set", "d: {source: ⟦adlut⟧}"),
        ("E205 label column", "d: {path: people.csv, label: ⟦z⟧}"),
        ("E103 three ends",
         "d: {path: marks.csv, label: y, target: number, label_range: ⟦[0, 1, 2]⟧}"),
        ("E104 range upside down",
         "d: {path: marks.csv, label: y, target: number, label_range: ⟦[4, 0]⟧}"),
        ("E102 number of nothing", "d: {path: marks.csv, ⟦target⟧: number}"),
        ("E405 no such file", "d: {path: ⟦missing.csv⟧, label: y}"),
        ("E405 no file of scores", "d: {source: loans, scores: {s: ⟦missing.csv⟧}}"),
        ("E403 wrong hash", "d: {path: people.csv, label: y, sha256: ⟦'" + "0" * 64 + "'⟧}"),
        ("E404 ragged rows", "d: {path: ⟦ragged.csv⟧, label: y}"),
        ("E411 level of its own", "d: {path: level.csv, label: y, levels: ⟦3⟧}"),
        ("E407 missing number", "⟦d⟧: {path: nan.csv, label: y}"),
    ],
    f"{OWN}%s\ndatasets:\n  d: {{path: people.csv, label: y}}\n": [
        ("E406 deployed decisions", "deployed: {column: ⟦x⟧}"),
        ("E404 table as a model", "deployed: {model: ⟦people.csv⟧}"),
        ("E411 model of other features", "deployed: {model: ⟦two.npz⟧}"),
        ("E404 model of no numbers", "deployed: {model: ⟦nan.npz⟧}"),
        ("E408 empty group", "groups: {all: 'sex = F', old: ⟦x >= 99⟧}"),
    ],
    OWN.replace("unconstrained", "unconstrained: {loss: squared}") + "datasets:\n  ": [
        ("E104 levels of numbers", "d: {path: marks.csv, label: y, target: number, ⟦levels⟧: 3}"),
        ("E411 two kinds of labels", "⟦d⟧: {path: marks.csv, label: y, target: number}",
         "  e: {path: people.csv, label: y}"),
    ],
    MARKS: [
        ("E306 rate of numbers in a goal", "constraints: {a: 'mse <= 1', b: '⟦tpr[women]⟧ >= 0.5'}",
         "algorithms: [unconstrained: {loss: squared}]"),
        ("E306 ranking of numbers", "objective: ⟦roc_auc⟧",
         "algorithms: [unconstrained: {loss: squared}]"),
        ("E306 error of numbers", "metrics: {e: ⟦error⟧ + mse}",
         "algorithms: [unconstrained: {loss: squared}]"),
        ("E308 learner of two classes", "algorithms: [⟦unconstrained⟧]"),
        ("E308 classifier of numbers", "algorithms: [⟦unconstrained⟧: {model: GaussianNB}]"),
    ],
    BARREN: [
        ("E311 precision of no positive row", "objective: 1 - ⟦precision[women]⟧"),
        ("E408 no positive row in a slice", "constraints: {a: '⟦tpr[women]⟧ >= 0.5'}"),
        ("E311 F-measure of no positive row", "constraints: {a: '⟦f1[women]⟧ >= f1[men] - 0.1'}"),
        ("E311 division by a base rate of 0", "constraints: {a: '⟦tpr / base_rate[women]⟧ <= 3'}"),
    ],
    GAPS: [
        ("E311 no decision in a metric", "metrics: {a: 'of(deployed, 1 - ⟦error⟧)'}"),
        ("E311 no decision", "constraints: {a: 'tpr >= of(deployed, ⟦tpr[x >= 5]⟧)'}"),
    ],
    LABELLED: [
        ("E306 no labels in a slice", "constraints: {a: 'error <= 0.5', b: '⟦tpr[e]⟧ >= 0.5'}"),
    ],
}  # fmt: skip


def put_in(base: str, text: str) -> str:
    return base.replace("%s", text) if "%s" in base else f"{base}{text}\n"


BROKEN = [
    Broken(what, put_in(base, "\n".join(lines)))
    for base, rows in ROWS.items()
    for what, *lines in rows
]
