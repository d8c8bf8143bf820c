"""`ratecli report` of several experiments writes a joint page."""

from __future__ import annotations

import pytest
from small import PLAIN

EXPECT = """\
expect:
  - {algorithm: majorize, kappa: 0.6, variant: stochastic, metric: error, paper: 9, within: 1%, source: Table 7}
  - {algorithm: unconstrained, kappa: 0.6, metric: error, at_most: 1}
"""


@pytest.fixture
def files(folder, cli):
    """Write three experiments and run the first two."""
    made = folder / "exp"
    made.mkdir()
    for name, more in (("one", EXPECT), ("two", ""), ("three", "")):
        (made / f"{name}.yaml").write_text(PLAIN.replace("name: small", f"name: {name}") + more)
    for name in ("one", "two"):
        assert cli("run", made / f"{name}.yaml", "-q", "--set", "seeds=1", "-j", 1).code == 0
    return made


def test_the_joint_page_names_missing_and_broken_results(cli, folder, files):
    answer = cli("report", files)
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "results/report.html"
    assert "results/one/report.html" in answer.out
    said = "not run: nothing is stored in 'results/three' yet: `ratecli run exp/three.yaml` first"
    assert said in answer.err.replace(f"{folder}/", "")
    page = (folder / "results" / "report.html").read_text()
    assert 'href="one/report.html">one</a>' in page
    assert 'href="two/report.html">two</a>' in page
    assert "Not run: three." in page
    assert "Table 7" in page
    assert page.index("Paper figures and measured values") < page.index("Other expectations")

    alone = cli("report", files / "one.yaml")
    assert (alone.code, alone.out.splitlines()[-1]) == (0, "results/one/models")

    (folder / "results" / "one" / "trials.sqlite").write_bytes(b"no ledger" * 1000)
    (folder / "results" / "two" / "report.html").unlink()
    broken = cli("report", files)
    assert broken.code == 2
    assert broken.err.count("error[") == 1
    assert "'results/one/trials.sqlite' is not a ledger" in broken.err
    assert "results/two/report.html" in broken.out
    assert broken.out.splitlines()[-1] == "results/report.html"
    page = (folder / "results" / "report.html").read_text()
    assert "one cannot be read: E502: " in page
    assert 'href="two/report.html">two</a>' in page
    assert "Not run: three." in page

    other = cli("report", files / "one.yaml", files / "two.yaml", "-o", "elsewhere")
    assert other.code == 2
    assert "nothing is stored in 'elsewhere/one' yet" in other.err
    assert "ratecli run" in other.err
    assert not (folder / "elsewhere").exists()
