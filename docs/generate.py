"""Write the pages of the reference, docs/reference/*.md, from the code.

    python docs/generate.py    # or: make reference
    python docs/generate.py results/comparison    # the tables of docs/comparison.md, from those of `ratecli report`

It is also a hook of MkDocs (`hooks:` in mkdocs.yml), which hides comments for the tests.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pandas as pd

from ratecli.datasets.registry import list_sources
from ratecli.diagnostic_codes import CODES
from ratecli.experiment import registry
from ratecli.plugins import OWN_PACKAGE
from ratecli.report.groups import estimate_mean
from ratecli.report.sheet import estimate_cell

REFERENCE = Path(__file__).with_name("reference")
WARNING = "<!-- Written by docs/generate.py; renew it by `make reference`, do not edit it. -->\n"
MADE = "This page is generated from the code. The same text is printed by `{}`.\n"
SAID = re.compile(r"^<!-- .*? -->\n", re.MULTILINE)
CLASSES = {
    "affine": "sums of rates with numbers before them, such as `tpr[women] - 0.8 * tpr`",
    "convex": "convex in the rates, such as `kl(0.3, positive_rate)`",
    "ratio": "one ratio of sums of rates, such as `1 - f1`",
    "sum of ratios": "several of them, such as `f1[men] - f1[women]`",
    "balance": "the distance of the groups' shares among positive decisions from given shares: `imbalance(by=sex)`",
    "smooth": (
        "sums of these and of functions without kinks, such as `-mcc` or `-tpr * tnr`, or the largest of several, such "
        "as `-min(mcc, by=sex)`; minimized to a local optimum without a certificate"
    ),
    "other": "any other function of rates, such as `tpr * abs(fpr - 0.1)`",
    "quadratic": "sums of `mse`, none of them subtracted, and of `mean_error`: `mse[women] <= 2`",
    "estimate": "other goals of estimates, such as `log_loss` and `mse[women] - mse[men]`",
    "disclosure": "a bound on what a decision reveals about a group: `disclosivity(by=sex) <= 0.1`",
    "ranking": "measures of scores, which no algorithm accepts as goals: `roc_auc`, `pr_auc`",
    "reported only": "other expressions that contain a disclosivity",
}
ROLES = {
    "enforces": "receives the goals and must satisfy the constraints",
    "reads": "receives the goals and does not enforce them",
    "ignores": "minimizes plain error, without constraints",
}


CHOICE = Path(__file__).parent / "howto" / "which-algorithm.md"
CHOICE_MARK = "<!-- the table of choices -->\n"


COMPARISON = Path(__file__).with_name("comparison.md")
COMPARISON_MARK = "<!-- the tables -->\n"


def pages() -> dict[Path, str]:
    """The text of each page by its file."""
    made = {REFERENCE / f"{name}.md": f"{WARNING}{make()}" for name, make in PAGES.items()}
    return made | {CHOICE: choices()}


MEASURED_ROWS = (1_000, 100_000, 10_000_000)
TRAINED = {
    "post_shift": ("any", "yes", "with `randomize`", (0.03, 0.28, 63)),
    "mixture": ("any", "no", "with `randomize`", (0.05, 1.28, 257)),
    "majorize": ("linear", "no", "with `randomize`", (0.17, 2.73, 595)),
    "three_player": ("linear, boosted trees", "no", "with `randomize`", (0.55, 20.05, None)),
    "seldonian": ("linear", "no", "unless `decisions: deterministic`", (0.05, 0.33, 33)),
    "least_squares": (
        "linear, regressors of scikit-learn, LightGBM, XGBoost",
        "no",
        "no",
        (0.01, 0.13, 22),
    ),
    "thresholded": ("any", "no", "no", (0.03, 0.31, 66)),
    "coco": ("linear", "yes", "with `randomize`", (0.28, 2.39, None)),
    "zafar": ("linear", "no", "no", (0.05, 0.63, None)),
    "unconstrained": ("any", "no", "no", (0.02, 0.36, 73)),
    "audit": ("the deployed one", "no", "as it is", (0.03, 0.24, 18)),
    "balanced_tree": ("a filter of rows", "no", "yes", (0.05, 0.39, 57)),
    "qp_proxy": ("a filter of rows", "no", "yes", (0.02, 0.25, 39)),
    "naive_proxy": ("a filter of rows", "no", "yes", (0.02, 0.34, 50)),
}
"""What each algorithm trains, whether its decisions depend on the groups in the constraints, whether
they are random, and the processor time of a trial on `MEASURED_ROWS` rows of ten features
(benchmarks/algorithms.py), None if it was stopped after 15 minutes or needs too much memory.
"""


def choices() -> str:
    """The page about the choice of an algorithm, which ends with a table made of the code."""
    from ratecli.solvers.registry import ranked_algorithms  # noqa: PLC0415

    heads = ["algorithm", "chosen", "model", "uses groups", "random decisions", "limits"]
    heads += [f"{n:,}" for n in MEASURED_ROWS]
    rows = []
    for each in ranked_algorithms():
        *trained, seconds = TRAINED[each.name]
        rows.append([f"`{each.name}`", each.use, *trained, each.limits, *map(_seconds, seconds)])
    text = CHOICE.read_text("utf-8").partition(CHOICE_MARK)[0]
    return f"{text}{CHOICE_MARK}\n{_table(heads, rows)}"


def compare(folder: Path) -> Path:
    """Write the tables and pictures of a folder of results into the page that compares methods."""
    for picture in sorted(folder.glob("comparison-*.png")):
        shutil.copy(picture, COMPARISON.parent)
    text = COMPARISON.read_text("utf-8").partition(COMPARISON_MARK)[0]
    tasks = pd.read_csv(folder / "methods.csv")
    parts = [_over_rules(tasks), _ahead(tasks), (folder / "methods.md").read_text("utf-8")]
    COMPARISON.write_text(f"{text}{COMPARISON_MARK}\n" + "\n".join(parts), "utf-8")
    return COMPARISON


def _over_rules(tasks: pd.DataFrame) -> str:
    """The share of models that hold their rule, of trials without a model, and the time, over all rules and experiments."""
    tasks["place"] = tasks["setting"].str.replace(r"constraint = \w+, ", "", regex=True)
    tasks["rule"] = tasks["setting"].str.extract(r"constraint = (\w+)")
    heads = ["method", *dict.fromkeys(tasks["place"])]
    rows = []
    for method, own in tasks.groupby("method", sort=False):
        cells = []
        for place in heads[1:]:
            found = own[own["place"] == place]
            total = found[["satisfied", "models", "no_model", "trials"]].sum()
            held = f"{total['satisfied'] / total['models']:.0%}" if total["models"] else ""
            none = (
                f", no model {total['no_model'] / total['trials']:.0%}" if total["no_model"] else ""
            )
            cells.append(f"{held}{none}; {found['times'].median():.1f}" if len(found) else "")
        own_rules = own["rule"].unique()
        rules = "" if len(own_rules) == tasks["rule"].nunique() else f" ({', '.join(own_rules)})"
        rows.append([f"`{method}`{rules}", *cells])
    said = (
        "Over all rules and experiments: the share of models that satisfy their rule on test rows, the share of trials "
        "without a model, and the median time in fits of `unconstrained`. Some methods take only the rules in brackets; "
        "shares over different rules are not comparable."
    )
    return f"## All rules\n\n{said}\n\n{_table(heads, rows)}"


def _ahead(tasks: pd.DataFrame) -> str:
    """The packages' methods that hold at least as often as each of ratecli in a setting, at a lower error than its best."""
    ours = {row["name"] for row in registry.list_algorithms() if row["from"] == OWN_PACKAGE}
    tasks = tasks.assign(share=tasks["satisfied"] / tasks["trials"])
    rows = []
    for setting, own in tasks.groupby("setting", sort=False):
        parts = {name: part.set_index("experiment") for name, part in own.groupby("method")}
        known = [name for name, part in parts.items() if part["algorithm"].iloc[0] in ours]
        name = max(
            known, key=lambda each: (parts[each]["share"].mean(), -parts[each]["error"].mean())
        )
        for other in sorted(parts.keys() - known):
            best, package = parts[name].reindex(parts[other].index), parts[other]
            lower = estimate_mean((best["error"] - package["error"]).dropna())
            shares = package["share"].mean(), best["share"].mean()
            if shares[0] >= shares[1] and (lower.mean or 0.0) > 0:
                beyond = "yes" if lower.half is not None and lower.mean > lower.half else "no"
                held = [
                    f"`{each}` ({n:.0%})" for each, n in zip((other, name), shares, strict=True)
                ]
                rows.append([setting, *held, estimate_cell(lower).text, beyond])
    heads = ["setting", "package", "ratecli", "error lower by", "beyond the interval"]
    said = (
        "In each setting, the method of ratecli that holds the rule in most trials is compared with the packages' methods "
        "that hold it in at least as many. Those with a lower mean error are listed. In brackets: the share of trials with "
        "a model that satisfies the rule. ±: half the 95 % interval over the data sets where both have models. A wide "
        "interval is no proof that two methods are equal."
    )
    return f"## Packages that are ahead\n\n{said}\n\n{_table(heads, rows)}"


