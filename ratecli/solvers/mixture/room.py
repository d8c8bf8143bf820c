"""What to look for where the objective leaves a choice."""

from __future__ import annotations

from dataclasses import replace

from ratecli.rates import expression as ex
from ratecli.rates.analysis import Shape, constraint_goal, objective_goal
from ratecli.rates.resolve import violation_expression
from ratecli.solvers.problem import Problem

CONVEX_SHAPES = frozenset({Shape.AFFINE, Shape.CONVEX})


def max_slack_problem(problem: Problem, objective: float) -> Problem | None:
    """Keep the constraints with most to spare, by the worst of them, at no more than an objective.

    None where there is nothing to spare, or the problem is not convex.
    """
    goals = (problem.objective, *problem.constraints)
    pieces = [piece for goal in problem.constraints for piece in goal.pieces]
    if not pieces or not all(goal.shape in CONVEX_SHAPES for goal in goals):
        return None
    bound = ex.subtract(problem.objective.expression, ex.Constant(objective))
    limit = constraint_goal("objective", problem.objective.text, (bound,), bound)
    aim = objective_goal("the worst violation", violation_expression(tuple(pieces)))
    return replace(problem, objective=aim, constraints=(*problem.constraints, limit))
