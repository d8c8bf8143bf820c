"""Trials that need another one which found no solution: a legitimate end, and so is theirs."""

from __future__ import annotations

from collections.abc import Mapping

from ratecli.experiment.cases import Case, uses_deployed_model
from ratecli.experiment.plan import TrialSpec
from ratecli.ledger.records import TrialResult
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal


def has_no_solution(result: TrialResult) -> bool:
    return result.status == "no_solution_found" and not result.models


def missing_solution_reason(job: TrialSpec, given: Mapping[str, TrialResult]) -> str:
    """Why a trial cannot be, "" if it can: a model that it cannot do without was not found.

    It can do without one that it is only measured against, by `of(...)`, or as the deployed model, in a
    metric or in a goal that it is not given: such a number has no value then.
    """
    if job.sieve is not None and has_no_solution(given[job.sieve.key]):
        return "the filter is needed and found no solution"
    goals = _reference_goals(job.case)
    asked = {
        part.algorithm
        for goal in goals
        for part in ex.walk(goal.expression)
        if isinstance(part, ex.AlgorithmMetric)
    }
    for label, key in job.of.items():
        if label in asked and has_no_solution(given[key]):
            return f"'{label}' is needed and found no solution"
    compared = job.case.solver.needs_deployed or any(map(uses_deployed_model, goals))
    if compared and job.deployed is not None and has_no_solution(given[job.deployed]):
        return "the deployed algorithm is needed and found no solution"
    return ""


def _reference_goals(case: Case) -> tuple[Goal, ...]:
    """Goals on whose numbers it hangs what is trained, or what of it is tested."""
    free = case.solver.role == "ignores" and case.safety is None
    return () if free else case.goals()
