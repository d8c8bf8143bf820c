"""Run one trial: load its rows, build the problem, solve it, and measure the solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.cases import Case, references, resolve_goals, uses_deployed_model
from ratecli.experiment.checks.goals import refusal_reason
from ratecli.experiment.checks.rows import check_known_groups
from ratecli.experiment.plan import TrialSpec
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    CONSTANT_NAME_KEY,
    CURVES_KEY,
    EFFECTIVE_ROWS_KEY,
    GROUP_RATES_KEY,
    NEW_DATA_KEY,
    UNDEFINED_CONSTANT_KEY,
    MeasuredValue,
    TrialResult,
    is_violated,
    random_stream,
)
from ratecli.models.base import Classifier
from ratecli.models.output_cache import fixed_features
from ratecli.models.storage import dumps, loads
from ratecli.rates import expression as ex
from ratecli.rates.analysis import PROGRAM_SHAPES, Goal, objective_goal
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.table import OTHER
from ratecli.runner.training_problem import (
    Goals,
    goals_with_numbers,
    rate_leaves,
    reference_value,
    training_count,
    training_problem,
    with_penalties,
)
from ratecli.sampling import summaries as sm
from ratecli.sampling.deployed import (
    column_classifier,
    rates_of_other,
    with_classifier_decisions,
    with_others,
    with_stored_decisions,
)
from ratecli.sampling.encoding import stored_encoding
from ratecli.sampling.logs import effective_rows
from ratecli.sampling.rows import NoRowsKeptError, TrialData, load_training_rows, load_trial_data
from ratecli.sampling.safety_rows import SafetyRows
from ratecli.solvers.base import USABLE_STATUSES, Solution
from ratecli.solvers.fit_cache import FitCache, cache_adjusted_time, shared_fits
from ratecli.solvers.hull.infeasible import unmet_status
from ratecli.solvers.liblinear import import_sklearn_linear
from ratecli.solvers.margin import solve_with_margin
from ratecli.solvers.problem import ERROR_RATE, Problem
from ratecli.solvers.registry import all_algorithms
from ratecli.solvers.tuned import solve_tuned

_STARTED_TOGETHER = FitCache[Mapping[str, Callable[[], Solution] | None]](2)
"""The common work of blocks of trials: what returns the solution of each, by its key."""
MAX_FEATURES_TOGETHER = 2000
"""With more features, trials are solved alone: the iterates of a block stay in memory."""
CHANCE_TOLERANCE = 1e-9
"""Rounding error by which the probability of a positive decision may be outside of [0, 1]."""
TOO_FEW_ROWS_CODES = frozenset({"E306", "E311", "E408"})
"""Codes of errors about rates and ratios that are undefined on the available rows."""


def run_trial(
    spec: TrialSpec, results: Mapping[str, TrialResult], fits: Path | None = None
) -> TrialResult:
    """Load the rows of a trial, pose and solve its problem, and measure the solution.

    `results` maps keys of trials it depends on to their results. `fits` is the folder, if any, of
    fits that trials share.
    """
    # import before starting the clock, so that the first trial in a process is not slower
    import_sklearn_linear()
    with shared_fits(fits):
        begun = cache_adjusted_time()
        rows, missing = _load_rows(spec, results)
        found = MeasuredSolution.none(missing)
        if not missing:
            trial = Trial(spec, rows, _references(spec, rows, results), results).with_others()
            with fixed_features(rows.X):
                found = trial.run()
        variants = found.solution.variants
        return TrialResult(
            key=spec.key,
            status=found.status,
            reason=found.reason,
            seconds=cache_adjusted_time() - begun,
            info={"rows": rows.splits(), **found.info},
            trace=found.solution.trace,
            multipliers=found.solution.multipliers,
            values=tuple(found.values),
            models={name: dumps(classifier) for name, classifier in variants.items()},
            encoding=stored_encoding(rows.encoding, variants.values()) if variants else "",
        )


def has_no_solution(result: TrialResult) -> bool:
    return result.status == "no_solution_found" and not result.models


def missing_solution_reason(spec: TrialSpec, results: Mapping[str, TrialResult]) -> str:
    """Return why a trial cannot run, or "" if it can.

    A trial cannot run if a trial whose model it requires found no solution. A model that is only a
    reference, through `of(...)` or as the deployed model, in a metric or in a goal that the solver
    does not use, is not required: values that refer to it are NaN.
    """
    solver = spec.case.solver
    uses_goals = solver.role != "ignores" or spec.case.safety is not None
    goals = spec.case.goals() if uses_goals else ()
    labels = {
        part.algorithm
        for goal in goals
        for part in ex.walk(goal.expression)
        if isinstance(part, ex.AlgorithmMetric)
    }
    required = {f"'{label}'": spec.of[label] for label in spec.of if label in labels}
    if spec.training_rows.row_filter is not None:
        required = {"the filter": spec.training_rows.row_filter.key} | required
    if solver.needs_deployed or any(map(uses_deployed_model, goals)):
        required |= {"the deployed algorithm": spec.deployed} if spec.deployed is not None else {}
    for name, key in required.items():
        if has_no_solution(results[key]):
            return f"{name} is needed but found no solution"
    return ""


def _load_rows(spec: TrialSpec, results: Mapping[str, TrialResult]) -> tuple[TrialData, str]:
    """Return the rows; if the trial cannot run, its rows without a filter, and why it cannot."""
    reason = missing_solution_reason(spec, results)
    if not reason:
        try:
            return _with_deployed(spec, results), ""
        except NoRowsKeptError as error:
            reason = error.faults[0].message
    return load_trial_data(spec.data, spec.seed, spec.deployed_column, spec.case.sampling), reason


def _with_deployed(spec: TrialSpec, results: Mapping[str, TrialResult]) -> TrialData:
    """Return the rows with the decisions of the deployed model, if any."""
    rows = load_training_rows(
        spec.data, spec.seed, spec.deployed_column, spec.training_rows, results
    )
    if spec.deployed_model is not None:
        # stored models were fitted to all features, without the filter
        sampling = replace(spec.case.sampling, score="")
        whole = load_trial_data(spec.data, spec.seed, spec.deployed_column, sampling)
        stored = with_stored_decisions(whole, spec.deployed_model).sample
        assert stored.deployed is not None
        return replace(rows, sample=rows.sample.with_deployed(stored.deployed))
    if spec.deployed is None:
        return rows
    # no goal refers to the missing model's decisions, see `missing_solution_reason`
    if has_no_solution(results[spec.deployed]):
        return replace(rows, sample=rows.sample.with_deployed(np.full(len(rows.sample), np.nan)))
    classifier = _main_classifier(results[spec.deployed], "the deployed model")
    other_rows = _rows_of_trial(spec, rows, spec.deployed, results)
    return with_classifier_decisions(rows, classifier, other_rows)


def _references(
    spec: TrialSpec, rows: TrialData, results: Mapping[str, TrialResult]
) -> dict[str, Predictions]:
    """Return the predictions of the algorithms that the trial refers to, by label."""
    return {
        label: _rows_of_trial(spec, rows, key, results).predictions(
            _main_classifier(results[key], label)
        )
        for label, key in spec.of.items()
        if not has_no_solution(results[key])
    }


def _rows_of_trial(
    spec: TrialSpec, rows: TrialData, key: str, results: Mapping[str, TrialResult]
) -> TrialData:
    """Return the rows with features as in another trial, which depend on its training rows."""
    seen = spec.other_rows.get(key)
    if seen is None:
        return rows
    return load_training_rows(spec.data, spec.seed, spec.deployed_column, seen, results)


def _main_classifier(result: TrialResult, name: str) -> Classifier:
    """Return the main variant of a trial's solution, which `of` and `deployed` refer to."""
    if not result.models:
        message = f"'{name}' is needed but has no classifier: its trial ended as {result.status}"
        raise FaultError(Diagnostic("E501", message))
    return loads(next(iter(result.models.values())))


