"""The `report:` and `expect:` sections: tables, plots, and numbers to compare results with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, Strict, StringConstraints

from ratecli.config import base
from ratecli.config.sweep import SweepValue
from ratecli.errors import Diagnostic, InvalidValueError
from ratecli.rates.syntax import SplitName


def _validate_splits(value: object) -> object:
    """Return one split or several as a tuple; refuse repeated ones, whose panels would be equal."""
    if isinstance(value, list) and any(value.count(each) > 1 for each in value):
        raise base.value_error("a list of different splits", value)
    return base.as_tuple(value)


_Splits = Annotated[tuple[SplitName, ...], Field(min_length=1)]
SplitNames = Annotated[
    _Splits, BeforeValidator(_validate_splits, json_schema_input_type=SplitName | _Splits)
]
"""One split, or a list of splits that get separate panels."""
VariantNames = Annotated[
    base.ColumnNames | None,
    Field(description="Variants to plot of algorithms that have several; default: all."),
]
LabelNames = Annotated[tuple[base.NameText, ...], Field(min_length=1)]


class TableSpec(base.Spec):
    """A table of means."""

    rows: base.ColumnNames
    """What identifies a row: algorithm, variant, seed, swept names."""
    columns: base.ColumnNames
    """What to show: metrics, objective, violation.CONSTRAINT, solution_rate, failure_rate (of any
    constraint), failure_rate.CONSTRAINT.
    """
    split: SplitName = "test"
    """The rows that are measured."""
    file: base.SlugText | None = None
    """The name of its files in `tables/` without an ending: Markdown and LaTeX."""


KIND: Any = Field(description="The kind of plot; `ratecli ls plots` lists them.")


class BasePlot(base.Spec):
    """Options of all plots."""

    file: base.SlugText | None = None
    """The name of its files in `figures/` without an ending. A plot with a name is also a PDF."""
    title: base.StrictText | None = None
    """The plot's title."""
    algorithms: LabelNames | None = None
    """Labels of the algorithms to plot; default: all."""


class BasePaneledPlot(BasePlot):
    """Options of plots that show the whole sweep."""

    by: base.ColumnName | None = None
    """A name of the sweep; each of its values gets a panel."""


class TradeoffPlot(BasePaneledPlot):
    """One metric against another, with a series for each algorithm and variant."""

    kind: Literal["tradeoff"] = KIND
    x: base.ColumnName
    """Horizontal axis: a metric, or a name of the sweep with numeric values."""
    y: base.ColumnName
    """Vertical axis: a metric."""
    split: SplitNames = ("test",)
    """The rows that are measured; each of several splits gets a panel."""
    variants: VariantNames = None
    lines: tuple[base.NameText, ...] = ()
    """Labels of algorithms to draw as horizontal lines."""
    diagonal: base.StrictFlag = False
    """Draw the line y = x: a target that is met exactly."""
    optimum: base.StrictFlag = False
    """Draw the best possible trade-off, if known for the data set."""


class ConvergencePlot(BasePaneledPlot):
    """Objective and largest violation on training rows, as tracked by each algorithm over time."""

    kind: Literal["convergence"] = KIND
    x: Literal["iteration", "seconds"] = "iteration"
    """Horizontal axis: the algorithm's iterations or seconds."""


class GuaranteePlot(BasePaneledPlot):
    """The cost of a safety test: performance, solution rate and failure rate."""

    kind: Literal["guarantee"] = KIND
    x: base.ColumnName
    """Horizontal axis: a name of the sweep with numeric values."""
    y: base.ColumnName
    """Metric of the first panel, over the trials that returned a classifier."""
    truth: SplitName = "test"
    """The rows on which a classifier satisfies or violates constraints."""
    constraint: base.NameText | None = None
    """The constraint whose failures are counted; default: any."""
    variants: VariantNames = None


