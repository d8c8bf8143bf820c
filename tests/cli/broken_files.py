"""Broken experiments: each has its error code and, between ⟦ and ⟧, the expected location."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from ratecli.models.linear import Threshold

MARK = re.compile("⟦([^⟧]*)⟧")


class Broken(NamedTuple):
    what: str
    code: str
    text: str
    exit_code: int = 2


def marked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without marks, and the line and column of each."""
    places = []
    for number, line in enumerate(text.splitlines(), start=1):
        starts = [found.start() for found in MARK.finditer(line)]
        places += [(number, start - 2 * k + 1) for k, start in enumerate(starts)]
    return MARK.sub(r"\1", text), places


TABLES = {
    "people.csv": "sex,x,y\n" + "".join(f"{'FM'[k % 2]},{k * 7 % 11},{k // 2 % 2}\n" for k in range(120)),
    "nan.csv": "sex,x,y\n" + "F,,1\nM,2,0\n" * 20,
    "infinite.csv": "sex,x,y\n" + "F,inf,1\nM,2,0\n" * 20,
    "one_class.csv": "sex,x,y\n" + "F,1,1\nM,2,1\n" * 20,
    "three.csv": "sex,x,y\n" + "F,1,a\nM,2,b\nM,3,c\n" * 20,
    "page.csv": "<!DOCTYPE html>\n<html><body>Please log in</body></html>\n",
    "ragged.csv": "sex,x,y\nF,1\nM,2,0,4\n",
    "level.csv": "level,x,y\n" + "F,2,1\nM,2,0\n" * 20,
    "label_only.csv": "y\n0\n1\n",
    "words.csv": "z,w,y\n" + "F,1,1\nM,2,0\n" * 20,
    "barren.csv": "sex,x,y\n" + "".join(f"{'FM'[k % 2]},{k * 7 % 11},{k % 2 * (k // 2 % 2)}\n" for k in range(120)),
    "scores.csv": "sex,x,z,y\n" + "".join(f"{'FM'[k % 2]},{k * 7 % 11},{k / 8},{k // 2 % 2}\n" for k in range(120)),
    "gaps.csv": "sex,x,y,old\n" + "".join(f"{'FM'[k % 2]},{k % 11},{k // 2 % 2},{'' if k % 11 == 7 else k % 2}\n" for k in range(132)),
    "weighted.csv": "w,x,y\n" + "".join(f"{k % 3 + 1},{k * 7 % 11},{k // 2 % 2}\n" for k in range(120)),
    "marks.csv": "sex,x,y\n" + "".join(f"{'FM'[k % 2]},{k * 7 % 11},{k % 9 / 2}\n" for k in range(120)),
    "tiny.csv": "sex,x,y\nF,1,1\nM,2,0\nF,3,1\n",
}  # fmt: skip

LOANS = "name: x\ndatasets: {d: {source: loans, rows: 200}}\n"
HEAD = LOANS + "groups: {women: sex = Female, men: sex = Male}\nalgorithms: [majorize]\n"
PLAIN = LOANS + "algorithms: [unconstrained]\n"
SWEPT = (
    LOANS
    + "sweep: {k: [0.5, 1], l: [1, 2], exclude: [{k: 1, l: 2}]}\nalgorithms:\n  - unconstrained\n  - majorize: {sweep: {j: [1]}}\n"
)
HALVES = (
    "name: x\ndatasets: {a: {source: loans, rows: 200, split: {validation: 1/3}}, b: {source: loans, rows: 200}}\n"
    "sweep: {dataset: [a, b]}\nalgorithms: [unconstrained]\nmetrics: {error: error}\n"
)
"""Two data sets swept one by one, of which only the first has validation rows."""
GUARANTEED = (
    PLAIN
    + "constraints: {cover: positive_rate <= 0.4}\nsweep: {k: [1, 2], mode: [low, high]}\nreport: {plots: [{kind: guarantee, %s}]}\n"
)
FILTERED = (
    LOANS
    + "objective: imbalance(by=sex)\nsweep: {k: [0.1, 0.2], l: [1, 2], exclude: [{k: 0.1, l: 2}]}\n"
    + "constraints: {secret: disclosivity(by=sex) <= k}\nalgorithms: [unconstrained, balanced_tree]\n"
    + "metrics: {m: l * error}\nreport: {plots: [{%s}]}\n"
)
PLAYERS = HEAD.replace("majorize", "three_player")


def rule(text: str) -> str:
    return f"{HEAD}constraints:\n  a: {text}\n"


def expected(entry: str) -> str:
    return f"{SWEPT}metrics: {{m: j * error}}\nexpect:\n  - {entry}\n"


def own(options: str, rest: str = "") -> str:
    return f"name: x\nalgorithms: [unconstrained]\n{rest}datasets:\n  {options}\n"


RULE = LOANS + "constraints: {a: tpr >= 0.5}\n"


def tested(keys: str) -> str:
    """Return an experiment with a safety test."""
    return f"{RULE}algorithms: [majorize]\nsafety: {{{keys}}}\n"


LEFT = tested("").replace("[majorize]", "[seldonian: {%s}]")
"""An algorithm that uses the safety test in training."""

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
MODELS = {"two.npz": Threshold(np.ones(2)), "nan.npz": Threshold(np.full(3, np.nan))}


def bomb() -> str:
    """Return 10^10 values in ten lines; the fifth exceeds the limit."""
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{k}: &x{k} [{', '.join([f'*x{k - 1}'] * 10)}]" for k in range(1, 10)]
    lines[4] = lines[4].replace("*x3", "⟦*x3⟧", 1)
    return "\n".join(lines) + "\n"