def _seconds(time: float | None) -> str:
    if time is None:
        return ""
    return f"{time:.0f} s" if time >= 100 else f"{time:.2g} s"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without what is said to the tests (see docs/pages.py)."""
    return SAID.sub("", markdown)


def rates() -> str:
    found = [row for row in registry.list_metrics() if row["from"] == OWN_PACKAGE]
    parts = [
        "# Rates and functions\n",
        MADE.format("ratecli ls metrics` and `ratecli ls functions"),
        (
            "A *rate* is a mean over the rows of a slice, so it is linear in the decisions. A *composite* metric is a "
            "formula of rates. A *ranking* measures scores: it can be reported, but not be a goal. Slices are written "
            "in brackets: `tpr[women]`, `tpr[sex = Female, age >= 30]`, `recall[d2]`.\n"
        ),
    ]
    for kind in dict.fromkeys(row["kind"] for row in found):
        rows = [row for row in found if row["kind"] == kind]
        parts += [f"## {TITLES[kind]}\n", *_metrics(rows)]
    heads = ["function", "class", "what it is"]
    functions = [
        [f"`{row['name']}`", row["kind"], row["means"]] for row in registry.list_functions()
    ]
    return "\n".join([*parts, "## Functions\n", _table(heads, functions)])


TITLES = {
    "rate": "Rates",
    "composite": "Composites",
    "fairness measure": "Fairness measures of the groups of columns",
    "ranking": "Rankings",
    "of a column": "Of a column's values",
}


def _metrics(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    heads = ["name", "what it is", "written as", "also called"]
    cells = [
        [
            f"`{row['name']}`",
            row["means"],
            f"`{row['is']}`" if "is" in row else "",
            ", ".join(f"`{each}`" for each in row["synonyms"]),
        ]
        for row in rows
    ]
    used = [k for k in range(len(heads)) if any(row[k] for row in cells)]
    yield _table([heads[k] for k in used], [[row[k] for k in used] for row in cells])


def algorithms() -> str:
    from ratecli.solvers.registry import BUILT_IN_ALGORITHMS  # noqa: PLC0415

    shapes = _table(["class", "what it is"], [[name, CLASSES[name]] for name in CLASSES])
    parts = [
        "# Algorithms\n",
        MADE.format("ratecli ls algorithms` and `ratecli show NAME"),
        (
            "An algorithm accepts goals of certain classes. `ratecli explain FILE` shows the class of each goal. All "
            "goals and metrics are measured for every algorithm. The classes, simple ones first:\n"
        ),
        shapes,
        (
            "An algorithm's entry in the file may contain the options below and the keys that "
            "[all algorithms have](yaml.md#algorithm).\n"
        ),
    ]
    described = (_preset(each) if each.preset else _algorithm(each) for each in BUILT_IN_ALGORITHMS)
    return "\n".join([*parts, *described])


def _preset(algorithm: Any) -> str:
    """An algorithm that is another one with other defaults: only these."""
    from ratecli.solvers.registry import BUILT_IN_ALGORITHMS  # noqa: PLC0415

    same = next(each for each in BUILT_IN_ALGORITHMS if each.path == algorithm.path)
    row = registry.describe(algorithm.name)
    assert row is not None
    options = [
        [f"`{each['name']}`", f"`{_plain(each['default'])}`"]
        for each in row["options"]
        if each["name"] in algorithm.preset
    ]
    parts = [
        f"## {algorithm.name}\n",
        f"{row['summary'][:1].upper()}{row['summary'][1:]}.\n",
        f"Source: {row['source']}. It is [{same.name}](#{same.name}) with other defaults:\n",
        _table(["option", "default"], options),
    ]
    return "\n".join(parts)


def _algorithm(algorithm: Any) -> str:
    row = registry.describe(algorithm.name)
    assert row is not None
    solver = algorithm.load()
    takes = [
        ["role", f"{solver.role}: {ROLES[solver.role]}"],
        ["objectives", _shapes(solver.objectives)],
        ["constraints", _shapes(solver.constraints)],
        ["source", row["source"]],
    ]
    if solver.role == "ignores":
        takes = [takes[0], takes[-1]]
    options = [
        [f"`{each['name']}`", each["type"], f"`{_plain(each['default'])}`", each["means"]]
        for each in row["options"]
    ]
    parts = [
        f"## {algorithm.name}\n",
        f"{row['summary'][:1].upper()}{row['summary'][1:]}.\n",
        _table(["", ""], takes),
        f"{_prose(row['notes'])}\n",
    ]
    if options:
        parts.append(_table(["option", "type", "default", "means"], options))
    return "\n".join(parts)


def _shapes(found: Iterable[Any]) -> str:
    named = [name for name in CLASSES if name in set(found)]
    return "any" if len(named) == len(CLASSES) else ", ".join(named)


def datasets() -> str:
    heads = ["name", "rows", "label", "what it is"]
    found = [registry.describe(row["name"]) or {} for row in list_sources()]
    labels = [f"`{row['label']}`" if row["label"] else "" for row in found]
    cells = [
        [f"[{row['name']}](#{row['name']})", str(row["rows"]), label, row["summary"]]
        for row, label in zip(found, labels, strict=True)
    ]
    parts = [
        "# Data sets\n",
        MADE.format("ratecli ls datasets` and `ratecli show NAME"),
        (
            "Files are downloaded from public addresses and verified against pinned checksums. `ratecli fetch NAME` "
            "stores them in `data/`. Files in `RATECLI_DATA_MIRROR` (a folder or an address) are used first. An address "
            "that sends less than 64 KiB in a minute counts as not answering. For other tables, see "
            "[use your own table](../howto/own-data.md).\n"
        ),
        _table(heads, cells),
    ]
    return "\n".join([*parts, *map(_dataset, found)])


def _dataset(row: Mapping[str, Any]) -> str:
    wanted = ("sensitive", "preparations", "options", "licence", "citation")
    facts = [[key, _plain(row[key])] for key in wanted if row.get(key)]
    facts += [["files", ", ".join(_link(file) for file in row.get("files", []))]]
    facts = [fact for fact in facts if fact[1]]
    text = f"```text\n{row['notes']}\n```\n" if row.get("notes") else ""
    stand_in = f"**{row['stand_in']}**\n" if row.get("stand_in") else ""
    return "\n".join([f"## {row['name']}\n", stand_in, _table(["", ""], facts), text])


def _link(file: Mapping[str, Any]) -> str:
    return f"[{file['name']}]({file['url']})" if file.get("url") else file["name"]


FAMILIES = {
    "E0": "YAML: the text of the file",
    "E1": "keys and types",
    "E2": "names: data sets, columns, values, algorithms, metrics",
    "E3": "rules, and what an algorithm accepts",
    "E4": "data",
    "E5": "trials and what is stored of them",
    "W2": "warnings of names",
    "W3": "warnings of rules",
    "W4": "warnings of data",
    "W5": "warnings of results",
}
"""The meaning of the first two characters of a code."""


def errors() -> str:
    parts = [
        "# Codes of messages\n",
        MADE.format("ratecli ls codes` and `ratecli show CODE"),
        (
            "A message has a code, what is wrong, where (file, line, column), and what to do. All errors of one phase "
            "are reported together. Codes that begin with E are errors and end the command. Codes that begin with W are "
            "warnings.\n"
        ),
        _table(
            ["exit code", "means"],
            [
                ["0", "all trials ended, and all checks passed"],
                ["1", "some trials failed"],
                ["2", "wrong usage or a wrong file, or results cannot be written or logged"],
                ["3", "a check failed or is not possible"],
                ["4", "data is missing, offline or wrong"],
                ["70", "internal error"],
                ["130", "interrupted; finished trials are stored"],
            ],
        ),
    ]
    for family, what in FAMILIES.items():
        heads = ["code", "means", "what to do", "exit"]
        rows = [
            [
                f"<span id='{row.code}'>{row.code}</span>",
                row.means,
                row.help,
                str(row.exit_code or ""),
            ]
            for row in CODES.values()
            if row.code.startswith(family)
        ]
        if rows:
            parts += [f"## {family}xx: {what}\n", _table(heads, rows)]
    return "\n".join(parts)


def keys() -> str:
    from ratecli.config.experiment import json_schema  # noqa: PLC0415

    schema = json_schema()
    parts = [
        "# The file\n",
        MADE.format("ratecli ls keys` and `ratecli show KEY"),
        (
            "One experiment is one YAML 1.2 file. `ratecli init` writes a commented one. Inside `{ }`, a rule with "
            "brackets or commas needs quotes.\n"
        ),
        "## Experiment\n",
        _keys(schema),
    ]
    for name, part in schema["$defs"].items():
        shown = _entry_of(part) if "properties" not in part else part
        text = f"{part.get('description', '')}\n"
        parts += [f"## {name.removesuffix('Spec')}\n", text, _keys(shown)] if shown else []
    return "\n".join(parts)


def _entry_of(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The mapping among the forms of an entry that may be a name, or a name with options."""
    for form in part.get("anyOf", []):
        inner = form.get("additionalProperties", form)
        if isinstance(inner, dict) and "properties" in inner:
            return inner
    return None


