# ruff: noqa: ARG001
"""Plugins: listed without being imported, used like built-in names, reported once if broken."""

import hashlib
import importlib
import json
import re
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest
from plugged import EXAMPLE, install
from small import PLAIN, environment, process, read_rows
from thinned import one_in

from ratecli import plugins
from ratecli.config.dataset import DatasetSpec
from ratecli.datasets import registry as sources
from ratecli.datasets.load import load_entry_table
from ratecli.experiment import entries
from ratecli.experiment.prepare import check_available, check_file
from ratecli.experiment.registry import describe
from ratecli.experiment.report_facts import used_plugins
from ratecli.models.storage import loads
from ratecli.rates import metrics
from ratecli.rates.parser import parse_expression
from ratecli.solvers import registry as solvers

CACHES = (
    plugins.installed_plugins,
    solvers.all_algorithms,
    entries.solver_class,
    sources.source_of_plugin,
    metrics.load_plugin_metric,
    plugins.installed_classifiers,
)

GOOD = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from ratecli.models.linear import Threshold
from ratecli.rates.table import Composite, Rate
from ratecli.solvers.base import Solution, Solver

@dataclass(frozen=True)
class Never(Solver):
    \"\"\"Says no to everybody.\"\"\"

    role: ClassVar[str] = "ignores"

    def solve(self, problem, rng, progress):
        return Solution({"no": Threshold(np.zeros(problem.X.shape[1]), -1.0)})

balance = Composite("tpr - fpr", "how far apart the rates of yes are")
refused = Rate("refused", "all", "none", "all", "rows decided no")
"""
ENTRIES = {
    "ratecli.solvers": {"never": "acme_rates:Never"},
    "ratecli.metrics": {"balance": "acme_rates:balance", "refused": "acme_rates:refused"},
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Yield a folder on the path for packages, and forget them at the end."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    known = set(sys.modules)
    _forget()
    yield folder
    for name in set(sys.modules) - known:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    monkeypatch.undo()
    _forget()


def _forget():
    importlib.invalidate_caches()
    for cache in CACHES:
        cache.cache_clear()


@pytest.fixture
def acme(site):
    install(site, "acme-rates", ENTRIES, {"acme_rates": GOOD}, version="2.1")
    return site


USED = PLAIN.replace("  - unconstrained\n", "  - never\n").replace("error: error", "error: balance")


def test_ls_and_show_name_the_package_and_ls_does_not_import_it(acme, cli):
    rows = {kind: json.loads(cli("ls", kind, "--json").out) for kind in ("algorithms", "metrics")}
    found = {row["name"]: row for kind in rows.values() for row in kind}
    assert found["never"]["from"] == found["balance"]["from"] == "acme-rates 2.1"
    assert found["majorize"]["from"] == found["tpr"]["from"] == "ratecli"
    assert "acme_rates" not in sys.modules
    assert "from" not in cli("ls", "datasets").out.splitlines()[0]
    states = {row["name"]: row["state"] for row in json.loads(cli("ls", "plugins", "--json").out)}
    assert set(states.values()) == {"can be used"}
    assert describe("never")["from"] == "acme-rates 2.1"


def test_a_plugin_rate_equals_a_built_in_rate(acme, folder, cli):
    rule = "positive_rate[women] >= kappa * positive_rate[men]"
    (folder / "a.yaml").write_text(PLAIN.replace(rule, "refused[women] <= 0.9"))
    (folder / "b.yaml").write_text(PLAIN.replace(rule, "negative_rate[women] <= 0.9"))
    shown = [cli("explain", name).out for name in ("a.yaml", "b.yaml")]
    assert shown[0].replace("refused", "negative_rate") == shown[1]


def test_whether_high_values_of_a_plugin_metric_are_better_is_unknown(acme):
    for text in ("refused", "error + refused", "accuracy - balance"):
        assert metrics.direction(parse_expression(text)) == "either"


def test_plugin_versions_are_part_of_the_keys_of_trials_that_use_them(acme, folder):
    text = USED.replace("seeds: 2", "seeds: 1").replace("iterations: 2", "iterations: 1")
    text = text.replace("sweep: {kappa: [0.6, 0.9]}", "sweep: {kappa: [0.6]}")
    (folder / "exp.yaml").write_text(text.replace("balance", "refused"))
    (folder / "own.yaml").write_text(PLAIN)

    def planned(name):
        return {each.label: each.key for each in check_available(folder / name).plan.planned}

    before, own = planned("exp.yaml"), planned("own.yaml")
    for info in acme.glob("*.dist-info"):
        info.rename(info.with_name("acme_rates-2.2.dist-info"))
    metadata = acme / "acme_rates-2.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("2.1", "2.2"))
    _forget()
    after = planned("exp.yaml")
    assert set(before) == {"never", "majorize"}
    assert all(before[label] != after[label] for label in before)
    assert planned("own.yaml") == own


PICKY = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from ratecli.models.base import Array, Classifier
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Solution, Solver

@dataclass(frozen=True)
class Half(Classifier):
    chances: Array

    @property
    def width(self):
        return len(self.chances)

    def score(self, X):
        return np.full(X.shape[0], 0.5)

@dataclass(frozen=True)
class Picky(Solver):
    \"\"\"Takes one constraint at a time.\"\"\"

    needs: ClassVar = ("threadpoolctl",)
    objectives: ClassVar = frozenset({Shape.AFFINE})
    constraints: ClassVar = frozenset({Shape.AFFINE})

    @classmethod
    def refusal(cls, objective, constraints):
        if objective is not None:
            return "it minimizes only error" * (objective.text != "error")
        if len(constraints) > 1:
            return "one is enough"
        return "no odds" * ("tpr" in constraints[0].text)

    def solve(self, problem, rng, progress):
        return Solution({"it": Half(np.zeros(problem.X.shape[1]))})
"""
PICKY_ENTRIES = {
    "ratecli.solvers": {"picky": "acme_picky:Picky"},
    "ratecli.classifiers": {"Half": "acme_picky:Half"},
}
PICKY_FILE = """\
name: picky
datasets: {loans: {source: loans, rows: 100}}
constraints: {p: 'positive_rate >= 0.1'}
algorithms: [picky]
report: {plots: []}
"""


