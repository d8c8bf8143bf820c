"""Plots without their bitmaps, which take as long to draw as the vector graphics."""

import pytest
from matplotlib.figure import Figure


def leave_out_bitmaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write nothing to the PNG file of each plot; it is drawn for the SVG file only."""
    save = Figure.savefig

    def save_vectors(figure, file, *, format, **options):  # noqa: A002
        if format == "svg":
            save(figure, file, format=format, **options)

    monkeypatch.setattr(Figure, "savefig", save_vectors)
