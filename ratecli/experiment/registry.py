"""The registry of everything that has a name, for `ls`, `show` and shell completion.

Each kind of names says how its entries are listed, found and described. Listing imports no solver,
data set or numeric library, and slow modules only if the listing needs them.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ratecli.datasets import registry as datasets
from ratecli.datasets.sources import SOURCES
from ratecli.diagnostic_codes import CODES
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.starters.options import goal_meanings
from ratecli.ledger.records import STATUSES, VARIANTS
from ratecli.plugins import (
    OWN_PACKAGE,
    Plugin,
    PluginKind,
    find_plugin,
    installed_plugins,
    plugins_by_name,
    unusable_plugin_warnings,
)
from ratecli.rates import table
from ratecli.rates.expression import VARIADIC_FUNCTIONS
from ratecli.rates.functions import FUNCTIONS, REAL_LINE
from ratecli.rates.metrics import BUILTIN_NAMES, find_metric, load_plugin_metric

Row = dict[str, Any]
"""The facts about an entry, as a listing has them."""

MAX_SUGGESTIONS = 5
"""Most names that are suggested for an unknown one."""
FACTS_OF_SETTINGS = ("type", "default", "means")
SKLEARN_PAGES = "https://scikit-learn.org/stable/modules/generated"
PARAMETER_PAGES = {
    "lightgbm": "https://lightgbm.readthedocs.io/en/latest/Parameters.html",
    "xgboost": "https://xgboost.readthedocs.io/en/stable/parameter.html",
    "catboost": "https://catboost.ai/docs/en/references/training-parameters/",
}
"""Web pages with the parameters of each library of boosted trees."""
OF_DESCRIPTION = (
    "the value of another algorithm on the same rows, as in of(unconstrained, error), or of the "
    "deployed model, as in of(deployed, error)"
)


# metrics and functions


def list_metrics() -> list[Row]:
    """Return rates, composites, ranking measures, and metrics over all values of a column."""
    rows: list[Row] = [
        {"name": row.name, "kind": "rate", "means": row.means} for row in table.RATES.values()
    ]
    rows += [_composite_row(name, row) for name, row in (table.COMPOSITES | table.MEASURES).items()]
    for kind, meanings in (("ranking", table.RANKINGS), ("of a column", table.BALANCE_METRICS)):
        rows += [{"name": name, "kind": kind, "means": text} for name, text in meanings.items()]
    for row in rows:
        synonyms = [synonym for synonym, name in table.SYNONYMS.items() if name == row["name"]]
        row |= {"synonyms": synonyms, "from": OWN_PACKAGE}
    for name, plugins in plugins_by_name("metric").items():
        if name not in BUILTIN_NAMES:
            origin = " and ".join(plugin.origin for plugin in plugins)
            row = {"name": name, "kind": "plugin", "means": f"see `ratecli show {name}`"}
            rows.append(row | {"synonyms": [], "from": origin})
    return rows


def _composite_row(name: str, row: table.Composite) -> Row:
    kind, arguments = "composite", row.parameters
    if name in table.MEASURES:
        kind, arguments = "fairness measure", ("by=columns",)
    written = f"{name}({', '.join(arguments)})" if arguments else name
    text = f"{row.text} / {row.over} of all rows" if row.over else row.text
    return {"name": name, "kind": kind, "means": row.means, "is": f"{written} = {text}"}


def list_functions() -> list[Row]:
    """Return the functions that rules may apply to rates besides + - * / **, and arguments."""
    rows: list[tuple[str, str, str]]
    rows = [(row.name, row.curvature, row.means) for row in FUNCTIONS.values()]
    rows += [(name, "template", means) for name, means in table.TEMPLATES.items()]
    rows.append((table.OF, "reference", OF_DESCRIPTION))
    rows += [(name, "argument", means) for name, means in table.ARGUMENTS.items()]
    return [{"name": name, "kind": kind, "means": means} for name, kind, means in rows]


def _describe_metric(row: Row) -> Row:
    """Return the facts about a metric; raise E210 for a plugin's one that cannot be used."""
    name = row["name"]
    metric = find_metric(name)
    if row["kind"] == "plugin":
        assert metric is not None
        rate = {"kind": "rate", "means": metric.means}
        row |= _composite_row(name, metric) if isinstance(metric, table.Composite) else rate
    if isinstance(metric, table.Rate):
        ending = " in the slice" * metric.whole
        among = f"{metric.among}, inside the slice or not" if metric.whole else metric.among
        row |= {
            "a mean over": among,
            "counts positive decisions on": metric.yes + ending,
            "counts negative decisions on": metric.no,
        }
        logged = bool(metric.outcome or metric.weight_power)
        row |= {"written": metric.text} if logged else {}
        needs = {
            "labels": metric.needs_labels,
            "a deployed model": metric.needs_deployed,
            "logged decisions (key 'logged' of the data set)": logged,
        }
        row["needs"] = [word for word, needed in needs.items() if needed]
    return row | _ways_to_write(name)