@pytest.fixture
def picky(site, folder):
    """Install an algorithm that needs a package and refuses goals; return a path for its file."""
    install(site, "acme-picky", PICKY_ENTRIES, {"acme_picky": PICKY})
    return folder / "picky.yaml"


def test_versions_of_packages_that_a_plugin_needs_are_part_of_the_key(picky, monkeypatch):
    picky.write_text(PICKY_FILE)
    (before,) = check_available(picky).plan.planned
    monkeypatch.setattr("importlib.metadata.version", lambda _: "99")
    assert check_available(picky).plan.planned[0].key != before.key


def test_a_file_is_refused_without_the_packages_that_a_plugin_needs(picky, monkeypatch, cli):
    picky.write_text(PICKY_FILE)
    monkeypatch.setattr(entries, "installed_version", lambda _: None)
    assert cli("show", "picky").code == 0
    answer = cli("validate", picky)
    assert "error[E202]: 'picky' needs threadpoolctl, which is not installed" in answer.err
    assert "pip install threadpoolctl" in answer.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("name:", "objective: fpr\nname:"), "minimize the objective: it minimizes only error"),
        (("positive_rate", "tpr"), "enforce 'p': no odds"),
        (("0.1'}", "0.1', q: 'positive_rate <= 0.9'}"), "these rules together: one is enough"),
    ],
)
def test_a_plugin_refuses_goals_before_the_run(picky, cli, change, said):
    picky.write_text(PICKY_FILE.replace(*change))
    answer = cli("validate", picky)
    assert "error[E308]: algorithm 'picky' cannot" in answer.err
    assert said in answer.err


def test_a_plugins_classifier_is_stored(picky, cli):
    picky.write_text(PICKY_FILE)
    assert cli("run", picky, "-q", "--executor", "serial").code == 0
    (stored,) = picky.parent.glob("results/picky/models/*/it.npz")
    assert type(loads(stored.read_bytes())).__name__ == "Half"