PARENTHESES = "(" * 10_000

YAML = [
    Broken("open bracket", "E001", PLAIN + "seeds: ⟦[⟧1, 2\n"),
    Broken("alias bomb", "E003", bomb() + "name: x\n"),
    Broken("empty", "E004", "⟦#⟧ nothing here\n"),
]

KEYS = [
    Broken("unknown option", "E101", LOANS + "algorithms:\n  - majorize: {⟦iteration⟧: 3}\n"),
    Broken("option of a source", "E101", own("d: {source: a9a, ⟦rows⟧: 3}")),
    Broken("option of wrong type", "E103", LOANS + "algorithms:\n  - majorize: {iterations: ⟦many⟧}\n"),
    Broken("option out of range", "E104", LOANS + "algorithms:\n  - majorize: {gap: ⟦-0.1⟧}\n"),
    Broken("split of no such name to judge", "E104", LOANS + "algorithms:\n  - majorize: {constraints_on: ⟦test⟧}\n"),
    Broken("margin of what promises nothing", "E104", LOANS + "algorithms:\n  - unconstrained: {margin: ⟦0.9⟧}\n"),
    Broken("margin of less than a half", "E104", LOANS + "algorithms:\n  - majorize: {margin: ⟦0.4⟧}\n"),
    Broken("option to tune of no such name", "E101", LOANS + "algorithms:\n  - three_player: {tune: {⟦steps⟧: [1, 2]}}\n"),
    Broken("surrogate rates of an oracle", "E104", LOANS + "algorithms:\n  - three_player: ⟦{⟧oracle: linear, rates: surrogate}\n"),
    Broken("option of the plug-in", "E101", LOANS + "algorithms:\n  - three_player: {oracle: {plugin: {⟦chances⟧: GaussianNB}}}\n"),
    Broken("option against a preset", "E104", LOANS + "algorithms:\n  - coco: ⟦{⟧rates: surrogate}\n"),
    Broken("batch of an oracle", "E104", LOANS + "algorithms:\n  - three_player: ⟦{⟧oracle: linear, batch: 100}\n"),
    Broken("option not a choice", "E104", LOANS + "algorithms:\n  - unconstrained: {loss: ⟦hinged⟧}\n"),
    Broken("options that exclude each other", "E104", LOANS + "algorithms:\n  - majorize: ⟦{⟧inner: liblinear, intercept: unregularized}\n"),
    Broken("oracle", "E104", LOANS + "algorithms:\n  - mixture: {oracle: ⟦DecisionTree⟧}\n"),
    Broken("oracle without weights", "E104", LOANS + "algorithms:\n  - mixture: {oracle: {⟦KNeighborsClassifier⟧: {n_neighbors: 3}}}\n"),
    Broken("parameter of an oracle", "E101", LOANS + "algorithms:\n  - mixture: {oracle: {DecisionTreeClassifier: {⟦depth⟧: 3}}}\n"),
    Broken("parameter of an oracle out of range", "E104", LOANS + "sweep: {deep: [2, 0]}\nalgorithms:\n  - mixture: {oracle: {DecisionTreeClassifier: {max_depth: ⟦deep⟧}}}\n"),
    Broken("chances without probabilities", "E104", LOANS + "algorithms:\n  - mixture: {oracle: {plugin: {probabilities: ⟦LinearSVC⟧}}}\n"),
    Broken("sweeps of another oracle", "E104", LOANS + "algorithms:\n  - mixture: ⟦{⟧oracle: plugin, sweeps: 2}\n"),
    Broken("groups of a filter's oracle", "E104", LOANS + "algorithms:\n  - balanced_tree: ⟦{⟧oracle: {plugin: {groups: true}}}\n"),
    Broken("offset of another split", "E104", LOANS + "algorithms:\n  - balanced_tree: {⟦offset⟧: literal}\n"),
    Broken("least share of naive weights", "E104", LOANS + "algorithms:\n  - naive_proxy: {⟦kept⟧: 0.2}\n"),
    Broken("a constraint to meet and none", "E104", LOANS + "constraints: {a: tpr >= 0.5}\nalgorithms:\n  - thresholded: ⟦{⟧free: true, meets: a}\n"),
    Broken("option by sweep", "E104", LOANS + "sweep: {g: [0.1, -1]}\nalgorithms:\n  - majorize: {gap: ⟦g⟧}\n"),
    Broken("expected of what does not vary", "E101", expected("{algorithm: unconstrained, metric: objective, ⟦kapa⟧: 1, at_most: 1}")),
    Broken("expected where nothing is run", "E104", expected("{algorithm: unconstrained, metric: objective, paper: 1, k: ⟦0.8⟧}")),
    Broken("expected of two values that never meet", "E104", expected("⟦{algorithm: unconstrained, metric: objective, paper: 1, k: 1, l: 2}⟧")),
    Broken("expected of a name of others", "E104", expected("{algorithm: unconstrained, metric: objective, paper: 1, ⟦j⟧: 1}")),
    Broken("key of another kind of plot", "E101", PLAIN + "report: {plots: [{kind: convergence, ⟦y⟧: error}]}\n"),
    Broken("plot without an axis", "E102", PLAIN + "report: {plots: [⟦{kind: tradeoff, x: error}⟧]}\n"),
    Broken("convergence along what no trace has", "E104", PLAIN + "report: {plots: [{kind: convergence, x: ⟦steps⟧}]}\n"),
    Broken("too many panels", "E104", PLAIN + "sweep: {k: 'linspace(0, 1, 13)'}\nreport: {plots: [{kind: convergence, by: ⟦k⟧}]}\n"),
    Broken("l2 of zero", "E104", PLAIN + "regularization: {l2: ⟦0⟧}\n"),
    Broken("too few rows", "E104", own("d: {source: loans, rows: ⟦3⟧}")),
    Broken("one level", "E104", own("d: {source: loans, rows: 200, levels: ⟦1⟧}")),
    Broken("too many levels", "E104", own("d: {path: people.csv, label: y, levels: ⟦31⟧}")),
    Broken("unlike levels", "E104", own("{d: {path: people.csv, label: y, levels: 3}, e: {path: people.csv, label: y, levels: ⟦4⟧}}")),
    Broken("no texts", "E101", own("d: {source: adult, ⟦vectors⟧: glove.txt}")),
    Broken("preparation", "E104", own("d: {source: adult, preparation: ⟦nice⟧}")),
    Broken("label of the deployed model", "E106", LOANS + "algorithms:\n  - majorize: {as: ⟦deployed⟧}\n"),
    Broken("metric named as a sweep", "E106", PLAIN + "sweep: {⟦k⟧: [0.5]}\nmetrics: {k: error}\n"),
    Broken("name of the folder of pins", "E106", PLAIN.replace("name: x", "name: ⟦reference⟧")),
]  # fmt: skip

