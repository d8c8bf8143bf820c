"""The peer of players.py: a grid of settings in tensorflow_constrained_optimization 0.2, one at a time.

Run by an interpreter that has the package, and needs nothing of ratecli: `python tfco_peer.py ROWS.npz`,
where ROWS.npz holds X (n, d), label and women (n,) of 0 and 1, task `kl` or `f`, bound, rates (S, 2) of
the classifier and of the multipliers, steps. It writes its answer beside it, ROWS.tfco.npz: processor
seconds, on one thread, of `step` and of `all`, the same with every tenth step's scores fetched and
rates counted, each of one step over all rows; and with `--full`, where all settings are played to the
end, their seconds `spent` (S,) and `weights` (S, T, d + 1) of every tenth step, bias last.

As Narasimhan, Cotter and Gupta released it (2019): a linear model from zero, all rows at each step,
float32, Adam for classifier and multipliers; hinges for the classifier, counts for the multipliers.
The sum of two divergences has a multiplier for the share of yes and one for the share of no in each
group, by hand: they start at a half, are not kept positive, and share the classifier's Adam, and slacks
are best responses to them. F-scores are the package's own, with its slacks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_constrained_optimization as tfco
from numpy.typing import NDArray

v1 = tf.compat.v1
EVERY = 10
WARM, TIMED = 50, 300


@dataclass(frozen=True)
class Rows:
    X: NDArray[np.float32]
    label: NDArray[np.float32]
    women: NDArray[np.bool_]
    task: str
    bound: float


class Model:
    """The graph of one setting, in a session of its own."""

    def __init__(self, rows: Rows, learning: float, raising: float) -> None:
        self.rows = rows
        with tf.Graph().as_default():
            self.weights = v1.get_variable(
                "weights", (rows.X.shape[1],), tf.float32, v1.zeros_initializer(), use_resource=True
            )
            self.bias = v1.get_variable(
                "bias", (), tf.float32, v1.zeros_initializer(), use_resource=True
            )
            self.scores = tf.linalg.matvec(tf.constant(rows.X), self.weights) + self.bias
            problem = {"kl": divergences, "f": f_scores}[rows.task](rows, self.scores)
            optimizer = tfco.LagrangianOptimizerV1(
                v1.train.AdamOptimizer(learning),
                constraint_optimizer=v1.train.AdamOptimizer(raising),
            )
            self.train = optimizer.minimize(problem)
            one = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
            self.session = v1.Session(config=one)
            self.session.run(v1.global_variables_initializer())

    def step(self) -> None:
        self.session.run(self.train)

    def checkpoint(self) -> NDArray[np.float32]:
        """(d + 1,) weights and bias, after what is needed to rank them is counted: yeses by group and
        label.
        """
        weights, bias, scores = self.session.run([self.weights, self.bias, self.scores])
        cells = 2 * self.rows.women + (self.rows.label > 0)
        np.bincount(cells, scores > 0, minlength=4)
        return np.append(weights, bias)


def divergences(rows: Rows, scores: Any) -> tfco.RateMinimizationProblem:
    """The sum of KL(share of positives, share of yes) over both groups, under a bound on the error."""
    positive = float((rows.label > 0).mean())
    loss = 0.0
    for group in (rows.women, ~rows.women):
        inside = tf.gather(scores, np.flatnonzero(group))
        for share, side in ((positive, inside), (1 - positive, -inside)):
            multiplier = tf.Variable(0.5, trainable=True, dtype=tf.float32)
            held = tf.stop_gradient(multiplier)
            below = tf.reduce_mean(1 - tf.nn.relu(1 - side))
            counted = tf.reduce_mean(tf.cast(side > 0, tf.float32))
            apart = tf.stop_gradient(share / multiplier - counted)
            loss -= held * below + multiplier * apart
    error = tfco.error_rate(tfco.rate_context(scores, tf.constant(rows.label)))
    return tfco.RateMinimizationProblem(tfco.wrap_rate(loss), [error <= rows.bound])


def f_scores(rows: Rows, scores: Any) -> tfco.RateMinimizationProblem:
    """F1, where that of men is above that of women by no more than the bound."""
    context = tfco.rate_context(scores, tf.constant(rows.label))
    women, men = (context.subset(tf.constant(group)) for group in (rows.women, ~rows.women))
    apart = tfco.f_score(men) - tfco.f_score(women) <= rows.bound
    return tfco.RateMinimizationProblem(-tfco.f_score(context), [apart])


def seconds_a_step(work: Callable[[int], object]) -> float:
    """Least of three parts of TIMED steps, after WARM of them."""
    for t in range(WARM):
        work(t)
    found = []
    for _ in range(3):
        started = time.process_time()
        for t in range(TIMED // 3):
            work(t)
        found.append((time.process_time() - started) / (TIMED // 3))
    return min(found)


def timed(rows: Rows, learning: float, raising: float) -> dict[str, float]:
    model = Model(rows, learning, raising)

    def everything(t: int) -> None:
        model.step()
        if t % EVERY == 0:
            model.checkpoint()

    return {"step": seconds_a_step(lambda _: model.step()), "all": seconds_a_step(everything)}


def played(rows: Rows, learning: float, raising: float, steps: int) -> NDArray[np.float32]:
    """(T, d + 1) what the steps 0, 10, 20, ... left."""
    model, kept = Model(rows, learning, raising), []
    for t in range(steps):
        model.step()
        if t % EVERY == 0:
            kept.append(model.checkpoint())
    model.session.close()
    return np.array(kept)


def main(path: Path, *, full: bool) -> None:
    given = np.load(path)
    rows = Rows(
        given["X"].astype(np.float32),
        np.where(given["label"] > 0, 1.0, -1.0).astype(np.float32),
        given["women"] > 0,
        str(given["task"]),
        float(given["bound"]),
    )
    settings = given["rates"]
    found: dict[str, Any] = timed(rows, *settings[len(settings) // 2])
    if full:
        spent, weights = [], []
        for setting in settings:
            started = time.process_time()
            weights.append(played(rows, *setting, int(given["steps"])))
            spent.append(time.process_time() - started)
        found |= {"spent": np.array(spent), "weights": np.array(weights)}
    np.savez(path.with_suffix(".tfco.npz"), **found)


if __name__ == "__main__":
    v1.disable_eager_execution()
    main(Path(sys.argv[1]), full="--full" in sys.argv)