BROKEN = {
    "ratecli.solvers": {
        "absent": "no_such_module:Solver",
        "raising": "acme_raising:Solver",
        "wrong": "acme_wrong:NOT_ONE",
        "loose": "acme_wrong:Loose",
        "bare": "acme_wrong:Bare",
        "majorize": "acme_wrong:Bare",
    },
    "ratecli.datasets": {"people": "acme_wrong:NOT_ONE", "towns": "acme_wrong:TOWNS"},
    "ratecli.metrics": {"shaky": "acme_wrong:NOT_ONE"}
    | dict.fromkeys(("circular", "recall", "two words"), "acme_wrong:CIRCULAR"),
}
WRONG = """
from dataclasses import dataclass
from ratecli.datasets.source import Source
from ratecli.rates.table import Composite
from ratecli.solvers.base import Solver

NOT_ONE = 3
CIRCULAR = Composite("circular / 2", "half of itself")
TOWNS = Source("towns", "s", {"plain": "acme_wrong:prepare"}, 9, "l", (), "l", "n")

def prepare(raw):
    return 1 / 0

@dataclass(frozen=True)
class Loose(Solver):
    "No method."

@dataclass(frozen=True)
class Bare(Solver):
    "No default."
    depth: int

    def solve(self, problem, rng, progress): ...
"""


@pytest.fixture
def broken(site):
    raising = "raise RuntimeError('not today')\n"
    install(site, "acme-broken", BROKEN, {"acme_wrong": WRONG, "acme_raising": raising}, "0.3")
    return site


def test_broken_plugins_do_not_affect_files_that_do_not_use_them(broken, folder, cli):
    text = PLAIN.replace("loans, rows: 200", "loans, rows: 120").replace("seeds: 2", "seeds: 1")
    (folder / "exp.yaml").write_text(text)
    for command in ("validate", "plan", "explain"):
        answer = cli(command, "exp.yaml")
        assert (answer.code, answer.err.count("E210")) == (0, 0), answer.err
    assert "not today" in cli("explain", "exp.yaml").out
    sums = text.replace(
        "parity: positive_rate[women] >=", "parity: f1[women] >= precision[women] *"
    )
    (folder / "bad.yaml").write_text(sums)
    err = cli("validate", "bad.yaml").err
    assert re.search(r"algorithms that can: seldonian \([^)]+\); add safety: {delta: 0.05}\n", err)


UNCONSTRAINED, ERROR = "- unconstrained", "error: error"


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("change", "column", "message"),
    [
        ((UNCONSTRAINED, "- absent"), 5, "ModuleNotFoundError: No module named 'no_such_module'"),
        ((UNCONSTRAINED, "- raising"), 5, "RuntimeError: not today"),
        ((UNCONSTRAINED, "- wrong"), 5, "not a class derived from ratecli.solvers.base.Solver"),
        ((UNCONSTRAINED, "- loose"), 5, "its class has no method 'solve'"),
        ((UNCONSTRAINED, "- bare"), 5, "its option 'depth' has no default"),
        (("source: loans", "source: people"), 19, "it is not a Source of ratecli.datasets.source"),
        ((ERROR, "error: 1 - shaky[men]"), 14, "it is neither a Rate nor a Composite"),
        ((ERROR, "error: circular"), 10, "it is defined by itself"),
        (("name:", "filter: {balance: sex, algorithm: raising}\nname:"), 35, "not today"),
    ],
)
def test_a_broken_plugin_is_one_error_where_it_is_named(folder, cli, change, column, message):
    text = PLAIN.replace(*change, 1)
    (folder / "exp.yaml").write_text(text)
    answer = cli("validate", "exp.yaml")
    line = text[: text.index(change[1])].count("\n") + 1
    assert (answer.code, answer.err.count("E210")) == (2, 1)
    assert f"--> exp.yaml:{line}:{column}" in answer.err
    assert "of the package 'acme-broken 0.3' cannot be used: " in answer.err
    assert message in answer.err
    assert "Traceback" not in answer.err


def test_a_failing_preparation_is_reported_as_an_error_of_its_package(broken, folder, cli):
    (folder / "exp.yaml").write_text(PLAIN.replace("{source: loans, rows: 200}", "{source: towns}"))
    answer = cli("run", "exp.yaml")
    assert answer.code == 2
    assert "of the package 'acme-broken 0.3' cannot be used: its preparation 'plain'" in answer.err
    assert "ZeroDivisionError" in answer.err