def _describe_function(row: Row) -> Row:
    name = row["name"]
    if row["kind"] == "argument":
        row["what"] = row.pop("kind")
    if name in FUNCTIONS:
        function = FUNCTIONS[name]
        row["arguments"] = "any number" if function.arity is None else function.arity
        if function.domain != REAL_LINE:
            row["domain"] = [str(end) if math.isinf(end) else end for end in function.domain]
    return row | _ways_to_write(name)


def _ways_to_write(name: str) -> Row:
    """Return examples of a metric or function over the groups of columns."""
    found, metric = {}, "" if name in {*table.MEASURES, *table.BALANCE_METRICS} else "tpr, "
    if name in {*table.TEMPLATES, *table.MEASURES, *VARIADIC_FUNCTIONS, *table.BALANCE_METRICS}:
        found["over a column"] = f"{name}({metric}by=sex)"
        found["combinations"] = f"{name}({metric}by=[sex, race])"
    if name in {"mean", *VARIADIC_FUNCTIONS, *table.BALANCE_METRICS}:
        found["over several columns"] = f"{name}({metric}by=(sex, race))"
    return found


# algorithms, their options, and keys of files


def list_algorithms() -> list[Row]:
    from ratecli.solvers.registry import all_algorithms  # noqa: PLC0415  queries packages

    return [algorithm.row() for algorithm in all_algorithms().values()]


def _describe_algorithm(row: Row) -> Row:
    from ratecli.experiment import schema  # noqa: PLC0415  slow
    from ratecli.solvers.registry import all_algorithms  # noqa: PLC0415

    algorithm = all_algorithms()[row["name"]]
    notes, options = schema.algorithm_notes(algorithm), schema.algorithm_options(algorithm)
    if not algorithm.path:
        row["summary"] = notes.partition("\n")[0]
    return row | {"notes": notes, "options": options}


def list_options() -> list[Row]:
    """Return the options of all algorithms, each with the algorithms that have it."""
    users: dict[str, list[str]] = {}
    for row in _options():
        users.setdefault(row["name"], []).append(row["algorithm"])
    return [{"name": name, "algorithms": algorithms} for name, algorithms in users.items()]


def _options() -> list[Row]:
    """Return each option of each algorithm that can be used."""
    from ratecli.experiment import schema  # noqa: PLC0415  slow
    from ratecli.solvers.registry import all_algorithms  # noqa: PLC0415

    found: list[Row] = []
    for algorithm in all_algorithms().values():
        with suppress(FaultError):  # `listing_warnings` reports plugins that cannot be used
            options = schema.algorithm_options(algorithm)
            found += ({"algorithm": algorithm.name, **option} for option in options)
    return found


def _describe_option(row: Row) -> Row:
    """Return the type, default and meaning of an option for each algorithm."""
    own = [option for option in _options() if option["name"] == row["name"]]
    facts = ("algorithm", *FACTS_OF_SETTINGS)
    return {"options": [{fact: option[fact] for fact in facts} for option in own]}


def list_keys() -> list[Row]:
    """Return the keys of experiment files."""
    from ratecli.experiment import schema  # noqa: PLC0415  slow

    return [*schema.file_keys()]


def _find_keys(name: str) -> Row | None:
    """Return the keys of files with a name, and those below them."""
    keys = [
        {"key": row["name"], **{key: row[key] for key in FACTS_OF_SETTINGS}}
        for row in list_keys()
        if _is_key(name, row["name"])
        or _is_key(name, row["name"].rpartition(".")[0].removesuffix(".NAME"))
    ]
    return {"keys of a file": keys} if keys else None


def _is_key(text: str, path: str) -> bool:
    """Return whether a text names a key: the end of its path, where any name may be for `NAME`."""
    parts, given = path.split("."), text.split(".")
    for steps in (parts, [step for step in parts if step != "NAME"]):
        end = steps[-len(given) :]
        if len(end) == len(given) and all(
            step in {word, "NAME"} for step, word in zip(end, given, strict=True)
        ):
            return parts[-1] == given[-1]
    return False


# plots, models, and other words


def list_plots() -> list[Row]:
    from ratecli.config.report import PLOT_TYPES  # noqa: PLC0415  needs pydantic

    return [
        {
            "name": name,
            "means": inspect.getdoc(plot),
            "keys": [key for key in plot.model_fields if key != "kind"],
        }
        for name, plot in PLOT_TYPES.items()
    ]


