"""`ratecli report` of several experiments writes a joint page."""

from __future__ import annotations

import pytest
from small import PLAIN


@pytest.fixture
def files(folder, cli):
    """Write three experiments and run the first two."""
    made = folder / "exp"
    made.mkdir()
    for name in ("one", "two", "three"):
        (made / f"{name}.yaml").write_text(PLAIN.replace("name: small", f"name: {name}"))
    for name in ("one", "two"):
        assert cli("run", made / f"{name}.yaml", "-q", "--set", "seeds=1", "-j", 1).code == 0
    return made


def test_the_joint_page_names_missing_and_broken_results(cli, folder, files):
    joint = folder / "results" / "report.html"
    answer = cli("report", files)
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "results/report.html"
    assert "results/one/report.html" in answer.out
    said = "not run: nothing is stored in 'results/three' yet: `ratecli run exp/three.yaml` first"
    assert said in answer.err.replace(f"{folder}/", "")
    for part in ('href="one/report.html">one</a>', ">three<"):
        assert part in joint.read_text()

    alone = cli("report", files / "one.yaml")
    assert (alone.code, alone.out.splitlines()[-1]) == (0, "results/one/models")

    (folder / "results" / "one" / "trials.sqlite").write_bytes(b"no ledger" * 1000)
    broken = cli("report", files)
    assert broken.code == 2
    assert broken.err.count("error[") == 1
    assert "'results/one/trials.sqlite' is not a ledger" in broken.err
    assert broken.out.splitlines()[-1] == "results/report.html"
    for part in ("cannot be read: E502: ", 'href="two/report.html">two</a>', ">three<"):
        assert part in joint.read_text()

    other = cli("report", files / "one.yaml", files / "two.yaml", "-o", "elsewhere")
    assert other.code == 2
    assert "nothing is stored in 'elsewhere/one' yet" in other.err
    assert not (folder / "elsewhere").exists()