@dataclass(frozen=True)
class MeasuredSolution:
    """A trial's solution, its values, how the trial ended, and information to store with them.

    If there is a safety test, the solution has only the variants that remain after it.
    """

    solution: Solution
    values: list[MeasuredValue]
    status: str
    reason: str
    info: Mapping[str, Any]

    @classmethod
    def none(cls, reason: str) -> MeasuredSolution:
        status = "no_solution_found"
        return cls(Solution({}, status, reason), [], status, reason, {})


@dataclass(frozen=True)
class Trial:
    """A trial whose rows are known.

    Attributes
    ----------
    reference
        Predictions of the algorithms that its goals and metrics refer to, by label.
    results
        Results of the trials that it depends on, by key.
    """

    spec: TrialSpec
    rows: TrialData
    reference: Mapping[str, Predictions]
    results: Mapping[str, TrialResult] = field(default_factory=dict)

    def run(self) -> MeasuredSolution:
        """Pose and solve the problem; no solution if it is undefined on few sampled rows."""
        try:
            problem = self.problem()
        except FaultError as error:
            case = self.spec.case
            sampled = any(each is not None for each in (case.share, case.holdout, case.filtering))
            if not sampled or not {fault.code for fault in error.faults} <= TOO_FEW_ROWS_CODES:
                raise
            return MeasuredSolution.none("; ".join(fault.message for fault in error.faults))
        return self.solve(problem)

    def problem(self) -> Problem:
        """Return the problem for the solver, with validation data, safety test, deployed model."""
        case = self.spec.case
        unknown = list(check_known_groups(self.rows.sample, case))
        if unknown:
            raise FaultError(unknown)
        problem = training_problem(self.rows, *self._solver_goals("train"), self.spec.l2)
        return replace(
            self.with_goals(problem),
            safety_test=case.safety_spec(self.rows.splits().get("safety", 0)),
            deployed=self._deployed_model() if case.solver.needs_deployed else None,
            seed=self.spec.seed,
        )

    def solve(self, problem: Problem) -> MeasuredSolution:
        """Solve the trial's problem and measure the solution.

        Raises
        ------
        FaultError
            E501 if an algorithm of another package fails, or its solution is not valid.
        """
        plugin = all_algorithms()[self.spec.case.algorithm].plugin
        with nullcontext() if plugin is None else plugin.report_errors():
            try:
                solution = self._solution(problem)
            except np.linalg.LinAlgError:
                reason = "numbers are too large, or too different in size: use other units"
                solution = Solution({}, "diverged", reason)
            return self.measure(problem, solution)

    def _solution(self, problem: Problem) -> Solution:
        case = self.spec.case
        make_rng = partial(random_stream, self.spec.seed, "solver", case.algorithm)
        if case.settings:
            settings = with_penalties(case.settings, training_count(self.rows))
            return solve_tuned(settings, case.guard, problem, make_rng)
        if self.spec.together and problem.X.shape[1] <= MAX_FEATURES_TOGETHER:
            return self._solve_together(problem, make_rng)
        return solve_with_margin(case.solver, case.guard, problem, make_rng())

    def _solve_together(
        self, problem: Problem, make_rng: Callable[[], np.random.Generator]
    ) -> Solution:
        """Return the solution; the first trial of a block does the common work of all."""
        key, together, solver = self.spec.key, self.spec.together, self.spec.case.solver
        own = rate_leaves(problem.objective, problem.constraints)

        def start_all() -> dict[str, Callable[[], Solution] | None]:
            problems = {key: problem}
            try:
                for other, case in together.items():
                    if other == key:
                        continue
                    spec = replace(self.spec, key=other, case=case)
                    with suppress(FaultError):  # which the other trial reports
                        found = replace(self, spec=spec).with_goals(problem)
                        if rate_leaves(found.objective, found.constraints) == own:
                            problems[other] = found
                started = solver.solve_together([*problems.values()], make_rng(), lambda _: None)
            except Exception:  # noqa: BLE001  a trial that causes it fails again, alone
                return {}
            return dict(zip(problems, started, strict=True))

        finish = _STARTED_TOGETHER.get("".join(together).encode(), start_all).get(key)
        return finish() if finish else solver.solution(problem, make_rng())

    def with_goals(self, problem: Problem) -> Problem:
        """Return the problem, and its validation data, with the goals of this trial."""
        objective, constraints = self._solver_goals("train")
        validation = problem.validation
        if validation is not None:
            others = self._solver_goals("validation")
            validation = replace(validation, objective=others[0], constraints=others[1])
        return replace(problem, objective=objective, constraints=constraints, validation=validation)

    def measure(self, problem: Problem, solution: Solution) -> MeasuredSolution:
        """Measure a solution, after its safety test if there is one."""
        case = self.spec.case
        leaves = ex.leaves(*case.metrics.values())
        estimated = any(leaf.rate.of != "decision" for leaf in leaves)
        predictions = self.rows.answers(solution.variants, estimated=estimated)
        for name, found in predictions.items():
            check_outputs(name, found, self.rows)
        trial, info = self._with_main(solution, predictions), dict[str, Any]()
        if problem.safety_test is not None:
            _, constraints = resolve_goals(case, rates_of_other)
            test = SafetyRows(trial.rows, problem.safety_test, problem.label_ends, self.spec.seed)
            predicted = case.solver.needs_safety_test
            verdict = test.verdict(solution, predictions, constraints, predicted=predicted)
            solution, status, reason = verdict.solution, verdict.status, verdict.reason
            predictions = dict(verdict.predictions)
            trial = self._with_main(solution, predictions) if predictions else trial
            info["certificates"] = list(verdict.certificates)
            if case.solver.needs_deployed and not predictions:
                reason += (
                    f". To see its rates, add `{case.algorithm}: {{as: rates, safety: false}}`"
                )
        values = trial.measure_variants(predictions)
        if problem.safety_test is None:
            status, reason = solution_status(case, solution, values)
            if status == "not_met" and case.solver.role == "enforces":
                status, reason = _check_infeasible(problem, status, reason)
        sample, splits = trial.rows.sample, trial.rows.splits()
        info[NEW_DATA_KEY] = trial.new_data(predictions)
        if sample.logs is not None and predictions:
            main, split = next(iter(predictions.values())), "test" if "test" in splits else "train"
            info[EFFECTIVE_ROWS_KEY] = effective_rows(sample, split, leaves, main)
        filters = sm.summarize_filters(case.goals(), sample, splits, solution.variants, predictions)
        measured = trial.rows, case.metrics.values(), case.groups, predictions
        info |= filters or {
            **trial.best_constants(),
            GROUP_RATES_KEY: sm.group_rates(*measured),
            CURVES_KEY: sm.group_curves(*measured),
        }
        return MeasuredSolution(solution, values, status, reason, info)

    def _with_main(self, solution: Solution, predictions: Mapping[str, Predictions]) -> Trial:
        """Return the trial with its main variant as what its label and `deployed` refer to."""
        if not predictions:
            return self
        main, rows = next(iter(solution.variants)), self.rows
        if self.spec.is_deployed:
            rows = with_classifier_decisions(rows, solution.variants[main])
        reference = {self.spec.case.label: predictions[main], **self.reference}
        return replace(self, rows=rows, reference=reference).with_others()

    def with_others(self) -> Trial:
        """Return the trial with the rates of the algorithms that its goals refer to."""
        trees = [goal.expression for goal in self.spec.case.goals()]
        sample = with_others(self.rows.sample, trees, self.reference)
        return replace(self, rows=replace(self.rows, sample=sample))

    def _solver_goals(self, split: str) -> Goals:
        """Return the goals for the solver, or plain error if it ignores them.

        The rates in `of(...)` are rates of the problem where the goal keeps its shape; elsewhere,
        their values on the split replace them.
        """
        case = self.spec.case
        sample = self.rows.sample
        ignores = case.solver.role == "ignores"
        if ignores and (sample.logs is None or sample.mask("labelled").any()):
            return objective_goal("error", ERROR_RATE), ()
        objective, constraints = goals_with_numbers(case, self.rows, self.reference, split)
        if ignores:  # without labels, it minimizes the objective
            return objective, ()
        rated_objective, rated = resolve_goals(case, rates_of_other)
        found = []
        pairs = zip((rated_objective, *rated), (objective, *constraints), strict=True)
        for with_rates, goal in pairs:
            why, _ = refusal_reason(type(case.solver), goal, objective=goal is objective)
            if why:  # a negative value of `of(...)` turned a convex goal concave
                message = f"algorithm '{case.label}' cannot take '{goal.text}': {why}"
                raise FaultError(Diagnostic("E308", f"{message} at the values of 'of(...)'"))
            found.append(with_rates if self._keeps_shape(with_rates, goal) else goal)
        return found[0], tuple(found[1:])

    def _keeps_shape(self, with_rates: Goal, with_numbers: Goal) -> bool:
        """Whether a solver can take a goal with the rates of another algorithm, not only values."""
        leaves = ex.leaves(with_rates.expression, *with_rates.pieces)
        return (
            with_rates.shape == with_numbers.shape
            and not references(with_rates.expression)
            and all(leaf.rate.of == "decision" for leaf in leaves if leaf.rate.yes == OTHER)
            and not refusal_reason(
                type(self.spec.case.solver), with_rates, objective=with_rates.name == "objective"
            )[0]
        )

    def _deployed_model(self) -> Classifier:
        """Return the deployed model as a classifier."""
        spec = self.spec
        if spec.deployed is not None:
            return _main_classifier(self.results[spec.deployed], "the deployed model")
        if spec.deployed_model is not None:
            return loads(spec.deployed_model)
        assert spec.deployed_column is not None
        return column_classifier(self.rows, spec.deployed_column)

    def measure_variants(self, predictions: Mapping[str, Predictions]) -> list[MeasuredValue]:
        """Measure every metric of every variant on every split."""
        metrics = {ex.to_text(metric): metric for metric in self.spec.case.metrics.values()}
        return [
            MeasuredValue(variant, split, metric, value)
            for variant, predicted in predictions.items()
            for split in self.rows.splits()
            for metric, value in zip(
                metrics, self._values([*metrics.values()], split, predicted), strict=True
            )
        ]

    def _values(
        self, metrics: Sequence[ex.Expression], split: str, predictions: Predictions
    ) -> Sequence[float]:
        """Return the values of metrics on a split; NaN for an algorithm without a solution."""

        def value_of(node: ex.AlgorithmMetric) -> float:
            return reference_value(self.rows, split, self.reference, node)

        return measure(metrics, self.rows.sample, split, predictions, value_of)

    def new_data(self, predictions: Mapping[str, Predictions]) -> dict[str, Any]:
        """Return what `NEW_DATA_KEY` describes."""
        case = self.spec.case
        levels: dict[str, float] = {}
        if case.guard.holds == "new_rows" and case.guard.level is not None:
            levels = dict.fromkeys(list(predictions)[:1], case.guard.level)  # the main variant
        rules = case.constraints
        found = sm.violation_pieces(self.rows, rules, predictions) if rules else {}
        rows = np.flatnonzero(self.rows.sample.part == "test")
        if self.rows.positions is not None:
            rows = np.sort(self.rows.positions[rows])
        splits = self.rows.splits()
        share = splits.get("test", 0) / sum(splits.values())
        folds = [entry.division.folds or 0 for entry in self.spec.data.entries.values()]
        if min(folds, default=0) > self.spec.seed:
            share = 0.0  # test sets of the first folds have no row in common
        return {"levels": levels, "pieces": found, "test": [crc32(rows.tobytes()), share]}

    def best_constants(self) -> dict[str, dict[str, Any]]:
        """Return the smallest objective of a constant that violates no constraint, by split.

        It has the key `BEST_CONSTANT_KEY`. `UNDEFINED_CONSTANT_KEY` has the texts of the
        constraints that are undefined for the constant: one on precision, where nobody is selected,
        is not violated. `CONSTANT_NAME_KEY` has the constant in words. The constants are
        "always negative" and "always positive"; for numeric labels, the mean label of the training
        rows. Splits where every constant violates a constraint are left out, but constraints do not
        matter for numeric labels, and for algorithms that ignore them and minimize the objective.
        There is none without constraints if the algorithm does not minimize the objective, or if a
        goal of decisions depends on anything else, such as scores.
        """
        best: dict[str, dict[str, Any]]
        best = {BEST_CONSTANT_KEY: {}, UNDEFINED_CONSTANT_KEY: {}, CONSTANT_NAME_KEY: {}}
        sample = self.rows.sample
        case = self.spec.case
        goals = [goal.expression for goal in case.goals()]
        ignores = case.solver.role == "ignores"
        minimizes = not ignores or ex.to_text(goals[0]) in {"error", "mse"}
        if not minimizes and not case.constraints:
            return best
        if sample.label_range is not None:
            known = sample.label[(sample.part == "train") & sample.mask("labelled")]
            constants = {"predicting the mean label": float(known.mean())}
        else:
            parts = [part for goal in goals for part in ex.walk(goal)]
            ranked = any(isinstance(part, ex.RankingMeasure | ex.Disclosure) for part in parts)
            if ranked or any(leaf.rate.of != "decision" for leaf in ex.leaves(*goals)):
                return best
            constants = {"selecting nobody": 0.0, "selecting everyone": 1.0}
        for split in self.rows.splits():
            for name, constant in constants.items():
                answers = np.full(len(sample), constant)
                predictions = Predictions(answers, answers, answers)
                objective, *violations = self._values(goals, split, predictions)
                violated = any(is_violated(each, undefined=False) for each in violations)
                may_violate = (ignores and minimizes) or sample.label_range is not None
                allowed = may_violate or not violated
                if allowed and objective < best[BEST_CONSTANT_KEY].get(split, math.inf):
                    pairs = zip(goals[1:], violations, strict=True)
                    undefined = [ex.to_text(goal) for goal, each in pairs if math.isnan(each)]
                    for key, value in zip(best, (objective, undefined, name), strict=True):
                        best[key][split] = value
        return best