def _describe_plot(row: Row) -> Row:
    from ratecli.config.report import PLOT_TYPES  # noqa: PLC0415

    fields = PLOT_TYPES[row["name"]].model_fields
    return row | {"keys": [{"key": key, "means": fields[key].description} for key in row["keys"]]}


def list_models() -> list[Row]:
    """Return the models that algorithms can train, and where their parameters are documented."""
    from ratecli.solvers.oracles import choice, model_names  # noqa: PLC0415  slow

    meanings = {
        choice.LINEAR_MODEL: "a linear model, without parameters",
        model_names.LOGISTIC_MODEL: "a logistic regression, without parameters",
        model_names.SCORE_MODEL: "the score of a model that you have: {score: NAME}",
    }
    for name in model_names.BOOSTING_LIBRARIES:
        meanings[name] = f"boosted trees; parameters: {PARAMETER_PAGES[name]}"
    for name, module in (model_names.CLASSIFIER_MODULES | model_names.REGRESSOR_MODULES).items():
        meanings[name] = f"of scikit-learn; parameters: {SKLEARN_PAGES}/{module}.{name}.html"
        if module in PARAMETER_PAGES:
            page = PARAMETER_PAGES[module]
            meanings[name] = f"boosted trees for numbers; parameters: {page}"
    return _rows(meanings)


def _describe_model(row: Row) -> Row:
    """Return a model with the names of its parameters, if its library is installed."""
    from ratecli.solvers.oracles.model_names import class_path  # noqa: PLC0415

    found = {"model": row["means"]}
    if class_path(row["name"]):
        from ratecli.solvers.oracles import estimators  # noqa: PLC0415  very slow

        with suppress(ImportError):
            model = estimators.model_class(row["name"])
            found["parameters"] = estimators.parameter_names(model)
    return found


def _rows(meanings: Mapping[str, str]) -> list[Row]:
    return [{"name": name, "means": means} for name, means in meanings.items()]


def list_experiments() -> list[Row]:
    """Return the experiments in the folder `experiments`, or else in the current folder."""
    folder = Path("experiments")
    found = folder.rglob("*.yaml") if folder.is_dir() else Path().glob("*.yaml")
    return [_experiment_row(path) for path in sorted(found)]


def _experiment_row(path: Path) -> Row:
    from ratecli.config.document import Document  # noqa: PLC0415  needs PyYAML

    try:
        data = Document.read(path).data
    except FaultError as error:
        broken = f"cannot be read: {error.faults[0].code}: {error.faults[0].message}"
        return {"file": str(path), "name": "", "description": broken}
    texts = {key: " ".join(str(data.get(key) or "").split()) for key in ("name", "description")}
    return {"file": str(path)} | texts


# plugins


def list_plugins() -> list[Row]:
    """Return every plugin, after importing it, with its error if it cannot be used."""
    return [
        {
            "name": plugin.name,
            "kind": plugin.kind,
            "from": plugin.origin,
            "object": plugin.entry.value,
            "state": _plugin_status(plugin),
        }
        for plugin in installed_plugins()
    ]


def _plugin_status(plugin: Plugin) -> str:
    try:
        load_plugin(plugin)
    except FaultError as error:
        return error.faults[0].message.partition(" cannot be used: ")[2] or error.faults[0].message
    return "can be used"


def load_plugin(plugin: Plugin) -> Any:
    """Return the plugin's solver class, source or metric; raise E210 if it cannot be used."""
    from ratecli.solvers.registry import plugin_solver_class  # noqa: PLC0415

    if plugin.package:
        if plugin.name in _own_names(plugin.kind):
            raise plugin.broken(f"ratecli has its own {plugin.kind} of that name, which is used")
        find_plugin(plugin.kind, plugin.name)
    loaders: dict[PluginKind, Callable[[Plugin], Any]] = {
        "algorithm": plugin_solver_class,
        "data set": datasets.source_of_plugin,
        "metric": load_plugin_metric,
    }
    return loaders[plugin.kind](plugin)


def _own_names(kind: PluginKind) -> Collection[str]:
    """Return ratecli's own names of a kind, which plugins cannot have."""
    from ratecli.solvers.registry import BUILT_IN_ALGORITHMS  # noqa: PLC0415

    algorithms = [row.name for row in BUILT_IN_ALGORITHMS]
    return {"algorithm": algorithms, "data set": SOURCES, "metric": BUILTIN_NAMES}[kind]


# all kinds