DETAILS = {
    "datasets": "several-data-sets",
    "groups": "groups-in-rules",
    "constraints": "rules",
    "deployed": "deployed-models",
    "holds": "constraints-on-other-rows",
    "safety": "safety-tests",
    "filter": "filters",
    "sweep": "sweeps",
    "expect": "expectations",
    "plots": "plots",
    "tune": "tuning",
    "logged": "logged-decisions",
    "scores": "models",
}
"""Keys that a section of `details.md` explains, with its anchor."""


def _meaning(key: str, text: str) -> str:
    return f"{text} [In detail](details.md#{DETAILS[key]})" if key in DETAILS else text


def _keys(part: Mapping[str, Any]) -> str:
    required = set(part.get("required", ()))
    rows = [
        [
            f"`{key}`",
            _type(field),
            "needed"
            if key in required
            else f"`{_plain(field['default'])}`"
            if field.get("default") not in (None, "", [], {})
            else "",
            _meaning(key, field.get("description", "")),
        ]
        for key, field in part["properties"].items()
    ]
    return _table(["key", "type", "default", "means"], rows)


def _type(field: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2].removesuffix("Spec")
        return f"[{name}](#{name.lower()})"
    if "enum" in field:
        return " or ".join(f"`{each}`" for each in field["enum"])
    if "const" in field:
        return f"`{_plain(field['const'])}`"
    if "anyOf" in field or "oneOf" in field:
        forms = [_type(form) for form in field.get("anyOf") or field["oneOf"]]
        return " or ".join(dict.fromkeys(form for form in forms if form and form != "nothing"))
    kind = field.get("type", "")
    if isinstance(kind, list):
        return " or ".join(WORDS.get(each, each) for each in kind)
    if kind == "array":
        items = field.get("items") or {}
        return f"list of {_type(items)}" if items else "list"
    if kind == "object":
        inner = field.get("additionalProperties") or next(
            iter(field.get("patternProperties", {}).values()), None
        )
        return f"names, each with {_type(inner)}" if isinstance(inner, dict) else "mapping"
    return WORDS.get(kind, kind)


WORDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "nothing",
}


def commands() -> str:
    import typer.main  # noqa: PLC0415

    from ratecli.cli.app import app  # noqa: PLC0415

    group = typer.main.get_command(app)
    parts = [
        "# Commands\n",
        MADE.format("ratecli COMMAND --help"),
        (
            "Results are written to standard output; progress, warnings and errors to standard error. `NO_COLOR` "
            "switches colours off. If the output is not a terminal, progress is written as plain lines.\n"
        ),
    ]
    for name, command in group.commands.items():
        context = typer.Context(command, info_name=f"ratecli {name}")
        rows = [
            [_spelt(each, context), _said(each)] for each in command.params if each.name != "help"
        ]
        usage = " ".join(command.get_usage(context).split())
        parts += [f"## {name}\n", f"`{usage.removeprefix('Usage: ')}`\n", f"{command.help}\n"]
        parts += [_table(["", ""], rows)] if rows else []
    return "\n".join(parts)


def _spelt(parameter: Any, context: Any) -> str:
    shown = parameter.make_metavar(context)
    if parameter.param_type_name == "argument":
        return f"`{shown}`"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"`{names}`" if parameter.is_flag else f"`{names} {shown}`"


def _said(parameter: Any) -> str:
    text = getattr(parameter, "help", None) or ""
    default = parameter.default
    plain = (
        isinstance(default, int | float | str) and not isinstance(default, bool) and default != ""
    )
    return f"{text} Default: `{default}`." if plain else text


def _prose(text: str) -> str:
    return html.escape(text, quote=False).replace("*", r"\*")


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return json.dumps(value, default=str)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    """Text that a table can hold: one line, no bar that would end the cell, angles only in our own spans."""
    text = " ".join(str(text).split()).replace("|", r"\|")
    if text.startswith("<span "):
        return text
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else html.escape(part, quote=False).replace("*", r"\*")
        for part in parts
    )


PAGES = {
    "rates": rates,
    "algorithms": algorithms,
    "datasets": datasets,
    "errors": errors,
    "yaml": keys,
    "cli": commands,
}
"""The pages that are made, by name."""

if __name__ == "__main__":
    made = {} if sys.argv[1:] else pages()
    for path, text in made.items():
        path.write_text(text, "utf-8")
    for path in made or [compare(Path(sys.argv[1]))]:
        print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