VANDAL = r"""
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
import pandas as pd
from ratecli.datasets.source import Source
from ratecli.models.linear import Threshold
from ratecli.solvers.base import Solution, Solver
from ratecli.solvers.baselines.options import Unconstrained

def entries(matrix):
    return matrix if isinstance(matrix, np.ndarray) else matrix.data

def arrays(problem):
    rates = problem.rates
    yield from map(entries, (problem.X, problem.validation.X, rates.sums, rates.members, rates.A))
    yield from (problem.label, problem.layout.levels, rates.c, rates.totals)
    yield from (*problem.slices.values(), *problem.known.values())
    yield Unconstrained().solve(problem, np.random.default_rng(0), print).main.weights

SOLUTIONS = {
    "nothing": lambda model: None,
    "nan": lambda model: Solution({"it": Threshold(model.weights + np.nan)}),
    "empty": lambda model: Solution({}),
    "list": lambda model: Solution([model]),
    "status": lambda model: Solution({"it": model}, "../x"),
    "multiplier": lambda model: Solution({"it": model}, multipliers={"parity": np.nan}),
    "variant": lambda model: Solution({"../it": model}),
    "reason": lambda model: Solution({}, "infeasible", None),
    "raises": lambda model: entries("\udcff"),
}

@dataclass(frozen=True)
class Vandal(Solver):
    "Writes to all arrays that it gets."

    returns: str = ""
    role: ClassVar[str] = "ignores"

    def solve(self, problem, rng, progress):
        model = Threshold(np.zeros(problem.X.shape[1]))
        if self.returns:
            return SOLUTIONS[self.returns](model)
        written = 0
        for array in arrays(problem):
            for unlock in (False, True):
                try:
                    array.flags.writeable |= unlock
                    array[:] = 0
                    written += 1
                except ValueError:
                    pass
        entries(problem.X)[:] = written
        return Solution({"it": model})

FRAME = pd.DataFrame({"age": np.arange(20.0), "sex": ["f", "m"] * 10})
LABEL = np.arange(20) % 2.0

def prepare(raw):
    FRAME["age"] += 1
    LABEL[:] = 1 - LABEL
    return raw.table(FRAME, LABEL, features=("age",))

TOWNS = Source("towns", "s", {"plain": "acme_vandal:prepare"}, 20, "l", ("sex",), "l", "n")
"""
VALIDATED = PLAIN.replace("rows: 200", "rows: 200, split: {test: .3, validation: .2}").replace(
    "seeds: 2", "seeds: 1"
)
VALIDATED = VALIDATED.replace("[0.6, 0.9]", "[0.6]")


@pytest.fixture
def vandal(site):
    entries = {"ratecli.solvers": {"vandal": "acme_vandal:Vandal"}}
    entries["ratecli.datasets"] = {"towns": "acme_vandal:TOWNS"}
    install(site, "acme-vandal", entries, {"acme_vandal": VANDAL})
    _forget()


@pytest.mark.usefixtures("vandal")
@pytest.mark.parametrize("jobs", one_in(2, [1, 2]))
def test_an_algorithm_cannot_change_the_arrays_of_others(folder, cli, jobs):
    (folder / "exp.yaml").write_text(VALIDATED.replace("  - uncon", "  - vandal\n  - uncon"))
    answer = cli("run", "exp.yaml", "-q", "-j", jobs)
    assert answer.code == 1
    assert answer.err.count("the algorithm 'vandal' of the package 'acme-vandal 1.0' failed") == 1
    assert answer.err.count("destination is read-only") == 1
    (folder / "clean.yaml").write_text(VALIDATED)
    assert cli("run", "clean.yaml", "-q", "-j", 1, "--output", "clean").code == 0
    found = [read_rows(folder / place / "small" / "metrics.csv") for place in ("results", "clean")]
    assert found[0] == found[1]


@pytest.mark.usefixtures("vandal")
def test_an_invalid_solution_is_an_error_trial_that_names_the_package(folder, cli):
    what = [
        "nothing",
        "nan",
        "empty",
        "list",
        "status",
        "multiplier",
        "variant",
        "reason",
        "raises",
    ]
    listed = "".join(f"  - vandal: {{as: {each}, returns: {each}}}\n" for each in what)
    text = VALIDATED.replace("  - uncon", f"{listed}  - uncon")
    (folder / "exp.yaml").write_text(text)
    assert cli("run", "exp.yaml", "-q", "-j", 1).code == 1
    assert cli("report", "exp.yaml").code == 0
    rows = {row["algorithm"]: row for row in read_rows(folder / "results/small/trials.csv")}
    assert [rows[each]["status"] for each in what] == ["error"] * len(what)
    assert all("'vandal' of the package 'acme-vandal 1.0'" in rows[e]["reason"] for e in what)
    assert "returned NoneType, not a Solution" in rows["nothing"]["reason"]
    assert (rows["unconstrained"]["status"], rows["majorize"]["status"]) == ("ok", "ok")