@dataclass(frozen=True)
class Kind:
    """A kind of names.

    Attributes
    ----------
    what
        What an entry is, for `show`; "" if its entries are listed only.
    rows
        Returns the listing.
    describe
        Returns the facts about an entry, given its row of the listing.
    find
        Returns the facts about a name that need not be the name of one entry, None if there are
        none.
    alone
        Whether a name of this kind has no other meanings.
    plugins
        The kind of plugins in the listing, if any.
    """

    what: str
    rows: Callable[[], list[Row]]
    describe: Callable[[Row], Row] | None = None
    find: Callable[[str], Row | None] | None = None
    alone: bool = False
    plugins: PluginKind | None = None

    def facts(self, name: str) -> Row | None:
        """Return everything about a name; None if it is not one of this kind."""
        if self.find is not None:
            return self.find(name)
        row = next((row for row in self.rows() if row["name"] == name), None)
        if row is None:
            return None
        return self.describe(row) if self.describe else {self.what: row["means"]}


def _find_code(name: str) -> Row | None:
    code = CODES.get(name.upper())
    if code is None:
        return None
    exit_code = code.exit_code or "none of its own"
    return {"name": code.code, "means": code.means, "help": code.help, "exit code": exit_code}


KINDS = {
    "datasets": Kind(
        "data set",
        datasets.list_sources,
        lambda row: datasets.describe_source(row["name"]),
        alone=True,
        plugins="data set",
    ),
    "codes": Kind(
        "code of a message",
        lambda: _rows({row.code: row.means for row in CODES.values()}),
        find=_find_code,
        alone=True,
    ),
    "algorithms": Kind(
        "algorithm", list_algorithms, _describe_algorithm, alone=True, plugins="algorithm"
    ),
    "metrics": Kind("metric", list_metrics, _describe_metric, plugins="metric"),
    "functions": Kind("function", list_functions, _describe_function),
    "plots": Kind("plot", list_plots, _describe_plot),
    "keys": Kind("key", list_keys, find=_find_keys),
    "options": Kind("option", list_options, _describe_option),
    "models": Kind("model", list_models, _describe_model),
    "goals": Kind("goal of `ratecli init`", lambda: _rows(goal_meanings())),
    "statuses": Kind("status of a trial", partial(_rows, STATUSES)),
    "variants": Kind("variant of a model", partial(_rows, VARIANTS)),
    "experiments": Kind("", list_experiments),
    "plugins": Kind("", list_plugins),
}
"""All kinds of names, in the order in which `show` looks for a name."""


def listing_warnings(listed: str) -> Iterator[Diagnostic]:
    """Yield warnings about the plugins in a listing."""
    kind = KINDS[listed].plugins
    if kind is not None:
        yield from unusable_plugin_warnings(kind, _own_names(kind))


def describe(name: str) -> Row | None:
    """Return all details about a name, None if it is unknown."""
    meant = table.SYNONYMS.get(name, name)
    found: Row = {}
    for kind in KINDS.values():
        # synonyms are names of metrics
        part = kind.facts(meant if kind.what == "metric" else name) if kind.what else None
        if part is not None:
            what = part.get("what", kind.what)
            what = f"{found['what']} and {what}" if found else what
            found = {"name": meant, "what": what} | found | part | {"what": what}
            if kind.alone:
                break
    return found or None


def describable_names() -> dict[str, str]:
    """Return every name that `describe` knows, including synonyms, with its kind."""
    found = dict.fromkeys(table.SYNONYMS, "metric")
    for listed, kind in reversed(KINDS.items()):
        if kind.what:
            names = [row["name"] for row in kind.rows()]
            if listed == "keys":
                names += [name.rpartition(".")[2] for name in names]
            found |= dict.fromkeys(names, kind.what)
    return found


def suggest_names(name: str) -> str:
    """Return help for an unknown name: names that start with it, then the most similar ones."""

    def folded(word: str) -> str:
        return word.casefold().replace("_", "")

    known, plain = describable_names(), folded(name)
    words = {folded(word): f"'{word}' ({kind})" for word, kind in known.items()}
    begin = sorted(word for word in words if word.startswith(plain))
    near = difflib.get_close_matches(plain, words, n=MAX_SUGGESTIONS, cutoff=0.7)
    listed = [words[each] for each in dict.fromkeys([*begin, *near])][:MAX_SUGGESTIONS]
    hint = f"did you mean {' or '.join(listed)}? " if listed else ""
    kinds = ", ".join(listed for listed, kind in KINDS.items() if kind.what)
    listing = f"`ratecli ls KIND` lists {kinds}"
    return f"{hint}{listing}; `ratecli show lightgbm` lists the parameters of this model"
