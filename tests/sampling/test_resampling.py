"""Rows that are put aside for a safety test, and rows that are drawn anew."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from experiments import people, run_file, write
from ratecli.datasets.split import Holdout
from ratecli.experiment.prepare import prepare
from ratecli.models.output_cache import take_rows
from ratecli.sampling.resampling import SamplingSpec
from ratecli.sampling.rows import load_trial_data, split_dataset

FILE = """
name: drawn
datasets:
  people: {path: people.csv, label: y, drop: [old, id]}
constraints: {right: error <= 0.9}
algorithms: [unconstrained]
metrics: {error: error}
"""
ROWS = 400


@pytest.fixture
def folder(tmp_path):
    frame = people(ROWS, 3)
    frame["id"] = np.arange(ROWS)
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


@pytest.fixture
def data(folder):
    return prepare(write(folder, FILE)).data


def holdout(fraction, **how):
    return SamplingSpec(None, Holdout(Fraction(fraction), **how))


def ids(rows, split):
    return rows.sample.columns["id"][rows.sample.part == split]


@pytest.mark.parametrize("fraction", ["1/2", "0.4", "0.9"])
@pytest.mark.parametrize("positional", [True, False])
def test_only_training_rows_are_held_out(data, fraction, positional):
    plain = load_trial_data(data, 5)
    tested = load_trial_data(data, 5, None, holdout(fraction, positional=positional))
    train, safety = set(ids(tested, "train")), set(ids(tested, "safety"))
    assert not train & safety
    assert train | safety == set(ids(plain, "train"))
    assert ids(tested, "test").tolist() == ids(plain, "test").tolist()
    count = len(ids(plain, "train"))
    assert abs(len(safety) - count * float(Fraction(fraction))) <= 1
    counts = {"train": len(train), "test": len(ids(plain, "test")), "safety": len(safety)}
    assert tested.splits() == counts
    last = ids(plain, "train")[len(train) :].tolist()
    assert (ids(tested, "safety").tolist() == last) == positional
    other = ids(load_trial_data(data, 6, None, holdout(fraction, positional=positional)), "safety")
    assert set(other) != safety


def test_training_rows_come_first_so_that_their_features_are_a_view(data):
    plain = load_trial_data(data, 5)
    known, train = plain.sample.part.tolist(), np.flatnonzero(plain.sample.part == "train")
    assert known == sorted(known, key=["train", "validation", "test"].index)
    assert np.shares_memory(take_rows(plain.X, train), plain.X)
    order = plain.sample.columns["id"]
    assert order.tolist() == plain.positions.tolist()
    assert (np.diff(order[train]) > 0).all()


def test_holdout_is_random_by_default(folder):
    """Defect 5 of the toolkit: it takes the last rows of any file, even one sorted by label."""
    frame = people(ROWS, 3).sort_values("y")
    frame["id"] = "train"
    frame.loc[frame.index[::4], "id"] = "test"
    frame.to_csv(folder / "people.csv", index=False)
    text = FILE.replace("drop: [old, id]", "drop: [old, id], split: {by: id}")
    sorted_data = prepare(write(folder, text)).data
    means = {}
    for positional in (True, False):
        sample = load_trial_data(sorted_data, 0, None, holdout("0.6", positional=positional)).sample
        parts = (sample.label[sample.part == name] for name in ("train", "safety"))
        means[positional] = [float(part.mean()) for part in parts]
    assert means[True][0] == 0 < means[True][1]
    assert means[False] == pytest.approx([0.6 * means[True][1]] * 2, abs=0.1)


def test_stratified_holdout_has_its_share_of_each_stratum(data):
    columns = ("sex", "label")
    parts = split_dataset(data, "people", 4, holdout("0.3", stratify=columns)).part
    rows = load_trial_data(data, 4, None, holdout("0.3", stratify=columns)).sample
    for sex in ("F", "M"):
        for label in (0, 1):
            stratum = (rows.columns["sex"] == sex) & (rows.label == label)
            aside = int((stratum & (parts == "safety")).sum())
            whole = aside + int((stratum & (parts == "train")).sum())
            assert abs(aside - 0.3 * whole) < 1


@pytest.mark.parametrize("share", ["1/10", "1", "2.5"])
def test_resampled_rows_and_all_rows_as_test_rows(data, share):
    rows = load_trial_data(data, 7, None, SamplingSpec(Fraction(share)))
    everything = ids(rows, "test")
    assert everything.tolist() == list(range(ROWS))
    drawn = ids(rows, "train").astype(int)
    assert len(drawn) == round(float(Fraction(share)) * ROWS)
    plain = load_trial_data(data, 7)
    label = plain.sample.label[np.argsort(plain.positions)]
    assert rows.sample.label.tolist() == [*label[drawn], *label]
    # the same row has the same features, whichever part it is in
    X = np.asarray(rows.X)
    assert np.array_equal(X[: len(drawn)], X[len(drawn) :][drawn])
    numbers = X[: len(drawn), -2:]
    assert numbers.mean(axis=0) == pytest.approx(np.zeros(2), abs=1e-9)
    assert numbers.std(axis=0) == pytest.approx(np.ones(2), abs=1e-9)


def test_rows_are_resampled_with_equal_probability(data):
    """200 of 80,000 draws are expected of each row, with a deviation of 14."""
    counts = np.zeros(ROWS)
    for seed in range(200):
        part = split_dataset(data, "people", seed, SamplingSpec(Fraction(1)))
        counts += np.bincount(part.rows[part.part == "train"], minlength=ROWS)
    assert counts.sum() == 200 * ROWS
    assert abs(counts - 200).max() < 5 * 14.2
    assert 12 < counts.std() < 17


def test_holdout_of_resampled_rows(data):
    both = SamplingSpec(Fraction(1), Holdout(Fraction("0.6")))
    rows = load_trial_data(data, 7, None, both)
    assert rows.splits() == {"train": 160, "test": ROWS, "safety": 240}
    whole = sorted(ids(load_trial_data(data, 7, None, SamplingSpec(Fraction(1))), "train"))
    assert sorted([*ids(rows, "train"), *ids(rows, "safety")]) == whole


def test_data_sets_are_resampled_separately(folder):
    people(100, 9).assign(id=-1).to_csv(folder / "others.csv", index=False)
    more = "  a_few: {path: others.csv, label: y, drop: [old, id]}"
    text = FILE.replace("}\nconst", f"}}\n{more}\nconst")
    data = prepare(write(folder, text)).data
    rows = load_trial_data(data, 0, None, SamplingSpec(Fraction(1, 2))).sample
    for name, count in (("people", ROWS), ("a_few", 100)):
        own = rows.dataset == name
        assert int((own & (rows.part == "train")).sum()) == count / 2
        assert int((own & (rows.part == "test")).sum()) == count
    assert (rows.columns["id"][rows.dataset == "a_few"] == -1).all()
    assert (rows.columns["id"][rows.dataset == "people"] >= 0).all()


def test_held_out_rows_do_not_affect_the_model(tmp_path):
    """Neither its features nor its label: the model is the same to the byte."""
    text = FILE + "safety: {fraction: 0.5, order: positional}\n"
    frame = people(ROWS, 3)
    frame["id"] = np.where(np.arange(ROWS) < 300, "train", "test")
    models, estimates = [], []
    for strange in (False, True):
        folder = tmp_path / str(strange)  # tables are kept by their path
        folder.mkdir()
        if strange:
            frame.loc[150:299, ["sex", "x", "y"]] = "X", 1000.0, 1
        frame.to_csv(folder / "people.csv", index=False)
        tested = text.replace("drop: [old, id]", "drop: [old, id], split: {by: id}")
        _, store = run_file(write(folder, tested))
        (planned,) = store.plan()
        result = store.result(planned.key)
        assert result.info["rows"] == {"train": 150, "test": 100, "safety": 150}
        estimates.append(result.info["certificates"][0]["estimate"])
        models.append(result.models["deterministic"])
    assert models[0] == models[1]
    assert estimates[1] == pytest.approx(-0.9) != estimates[0]
