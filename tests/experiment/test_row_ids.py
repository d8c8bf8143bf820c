"""Warnings about text features that do not generalize to new rows."""

import pytest

from experiments import people, write
from ratecli.experiment.prepare import prepare

FILE = """
name: ids
datasets: {{t: {{path: t.csv, label: y, {more}}}}}
objective: error
constraints: {{c: positive_rate <= 0.9}}
algorithms: [{algorithm}]
"""
NEW = {
    "who": [f"p{k}" for k in range(200)],
    "day": [f"2024-{k % 8 + 1:02}-{k % 5 + 1:02}" for k in range(200)],
    "town": [f"t{k % 100}" for k in range(200)],
}


@pytest.mark.parametrize(
    ("names", "more", "algorithm", "said"),
    [
        (("who",), "", "unconstrained", ["'who' has 200 different texts in 200 rows"]),
        (("day",), "", "unconstrained", ["'day' has 40 different dates in 200 rows"]),
        (
            ("who",),
            "features: [x, who]",
            "unconstrained",
            ["'who' has 200 different texts in 200 rows"],
        ),
        (("town",), "", "unconstrained", []),
        (("who", "day"), "drop: [who, day]", "unconstrained", []),
        (("who",), "scores: [x]", "post_shift: {model: {score: x}}", []),
    ],
)
def test_texts_that_hardly_occur_again_are_a_warning(tmp_path, names, more, algorithm, said):
    table = people(200, 1).assign(**{name: NEW[name] for name in names})
    table.to_csv(tmp_path / "t.csv", index=False)
    path = write(tmp_path, FILE.format(more=more, algorithm=algorithm))
    found = prepare(path).warnings
    ids = [each for each in found if each.code == "W406"]
    assert [each.message.removeprefix("the feature ").partition(":")[0] for each in ids] == said
    way = "remove it from 'features'" if "features" in more else "add it to 'drop'"
    assert all(each.help.startswith(way) for each in ids)
    assert all(("such as a year" in each.help) == ("'day'" in each.message) for each in ids)