def check_outputs(variant: str, found: Predictions, rows: TrialData) -> None:
    """Raise ValueError if an output of a classifier is not a number for each row."""
    outputs = {"decisions": found.decisions, "scores": found.scores, "estimates": found.estimates}
    if found.returns:  # a policy decides in each step
        outputs = {}
    elif rows.stream is not None:  # rows of a cell have no score in common
        outputs = {"decisions": found.decisions}
    elif rows.sample.label_range is not None:
        outputs = {"estimates": found.estimates}
    for what, values in outputs.items():
        if np.shape(values) != (len(rows.sample),):
            raise ValueError(f"the {what} of '{variant}' have the shape {np.shape(values)}")
        wrong = np.isnan(values)
        if what == "decisions":
            wrong |= (values < -CHANCE_TOLERANCE) | (values > 1 + CHANCE_TOLERANCE)
        if wrong.any():
            example = values[int(np.argmax(wrong))]
            raise ValueError(f"the {what} of '{variant}' are {example} in {wrong.sum()} rows")


def solution_status(
    case: Case, solution: Solution, values: Sequence[MeasuredValue]
) -> tuple[str, str]:
    """Return the trial's status and reason.

    This is the solver's status, or `not_met` if the solver was given the constraints and its main
    variant violates one on the training set, or on the rows of `Solution.judged`. A constraint that
    is undefined there counts as violated. If constraints have to hold on other rows, the solver's
    status says whether they do (see `solve_with_margin`).
    """
    if solution.status not in USABLE_STATUSES:
        return solution.status, solution.reason
    main = next(iter(solution.variants))
    measured = {v.metric: v.value for v in values if v.variant == main and v.split == "train"}
    violations: Mapping[str, float] = {
        goal.name: measured[ex.to_text(goal.expression)] for goal in case.constraints
    }
    where = "the training set"
    if case.guard.holds != "train" and case.solver.role == "enforces":
        violations = {}
    elif solution.judged is not None:
        violations, where = solution.judged.violations(), "rows that its model has not seen"
    missed = [
        f"'{name}' " + ("(undefined)" if math.isnan(value) else f"by {value:.3g}")
        for name, value in violations.items()
        if is_violated(value)
    ]
    if case.solver.role != "ignores" and missed:
        reason = f"{main} violates {', '.join(missed)} on {where}"
        return "not_met", f"{solution.reason}; {reason}" if solution.reason else reason
    return ("ok" if solution.status == "solved" else solution.status), solution.reason


def _check_infeasible(problem: Problem, status: str, reason: str) -> tuple[str, str]:
    """Replace the status by `infeasible` if no classifier can satisfy the constraints.

    See `ratecli.solvers.hull.infeasible.unmet_status`.
    """
    if not {goal.shape for goal in problem.constraints} <= PROGRAM_SHAPES:
        return status, reason
    plain = replace(problem, objective=objective_goal("error", ERROR_RATE))
    return unmet_status(plain, reason, status)
