"""Curves by group: their means and intervals, and the figure."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from synthetic_ledger import measured, planned

from ratecli.ledger.records import CURVES_KEY
from ratecli.ledger.view import Ledger
from ratecli.report.html import render_report
from ratecli.report.plots import draw_answer_curves
from ratecli.report.plots.curves import curves_by_group

ROC = np.linspace(0, 1, 21) ** 0.5


def ledger_of(*shifts, bins=2, calibrated=True, names=None, variant="main", split="test") -> Ledger:
    """Return a seed for each shift, which moves all numbers of the first group."""
    plan = [planned("fit", seed) for seed in range(len(shifts))]
    results = {}
    for trial, shift in zip(plan, shifts, strict=True):
        share = np.linspace(0.2, 0.6, bins)
        groups = {
            f"sex = {name}": {
                "roc": (ROC * (1 - move)).tolist(),
                "area": 0.7 - move,
                "positives": 40.0,
                "calibration": [share.tolist(), (share + move).tolist(), [50.0] * bins]
                if calibrated
                else [[], [], []],
            }
            for name, move in (("F", shift), ("M", 0.0))
        }
        info = {CURVES_KEY: {"variant": variant, "split": split, "groups": groups}}
        numbers = {("main", "test"): {"objective": 0.1}}
        results[trial.key] = measured(trial, numbers, info=info)
    return Ledger(plan, results, {"experiment": {"name": "x", "groups": names or {}}})


def curves(ledger, variant="main"):
    return curves_by_group(ledger, ledger.plan, variant)


def test_several_seeds_have_means_and_student_intervals():
    shifts = [0.0, 0.1, 0.2]
    first, second = curves(ledger_of(*shifts, names={"women": "sex = F"}))
    assert [first.name, second.name] == ["women", "sex = M"]
    assert first.area.mean == pytest.approx(0.6)
    grid, roc = first.curves["ROC"]
    assert grid == pytest.approx(np.arange(21) / 20)
    assert [each.mean for each in roc] == pytest.approx(ROC * 0.9)
    half = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert roc[-1].half == pytest.approx(half)
    chances, shares = first.curves["calibration"]
    assert chances == pytest.approx([0.2, 0.6])
    assert [(each.mean, each.half) for each in shares] == [
        (pytest.approx(share), pytest.approx(half)) for share in (0.3, 0.7)
    ]


def test_one_seed_has_binomial_intervals():
    first, _ = curves(ledger_of(0.0))
    _, roc = first.curves["ROC"]
    _, (low, _) = first.curves["calibration"]
    for found, count, n in ((roc[5], 20, 40), (low, 10, 50)):
        exact = stats.binomtest(count, n).proportion_ci()
        assert found.interval == pytest.approx((exact.low, exact.high))


def test_seeds_with_fewer_bins_count_for_the_roc_only():
    many, few = ledger_of(0.0), ledger_of(0.2, bins=1)
    plan = [many.plan[0], replace(few.plan[0], key="few", seed=1)]
    results = {**many.results, "few": replace(next(iter(few.results.values())), key="few")}
    first, _ = curves(Ledger(plan, results, many.meta))
    assert first.area.n == 2
    assert first.curves["calibration"][0] == pytest.approx([0.2, 0.6])


def test_other_variants_and_older_results_have_none():
    assert curves(ledger_of(0.0), "other") == []
    known = ledger_of(0.0)
    older = {key: replace(each, info={}) for key, each in known.results.items()}
    assert draw_answer_curves(Ledger(known.plan, older, known.meta), []) == []


@pytest.mark.parametrize(
    ("calibrated", "shifts", "split"), [(True, [0.0, 0.1], "test"), (False, [0.0], "train")]
)
def test_the_page_has_the_curves_of_the_answer(calibrated, shifts, split):
    ledger = ledger_of(*shifts, calibrated=calibrated, split=split)
    (image,) = draw_answer_curves(ledger, [])
    assert image.caption == f"Curves by group: fit ({split})"
    drawn = image.svg.decode()
    one = "one model, binomial 95 % intervals (Clopper-Pearson)"
    several = "mean and 95 % Student-t interval over 2 seeds"
    for text in ("sex = M, area 0.700", several if len(shifts) > 1 else one):
        assert f"<!-- {text} -->" in drawn
    assert ("<!-- share of positives -->" in drawn) == bool(image.narrow) == calibrated
    assert 'href="figures/curves.svg"' in render_report(ledger, [], [image])
    (image,) = draw_answer_curves(ledger, [image])
    assert image.name == "curves-2"