NAMES = [
    Broken("data set", "E201", own("d: {source: ⟦adlut⟧}")),
    Broken("algorithm", "E202", LOANS + "algorithms: [⟦majorise⟧]\n"),
    Broken("algorithm in of", "E202", rule("error <= of(⟦unconstraint⟧, error)")),
    Broken("rate", "E203", rule("⟦recal⟧[women] >= 0.8")),
    Broken("objective", "E203", PLAIN + "objective: ⟦eror⟧\n"),
    Broken("constraint of an option", "E203", LOANS + "constraints: {cover: positive_rate <= 0.3}\nalgorithms:\n  - thresholded: {meets: ⟦covr⟧}\n"),
    Broken("name that another algorithm sweeps", "E203", HEAD.replace("[majorize]", "[majorize, unconstrained: {sweep: {k: [0.5]}}]") + "constraints: {a: tpr >= ⟦k⟧}\n"),
    Broken("name that no algorithm has together", "E203", LOANS + "algorithms:\n  - unconstrained: {sweep: {k: [1]}}\n  - unconstrained: {as: u, sweep: {m: [1]}}\nmetrics: {a: ⟦k⟧ * m * tpr}\n"),
    Broken("group in a slice", "E204", rule("tpr[⟦woman⟧] >= 0.8")),
    Broken("column", "E205", PLAIN + "groups: {women: ⟦gender = Female⟧}\n"),
    Broken("column of a template", "E205", rule("max_gap(tpr, by=⟦gender⟧) <= 0.1")),
    Broken("column of the deployed model", "E205", PLAIN + "deployed: {column: ⟦old⟧}\n"),
    Broken("label column", "E205", own("d: {path: people.csv, label: ⟦z⟧}")),
    Broken("dropped column", "E205", own("d: {path: people.csv, label: y, drop: [sex, ⟦z⟧]}")),
    Broken("value", "E206", rule("tpr[⟦sex = female⟧] >= 0.8")),
    Broken("value of a group that rules use", "E206", HEAD.replace("sex = Female", "⟦sex = female⟧") + "constraints: {a: 'tpr[women] >= 0.8 * tpr[men]'}\n"),
    Broken("words in order", "E206", rule("tpr[⟦sex >= 3⟧] >= 0.8")),
    Broken("column of a table", "E208", PLAIN + "report: {tables: [{rows: [algorithm], columns: [⟦errr⟧]}]}\n"),
    Broken("violation of none", "E208", PLAIN + "report: {plots: [{kind: tradeoff, x: ⟦violation.a⟧, y: error}]}\n"),
    Broken("axis along a word", "E208", PLAIN + "sweep: {mode: [low, 1]}\nreport: {plots: [{kind: tradeoff, x: ⟦mode⟧, y: error}]}\n"),
    Broken("line of a plot", "E208", PLAIN + "report: {plots: [{kind: tradeoff, x: error, y: error, lines: [⟦unconstraint⟧]}]}\n"),
    Broken("algorithm of a plot", "E208", PLAIN + "report: {plots: [{kind: tradeoff, x: error, y: error, algorithms: [unconstrained, ⟦majorize⟧]}]}\n"),
    Broken("guarantee along a metric", "E208", GUARANTEED % "x: ⟦error⟧, y: error"),
    Broken("performance that is no metric", "E208", GUARANTEED % "x: k, y: ⟦k⟧"),
    Broken("failures of no constraint", "E208", GUARANTEED % "x: k, y: error, constraint: ⟦parity⟧"),
    Broken("failures where nothing is constrained", "E208", PLAIN + "sweep: {k: [1, 2]}\nreport: {plots: [{kind: ⟦guarantee⟧, x: k, y: error}]}\n"),
    Broken("truth without rows", "E208", GUARANTEED % "x: k, y: objective, truth: ⟦validation⟧"),
    Broken("truth that is no split", "E104", GUARANTEED % "x: k, y: objective, truth: ⟦everything⟧"),
    Broken("guarantee of a split", "E101", GUARANTEED % "x: k, y: objective, ⟦split⟧: test"),
    Broken("guarantee without a performance", "E102", PLAIN + "report: {plots: [⟦{kind: guarantee, x: k}⟧]}\n"),
    Broken("posteriors of no filter", "E208", FILTERED % "kind: posteriors, algorithms: [balanced_tree, ⟦unconstrained⟧]"),
    Broken("posteriors of no algorithm", "E208", FILTERED % "kind: posteriors, algorithms: [⟦tree⟧]"),
    Broken("shares of a column that tells no groups", "E208", FILTERED % "kind: group_shares, column: ⟦income⟧"),
    Broken("shares of several columns", "E208", FILTERED.replace("disclosivity(by=sex)", "disclosivity(by=y)").replace(LOANS, "name: x\ndatasets: {d: {path: people.csv, label: y, split: {test: 1/3}}}\n") % "kind: ⟦group_shares⟧"),
    Broken("posteriors of a seed that is not run", "E208", FILTERED % "kind: posteriors, seed: ⟦7⟧"),
    Broken("posteriors at what does not vary", "E208", FILTERED % "kind: posteriors, at: {alpha: ⟦[0.1]⟧}"),
    Broken("posteriors at a value that is not run", "E104", FILTERED % "kind: posteriors, at: {k: [0.1, ⟦0.3⟧]}"),
    Broken("shares at values that are not run together", "E104", FILTERED % "kind: group_shares, ⟦at⟧: {k: [0.1], l: [2]}"),
    Broken("shares of too many panels", "E104", FILTERED.replace("[1, 2]", "'linspace(1, 9, 9)'") % "kind: ⟦group_shares⟧"),
    Broken("values that are none", "E103", FILTERED % "kind: posteriors, at: {k: [⟦{a: 1}⟧]}"),
    Broken("shares of a split without rows", "E208", FILTERED % "kind: group_shares, split: ⟦[train, validation]⟧"),
    Broken("a split twice", "E104", FILTERED % "kind: group_shares, split: ⟦[train, train]⟧"),
    Broken("filters by panels", "E101", FILTERED % "kind: posteriors, ⟦by⟧: k"),
    Broken("too many panels of two splits", "E104", PLAIN + "sweep: {k: 'linspace(0, 1, 7)'}\nreport: {plots: [{kind: tradeoff, x: error, y: error, split: [train, test], by: ⟦k⟧}]}\n"),
    Broken("share in a trade-off", "E208", GUARANTEED % "x: k, y: error}, {kind: tradeoff, x: error, y: ⟦failure_rate⟧"),
    Broken("failures of no constraint in a table", "E208", PLAIN + "report: {tables: [{rows: [algorithm], columns: [solution_rate, ⟦failure_rate⟧]}]}\n"),
    Broken("expected failures of no constraint", "E208", expected("{algorithm: majorize, metric: ⟦failure_rate.a⟧, at_most: 0.1}")),
    Broken("panels by what does not vary", "E208", PLAIN + "report: {plots: [{kind: tradeoff, x: error, y: error, by: ⟦dataset⟧}]}\n"),
    Broken("split of a table without rows", "E208", PLAIN + "metrics: {a: error}\nreport: {tables: [{rows: [algorithm], columns: [a], split: ⟦validation⟧}]}\n"),
    Broken("expected of no algorithm", "E202", expected("{algorithm: ⟦majorise⟧, metric: objective, paper: 1}")),
    Broken("expected of no metric", "E208", expected("{algorithm: majorize, metric: ⟦objektive⟧, paper: 1}")),
    Broken("split that is nothing", "E103", PLAIN + "report: {plots: [{kind: tradeoff, x: error, y: error, ⟦split⟧: }]}\n"),
    Broken("split without rows of a data set", "E208", HALVES + "expect: [{algorithm: unconstrained, dataset: b, split: ⟦validation⟧, metric: objective, paper: 1}]\n"),
    Broken("expected of a split without rows", "E208", expected("{algorithm: majorize, metric: objective, paper: 1, split: ⟦validation⟧}")),
    Broken("metric of a split without rows", "E208", PLAIN + "metrics: {a: 1 - ⟦tpr@validation⟧}\n"),
    Broken("metric of rows of no test", "E208", PLAIN + "metrics: {a: ⟦error@safety⟧}\n"),
    Broken("metric of another's split without rows", "E208", HEAD.replace("majorize", "majorize, unconstrained") + "metrics: {a: 'of(unconstrained, ⟦roc_auc@validation⟧)'}\n"),
    Broken("metric of a split of another data set", "E208", HALVES.replace("sweep: {dataset: [a, b]}\n", "").replace("error: error", "both: 'tpr[a]@validation - ⟦tpr[b]@validation⟧'")),
    Broken("split", "E209", PLAIN + "metrics: {a: tpr@⟦tets⟧}\n"),
]  # fmt: skip

