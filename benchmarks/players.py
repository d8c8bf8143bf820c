"""What a grid of settings of Algorithm 2 costs, as ratios to TFCO in the same run: `make bench`.

On Adult and COMPAS as Narasimhan, Cotter and Gupta (2019) prepare them (where they are at hand), their
two goals: two divergences under a bound on the error, and F1 under parity of it. 16 settings of 5,000
steps over all rows, played by `three_player` as lanes of one pass and by TFCO one after another; and
`mixture`, which has no settings. Objectives and violations are of the stochastic classifiers on training
rows. Ratios are medians of five runs in turn, with their range. On generated rows: the time of a step
against rows, features and lanes, drawn to benchmarks/players.png. Seconds are of the processor, one core.

TFCO 0.2 runs where it can be imported: here, or by the interpreter that TFCO_PYTHON names,

    python3 -m venv tfco && tfco/bin/pip install tensorflow-cpu tensorflow-constrained-optimization==0.2
    TFCO_PYTHON=tfco/bin/python make bench

300 of its steps are timed, and its seconds are those of 80,000 such; `--full` plays its grid to the
end, which takes a quarter of an hour. Without TFCO, seconds a step that were measured once are taken,
times a factor for this machine, of a matrix product.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from common import SCOPE, fastest, ratio_text
from scipy import sparse

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets.files import fetch_files
from ratecli.datasets.registry import find_source
from ratecli.errors import FaultError
from ratecli.models.base import Array, Classifier, Features
from ratecli.rates.analysis import constraint_goal, objective_goal
from ratecli.rates.matrix import RowKinds
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.resolve import constraint_differences, resolve, violation_expression
from ratecli.rates.sample import Sample
from ratecli.runner.trial import training_problem
from ratecli.runner.workers import THREAD_VARIABLES, limit_to_one_thread
from ratecli.sampling.rows import ExperimentData, TrialData, load_trial_data
from ratecli.solvers.gradient_steps import Stepper
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.hull.options import Mixture
from ratecli.solvers.players.game import DescentPlayer, GradientAscent, ThreePlayerGame
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.mixtures import shrink_mixture
from ratecli.solvers.players.options import ThreePlayer
from ratecli.solvers.players.rows import LaneRows
from ratecli.solvers.problem import Problem

ROUNDS = 5
STEPS, EVERY = 5000, 10
VALUES = (1e-3, 1e-2, 1e-1, 1.0)
GRID = [(learning, raising) for learning in VALUES for raising in VALUES]


@dataclass(frozen=True)
class Task:
    name: str
    objective: str
    rule: str


KL = Task(
    "kl",
    "kl(base_rate, positive_rate[women]) + kl(base_rate, positive_rate[men])",
    "error <= {bound:.6g}",
)
F = Task("f", "1 - f1", "f1[men] - f1[women] <= {bound:.6g}")


@dataclass(frozen=True)
class Figures:
    """Of TFCO, measured in November 2026 on one core.

    Attributes
    ----------
    bound
        On the error 1.1 times that of the hinge alone, on F1 of men above that of women 0.02.
    step
        Seconds, where every tenth is evaluated.
    best
        Objective on training rows of the best feasible mixture that one of its settings left (`--full`).
    """

    bound: float
    step: float
    best: float


FIGURES = {
    ("adult", "kl"): Figures(1.1 * 0.13954, 1.80e-3, 0.0189),
    ("adult", "f"): Figures(0.02, 2.53e-3, 0.3296),
    ("compas", "kl"): Figures(1.1 * 0.30890, 0.374e-3, 0.0000),
    ("compas", "f"): Figures(0.02, 0.734e-3, 0.3814),
}
PRODUCT = 0.038
"""Seconds of `product_seconds` on that core, which had AVX-512: inferred, by what makes the figures right
on a core without it where TFCO ran.
"""


@dataclass(frozen=True)
class Case:
    """A task on a data set."""

    data: str
    task: Task
    bound: float
    problem: Problem
    found: TrialData

    @cached_property
    def program(self) -> RateProgram:
        return RateProgram.of(self.problem)

    def measured(self, rates: Array) -> tuple[float, float]:
        """Objective and violation of rates (K,) on training rows."""
        value = self.program.value(self.program.objective, rates)
        return float(value), max(float(self.program.excess(rates)), 0.0)

    def of(self, classifier: Classifier) -> tuple[float, float]:
        return self.measured(self.problem.rates.rates(classifier.decide(self.problem.X)))


def problem_of(found: TrialData, task: Task, bound: float) -> Problem:
    objective = objective_goal(task.objective, resolve(parse_expression(task.objective), SCOPE))
    text = task.rule.format(bound=bound)
    parts = constraint_differences(parse_constraint(text), SCOPE)
    return training_problem(
        found,
        objective,
        (constraint_goal("limit", text, parts, violation_expression(parts)),),
        "1/n",
    )


def case_of(data: str, task: Task) -> Case:
    entry = {"source": data, "preparation": "narasimhan2019"}
    split = {"validation": "1/3"} if data == "adult" else {"train": "4/9", "validation": "2/9"}
    found = load_trial_data(
        ExperimentData.of(
            {"data": DatasetSpec.model_validate(entry | {"split": split})}, Path.cwd()
        ),
        0,
    )
    bound = FIGURES[data, task.name].bound
    return Case(data, task, bound, problem_of(found, task, bound), found)


def silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class Peer:
    """TFCO's grid: seconds of all its steps, and with every tenth evaluated; and the objective and the
    violation that it reached.
    """

    source: str
    steps: float | None
    all: float
    reached: str


def tfco_python() -> str | None:
    """The interpreter that has TFCO."""
    if "TFCO_PYTHON" in os.environ:
        return os.environ["TFCO_PYTHON"]
    here = importlib.util.find_spec("tensorflow_constrained_optimization")
    return sys.executable if here else None


def tfco(case: Case, python: str | None, *, full: bool) -> Peer:
    known, count = FIGURES[case.data, case.task.name], len(GRID) * STEPS
    once = f"once the best of a setting had objective {known.best:.4f}"
    if python is None:
        factor = product_seconds() / PRODUCT
        source = f"by figures, times {factor:.2f} for this machine"
        return Peer(source, None, factor * known.step * count, once)
    found = answered(case, python, full=full)
    steps, everything = count * float(found["step"]), count * float(found["all"])
    if not full:
        return Peer("300 steps timed", steps, everything, once)
    best = min((mixed(case, each) for each in found["weights"]), key=lambda of: of[::-1])
    reached = f"the best of a setting has {shown(best)}"
    return Peer("played to the end", steps, float(found["spent"].sum()), reached)


def answered(case: Case, python: str, *, full: bool) -> Mapping[str, Array]:
    """What `tfco_peer.py` finds on the case's training rows."""
    train = case.found.sample.part == "train"
    X = case.problem.X
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(
            path,
            X=X.toarray() if hasattr(X, "toarray") else X,
            label=case.found.sample.label[train],
            women=case.found.sample.columns["sex"][train] == "Female",
            task=case.task.name,
            bound=case.bound,
            rates=np.array(GRID),
            steps=STEPS,
        )
        script = Path(__file__).with_name("tfco_peer.py")
        call = [python, str(script), str(path), *(["--full"] if full else [])]
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", **dict.fromkeys(THREAD_VARIABLES, "1")}
        done = subprocess.run(
            call, env=os.environ | quiet, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"TFCO failed by {python}:\n{done.stderr}")
        return dict(np.load(path.with_suffix(".tfco.npz")))


