"""What a streamed data set tells rows apart by, and what it does not go with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ratecli.config.document import Loc
from ratecli.config.experiment import Experiment
from ratecli.errors import Fault, FaultError
from ratecli.experiment.cases import Case
from ratecli.experiment.options import solver_class
from ratecli.experiment.reading import Reading
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression, Ranking
from ratecli.rates.parser import parse_conditions, parse_rule, parse_value
from ratecli.rates.syntax import Binary, Condition, Member, Minus, Name, Node
from ratecli.solvers.registry import algorithms

IN_MEMORY = "read the table into memory: stream: false"


def compared_columns(experiment: Experiment) -> dict[str, list[float]]:
    """The columns by which an experiment's texts tell groups, and the numbers that each is compared with.

    Texts that cannot be read are reported elsewhere.
    """
    found: dict[str, set[float]] = {}
    for condition in _conditions(experiment):
        if isinstance(condition, str):
            found.setdefault(condition, set())
            continue
        numbers = {value for value in map(_number, condition.values) if value is not None}
        found.setdefault(condition.column, set()).update(numbers)
    return {name: sorted(cuts) for name, cuts in sorted(found.items())}


def _number(value: str | float) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _conditions(experiment: Experiment) -> Iterator[Condition | str]:
    for group in experiment.groups.values():
        for text in [group] if isinstance(group, str) else group.values():
            try:
                yield from parse_conditions(text)
            except FaultError:
                continue
    for text in (experiment.objective, *experiment.metrics.values()):
        try:
            yield from _of_node(parse_value(text))
        except FaultError:
            continue
    for text in experiment.constraints.values():
        try:
            for operand in parse_rule(text).operands:
                yield from _of_node(operand)
        except FaultError:
            continue


def _of_node(node: Node) -> Iterator[Condition | str]:
    match node:
        case Minus():
            yield from _of_node(node.operand)
        case Binary():
            yield from _of_node(node.left)
            yield from _of_node(node.right)
        case Name():
            yield from node.by
            yield from (item for item in node.items if not isinstance(item, Member))
            for argument in node.arguments or ():
                yield from _of_node(argument)
        case _:
            pass


def check_streams(reading: Reading, cases: Sequence[Case], *, refuse: bool = True) -> None:
    """Raises E414 for all that does not go with a streamed data set, at its place; none of it is read.

    Algorithms and metrics that need rows in memory are warnings unless `refuse`: to explain the others.
    """
    entries = reading.experiment.datasets
    faults: dict[Fault, None] = {}
    spared: dict[Fault, None] = {}
    for case in cases:
        streamed = [name for name in case.datasets if entries[name].stream]
        if streamed:
            faults |= dict.fromkeys(_other_rows(reading, case, streamed[0]))
            spared |= dict.fromkeys(_all_rows(reading, case, streamed[0]))
    if faults or (spared and refuse):
        raise FaultError(faults | spared)
    reading.warnings |= spared


def _all_rows(reading: Reading, case: Case, name: str) -> Iterator[Fault]:
    """What looks at all rows at once."""
    document = reading.document
    if not case.solver.takes_streams:
        message = f"algorithm '{case.label}' needs its rows in memory, and '{name}' is streamed"
        hint = f"algorithms that can: {', '.join(_able())}; or {IN_MEMORY}"
        yield Fault("E414", message, hint, place=reading.option(case.label, ""))
    if case.guard.margin is not None or case.guard.aim is not None:
        message = f"the room that '{case.label}' is to keep is told from single rows, and '{name}' is streamed"
        yield Fault("E414", message, IN_MEMORY, place=reading.option(case.label, "margin"))
    for loc, tree in case.texts():
        for part in _rankings(tree):
            message = f"'{ex.text(part)}' sorts all rows, and '{name}' is streamed"
            hint = f"leave it out, or {IN_MEMORY}"
            yield Fault("E414", message, hint, place=document.place(loc, part.span))


def _other_rows(reading: Reading, case: Case, name: str) -> Iterator[Fault]:
    """What makes other rows of those that there are, or tells more of them."""
    document, experiment = reading.document, reading.experiment
    if len(case.datasets) > 1:
        message = f"'{name}' is streamed, and rows of other data sets are put together with it"
        hint = f"take them one by one: sweep: {{dataset: [{', '.join(case.datasets)}]}}"
        yield Fault("E414", message, hint, place=document.place(("datasets", name), key=True))
    others: list[tuple[Loc, bool, str]] = [
        (("resample",), case.share is not None, "rows are drawn anew"),
        (("safety",), case.holdout is not None, "rows are put aside for a safety test"),
        (("filter",), case.filtering is not None, "rows go through a filter"),
        (("deployed",), _deployed(experiment), "an algorithm or a stored model is deployed"),
    ]
    for loc, asked, what in others:
        if asked:
            message = f"{what}, which needs them in memory, and '{name}' is streamed"
            yield Fault("E414", message, IN_MEMORY, place=document.place(loc, key=True))


def _deployed(experiment: Experiment) -> bool:
    deployed = experiment.deployed
    return deployed is not None and deployed.column is None


def _rankings(tree: Expression) -> Iterator[Ranking]:
    for part in ex.walk(tree):
        if isinstance(part, Ranking):
            yield part
        elif isinstance(part, ex.Of):
            yield from _rankings(part.metric)


def _able() -> Iterator[str]:
    """The algorithms that learn from streamed rows, as a file writes them."""
    for name in algorithms():
        if algorithms()[name].missing() is None:
            options = solver_class(name).streams
            if options is not None and not options.keys() & algorithms()[name].preset.keys():
                shown = ", ".join(f"{key}: {_written(value)}" for key, value in options.items())
                yield f"{name}: {{{shown}}}" if shown else name


def _written(value: object) -> str:
    return "null" if value is None else str(value)