RULES = [
    Broken("hat", "E301", rule("tpr⟦^⟧2 <= 0.5")),
    Broken("power that is no number", "E304", rule("tpr ** ⟦fpr⟧ <= 0.5")),
    Broken("power that is too large", "E311", rule("⟦9**9**9⟧ <= tpr")),
    Broken("code", "E301", rule("'__import__(⟦\"⟧os\").system(\"ls\") <= 1'")),
    Broken("deep parenthesis", "E302", f"{HEAD}constraints:\n  a: ⟦{PARENTHESES}tpr{')' * 10_000} <= 1⟧\n"),
    Broken("deep enough parenthesis", "E302", f"{HEAD}constraints:\n  a: {PARENTHESES[:41]}⟦t⟧pr{')' * 41} <= 1\n"),
    Broken("no relation", "E303", rule("⟦tpr[women]⟧")),
    Broken("arguments", "E304", rule("⟦kl(tpr)⟧ <= 0.1")),
    Broken("of of of", "E304", rule("error <= of(majorize, ⟦of(majorize, error)⟧)")),
    Broken("scores of the deployed model", "E304", rule("error <= of(deployed, 1 - ⟦roc_auc⟧)")),
    Broken("estimates of the deployed model", "E304", PLAIN + "metrics: {a: 'of(deployed, ⟦mse⟧)'}\n"),
    Broken("always holds", "E305", rule("⟦tpr[women] <= 1.5⟧")),
    Broken("never holds", "E305", rule("⟦tpr[women] >= 1.5⟧")),
    Broken("no rate", "E305", rule("⟦1 <= 2⟧")),
    Broken("no labels in a slice", "E306", LABELLED + "constraints: {a: 'error <= 0.5', b: '⟦tpr[e]⟧ >= 0.5'}\n"),
    Broken("no labels at all", "E306", own("e: {path: people.csv}").replace("datasets", "⟦datasets⟧")),
    Broken("churn without deployed", "E307", rule("⟦churn⟧ <= 0.1")),
    Broken("decisions of no deployed model", "E307", rule("tpr >= ⟦of(deployed, tpr)⟧")),
    Broken("gap of ratios", "E308", rule("⟦max_gap(precision, by=sex) <= 0.05⟧")),
    Broken("convex", "E308", rule("⟦kl(0.3, tpr) <= 0.05⟧")),
    Broken("ranking", "E308", rule("⟦roc_auc >= 0.8⟧")),
    Broken("estimate", "E308", rule("⟦abs(mse[women] - mse[men]) <= 0.05⟧")),
    Broken("pushes all one way", "E308", HEAD.replace("majorize", "zafar") + "constraints: {a: ⟦'positive_rate[women] >= 0.5'⟧}\n"),
    Broken("pushes all one way at a sweep point", "E308", HEAD.replace("majorize", "zafar: {sweep: {k: [0, 1]}}") + "constraints: {a: ⟦'positive_rate[women] >= 0.1 + k * positive_rate[men]'⟧}\n"),
    Broken("scores", "E308", HEAD.replace("majorize", "post_shift") + "objective: ⟦1 - roc_auc⟧\n"),
    Broken("product of rates", "E308", HEAD.replace("majorize", "post_shift") + "constraints: {a: ⟦tpr * fpr <= 0.1⟧}\n"),
    Broken("players of an absolute difference", "E308", PLAYERS + "objective: error + ⟦abs(tpr[women] - tpr[men])⟧\n"),
    Broken("players of a divergence of two rates", "E308", PLAYERS + "constraints: {a: 'error <= 0.4 - ⟦kl(tpr, fpr)⟧'}\n"),
    Broken("players of a mean of differences", "E308", PLAYERS + "constraints: {a: '⟦rms(tpr[women] - tpr[men], fpr)⟧ <= 0.2'}\n"),
    Broken("slice that is the label", "E308", HEAD.replace("majorize", "post_shift") + "constraints: {a: 'tpr >= 0.5', b: '⟦positive_rate[repaid = yes]⟧ >= 0.5'}\n"),
    Broken("test rows", "E309", rule("⟦tpr@test⟧ >= 0.8")),
    Broken("validation rows in of", "E309", rule("error <= of(majorize, ⟦error@validation⟧)")),
    Broken("own result", "E310", rule("error <= 1.1 * ⟦of(majorize, error)⟧")),
    Broken("circle", "E310", LOANS + "algorithms: [majorize, majorize: {as: b}]\nconstraints: {a: 'error <= of(b, error) + ⟦of(majorize, error)⟧'}\n"),
    Broken("own decisions", "E310", HEAD + "constraints: {a: 'tpr >= of(deployed, tpr)'}\ndeployed: {algorithm: ⟦majorize⟧}\n"),
    Broken("test rows of the deployed model", "E309", PLAIN + "constraints: {a: 'tpr >= of(deployed, ⟦tpr@test⟧)'}\ndeployed: {algorithm: unconstrained}\n"),
    Broken("unclear result", "E310", LOANS + "algorithms:\n  - unconstrained: {sweep: {k: [1, 2]}}\n  - majorize\nconstraints: {a: 'error <= ⟦of(unconstrained, error)⟧'}\n"),
    Broken("division by zero", "E311", rule("tpr / (⟦1 - 1⟧) <= 1")),
    Broken("logarithm", "E311", rule("log(⟦-1⟧) * tpr <= 1")),
]  # fmt: skip