def mixed(case: Case, weights: Array) -> tuple[float, float]:
    """The best mixture of linear classifiers (T, d + 1): objective and violation.

    It is found by the mixture's own rates, which for ratios does better than the published program.
    """
    weights = weights[np.isfinite(weights).all(axis=1)]
    yes = case.problem.X @ weights[:, :-1].T + weights[:, -1] > 0
    rates = np.stack([case.problem.rates.rates(each) for each in yes.T.astype(float)], axis=1)
    objective, missed = case.measured(rates @ shrink_mixture(case.program, rates)[0])
    return objective, missed if missed > 1e-6 else 0.0


def product_seconds() -> float:
    """Of a product of two matrices, 1500 x 1500, of single precision."""
    A = np.random.default_rng(0).normal(size=(1500, 1500)).astype(np.float32)
    return fastest(lambda: A @ A, 5)


def bench_case(case: Case, python: str | None, *, full: bool) -> None:
    problem = case.problem
    rows, features = problem.X.shape
    print(f"\n{case.data}, {rows} rows, {features} features: least {case.task.objective} "
          f"with {case.task.rule.format(bound=case.bound)}")  # fmt: skip
    peers, grids, mixtures = [], [], []
    for _ in range(1 if full else ROUNDS):
        peers.append(tfco(case, python, full=full))
        grids.append(grid_seconds(case))
        mixtures.append(mixture_seconds(case))
    peer, (whole, played, chosen), (took, reached) = peers[0], grids[0], mixtures[0]
    alone = "" if peer.steps is None else f", its steps alone {peer.steps:.0f} s"
    print(f"  TFCO ({peer.source}): {peer.all:.0f} s{alone}; {peer.reached}")
    print(f"  three_player: {whole:.1f} s, to the last step {played:.1f} s; chosen {shown(chosen)}")
    theirs = np.array([each.all for each in peers])
    if peer.steps is not None:
        steps = np.array([each.steps for each in peers], dtype=float)
        ratio = ratio_text(steps, np.array([each[1] for each in grids]))
        print(f"    TFCO's steps take {ratio} times as long")
    ratio = ratio_text(theirs, np.array([each[0] for each in grids]))
    print(f"    TFCO takes {ratio} times as long in all")
    ratio = ratio_text(theirs, np.array([each[0] for each in mixtures]))
    print(f"  mixture: {took:.2f} s, {shown(reached)}; TFCO takes {ratio} times as long")


def shown(found: tuple[float, float]) -> str:
    return f"objective {found[0]:.4f}, violation {found[1]:.4f}"


