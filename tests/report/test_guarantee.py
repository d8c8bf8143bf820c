"""Plots of guarantees: three panels along a swept number."""

import xml.etree.ElementTree as ET

import pytest
from synthetic_ledger import (
    AMOUNTS,
    PLAIN,
    PLOT,
    SAFE,
    SOLVED,
    TRIALS,
    VIOLATED,
    certificate,
    ledger_of,
    ledger_of_known_rates,
    measured,
    nothing,
    planned,
    returned,
    tutorial,
)

from ratecli.ledger.records import TrialResult
from ratecli.report.plots import draw_plots
from ratecli.report.plots.canvas import NO_NUMBERS, PlotSelection, panel_selections, requested_plots
from ratecli.report.plots.lines import allowed_failure_rates, collect_lines, guarantee_axes


def panel_lines(ledger, position=0):
    """Return, for each panel by title, the lines of the three columns by label."""
    plot = requested_plots(ledger)[position]
    return {
        selection.title: [
            {line.label: line for line in collect_lines(ledger, names, selection, simplify=False)}
            for names in guarantee_axes(plot)
        ]
        for selection in panel_selections(ledger, plot.options)
    }


def drawn(ledger):
    """Return, for each line, its points in the three columns."""
    (columns,) = panel_lines(ledger).values()
    return {label: [lines[label].points for lines in columns] for label in columns[0]}


def rates(line, column):
    return [point.y.mean for point in line[column]]


def amounts(line):
    return [point.x.mean for point in line[0]]


def of(pairs, *plots, **experiment):
    return ledger_of(pairs, report={"plots": list(plots) or [PLOT]}, **experiment)


def answers(*points, label="fit", violation=-0.1):
    return [
        (trial, returned(trial, violation)) for at in points for trial in [planned(label, 0, **at)]
    ]


def test_rates_at_each_amount():
    found = drawn(ledger_of_known_rates())
    for label in (SAFE, PLAIN):
        line = found[label]
        assert amounts(line) == list(AMOUNTS)
        assert rates(line, 1) == [k / TRIALS for k in SOLVED[label]]
        assert rates(line, 2) == [k / TRIALS for k in VIOLATED[label]]
    assert rates(found[SAFE], 0) == [None, *map(pytest.approx, (0.29, 0.2585714, 0.23, 0.2))]
    assert {point.y.n for point in found[PLAIN][0]} == {TRIALS}


def test_crashed_trials_are_not_counted_and_noted():
    ledger = ledger_of_known_rates()
    for trial in [t for t in ledger.plan if t.label == SAFE and t.seed in (18, 19)]:
        ledger.results[trial.key] = TrialResult(trial.key, "error", "E501")
    line = drawn(ledger)[SAFE]
    assert [point.y.n for point in line[1]] == [18] * 5
    assert rates(line, 1) == [0.0, 5 / 18, 14 / 18, 1.0, 1.0]
    (picture,) = draw_plots(ledger)
    assert b"trials that crashed, timed out or diverged are not counted" in picture.svg
    assert b"shares of 18 to 20 trials" in picture.svg


def test_a_missing_variant_has_the_solution_rate_0():
    pairs = []
    for amount, kept in ((10, ("a", "b")), (20, ("a",)), (30, ())):
        trial = planned("fit", 0, amount=amount)
        numbers = {(name, "test"): {"violation.parity": -1.0} for name in kept}
        pairs.append((trial, measured(trial, numbers) if kept else nothing(trial)))
    found = drawn(of(pairs))
    assert rates(found["fit (a)"], 1) == [1, 1, 0]
    assert rates(found["fit (b)"], 1) == [1, 0, 0]
    assert list(drawn(of(pairs, PLOT | {"variants": ["b"]}))) == ["fit (b)"]


def test_an_algorithm_without_solutions_is_drawn():
    pairs = [(t, nothing(t)) for t in (planned("fit", 0, amount=a) for a in (10, 20))]
    line = drawn(of(pairs))["fit"]
    assert [rates(line, column) for column in range(3)] == [[None] * 2, [0.0] * 2, [0.0] * 2]


def test_other_swept_names_make_lines_and_panels():
    points = [{"amount": a, "task": t} for t in ("gpa", "adult") for a in (20, 10)]
    ledger = of(answers(*points), PLOT, PLOT | {"by": "task"})
    assert [amounts(line) for line in drawn(ledger).values()] == [[10, 20]] * 2
    assert [len(lines) for lines, *_ in panel_lines(ledger, 1).values()] == [1, 1]
    first, second = (image.svg.decode() for image in draw_plots(ledger))
    assert all(f"<!-- fit, task = {task} -->" in first for task in ("gpa", "adult"))
    assert all(f"<!-- {text} -->" in second for text in ("fit", "task = gpa", "task = adult"))


def test_an_algorithm_without_the_swept_name_is_a_horizontal_line():
    ledger = of([*answers({}), *answers({"amount": 10}, {"amount": 20}, label="other")])
    assert amounts(drawn(ledger)["fit"]) == [None]
    assert b"<!-- fit -->" in draw_plots(ledger)[0].svg


@pytest.mark.parametrize(
    ("asked", "expected"),
    [({}, [0.05, 0.1]), ({"constraint": "odds"}, [0.05]), ({"algorithms": ["other"]}, [])],
)
def test_allowed_failure_rates(asked, expected):
    """Of two trials, of which the first has no constraint tested."""
    untested, trial = (planned(SAFE, 0, amount=amount) for amount in (0, 1))
    records = [
        certificate(tutorial(), constraint=name, delta=delta)
        for name, delta in (("parity", 0.1), ("odds", 0.05))
    ]
    pairs = [(trial, nothing(trial, info={"certificates": records})), (untested, nothing(untested))]
    pairs += answers({"amount": 0}, label="other")
    ledger = of(pairs, PLOT | asked, constraints={"parity": "gap <= 0", "odds": "gap <= 0"})
    (plot,) = requested_plots(ledger)
    assert allowed_failure_rates(ledger, plot, PlotSelection.of(plot.options)) == expected


def test_long_sweeps_have_a_logarithmic_axis_in_plain_notation():
    ledger = of(answers({"amount": 10}, {"amount": 1000}))
    assert b"<!-- 100 -->" in draw_plots(ledger)[0].svg
    assert b"<!-- 20 -->" in draw_plots(of(answers({"amount": 10}, {"amount": 20})))[0].svg


def test_texts_of_a_plot():
    ledger = ledger_of_known_rates()
    ledger.results[ledger.plan[0].key] = nothing(
        ledger.plan[0], info={"certificates": [certificate(tutorial())]}
    )
    (picture,) = draw_plots(ledger)
    svg = picture.svg.decode()
    ET.fromstring(svg)
    titles = ("error (test)", "solution rate", "failure rate (any constraint, test)")
    for text in (*titles, "amount", "10000", "delta 0.05", SAFE, PLAIN):
        assert f"<!-- {text} -->" in svg
    assert "violates a constraint on test rows; a trial without a solution" in svg
    rates = "error, solution rate and failure rate"
    assert picture.caption == f"{rates} by amount (measured on test rows)"
    assert picture.name == "guarantee-amount-error"


def test_nothing_to_draw_is_noted():
    pairs = [(t, nothing(t, "error")) for t in [planned("fit", 0, amount=10)]]
    (picture,) = draw_plots(of(pairs))
    assert picture.svg.count(NO_NUMBERS.encode()) == 3