MARKS = "name: x\ndatasets:\n  d: {path: marks.csv, label: y, target: number, label_range: [0, 4]}\ngroups: {women: sex = F, men: sex = M}\n"
NUMBERS = [
    Broken("kind of label", "E104", own("d: {path: marks.csv, label: y, target: ⟦numbers⟧}")),
    Broken("range of no number", "E104", own("d: {path: people.csv, label: y, ⟦label_range⟧: [0, 1]}")),
    Broken("range of three", "E103", own("d: {path: marks.csv, label: y, target: number, label_range: ⟦[0, 1, 2]⟧}")),
    Broken("range upside down", "E104", own("d: {path: marks.csv, label: y, target: number, label_range: ⟦[4, 0]⟧}")),
    Broken("number of nothing", "E102", own("d: {path: marks.csv, ⟦target⟧: number}")),
    Broken("positive number", "E104", own("d: {path: marks.csv, label: y, target: number, ⟦positive⟧: 4}")),
    Broken("range of a source", "E101", own("d: {source: gpa, ⟦label_range⟧: [0, 4]}")),
    Broken("levels of numbers", "E104", own("d: {path: marks.csv, label: y, target: number, ⟦levels⟧: 3}").replace("unconstrained", "unconstrained: {loss: squared}")),
    Broken("number out of range", "E406", MARKS.replace("[0, 4]", "⟦[0, 3.5]⟧") + "algorithms: [unconstrained: {loss: squared}]\n", 4),
    Broken("text for a number", "E411", own("d: {path: three.csv, label: ⟦y⟧, target: number}").replace("unconstrained", "unconstrained: {loss: squared}"), 4),
    Broken("error of numbers", "E306", MARKS + "metrics: {e: ⟦error⟧ + mse}\nalgorithms: [unconstrained: {loss: squared}]\n"),
    Broken("rate of numbers in a goal", "E306", MARKS + "constraints: {a: 'mse <= 1', b: '⟦tpr[women]⟧ >= 0.5'}\nalgorithms: [unconstrained: {loss: squared}]\n"),
    Broken("ranking of numbers", "E306", MARKS + "objective: ⟦roc_auc⟧\nalgorithms: [unconstrained: {loss: squared}]\n"),
    Broken("learner of two classes", "E308", MARKS + "algorithms:\n  - ⟦unconstrained⟧\n"),
    Broken("loss of two classes", "E308", MARKS + "algorithms:\n  - ⟦unconstrained⟧: {loss: logistic}\n"),
    Broken("loss of numbers", "E308", LOANS + "algorithms:\n  - unconstrained: {⟦loss⟧: squared}\n"),
    Broken("loss of numbers by its own sweep", "E308", LOANS + "algorithms:\n  - ⟦unconstrained⟧: {sweep: {loss: [hinge, squared]}}\n"),
    Broken("loss of numbers of one data set", "E308", MARKS.replace("groups:", "  e: {path: people.csv, label: y}\ngroups:") + "sweep: {dataset: [d, e]}\nobjective: mse\nmetrics: {a: mse}\nalgorithms:\n  - unconstrained: {⟦loss⟧: squared}\n"),
    Broken("two kinds of labels", "E411", own("⟦d⟧: {path: marks.csv, label: y, target: number}\n  e: {path: people.csv, label: y}").replace("unconstrained", "unconstrained: {loss: squared}"), 4),
]  # fmt: skip

