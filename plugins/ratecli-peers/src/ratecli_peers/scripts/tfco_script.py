"""Train by TFCO; run by an interpreter that has it (see `ratecli_peers.other_python`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_constrained_optimization as tfco

RATES = {
    "positive_rate": tfco.positive_prediction_rate,
    "tpr": tfco.true_positive_rate,
    "fpr": tfco.false_positive_rate,
    "error": tfco.error_rate,
}
v1 = tf.compat.v1
v1.disable_eager_execution()
folder = Path(sys.argv[1])
facts = json.loads((folder / "facts.json").read_text())
rows = pd.read_parquet(folder / "rows.parquet")
X = rows.drop(columns=["label", "group"]).to_numpy()
label, group = rows["label"].to_numpy(), rows["group"].to_numpy()


def comparisons(context: tfco.SubsettableContext) -> Iterator[tfco.Expression]:
    """Yield the constraints of each pair of groups."""
    subsets = [context.subset(tf.constant(group == g)) for g in range(group.max() + 1)]
    for rule in facts["rules"]:
        rates = [RATES[rule["rate"]](each) for each in subsets]
        for one in rates:
            if rule["kind"] == "floor":
                yield one >= rule["bound"]
            for other in rates:
                if one is not other and rule["kind"] == "difference":
                    yield one - other <= rule["bound"]
                if one is not other and rule["kind"] == "ratio":
                    yield one >= rule["bound"] * other


tf.compat.v1.set_random_seed(facts["seed"])
with v1.Session() as session:
    weights = v1.get_variable(
        "w", (X.shape[1],), tf.float32, v1.zeros_initializer(), use_resource=True
    )
    bias = v1.get_variable("b", (), tf.float32, v1.zeros_initializer(), use_resource=True)
    scores = tf.linalg.matvec(tf.constant(X.astype(np.float32)), weights) + bias
    context = tfco.rate_context(scores, labels=tf.constant(2.0 * label - 1, dtype=tf.float32))
    problem = tfco.RateMinimizationProblem(tfco.error_rate(context), [*comparisons(context)])
    kind = {"lagrangian": tfco.LagrangianOptimizerV1, "proxy": tfco.ProxyLagrangianOptimizerV1}
    optimizer = kind[facts["optimizer"]](
        v1.train.AdamOptimizer(facts["learning_rate"]),
        constraint_optimizer=v1.train.AdamOptimizer(facts["constraint_learning_rate"]),
    )
    train = optimizer.minimize(problem)
    session.run(v1.global_variables_initializer())
    session.run(v1.local_variables_initializer())
    # before the loop: each call adds to the graph, which is then compiled again
    candidate = [weights, bias, problem.objective(), problem.constraints()]
    kept, objectives, violations = [], [], []
    for t in range(facts["steps"]):
        session.run(train)
        if (t + 1) % facts["every"] == 0:
            w, b, error, over = session.run(candidate)
            kept.append(np.append(w, b).astype(float))
            objectives.append(float(error))
            violations.append(np.asarray(over, dtype=float))
if facts["rules"]:
    chances = tfco.find_best_candidate_distribution(np.array(objectives), np.array(violations))
else:
    chances = (np.arange(len(objectives)) == np.argmin(objectives)).astype(float)
used = np.flatnonzero(chances > 1e-9)
members, chances = np.array(kept)[used], np.asarray(chances)[used] / np.sum(chances[used])
decided = (X @ members[:, :-1].T + members[:, -1] > 0) @ chances
pd.DataFrame({"decision": decided}).to_parquet(folder / "decisions.parquet")
model = {"members": members.tolist(), "chances": chances.tolist()}
(folder / "model.json").write_text(json.dumps(model))
