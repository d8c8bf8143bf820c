"""Run the Seldonian Toolkit; by an interpreter that has it (see `ratecli_peers.other_python`)."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from seldonian.dataset import SupervisedDataSet, SupervisedMetaData
from seldonian.models import objectives
from seldonian.models.models import BinaryLogisticRegressionModel
from seldonian.parse_tree.parse_tree import make_parse_trees_from_constraints
from seldonian.seldonian_algorithm import SeldonianAlgorithm
from seldonian.spec import SupervisedSpec, default_supervised_initial_solution_fn

folder = Path(sys.argv[1])
facts = json.loads((folder / "facts.json").read_text())
rows = pd.read_parquet(folder / "rows.parquet")
rows = rows.sample(frac=1.0, random_state=facts["seed"])  # the last ones are for the safety test
X = rows.drop(columns=["label", "group"]).to_numpy()
names = ["g0", "g1"]
features = [f"x{j}" for j in range(X.shape[1])]
meta = SupervisedMetaData(
    sub_regime="classification",
    all_col_names=[*names, *features, "label"],
    feature_col_names=features,
    label_col_names=["label"],
    sensitive_col_names=names,
)
members = np.eye(2)[rows["group"].to_numpy()]
data = SupervisedDataSet(X, rows["label"].to_numpy(), members, len(rows), meta)
trees = make_parse_trees_from_constraints(
    facts["constraints"],
    [facts["delta"]] * len(facts["constraints"]),
    regime="supervised_learning",
    sub_regime="classification",
    columns=names,
    delta_weight_method="equal",
)
steps = {
    "lambda_init": np.full(len(trees), 0.5),
    "alpha_theta": facts["alpha_theta"],
    "alpha_lamb": facts["alpha_lamb"],
    "beta_velocity": 0.9,
    "beta_rmsprop": 0.95,
    "use_batches": False,
    "num_iters": facts["num_iters"],
    "gradient_library": "autograd",
    "hyper_search": None,
    "verbose": False,
}
spec = SupervisedSpec(
    dataset=data,
    model=BinaryLogisticRegressionModel(),
    parse_trees=trees,
    sub_regime="classification",
    frac_data_in_safety=facts["frac_data_in_safety"],
    primary_objective=objectives.binary_logistic_loss,
    initial_solution_fn=default_supervised_initial_solution_fn,
    optimization_hyperparams=steps,
)
with contextlib.redirect_stdout(io.StringIO()):
    passed, weights = SeldonianAlgorithm(spec).run()
model = None if not passed else np.ravel(weights).astype(float).tolist()
chances = np.zeros(len(rows)) if model is None else spec.model.predict(np.ravel(weights), X)
decided = pd.Series((chances > 0.5).astype(float), index=rows.index).sort_index()
pd.DataFrame({"decision": decided}).to_parquet(folder / "decisions.parquet")
(folder / "model.json").write_text(json.dumps(model))