HASH = "0" * 64
DATA = [
    Broken("no such file", "E405", own("d: {path: ⟦missing.csv⟧, label: y}"), 4),
    Broken("path outside", "E405", own("d: {path: ⟦../../../etc/passwd⟧, label: y}"), 4),
    Broken("no vectors", "E405", own("d: {source: wiki, vectors: ⟦glove.txt⟧}"), 4),
    Broken("a folder", "E405", own("d: {path: ⟦.⟧, format: csv, label: y}"), 4),
    Broken("wrong hash", "E403", own(f"d: {{path: people.csv, label: y, sha256: ⟦'{HASH}'⟧}}"), 4),
    Broken("web page", "E404", own("d: {path: ⟦page.csv⟧, label: y}"), 4),
    Broken("ragged rows", "E404", own("d: {path: ⟦ragged.csv⟧, label: y}"), 4),
    Broken("one class", "E406", own("d: {path: one_class.csv, label: ⟦y⟧}"), 4),
    Broken("three labels", "E406", own("d: {path: three.csv, label: ⟦y⟧}"), 4),
    Broken("positive absent", "E406", own("d: {path: people.csv, label: y, positive: ⟦7⟧}"), 4),
    Broken("tuning without validation rows", "E410", LOANS + "algorithms:\n  - three_player: {⟦tune⟧: {learning_rate: [0.1, 1]}}\n", 4),
    Broken("judging without validation rows", "E410", LOANS + "constraints: {a: tpr >= 0.5}\nalgorithms:\n  - majorize\n  - mixture: {as: m, ⟦constraints_on⟧: validation}\n", 4),
    Broken("deployed decisions", "E406", own("d: {path: people.csv, label: y}", "deployed: {column: ⟦x⟧}\n"), 4),
    Broken("no decision", "E311", GAPS + "constraints: {a: 'tpr >= of(deployed, ⟦tpr[x >= 5]⟧)'}\n"),
    Broken("no decision in a metric", "E311", GAPS + "metrics: {a: 'of(deployed, 1 - ⟦error⟧)'}\n"),
    Broken("empty slice of the deployed model", "E408", GAPS + "constraints: {a: 'tpr >= of(deployed, ⟦tpr[x >= 99]⟧)'}\n", 4),
    Broken("no model", "E405", own("d: {path: people.csv, label: y}", "deployed: {model: ⟦old.npz⟧}\n"), 4),
    Broken("table as a model", "E404", own("d: {path: people.csv, label: y}", "deployed: {model: ⟦people.csv⟧}\n"), 4),
    Broken("model of other features", "E411", own("d: {path: people.csv, label: y}", "deployed: {model: ⟦two.npz⟧}\n"), 4),
    Broken("model of no numbers", "E404", own("d: {path: people.csv, label: y}", "deployed: {model: ⟦nan.npz⟧}\n"), 4),
    Broken("level of its own", "E411", own("d: {path: level.csv, label: y, levels: ⟦3⟧}"), 4),
    Broken("missing number", "E407", own("⟦d⟧: {path: nan.csv, label: y}"), 4),
    Broken("infinite number", "E407", own("⟦d⟧: {path: infinite.csv, label: y}"), 4),
    Broken("empty group", "E408", own("d: {path: people.csv, label: y}", "groups: {all: 'sex = F', old: ⟦x >= 99⟧}\n"), 4),
    Broken("too few rows to split", "E410", own("d: {path: tiny.csv, label: y, split: ⟦{stratify: [sex], train: 0.1, test: 0.9}⟧}"), 4),
    Broken("empty slice", "E408", LABELLED + "constraints: {a: '⟦tpr[d, x >= 99]⟧ >= 0.5'}\n", 4),
    Broken("no positive row in a slice", "E408", BARREN + "constraints: {a: '⟦tpr[women]⟧ >= 0.5'}\n", 4),
    Broken("F-measure of no positive row", "E311", BARREN + "constraints: {a: '⟦f1[women]⟧ >= f1[men] - 0.1'}\n"),
    Broken("precision of no positive row", "E311", BARREN + "objective: 1 - ⟦precision[women]⟧\n"),
    Broken("division by a base rate of 0", "E311", BARREN + "constraints: {a: '⟦tpr / base_rate[women]⟧ <= 3'}\n"),
    Broken("no official split", "E410", own("d: {path: people.csv, label: y, split: ⟦{official: true}⟧}"), 4),
    Broken("no features", "E411", own("⟦d⟧: {path: label_only.csv, label: y}"), 4),
    Broken("other features", "E411", own("e: {path: words.csv, label: y}\n  d: {path: people.csv, label: y}").replace(
        "datasets", "⟦datasets⟧"
    ), 4),
]  # fmt: skip