@pytest.mark.usefixtures("vandal")
def test_a_plugin_data_set_cannot_change_a_table_that_it_returned(folder):
    entry = DatasetSpec.model_validate({"source": "towns"})
    first = load_entry_table(entry, folder)
    before = first.frame.copy(), first.label.copy()
    load_entry_table(entry, folder)
    assert first.frame.equals(before[0])
    np.testing.assert_array_equal(first.label, before[1])
    assert not first.label.flags.writeable


def test_listings_warn_of_errors_that_show_without_importing(broken, cli):
    said = cli("ls", "algorithms").err
    assert said.count("warning[W210]: ") == 1
    assert "'majorize' of the package 'acme-broken 0.3' is not used" in said
    assert {"acme_wrong", "acme_raising"}.isdisjoint(sys.modules)
    said = cli("ls", "metrics").err
    assert (
        "'recall' of the package 'acme-broken 0.3' is not used: ratecli has a built-in one" in said
    )
    assert "its name has other characters than letters" in said
    states = {row["name"]: row["state"] for row in json.loads(cli("ls", "plugins", "--json").out)}
    assert "RuntimeError: not today" in states["raising"]
    assert "which is used" in states["majorize"]
    assert describe("majorize")["from"] == "ratecli"
    assert describe("recall")["name"] == "tpr"


def test_a_name_of_two_packages_is_refused(acme, folder, cli):
    install(acme, "other-rates", {"ratecli.solvers": {"never": "acme_rates:Never"}}, version="5")
    _forget()
    (folder / "exp.yaml").write_text(USED)
    answer = cli("validate", "exp.yaml")
    assert answer.code == 2
    assert answer.err.count("E210") == 1
    assert "'acme-rates 2.1' and 'other-rates 5'" in answer.err
    assert "W210" in cli("ls", "algorithms").err
    (folder / "own.yaml").write_text(PLAIN)
    assert cli("validate", "own.yaml").code == 0


def test_a_sweep_name_hides_a_plugin_metric(site, folder, cli):
    wrong = {"ratecli.metrics": {"kappa": "nowhere:KAPPA"}}
    install(site, "acme-kappa", wrong)
    _forget()
    (folder / "exp.yaml").write_text(PLAIN)
    answer = cli("validate", "exp.yaml")
    assert (answer.code, answer.err.count("E210")) == (0, 0), answer.err
    assert used_plugins(check_file(folder / "exp.yaml")) == []


PEOPLE = """
from ratecli.datasets.source import RemoteFile, Source
PEOPLE = Source("people", "s", {"plain": "acme_people:prepare"}, 9, "l", ("town",), "l", "n",
                files=(RemoteFile("people.csv", "https://example.org/x.csv", "%s", 4),))
"""


def test_files_of_plugin_data_sets_are_fetched_and_verified(site, folder, cli, monkeypatch):
    module = {"acme_people": PEOPLE % hashlib.sha256(b"good").hexdigest()}
    install(site, "acme-people", {"ratecli.datasets": {"people": "acme_people:PEOPLE"}}, module)
    (folder / "people").mkdir()
    monkeypatch.setenv("RATECLI_DATA_MIRROR", str(folder))
    _forget()
    for content, code, word in (("evil", 4, "E403"), ("good", 0, "verified")):
        (folder / "people" / "people.csv").write_text(content)
        answer = cli("fetch", "people", "--offline")
        assert (answer.code, word in answer.out + answer.err) == (code, True)


def test_test_plugin_accepts_paths_and_package_names(acme, cli):
    (report,) = json.loads(cli("test-plugin", "acme_rates:balance", "--json").out)
    assert (report["holds"], report["kind"]) == (True, "metric")
    answer = cli("test-plugin", "Acme.Rates")
    assert answer.code == 0, answer.out
    assert "metric 'refused' (acme-rates 2.1)" in answer.out
    assert answer.out.count("all checks passed") == 3
    assert "best possible" in answer.out


