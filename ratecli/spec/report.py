"""The `report:` part: which tables and plots to make."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ratecli.spec.strict import Column, Flag, Name, Part, Slug, Text

SplitName = Literal["train", "validation", "test"]
Names = Annotated[tuple[Column, ...], Field(min_length=1)]
Labels = Annotated[tuple[Name, ...], Field(min_length=1)]


class Table(Part):
    """A table of means."""

    rows: Names = Field(
        description="What makes a row: algorithm, variant, seed or names of the sweep."
    )
    columns: Names = Field(description="What is shown: metrics, objective, violation.CONSTRAINT.")
    split: SplitName = Field("test", description="The rows that are measured.")
    file: Slug | None = Field(None, description="The file's name, without an ending.")


class Plot(Part):
    """A plot, one series an algorithm and variant."""

    kind: Literal["tradeoff"] = Field(
        description="The kind of plot; `ratecli ls plots` lists them."
    )
    x: Column = Field(
        description="What is along: a metric or else a name of the sweep, if its values are numbers."
    )
    y: Column = Field(description="The metric upwards.")
    split: SplitName = Field("test", description="The rows that are measured.")
    file: Slug | None = Field(None, description="The file's name, without an ending.")
    title: Text | None = Field(None, description="The plot's title.")
    algorithms: Labels | None = Field(
        None, description="The labels of the algorithms to draw; without it all."
    )
    variants: Names | None = Field(
        None,
        description="Which variants to draw of the algorithms that have several; without it all.",
    )
    lines: tuple[Name, ...] = Field(
        (), description="Labels of algorithms to draw as a horizontal line at their y."
    )
    diagonal: Flag = Field(
        default=False, description="Draw the line on which y is x: a target that is met exactly."
    )
    optimum: Flag = Field(
        default=False, description="Draw the best possible trade-off, where the data set knows it."
    )


class Report(Part):
    """Tables and plots; every metric is stored whether it is shown or not."""

    tables: tuple[Table, ...] = Field((), description="Tables of the report, in this order.")
    plots: tuple[Plot, ...] = Field((), description="Plots of the report, in this order.")