ONE_BY_ONE = [
    Broken("unknown data set swept", "E104", PLAIN + "sweep: {dataset: [d, ⟦e⟧]}\n"),
    Broken("unknown data set excluded", "E104", PLAIN + "sweep: {dataset: [d], exclude: [{dataset: ⟦f⟧}]}\n"),
    Broken("data sets swept by one algorithm only", "E104", LOANS + "algorithms: [unconstrained, majorize: {sweep: {⟦dataset⟧: [d]}}]\n"),
    Broken("a group for each data set, all in one", "E104", PLAIN + "groups: {⟦old⟧: {d: sex = Female}}\n"),
    Broken("a group of an unknown data set", "E104", PLAIN + "sweep: {dataset: [d]}\ngroups: {old: {d: sex = Female, ⟦e⟧: sex = Male}}\n"),
    Broken("a group without one data set", "E102", PLAIN.replace("200}", "200}, e: {source: loans}") + "sweep: {dataset: [d]}\ngroups: {⟦old⟧: {d: sex = Female}}\n"),
    Broken("a number for a condition", "E103", PLAIN + "sweep: {dataset: [d]}\ngroups: {old: {d: ⟦3⟧}}\n"),
]  # fmt: skip

SAFETY = [
    Broken("test of nothing", "E104", PLAIN + "⟦safety⟧: {}\n"),
    Broken("own test of nothing", "E104", LOANS + "algorithms:\n  - unconstrained: {⟦safety⟧: {delta: 0.1}}\n"),
    Broken("test that is a number", "E103", tested("").replace("{}", "⟦0.05⟧")),
    Broken("test left empty", "E103", tested("").replace("safety: {}", "⟦safety⟧:")),
    Broken("key of a test", "E101", tested("⟦dela⟧: 0.1")),
    Broken("delta of 0", "E104", tested("delta: ⟦0⟧")),
    Broken("delta in percent", "E104", tested("delta: {a: ⟦5%⟧}")),
    Broken("delta divided by 0", "E104", tested("delta: ⟦1/0⟧")),
    Broken("delta of no constraint", "E203", tested("delta: {a: 0.1, ⟦b⟧: 0.1}")),
    Broken("delta of one constraint", "E104", tested("delta: {a: ⟦-0.1⟧}")),
    Broken("delta of no name", "E203", tested("delta: ⟦k⟧")),
    Broken("delta by a sweep", "E104", tested("delta: {a: k}") + "sweep: {k: [0.1, ⟦1⟧]}\n"),
    Broken("delta by another algorithm's sweep", "E203", RULE + "safety: {delta: ⟦k⟧}\nalgorithms:\n  - majorize\n  - unconstrained: {sweep: {k: [0.1]}}\n"),
    Broken("delta by an own sweep", "E104", RULE + "safety: {delta: k}\nalgorithms:\n  - majorize: {sweep: {k: ⟦'linspace(0.5, 1, 2)'⟧}}\n"),
    Broken("bound", "E104", tested("bound: ⟦hoefding⟧")),
    Broken("fraction of all", "E104", tested("fraction: ⟦2/2⟧")),
    Broken("fraction by a sweep", "E104", tested("fraction: k") + "sweep: {k: [0.5, ⟦true⟧]}\n"),
    Broken("fraction of too few rows", "E410", tested("fraction: ⟦0.001⟧"), 4),
    Broken("column to stratify by", "E205", tested("stratify: ⟦[gender]⟧")),
    Broken("column of too many values", "E410", own("d: {path: people.csv, label: y}", "constraints: {a: tpr >= 0.5}\nsafety: {stratify: ⟦[sex, x, z]⟧}\n").replace("people", "scores"), 4),
    Broken("last rows, stratified", "E104", tested("order: positional, ⟦stratify⟧: [sex]")),
    Broken("test of copies", "E104", tested("").replace("rows: 200", "rows: 200, ⟦levels⟧: 3")),
    Broken("test of scores", "E308", tested("").replace("tpr >= 0.5", "⟦roc_auc⟧ >= 0.8").replace("majorize", "unconstrained")),
    Broken("test of weighted rows", "E411", own("d: {path: weighted.csv, label: y, weight: w}", "constraints: {a: ⟦tpr >= 0.5⟧}\nsafety: {}\n"), 4),
    Broken("room for a test and a margin", "E104", RULE + "safety: {aim: 0.9}\nalgorithms:\n  - majorize: {margin: ⟦0.95⟧}\n"),
    Broken("aim below a half", "E104", tested("aim: ⟦0.4⟧")),
    Broken("aim of what holds nothing", "E104", RULE + "algorithms:\n  - unconstrained: {safety: {aim: ⟦0.9⟧}}\n"),
    Broken("aim of what reads goals", "E104", tested("").replace("[majorize]", "[thresholded: {safety: {aim: ⟦0.9⟧}}]")),
    Broken("aim of the model in use", "E104", tested("").replace("[majorize]", "[unconstrained, audit: {safety: {aim: ⟦0.9⟧}}]") + "deployed: {algorithm: unconstrained}\n"),
    Broken("optimizer of decisions", "E104", LEFT % "decisions: deterministic, ⟦optimizer⟧: sequential"),
    Broken("iterations of decisions", "E104", LEFT % "decisions: deterministic, ⟦iterations⟧: 9"),
    Broken("step without descent", "E104", LEFT % "⟦step⟧: 0.1"),
    Broken("multiplier without ascent", "E104", LEFT % "optimizer: cma, ⟦multiplier⟧: 1"),
    Broken("step of decisions by a sweep", "E104", LEFT % "decisions: deterministic, sweep: {⟦step⟧: [0.1]}"),
    Broken("margin of what leaves room itself", "E104", tested("").replace("[majorize]", "[seldonian: {margin: ⟦0.9⟧}]")),
    Broken("judged by others, leaving room itself", "E104", tested("").replace("[majorize]", "[seldonian: {constraints_on: ⟦validation⟧}]")),
    Broken("algorithm for a test, without one", "E102", RULE + "algorithms: [⟦seldonian⟧]\n"),
    Broken("rows of the test in a goal", "E309", rule("⟦tpr@safety⟧ >= 0.8")),
    Broken("rows of no test", "E208", PLAIN + "report: {tables: [{rows: [algorithm], columns: [error], split: ⟦safety⟧}]}\n"),
    Broken("no test rows", "E208", PLAIN.replace("200", "200, split: {train: 1}") + "report: {tables: [{rows: [algorithm], columns: [error], split: ⟦test⟧}]}\n"),
    Broken("number of a model that saw the test", "E310", HEAD.replace("[majorize]", "[majorize, unconstrained: {safety: false}]") + "constraints: {a: 'error <= 1.1 * ⟦of(unconstrained, error)⟧'}\nsafety: {}\n"),
    Broken("decisions of a model that saw the test", "E310", HEAD.replace("[majorize]", "[majorize, unconstrained: {safety: {fraction: 0.4}}]") + "constraints: {a: churn <= 0.1}\nsafety: {}\ndeployed: {algorithm: ⟦unconstrained⟧}\n"),
    Broken("audit of another's rows", "E310", HEAD.replace("[majorize]", "[audit: {safety: false}, unconstrained]") + "constraints: {a: tpr >= 0.5}\nsafety: {}\ndeployed: {algorithm: ⟦unconstrained⟧}\n"),
    Broken("audit of the audit", "E310", HEAD.replace("majorize", "audit") + "deployed: {algorithm: ⟦audit⟧}\n"),
    Broken("audit of nothing", "E307", HEAD.replace("majorize", "⟦audit⟧")),
    Broken("audit of no decisions", "E311", GAPS.replace("majorize", "audit") + "constraints: {a: '⟦tpr⟧ >= 0.5'}\nsafety: {}\n"),
]  # fmt: skip

RESAMPLE = [
    Broken("share left empty", "E103", PLAIN + "⟦resample⟧:\n"),
    Broken("no rows drawn", "E104", PLAIN + "resample: ⟦0⟧\n"),
    Broken("too many rows drawn", "E104", PLAIN + "resample: ⟦1001⟧\n"),
    Broken("share by a sweep", "E104", PLAIN + "resample: amount\nsweep: {amount: [0.5, ⟦-1⟧]}\n"),
    Broken("share of less than a row", "E410", PLAIN + "resample: ⟦amount⟧\nsweep: {amount: [1, 0.001]}\n", 4),
    Broken("drawn and split", "E104", PLAIN.replace("200", "200, ⟦split⟧: {train: 0.5}") + "resample: 1\n"),
    Broken("validation rows of drawn ones", "E410", HEAD.replace("majorize", "majorize: {⟦constraints_on⟧: validation}") + "constraints: {a: tpr >= 0.5}\nresample: 1\n", 4),
]  # fmt: skip

BROKEN = [*YAML, *KEYS, *NAMES, *RULES, *NUMBERS, *DATA, *ONE_BY_ONE, *SAFETY, *RESAMPLE]
