"""`--help`, `ls`, `show`, `schema`, and errors of the command line."""

import json
import os
import re
import subprocess
import sys
from functools import cache

import pytest
import typer.main
from small import SMALL, command, environment, process

from ratecli.cli.app import app
from ratecli.config.report import PLOT_TYPES
from ratecli.experiment import registry
from ratecli.experiment.registry import KINDS, describable_names, describe
from ratecli.experiment.schema import file_schema
from ratecli.rates import table
from ratecli.rates.functions import FUNCTIONS
from ratecli.solvers.registry import all_algorithms

HEAVY = {"numpy", "scipy", "pandas", "sklearn", "pyarrow", "matplotlib", "rich", "jinja2"}
HEAVY |= {"requests"}
SHOWN = ["loans", "split", "iterations", "E308", "recall", "f1", "share", "kl", "max_gap"]
SHOWN += ["disclosivity", "tradeoff", "infeasible", "demographic-parity"]
QUICK = [
    ["--help"],
    ["run", "--help"],
    ["predict", "--help"],
    ["filter", "--help"],
    *(["ls", kind] for kind in KINDS),
    *(["show", name] for name in SHOWN),
]


def test_quick_commands_import_nothing_slow(folder):
    """Checking a file imports pandas, but neither scikit-learn nor matplotlib."""
    model = "- mixture: {model: GaussianNB}\n"
    named = SMALL.replace("- unconstrained\n", f"{model}  - unconstrained\n")
    (folder / "named.yaml").write_text(named)
    (folder / "small.yaml").write_text(SMALL)
    program = (
        "import sys\n"
        "from functools import cache\n"
        "import typer.main\n"
        "from ratecli.cli.app import main\n"
        "typer.main.get_command = cache(typer.main.get_command)\n"
        f"for arguments in {QUICK!r}:\n"
        "    assert main(arguments) == 0, arguments\n"
        f"    loaded = {HEAVY!r} & set(sys.modules)\n"
        "    assert not loaded, (arguments, loaded)\n"
        f"for name in {list(all_algorithms())!r}:\n"
        "    assert main(['show', name]) == 0, name\n"
        f"    loaded = {HEAVY!r} & set(sys.modules)\n"
        "    assert not loaded, (name, loaded)\n"
        "assert main(['validate', 'small.yaml']) == 0\n"
        "assert 'numba' not in sys.modules\n"
        "for command in ('validate', 'plan', 'explain'):\n"
        "    assert main([command, 'named.yaml']) == 0, command\n"
        "assert not {'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", KINDS)
def test_listings_are_tables_and_json(cli, kind):
    answer = cli("ls", kind, "--json")
    rows = json.loads(answer.out)
    assert (answer.code, answer.err) == (0, "")
    assert rows == KINDS[kind].rows()
    shown = cli("ls", kind)
    assert shown.code == 0
    assert all(row["name"] in shown.out for row in rows)


GROUP = typer.main.get_command(app)


