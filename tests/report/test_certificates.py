"""Certificates in the report: the table, the trees, and why nothing was found."""

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from synthetic_ledger import (
    HOSTILE,
    SAFE,
    certificate,
    certified,
    leaf,
    ledger_of,
    node,
    nothing,
    number_of,
    planned,
    returned,
    store,
    texts,
    tutorial,
)

from ratecli.ledger.records import TrialResult
from ratecli.report.answer_text import answer_sentences
from ratecli.report.certificates import certificate_sheet, collect_certificates
from ratecli.report.html import render_report
from ratecli.report.plots.tree import (
    MAX_LEAVES,
    SIGNS,
    build_box_tree,
    certificates_to_draw,
    draw_tree,
    draw_trees,
)
from ratecli.report.sheets import unsolved_sheet
from ratecli.report.write import write_report


def ending_at(uppers, **more):
    """A ledger of seeds at two amounts, each with a test that ends there."""
    pairs = []
    for amount in (100, 200):
        for seed, upper in enumerate(uppers):
            trial = planned(SAFE, seed, amount=amount)
            record = certificate(tutorial(), upper, passed=upper <= 0, **more)
            make = returned if upper <= 0 else nothing
            args = (trial, -0.1) if upper <= 0 else (trial,)
            pairs.append((trial, make(*args, info={"certificates": [record]})))
    return ledger_of(pairs)


def test_a_row_is_a_constraint_at_a_point():
    sheet = certificate_sheet(ending_at([-0.2, -0.1, 0.3], exact=True, bound="hoeffding"))
    row = ["parity", "0.05", "hoeffding", "exact", "deterministic", "2 of 3", "-0.1000"]
    assert texts(sheet) == [[SAFE, "main", amount, *row] for amount in ("100", "200")]
    assert [cell.tone for cell in sheet.rows[0]][-2] == "part"


@pytest.mark.parametrize(
    ("records", "at", "cells"),
    [
        # NaN counts as an infinite upper end
        ([{"upper": "nan"}, {"upper": "-inf", "passed": True}], slice(-2, None), ["1 of 2", "nan"]),
        ([{"upper": "nan"}], slice(-1, None), ["inf"]),
        # all bounds are named
        ([{"bound": "a", "exact": True}, {"bound": "b"}], slice(5, 6), ["a, b"]),
    ],
)
def test_cells_of_several_tests(records, at, cells):
    ledger = certified(*(certificate(tutorial(), **record) for record in records))
    (row,) = texts(certificate_sheet(ledger))
    assert row[at] == cells


def test_the_first_seed_at_the_last_point_is_drawn():
    ledger = ending_at([0.2, 0.1])
    ((name, found),) = certificates_to_draw(ledger)
    assert name == "certificate-seldonian-main-parity"
    assert (found.trial.point, found.trial.seed) == ({"amount": 200}, 0)


def test_at_most_12_trees_are_drawn():
    records = [certificate(tutorial(), variant=f"v{k}") for k in range(20)]
    ledger = certified(*records)
    assert [each.about[1] for _, each in certificates_to_draw(ledger)] == [
        f"v{k}" for k in range(12)
    ]


def test_a_tree_does_not_take_the_file_name_of_a_plot():
    name = "certificate-seldonian-main-parity"
    plot = {"kind": "tradeoff", "x": "error", "y": "error", "file": name}
    ledger = certified(certificate(tutorial()), report={"plots": [plot]})
    assert [each for each, _ in certificates_to_draw(ledger)] == [f"{name}-2"]


def broad(count, text="tpr[{}]"):
    return node("max", -1, 1, *(leaf(text.format(k), 0, k / count) for k in range(count)))


def balanced(depth):
    if not depth:
        return leaf("tpr[women]", 0.1, 0.2)
    return node("-", -0.1, 0.1, balanced(depth - 1), balanced(depth - 1))


WIDE = node("a name much wider than its children", 0, 1, number_of(0.5))
NAMES = "a_rate_with_a_long_name[group {} of many]"
TREES = tutorial(), node("+", 0, 2, number_of(1), WIDE), broad(12, NAMES), balanced(6)


@pytest.mark.parametrize("tree", TREES)
def test_boxes_do_not_overlap_and_parents_are_above_their_children(tree):
    figure = draw_tree(collect_certificates(certified(certificate(tree)))[0]).figure
    figure.draw_without_rendering()
    boxes = [text.get_bbox_patch().get_window_extent() for text in figure.axes[0].texts]
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    below = [line.get_transform().transform(line.get_xydata()) for line in figure.axes[0].lines]
    assert len(below) == len(boxes) - 1
    assert all(parent[1] > child[1] + 20 for parent, child in below)


def test_a_node_shows_what_was_recorded():
    root = build_box_tree(tutorial())
    assert (root.kind, root.text) == ("operator", (SIGNS["-"], "[-0.0500, 1.9500]"))
    absolute, constant = root.children
    assert (constant.kind, constant.text) == ("constant", ("0.05",))
    quantity = absolute.children[0].children[0]
    assert quantity.kind == "quantity"
    assert quantity.text == (
        "mean_error[men]", "[3.0000, 4.0000]", "estimate 3.5000", "rows 312",
        "delta 0.0125 lower", "delta 0.0125 upper", "student_t",
    )  # fmt: skip


