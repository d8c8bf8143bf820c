"""Checks of streamed data sets: the columns they must index, and what they do not support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratecli.config.experiment import Experiment
from ratecli.errors import Diagnostic, FaultError, Loc
from ratecli.experiment.cases import Case
from ratecli.experiment.options import solver_class
from ratecli.experiment.reading import ExperimentReader
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, RankingMeasure
from ratecli.rates.parser import parse_conditions, parse_constraint, parse_expression
from ratecli.rates.syntax import (
    BinaryOperation,
    Condition,
    NameNode,
    Negation,
    SliceName,
    SyntaxNode,
)
from ratecli.solvers.registry import all_algorithms

IN_MEMORY_HINT = "read the table into memory: stream: false"


def compared_columns(experiment: Experiment) -> dict[str, list[float]]:
    """Return the columns that define an experiment's groups, and the numbers each is compared with.

    Texts that cannot be parsed are reported elsewhere.
    """
    found: dict[str, set[float]] = {}
    for condition in _experiment_conditions(experiment):
        if isinstance(condition, str):
            found.setdefault(condition, set())
            continue
        numbers = {value for value in map(_as_number, condition.values) if value is not None}
        found.setdefault(condition.column, set()).update(numbers)
    return {name: sorted(cuts) for name, cuts in sorted(found.items())}


def _as_number(value: str | float) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _experiment_conditions(experiment: Experiment) -> Iterator[Condition | str]:
    for group in experiment.groups.values():
        for text in [group] if isinstance(group, str) else group.values():
            try:
                yield from parse_conditions(text)
            except FaultError:
                continue
    for text in (experiment.objective, *experiment.metrics.values()):
        try:
            yield from _node_conditions(parse_expression(text))
        except FaultError:
            continue
    for text in experiment.constraints.values():
        try:
            for operand in parse_constraint(text).operands:
                yield from _node_conditions(operand)
        except FaultError:
            continue


def _node_conditions(node: SyntaxNode) -> Iterator[Condition | str]:
    match node:
        case Negation():
            yield from _node_conditions(node.operand)
        case BinaryOperation():
            yield from _node_conditions(node.left)
            yield from _node_conditions(node.right)
        case NameNode():
            yield from node.by
            yield from (item for item in node.items if not isinstance(item, SliceName))
            for argument in node.arguments or ():
                yield from _node_conditions(argument)
        case _:
            pass


def check_streams(reading: ExperimentReader, cases: Sequence[Case], *, refuse: bool = True) -> None:
    """Raise E414 for everything that does not support streamed data sets, which are not read.

    Without `refuse`, algorithms and metrics that need rows in memory are warnings, so that the rest
    can be explained.
    """
    entries = reading.experiment.datasets
    faults: dict[Diagnostic, None] = {}
    spared: dict[Diagnostic, None] = {}
    for case in cases:
        streamed = [name for name in case.datasets if entries[name].stream]
        if streamed:
            faults |= dict.fromkeys(_check_row_changes(reading, case, streamed[0]))
            spared |= dict.fromkeys(_check_whole_table_use(reading, case, streamed[0]))
    if faults or (spared and refuse):
        raise FaultError(faults | spared)
    reading.warnings |= spared


def _check_whole_table_use(
    reading: ExperimentReader, case: Case, name: str
) -> Iterator[Diagnostic]:
    """Yield an E414 for algorithms, margins and metrics that need all rows at once."""
    document = reading.document
    if not case.solver.takes_streams:
        message = f"algorithm '{case.label}' needs its rows in memory, and '{name}' is streamed"
        hint = f"algorithms that can: {', '.join(_streaming_algorithms())}; or {IN_MEMORY_HINT}"
        yield Diagnostic("E414", message, hint, place=reading.option(case.label, ""))
    if case.guard.margin is not None or case.guard.aim is not None:
        message = (
            f"the room that '{case.label}' is to keep is told from single rows, "
            f"and '{name}' is streamed"
        )
        yield Diagnostic(
            "E414", message, IN_MEMORY_HINT, place=reading.option(case.label, "margin")
        )
    for loc, tree in case.texts():
        for part in _rankings(tree):
            message = f"'{ex.to_text(part)}' sorts all rows, and '{name}' is streamed"
            hint = f"leave it out, or {IN_MEMORY_HINT}"
            yield Diagnostic("E414", message, hint, place=document.place(loc, part.span))


def _check_row_changes(reading: ExperimentReader, case: Case, name: str) -> Iterator[Diagnostic]:
    """Yield an E414 for pooling, resampling, holdouts, filters and deployed models."""
    document, experiment = reading.document, reading.experiment
    if len(case.datasets) > 1:
        message = f"'{name}' is streamed, and rows of other data sets are put together with it"
        hint = f"take them one by one: sweep: {{dataset: [{', '.join(case.datasets)}]}}"
        yield Diagnostic("E414", message, hint, place=document.place(("datasets", name), key=True))
    others: list[tuple[Loc, bool, str]] = [
        (("resample",), case.share is not None, "rows are drawn anew"),
        (("safety",), case.holdout is not None, "rows are put aside for a safety test"),
        (("filter",), case.filtering is not None, "rows go through a filter"),
        (("deployed",), _uses_deployed(experiment), "an algorithm or a stored model is deployed"),
    ]
    for loc, asked, what in others:
        if asked:
            message = f"{what}, which needs them in memory, and '{name}' is streamed"
            yield Diagnostic("E414", message, IN_MEMORY_HINT, place=document.place(loc, key=True))


def _uses_deployed(experiment: Experiment) -> bool:
    deployed = experiment.deployed
    return deployed is not None and deployed.column is None


def _rankings(tree: Expression) -> Iterator[RankingMeasure]:
    for part in ex.walk(tree):
        if isinstance(part, RankingMeasure):
            yield part
        elif isinstance(part, ex.AlgorithmMetric):
            yield from _rankings(part.metric)


def _streaming_algorithms() -> Iterator[str]:
    """Yield the algorithms that support streamed rows, as a file writes them."""
    for name in all_algorithms():
        if all_algorithms()[name].missing() is None:
            options = solver_class(name).streams
            if options is not None and not options.keys() & all_algorithms()[name].preset.keys():
                shown = ", ".join(
                    f"{key}: {_format_option_value(value)}" for key, value in options.items()
                )
                yield f"{name}: {{{shown}}}" if shown else name


def _format_option_value(value: object) -> str:
    return "null" if value is None else str(value)
