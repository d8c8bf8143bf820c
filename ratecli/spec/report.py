"""The `report:` part: which tables and plots to make."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ratecli.spec.strict import Column, Flag, Part, Slug, Text

SplitName = Literal["train", "validation", "test"]
Names = Annotated[tuple[Column, ...], Field(min_length=1)]


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
    x: Column = Field(description="The metric along.")
    y: Column = Field(description="The metric upwards.")
    split: SplitName = Field("test", description="The rows that are measured.")
    file: Slug | None = Field(None, description="The file's name, without an ending.")
    title: Text | None = Field(None, description="The plot's title.")
    optimum: Flag = Field(
        default=False, description="Draw the best possible trade-off, where the data set knows it."
    )


class Report(Part):
    """Tables and plots; every metric is stored whether it is shown or not."""

    tables: tuple[Table, ...] = Field((), description="Tables of the report, in this order.")
    plots: tuple[Plot, ...] = Field((), description="Plots of the report, in this order.")
