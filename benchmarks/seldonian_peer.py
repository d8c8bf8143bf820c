"""The peer of seldonian.py: one problem of the Seldonian Toolkit (engine 0.8.11), solved and tested.

Run by an interpreter that has the package, and needs nothing of ratecli: `python seldonian_peer.py
ROWS.npz`, where ROWS.npz holds X (n, d), label (n,), groups (n, G) of 0 and 1 with their names, kind
(`regression` or `classification`), constraint in the toolkit's language, delta, inflation, optimizer (`kkt`
or `cmaes`), iterations, and weights (J, d + 1) of other candidates, bias first. It writes its answer beside
it, ROWS.toolkit.npz: processor seconds of candidate selection and safety test on one thread, whether the
test passed, and figures (1 + J, 3) of its own candidate and the others: the objective on candidate rows and
the upper bounds, as predicted and on safety rows.

All else is as the tutorials have it: the last 60% of the rows, in their order, are for the safety test;
from the fit without constraints, steps of 0.01 on weights and multiplier, which starts at 0.5.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from seldonian.dataset import SupervisedDataSet, SupervisedMetaData
from seldonian.models import objectives
from seldonian.models.models import BinaryLogisticRegressionModel, LinearRegressionModel
from seldonian.parse_tree.parse_tree import ParseTree, make_parse_trees_from_constraints
from seldonian.seldonian_algorithm import SeldonianAlgorithm
from seldonian.spec import SupervisedSpec, default_supervised_initial_solution_fn

SAFETY = 0.6
DEFAULT_INFLATION = 2.0
SEED = 1
KKT = {
    "lambda_init": np.array([0.5]),
    "alpha_theta": 0.01,
    "alpha_lamb": 0.01,
    "beta_velocity": 0.9,
    "beta_rmsprop": 0.95,
    "use_batches": False,
    "gradient_library": "autograd",
}
COMMON = {"hyper_search": None, "verbose": False}


def rows_of(given: Mapping[str, Any], kind: str) -> SupervisedDataSet:
    names = [str(name) for name in given["names"]]
    features = [f"x{k}" for k in range(given["X"].shape[1])]
    meta = SupervisedMetaData(
        sub_regime=kind,
        all_col_names=[*names, *features, "label"],
        feature_col_names=features,
        label_col_names=["label"],
        sensitive_col_names=names,
    )
    return SupervisedDataSet(
        features=given["X"],
        labels=given["label"],
        sensitive_attrs=given["groups"],
        num_datapoints=len(given["X"]),
        meta=meta,
    )


def tree_of(given: Mapping[str, Any], kind: str) -> ParseTree:
    (tree,) = make_parse_trees_from_constraints(
        [str(given["constraint"])],
        [float(given["delta"])],
        regime="supervised_learning",
        sub_regime=kind,
        columns=[str(name) for name in given["names"]],
        delta_weight_method="equal",
    )
    if float(given["inflation"]) != DEFAULT_INFLATION:
        for node in tree.base_node_dict.values():  # else they keep what was assigned first
            node["infl_factor_lower"] = node["infl_factor_upper"] = None
        tree.assign_infl_factors(method="constant", factors=float(given["inflation"]))
    return tree


def spec_of(given: Mapping[str, Any]) -> SupervisedSpec:
    kind, count = str(given["kind"]), int(given["iterations"])
    regression = kind == "regression"
    if str(given["optimizer"]) == "kkt":
        how = {"optimization_hyperparams": {**KKT, **COMMON, "num_iters": count}}
    else:
        how = {
            "optimization_technique": "barrier_function",
            "optimizer": "CMA-ES",
            "optimization_hyperparams": {**COMMON, "maxiter": count, "seed": SEED},
        }
    return SupervisedSpec(
        dataset=rows_of(given, kind),
        model=LinearRegressionModel() if regression else BinaryLogisticRegressionModel(),
        parse_trees=[tree_of(given, kind)],
        sub_regime=kind,
        frac_data_in_safety=SAFETY,
        primary_objective=objectives.Mean_Squared_Error
        if regression
        else objectives.binary_logistic_loss,
        initial_solution_fn=default_supervised_initial_solution_fn,
        **how,
    )


def figures(
    algorithm: SeldonianAlgorithm, spec: SupervisedSpec, weights: NDArray[np.float64]
) -> list[float]:
    """Objective and bounds of a candidate; the trees keep the rows that they saw last, unless told."""
    (tree,) = spec.parse_trees
    selection = algorithm.candidate_selection()
    selection.calculate_batches(0, algorithm.n_candidate, 0, 1)
    tree.reset_base_node_dict(reset_data=True)
    predicted = np.ravel(selection.get_constraint_upper_bounds(weights))[0]
    tree.reset_base_node_dict(reset_data=True)
    algorithm.run_safety_test(weights)
    (safety,) = algorithm.get_st_upper_bounds().values()
    objective = spec.primary_objective(
        spec.model, weights, algorithm.candidate_features, algorithm.candidate_labels
    )
    return [float(objective), float(predicted), float(safety)]


def answer(given: Mapping[str, Any]) -> dict[str, Any]:
    spec = spec_of(given)
    begun = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):  # CMA-ES tells its story whatever is asked
        algorithm = SeldonianAlgorithm(spec)
        passed, _ = algorithm.run()
    seconds = time.process_time() - begun
    result = algorithm.get_cs_result()
    own = result["candidate_solution"] if isinstance(result, dict) else result.xbest
    missing = [np.nan, np.nan, np.nan]
    found = missing if isinstance(own, str) else figures(algorithm, spec, np.asarray(own))
    others = [figures(algorithm, spec, weights) for weights in given["weights"]]
    return {"seconds": seconds, "passed": passed, "figures": np.array([found, *others])}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    with np.load(path) as rows:
        np.savez(path.with_suffix(".toolkit.npz"), **answer(dict(rows)))