def test_infinite_ends_and_one_sided_bounds():
    more = {"interval": ["-inf", "inf"], "estimate": "nan", "rows": [1200, 7]}
    found = build_box_tree(leaf("fpr", 0, 1, (None, 0.05), **more))
    assert found.text[1:5] == ("[-∞, ∞]", "estimate nan", "rows 1,200 + 7", "delta 0.05 upper")


def test_large_trees_are_truncated():
    root = build_box_tree(broad(40))
    assert (root.kind, root.text[-1]) == ("cut", "40 below not drawn")
    root = build_box_tree(balanced(6))
    assert root.leaves == MAX_LEAVES
    cut = root.children[0].children[0].children[0].children[0]
    assert cut.kind == "cut"
    assert cut.text == (SIGNS["-"], "[-0.1000, 0.1000]", "6 below not drawn")


def test_texts_of_a_tree():
    more = {"constraint": "odds", "exact": True, "explanation": ""}
    passed = certificate(tutorial(), -0.1, passed=True, **more)
    (first, why), (second, nothing_more) = draw_trees(certified(certificate(tutorial()), passed))
    assert (first.caption, why) == (
        "parity: seldonian (main), amount = 100, seed 0",
        "'parity': the upper bound is 1.95",
    )
    assert nothing_more == ""
    svg = first.svg.decode()
    ET.fromstring(svg)
    for text in ("parity not passed", "abs", "[-0.0500, 1.9500]", "mean_error[women]", "rows 312"):
        assert text in svg
    assert "upper end 1.9500 not ≤ 0" in svg
    assert "odds passed" in second.svg.decode()
    assert "exact; classifier: deterministic" in second.svg.decode()


def test_page_and_files(tmp_path):
    ledger = certified(certificate(tutorial(), explanation=HOSTILE), report={"plots": []})
    text = render_report(ledger, [], draw_trees(ledger))
    assert "<h3>Certificates</h3>" in text
    assert '<figure class="tree"' in text
    assert HOSTILE not in text
    folder = store(tmp_path, ledger, ledger.plan)
    written = [path.relative_to(folder).as_posix() for path in write_report(folder)[1]]
    assert "figures/certificate-seldonian-main-parity.svg" in written
    assert "Certificates" not in render_report(ledger_of([(planned("a", 0), None)]), [])


def test_unsolved_trials_are_counted_by_reason_frequent_ones_first():
    trials = [planned(SAFE, seed, amount=100) for seed in range(7)]
    pairs = [(trial, nothing(trial)) for trial in trials[1:4]]
    pairs += [(trials[0], replace(nothing(trials[0]), reason="no rows"))]
    pairs += [(trials[4], returned(trials[4], math.nan))]
    pairs += [(trial, TrialResult(trial.key, "error", "E501: 7")) for trial in trials[5:]]
    sheet = unsolved_sheet(ledger_of(pairs))
    reason = "parity: the upper end 0.02 on 40 rows is above 0"
    assert texts(sheet) == [
        [SAFE, "no_solution_found", "3 of 7", "amount = 100, seed 1", reason],
        [SAFE, "error", "2 of 7", "amount = 100, seed 5", "E501: 7"],
        [SAFE, "no_solution_found", "1 of 7", "amount = 100, seed 0", "no rows"],
    ]


def test_a_seed_whose_model_was_not_returned_did_not_pass():
    """The test of this variant was passed, and that of another may have failed."""
    pairs = []
    for seed in range(4):
        trial = planned(SAFE, seed)
        found = returned(trial, -0.2, error=0.3) if seed else nothing(trial)
        record = certificate(tutorial(), -0.1, passed=True)
        pairs.append((trial, replace(found, info={**found.info, "certificates": [record]})))
    (answer,) = answer_sentences(ledger_of(pairs))
    assert "; satisfied in 3 of 3 seeds (no model in 1 more)" in answer
    assert answer.endswith("; a safety test passed in 3 of 4.")


@pytest.mark.parametrize("passes", [True, False])
def test_a_tested_setting_is_the_answer_before_a_cheaper_one_without_a_test(passes):
    pairs = []
    for seed in range(4):
        free, safe = planned("free", seed), planned(SAFE, seed)
        pairs.append((free, returned(free, -0.2, error=0.1)))
        record = certificate(tutorial(), -0.1 if passes else 0.1, passed=passes)
        found = returned(safe, -0.2, error=0.3) if passes else nothing(safe)
        pairs.append((safe, replace(found, info={**found.info, "certificates": [record]})))
    (answer,) = answer_sentences(ledger_of(pairs))
    if passes:
        assert answer.startswith(
            f"{SAFE} is the best setting that passed a safety test of parity with conf"
        )
        assert answer.endswith(
            "; a safety test passed in 4 of 4. Lower objective, but not chosen: free 0.1000 (not put "
            "to a safety test)."
        )
    else:
        assert answer.startswith("free has the lowest")
        assert answer.endswith("; it was not put to a safety test.")