@pytest.mark.parametrize("columns", [50, 80, 120])
@pytest.mark.parametrize("name", ["", *GROUP.commands])
def test_help_is_not_cut(cli, monkeypatch, name, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    answer = cli(*filter(None, [name]), "--help")
    lines = [line for line in answer.out.splitlines() if not line.startswith("Usage: ")]
    assert not [line for line in lines if line.rstrip().endswith("...")]
    text = " ".join(answer.out.split())
    told = [GROUP.commands[name]] if name else GROUP.commands.values()
    sentences = [" ".join(each.help.split()).partition(". ")[0] for each in told]
    options = [each.help for each in GROUP.commands[name].params] if name else []
    for part in filter(None, [*sentences, *options]):
        assert part.removesuffix(".") in text


def test_the_schema_is_printed(cli):
    assert json.loads(cli("schema").out) == file_schema()


def test_everything_is_listed():
    listed = {kind: [row["name"] for row in each.rows()] for kind, each in KINDS.items()}
    metrics = (table.RATES, table.COMPOSITES, table.MEASURES, table.RANKINGS, table.BALANCE_METRICS)
    assert listed["metrics"] == [name for kind in metrics for name in kind]
    assert listed["functions"] == [*FUNCTIONS, *table.TEMPLATES, table.OF, *table.ARGUMENTS]
    assert listed["algorithms"] == list(all_algorithms())
    assert listed["plots"] == list(PLOT_TYPES)
    synonyms = [each for row in registry.list_metrics() for each in row["synonyms"]]
    assert sorted(synonyms) == sorted(table.SYNONYMS)


def test_every_name_has_a_description(monkeypatch):
    for name in ("list_keys", "_options", "list_models"):  # they take most of the time
        monkeypatch.setattr(registry, name, cache(getattr(registry, name)))
    for name in describable_names():
        row = json.loads(json.dumps(describe(name)))
        assert row["name"] == table.SYNONYMS.get(name, name)


@pytest.mark.parametrize("name", SHOWN)
def test_a_description_is_shown_as_text_and_as_json(cli, name):
    answer = cli("show", name)
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(cli("show", name, "--json").out) == json.loads(json.dumps(describe(name)))


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ("show majorize", 0, r"iterations +whole number, at least 1 +8 "),
        ("show majorize", 0, r"regularized \| none"),
        ("show split", 0, r"datasets\.NAME\.split +mapping .*\n(.*\n)* +balanced_tree +nearest"),
        ("show safety.delta", 0, r"safety\.delta +number, more than 0, less than 1 "),
        ("show datasets.mine.split.by", 0, r"datasets\.NAME\.split\.by +text "),
        ("show holds", 0, r"algorithms\.NAME\.holds +train \| validation \| new_rows"),
        ("show iterations", 0, r"majorize +whole number, at least 1 +8 (.*\n)+ +seldonian +"),
        ("show safety", 0, r"safety +mapping(.*\n)+ +safety\.aim "),
        ("show guarantee", 0, r"what: +plot and key\n(.*\n)+ +safety\.guarantee +each \| joint"),
        ("show w402", 0, r"means: +A constraint may hold on training rows"),
        ("show error", 0, r"what: +metric and status of a trial\n(.*\n)+ +the trial crashed"),
        ("show recall", 0, r"what: +metric and goal of `ratecli init`\n(.*\n)+ +The recall, of"),
        ("show lightgbm", 0, r"lightgbm\.readthedocs\.io(.*\n)+parameters: .*num_leaves"),
        ("show bins", 0, r" bins +\{NAME: \[number, \.\.\.\]\} "),
        ("show mixture", 0, r" randomize +true or false +false "),
        ("show min_row", 2, r"did you mean 'min_rows' \(function\)"),
        ("show infeasable", 2, r"did you mean 'infeasible' \(status of a trial\)"),
        ("show demographic_parity", 2, r"'demographic-parity' \(goal of `ratecli init`\)"),
        ("show LightGBM", 2, r"did you mean 'lightgbm' \(model\)"),
        ("show positive_rat", 2, r"did you mean 'positive_rate' \(metric\)"),
        ("show random_forest", 2, "'RandomForestClassifier' .model. or 'RandomForestRegressor'"),
        ("show spilt", 2, r"did you mean 'split' \(key\)"),
        ("show iteration", 2, r"or 'iterations' \(option\)"),
        ("show trade_off", 2, r"did you mean 'tradeoff' \(plot\)"),
        ("show E3080", 2, r"'E308' \(code of a message\)"),
        ("show majorise", 2, r"'majorize' \(algorithm\)"),
        ("show adults", 2, r"'adult' \(data set\)"),
        ("--version", 0, r"^ratecli 0\.1\.0\n$"),
        *((line, 2, "Usage: ratecli") for line in ("rum", "ls", "ls nothing", "run", "fetch")),
        ("run --jobs 0 x.yaml", 2, "Usage: ratecli"),
        ("predict m.npz", 2, "Usage: ratecli"),
        ("filter t.csv", 2, "Usage: ratecli"),
    ],
)
def test_answers_to_short_commands(cli, arguments, code, expected):
    answer = cli(*arguments.split())
    assert answer.code == code
    assert re.search(expected, answer.out + answer.err)
    assert "Traceback" not in answer.err


def test_experiments_of_the_folder(folder, cli):
    assert cli("ls", "experiments").out == "no experiments found\n"
    (folder / "experiments").mkdir()
    (folder / "experiments" / "a.yaml").write_text("name: a\ndescription: >-\n  two\n  lines\n")
    (folder / "experiments" / "b.yaml").write_text("name: [\n")
    rows = json.loads(cli("ls", "experiments", "--json").out)
    assert rows[0] == {"file": "experiments/a.yaml", "name": "a", "description": "two lines"}
    assert rows[1]["description"].startswith("cannot be read: E001: ")


def test_a_closed_pipe():
    assert process("ls", "plots").stdout.startswith("name ")
    with subprocess.Popen(
        command("ls", "metrics"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        run.stdout.close()
        errors = run.stderr.read()
    assert errors == b""
    assert run.returncode == 141


def test_a_terminal_without_unicode():
    done = process("show", "roc_auc", env=environment(PYTHONIOENCODING="ascii"))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_internal_error_is_one_line(cli, monkeypatch):
    def broken():
        raise ZeroDivisionError("by nought")

    monkeypatch.setitem(KINDS, "plots", registry.Kind("plot", broken))
    answer = cli("ls", "plots")
    assert answer.code == 70
    assert answer.err.startswith("internal error: ZeroDivisionError: by nought (")
    assert "Traceback" not in answer.err
    assert "Traceback" in cli("--debug", "ls", "plots").err


def test_colour_only_on_a_terminal(folder, cli, monkeypatch):
    pty = pytest.importorskip("pty")
    (folder / "exp.yaml").write_text("name: [\n")
    monkeypatch.setenv("TERM", "xterm")
    for switch, painted in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", switch)  # empty is as good as absent
        master, slave = pty.openpty()
        with open(slave, "w", encoding="utf-8") as terminal, monkeypatch.context() as patched:  # noqa: PTH123
            patched.setattr(sys, "stderr", terminal)
            assert cli("validate", "exp.yaml").code == 2
        text = os.read(master, 10_000)
        os.close(master)
        assert b"E001" in text
        assert (b"\x1b[" in text) is painted
    answer = cli("validate", "exp.yaml")
    assert "E001" in answer.err
    assert "\x1b[" not in answer.err