def test_test_plugin_reports_plugins_that_cannot_be_used(broken, cli):
    answer = cli("test-plugin", "acme-broken")
    assert answer.code == 3
    assert answer.out.count("failed   can be used") == 11
    for target in ("acme_wrong:NOT_ONE", "acme_wrong:nothing", "nothing"):
        answer = cli("test-plugin", target)
        assert answer.code == 2
        assert "E210" in answer.err


def entry_points():
    """Those that the example plugin under docs/examples declares."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    return project["name"], project["version"], project["entry-points"]


def example(tmp_path):
    """The environment of a process in which the example is installed."""
    package, version, entries = entry_points()
    install(tmp_path / "site", package, entries, version=version)
    paths = [str(EXAMPLE), str(tmp_path / "site"), *filter(None, [environment().get("PYTHONPATH")])]
    return environment(PYTHONPATH=":".join(paths))


def test_the_example_is_found_and_recorded(site, cli, monkeypatch):
    package, version, entries = entry_points()
    install(site, package, entries, version=version)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    _forget()
    quick = ("--executor", "serial", "--set", "seeds=1")
    done = cli("run", EXAMPLE / "experiment.yaml", "-o", site / "out", *quick)
    assert done.code == 0, done.err
    folder = site / "out" / "plugged-in"
    manifest = json.loads((folder / "manifest.json").read_text())
    known = [each["name"] for each in manifest["plugins"]]
    assert sorted(known) == ["housing", "informedness", "random_cuts", "withdrawn"]
    for each in manifest["plugins"]:
        assert (each["package"], each["version"]) == (package, version)
    summary = (folder / "summary.csv").read_text()
    assert "random_cuts" in summary


def run_never(tmp_path, line, jobs):
    """Run a small file with `never`, after a line in its `solve`."""
    changed = GOOD.replace("        return Sol", f"        {line}\n        return Sol")
    install(tmp_path, "acme-rates", ENTRIES, {"acme_rates": changed})
    (tmp_path / "small.yaml").write_text(PLAIN.replace("unconstrained", "never"))
    paths = [str(tmp_path), *filter(None, [environment().get("PYTHONPATH")])]
    env = environment(PYTHONPATH=":".join(paths))
    only = ("--smoke", "--set", "algorithms=[never]", "-q", "-j", jobs)
    return process("run", tmp_path / "small.yaml", *only, env=env, cwd=tmp_path)


LINGERING = {
    "thread": "import threading as t; t.Thread(target=t.Event().wait).start()",
    "process": "from multiprocessing import Process; Process(target=time.sleep, args=(900,)).start()",
}


@pytest.mark.parametrize(
    ("kind", "jobs"), one_in(3, [("thread", 1), ("process", 1), ("thread", 2)])
)
def test_warnings_are_not_shown_and_threads_and_processes_not_waited_for(tmp_path, kind, jobs):
    begun = time.monotonic()
    lingering = LINGERING[kind].replace("; ", "; import time; ", 1)
    done = run_never(tmp_path, f"np.log(np.zeros(1)); {lingering}", jobs)
    assert done.returncode == 0
    assert not re.search("Warning|Traceback", done.stderr)
    assert "results" in {path.name for path in tmp_path.iterdir()}
    assert time.monotonic() - begun < 300


@pytest.mark.parametrize(
    ("kind", "jobs"), one_in(3, [("BaseException", 1), ("SystemExit", 2), ("GeneratorExit", 1)])
)
def test_whatever_a_plugin_raises_is_an_error_of_its_package(tmp_path, jobs, kind):
    done = run_never(tmp_path, f"raise {kind}('enough')", jobs)
    reason = f"the algorithm 'never' of the package 'acme-rates 1.0' failed: {kind}: enough"
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert reason in done.stderr


@pytest.mark.slow
def test_workers_know_plugins_and_stored_trials_are_found_again(tmp_path):
    env = example(tmp_path)
    command = ("run", EXAMPLE / "experiment.yaml", "-o", tmp_path / "out", "--jobs", "2")
    assert "4 run now" in process(*command, env=env).stdout
    assert "nothing to run, all were stored" in process(*command, env=env).stdout


@pytest.mark.slow
def test_the_installed_example_passes_the_kit_and_its_own_tests(tmp_path):
    env = example(tmp_path)
    done = process("test-plugin", entry_points()[0], env=env)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("all checks passed") == 4
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, cwd=EXAMPLE
    )
    assert "3 passed" in done.stdout