def grid_seconds(case: Case) -> tuple[float, float, tuple[float, float]]:
    """The whole solve, and up to the last step."""
    tune = {"learning_rate": VALUES, "multiplier_rate": VALUES}
    solver = ThreePlayer(steps=STEPS, every=EVERY, tune=tune, randomize=True)
    stamps = [time.process_time()]
    solution = solver.solve(
        case.problem,
        np.random.default_rng(0),
        lambda _: stamps.append(time.process_time()),
    )
    whole, played = time.process_time() - stamps[0], stamps[1] - stamps[0]
    return whole, played, case.of(solution.variants["stochastic"])


def mixture_seconds(case: Case) -> tuple[float, tuple[float, float]]:
    begun = time.process_time()
    solution = Mixture(randomize=True).solve(case.problem, np.random.default_rng(0), silent)
    return time.process_time() - begun, case.of(solution.variants["stochastic"])


def game_of(problem: Problem, lanes: int) -> ThreePlayerGame:
    """A game of so many lanes."""
    kinds = RowKinds.by(problem.rates)
    form = ProgramLagrangian(RateProgram.of(problem), kinds)
    rates = np.geomspace(1e-3, 1, lanes)
    player = DescentPlayer(form, LaneRows(problem.X, kinds), Stepper("adam", rates), lanes)
    ascent = GradientAscent(Stepper("adam", rates), None)
    return ThreePlayerGame(form, player, ascent, rates)


def generated(n: int, d: int, *, dense: bool) -> Problem:
    """Two divergences on rows of d normal numbers, or of d / 10 columns of 10 categories each."""
    rng = np.random.default_rng(0)
    X: Features = rng.normal(size=(n, d))
    if not dense:
        columns = rng.integers(0, 10, (n, d // 10)) + 10 * np.arange(d // 10)
        starts = np.arange(0, columns.size + 1, d // 10)
        X = sparse.csr_array((np.ones(columns.size), columns.ravel(), starts), shape=(n, d))
    score = X @ rng.normal(size=d)
    sample = Sample(
        columns={"sex": np.where(rng.random(n) < 0.33, "Female", "Male").astype(object)},
        label=(score > np.quantile(score, 0.7)).astype(float),
        dataset=np.full(n, "data"),
        part=np.full(n, "train"),
        weight=np.ones(n),
    )
    return problem_of(TrialData(sample, X), KL, 0.2)


def step_seconds(problem: Problem, lanes: int) -> float:
    game = game_of(problem, lanes)
    game.step()  # compiles, puts the rows in order
    few = partial(game.play, 4, EVERY)
    count = 5 * max(1, int(0.03 / fastest(few)))
    return fastest(lambda: game.play(count - 1, EVERY), 7) / count


def bench_growth() -> None:
    """Each size doubled three times, the others held."""
    base = {"rows": 10_000, "features": 60, "lanes": 8}
    curves = {}
    print()
    for name, least in base.items():
        values = [least * 2**k for k in range(4)]
        for dense in (False, True):
            times = []
            for value in values:
                rows, features, lanes = (base | {name: value}).values()
                times.append(step_seconds(generated(rows, features, dense=dense), lanes))
            slope = np.polyfit(np.log(values), np.log(times), 1)[0]
            kind = "dense" if dense else "one-hot"
            each = ", ".join(f"{1e3 * t:.2f}" for t in times)
            print(f"a step, {kind}, {name} {values}: {each} ms, exponent {slope:.2f}")
            curves[name, kind] = (values, times)
    draw(curves)


def draw(curves: Mapping[tuple[str, str], tuple[list[int], list[float]]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.8), layout="constrained")
    names = list(dict.fromkeys(name for name, _ in curves))
    panels = figure.subplots(1, len(names), sharey=True)
    for axes, name in zip(panels, names, strict=True):
        for kind, style in (("one-hot", "o-"), ("dense", "s--")):
            values, times = curves[name, kind]
            axes.loglog(values, 1e3 * np.array(times), style, color="black", label=kind)
        values, times = curves[name, "one-hot"]
        linear = 1e3 * times[0] * np.array(values) / values[0]
        axes.loglog(values, linear, ":", color="grey", label="linear")
        axes.set_xticks(values, [f"{value:,}" for value in values], fontsize=7)
        axes.minorticks_off()
        axes.set(xlabel=name)
    panels[0].set_yticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"], fontsize=7)
    panels[0].set(ylabel="milliseconds a step")
    panels[-1].legend(fontsize=7)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=120, metadata={"Software": None})


def bench_peers(*, full: bool) -> None:
    python = tfco_python()
    print("TFCO is not here: figures measured once stand for it" if python is None
          else f"TFCO is run by {python}")  # fmt: skip
    small = game_of(generated(1000, 60, dense=False), 8)
    print(f"compiling, or reading what was compiled: {fastest(small.step):.1f} s")
    for data in ("adult", "compas"):
        try:
            fetch_files(find_source(data), offline=False)
        except FaultError as fault:
            print(f"{data} is left out: {fault}")
            continue
        for task in (KL, F):
            bench_case(case_of(data, task), python, full=full)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="play TFCO's grid to the end")
    with limit_to_one_thread():
        bench_peers(full=parser.parse_args().full)
        bench_growth()