class BaseFilterPlot(BasePlot):
    """Options of plots of filters, which have a panel for each sweep point of each algorithm."""

    variant: base.ColumnName | None = None
    """The variant of an algorithm to show; default: the main one."""
    column: base.ColumnName | None = None
    """The column whose groups are shown; required if goals use several columns."""
    at: dict[base.ColumnName, Annotated[tuple[base.ScalarValue, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """Sweep points: names of the sweep with lists of values; default: all."""


class PosteriorsPlot(BaseFilterPlot):
    """A heat map of the shares of groups at each value of a filter's proxy."""

    kind: Literal["posteriors"] = KIND
    split: SplitName = "train"
    """The rows that are counted."""
    seed: base.SeedNumber | None = None
    """The seed whose filter is shown; default: the first."""


class GroupSharesPlot(BaseFilterPlot):
    """The effect of a filter: shares of groups among all rows and among those it keeps."""

    kind: Literal["group_shares"] = KIND
    split: SplitNames = ("train", "test")
    """The rows that are counted; each of several splits gets panels."""


AnyFilterPlot = PosteriorsPlot | GroupSharesPlot
AnyPlot = TradeoffPlot | ConvergencePlot | GuaranteePlot | AnyFilterPlot
PLOT_TYPES: dict[str, type[AnyPlot]] = {
    "tradeoff": TradeoffPlot,
    "convergence": ConvergencePlot,
    "guarantee": GuaranteePlot,
    "posteriors": PosteriorsPlot,
    "group_shares": GroupSharesPlot,
}


def _validate_plot(raw: object) -> object:
    if isinstance(raw, base.Spec):
        return raw
    if not isinstance(raw, dict):
        raise base.type_error("a mapping of keys to values", raw)
    kind = raw.get("kind")
    if "kind" in raw and str(kind) not in PLOT_TYPES:
        faults = base.invalid_choice(kind, PLOT_TYPES).faults
        raise InvalidValueError(fault.under("kind") for fault in faults)
    return PLOT_TYPES.get(str(kind), TradeoffPlot).model_validate(raw)


Plot = Annotated[AnyPlot, BeforeValidator(_validate_plot)]


class ReportSpec(base.Spec):
    """Tables and plots of the report; all metrics are always stored."""

    tables: tuple[TableSpec, ...] = ()
    """Tables of the report, in this order."""
    plots: tuple[Plot, ...] | None = None
    """Plots of the report, in this order; `[]` for a report without plots."""


EXPECTATION_KINDS = ("paper", "value", "at_most", "at_least")
"""Keys of which every entry has exactly one."""
CONFIDENCE_INTERVAL = "ci"
PERCENT_PATTERN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")
WITHIN_HELP = "write a number (0.01), a percentage (2%), or ci for ratecli's 95 % interval"


StrictNumber = Annotated[float, Strict()]
Tolerance = Annotated[
    Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
    | Annotated[
        str, StringConstraints(pattern=rf"^({CONFIDENCE_INTERVAL}|{PERCENT_PATTERN.pattern})$")
    ],
    base.OneOf("a number from 0, a percentage or ci", WITHIN_HELP),
]


class Expectation(base.Spec):
    """A number to compare results with; additional keys are swept names."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, base.ScalarValue] = Field(init=False)

    algorithm: base.NameText
    """The label of the algorithm."""
    variant: base.ColumnName | None = None
    """One of its variants; default: all."""
    split: SplitName = "test"
    """The rows that are measured."""
    metric: base.ColumnName
    """What to compare: a metric, objective, violation.CONSTRAINT, solution_rate, failure_rate (of
    any constraint), failure_rate.CONSTRAINT.
    """
    paper: StrictNumber | None = None
    """The paper's figure, for comparison; checked only if `within` is given."""
    value: StrictNumber | None = None
    """What the mean must be, within the tolerance `within`."""
    at_most: StrictNumber | None = None
    """What the mean must not exceed."""
    at_least: StrictNumber | None = None
    """What the mean must reach."""
    within: Tolerance | None = None
    """How far the mean may be from the figure or beyond the bound: a number, a percentage (2%), or
    `ci`, ratecli's 95 % interval.
    """
    source: base.StrictText | None = None
    """Source of the figure, such as Table 3."""

    @property
    def point(self) -> dict[str, SweepValue]:
        """The values of swept names that the entry specifies; others may have any value."""
        return dict(self.model_extra or {})

    @property
    def kind(self) -> str:
        return next(name for name in EXPECTATION_KINDS if getattr(self, name) is not None)

    def conflicts(self) -> Iterator[Diagnostic]:
        yield from self.check_one_key(EXPECTATION_KINDS, "write an entry for each number")
        if self.value is not None and self.within is None:
            message = "'value' needs 'within': the tolerance of the comparison"
            yield Diagnostic("E102", message, WITHIN_HELP, loc=("value",), key=True)
