"""Lists and describes everything that has a name in ratecli, for `ratecli ls` and `ratecli show`.

Listing imports no solver, data set or numeric library, and slow modules only if the listing needs
them.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratecli.datasets import registry
from ratecli.datasets.sources import SOURCES
from ratecli.errors import CODES, Diagnostic, FaultError
from ratecli.ledger.records import STATUSES, VARIANTS
from ratecli.plugins import (
    OWN_PACKAGE,
    Plugin,
    PluginKind,
    find_plugin,
    installed_plugins_by_kind,
    plugins_by_name,
    unusable_plugin_warnings,
)
from ratecli.rates.expression import VARIADIC_FUNCTIONS
from ratecli.rates.functions import FUNCTIONS, REAL_LINE
from ratecli.rates.metrics import BUILTIN_NAMES, find_metric, load_plugin_metric
from ratecli.rates.table import (
    ARGUMENTS,
    BALANCE_METRICS,
    COMPOSITES,
    MEASURES,
    OF,
    RANKINGS,
    RATES,
    SYNONYMS,
    TEMPLATES,
    Composite,
    Rate,
)

if TYPE_CHECKING:
    from ratecli.solvers.registry import Algorithm

ListingRow = dict[str, Any]

STARTERS = Path(__file__).with_name("starters")
DEFAULT_TEMPLATE = "quickstart"

MAX_SUGGESTIONS = 5
"""Most names that are suggested for an unknown one."""

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


def list_datasets() -> list[ListingRow]:
    return registry.list_sources()


def list_metrics() -> list[ListingRow]:
    """Return rates, composites, ranking measures, and metrics over all values of a column."""
    rows: list[ListingRow] = [
        {"name": row.name, "kind": "rate", "means": row.means} for row in RATES.values()
    ]
    rows += [_composite_row(name, row) for name, row in (COMPOSITES | MEASURES).items()]
    for kind, meanings in (("ranking", RANKINGS), ("of a column", BALANCE_METRICS)):
        rows += [{"name": name, "kind": kind, "means": text} for name, text in meanings.items()]
    for row in rows:
        synonyms = [synonym for synonym, name in SYNONYMS.items() if name == row["name"]]
        row |= {"synonyms": synonyms, "from": OWN_PACKAGE}
    for name, plugins in plugins_by_name("metric").items():
        if name not in BUILTIN_NAMES:
            origin = " and ".join(plugin.origin for plugin in plugins)
            row = {"name": name, "kind": "plugin", "means": f"see `ratecli show {name}`"}
            rows.append(row | {"synonyms": [], "from": origin})
    return rows


def list_functions() -> list[ListingRow]:
    """Return the functions that rules may apply to rates besides + - * / **, and arguments."""
    rows: list[tuple[str, str, str]]
    rows = [(row.name, row.curvature, row.means) for row in FUNCTIONS.values()]
    rows += [(name, "template", means) for name, means in TEMPLATES.items()]
    rows.append((OF, "reference", OF_DESCRIPTION))
    rows += [(name, "argument", means) for name, means in ARGUMENTS.items()]
    return [{"name": name, "kind": kind, "means": means} for name, kind, means in rows]


def list_solvers() -> list[ListingRow]:
    from ratecli.solvers.registry import all_algorithms  # noqa: PLC0415  queries packages

    return [_algorithm_row(algorithm) for algorithm in all_algorithms().values()]


def _algorithm_row(algorithm: Algorithm) -> ListingRow:
    """Return name, summary and origin of an algorithm, without importing it."""
    row = {"name": algorithm.name, "summary": algorithm.summary, "source": algorithm.source}
    if not algorithm.path:
        row |= {"summary": f"see `ratecli show {algorithm.name}`", "source": ""}
    return row | {"from": OWN_PACKAGE if algorithm.path else algorithm.source}


def list_plugins() -> list[ListingRow]:
    """Return every plugin, after importing it, with its error if it cannot be used."""
    return [
        {
            "name": plugin.name,
            "kind": plugin.kind,
            "from": plugin.origin,
            "object": plugin.entry.value,
            "state": _plugin_status(plugin),
        }
        for plugin in installed_plugins_by_kind()
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
        "data set": registry.source_of_plugin,
        "metric": load_plugin_metric,
    }
    return loaders[plugin.kind](plugin)


def _own_names(kind: PluginKind) -> Collection[str]:
    """Return ratecli's own names of a kind, which plugins cannot have."""
    from ratecli.solvers.registry import BUILT_IN_ALGORITHMS  # noqa: PLC0415

    algorithms = [row.name for row in BUILT_IN_ALGORITHMS]
    return {"algorithm": algorithms, "data set": SOURCES, "metric": BUILTIN_NAMES}[kind]


def listing_warnings(listed: str) -> list[Diagnostic]:
    """Return warnings about the plugins in a listing."""
    kinds: dict[str, PluginKind] = {
        "algorithms": "algorithm",
        "datasets": "data set",
        "metrics": "metric",
    }
    kind = kinds.get(listed)
    return [] if kind is None else [*unusable_plugin_warnings(kind, _own_names(kind))]


def list_plots() -> list[ListingRow]:
    # pydantic is needed for plots only
    from ratecli.config.report import PLOT_TYPES  # noqa: PLC0415

    return [
        {
            "name": name,
            "means": inspect.getdoc(plot),
            "keys": [row["key"] for row in _plot_keys(name)],
        }
        for name, plot in PLOT_TYPES.items()
    ]


def list_codes() -> list[ListingRow]:
    """Return the meaning of each diagnostic code."""
    return [{"name": row.code, "means": row.means} for row in CODES.values()]


def list_keys() -> list[ListingRow]:
    """Return the keys of experiment files."""
    from ratecli.experiment import schema  # noqa: PLC0415  slow

    return [*schema.file_keys()]


def list_options() -> list[ListingRow]:
    """Return the options of all algorithms, each with the algorithms that have it."""
    from ratecli.experiment import schema  # noqa: PLC0415  slow
    from ratecli.solvers.registry import all_algorithms  # noqa: PLC0415

    found: dict[str, list[str]] = {}
    for algorithm in all_algorithms().values():
        with suppress(FaultError):  # `listing_warnings` reports plugins that cannot be used
            for option in schema.algorithm_options(algorithm):
                found.setdefault(option["name"], []).append(algorithm.name)
    return [{"name": name, "algorithms": algorithms} for name, algorithms in found.items()]


def list_models() -> list[ListingRow]:
    """Return the models that algorithms can train, and where their parameters are documented."""
    from ratecli.solvers.oracles import choice, model_names  # noqa: PLC0415  slow

    rows = [
        {"name": choice.LINEAR_MODEL, "means": "a linear model, without parameters"},
        {"name": model_names.LOGISTIC_MODEL, "means": "a logistic regression, without parameters"},
        {
            "name": model_names.SCORE_MODEL,
            "means": "the score of a model that you have: {score: NAME}",
        },
    ]
    rows += [
        {"name": name, "means": f"boosted trees; parameters: {PARAMETER_PAGES[name]}"}
        for name in model_names.BOOSTING_LIBRARIES
    ]
    for name, module in (model_names.CLASSIFIER_MODULES | model_names.REGRESSOR_MODULES).items():
        means = f"of scikit-learn; parameters: {SKLEARN_PAGES}/{module}.{name}.html"
        if module in PARAMETER_PAGES:
            means = f"boosted trees for numbers; parameters: {PARAMETER_PAGES[module]}"
        rows.append({"name": name, "means": means})
    return rows


def list_goals() -> list[ListingRow]:
    """Return the goals of `ratecli init`."""
    from ratecli.experiment.starters.goals import GOALS  # noqa: PLC0415  imports this module

    return [
        {"name": name, "means": goal.means.replace("`limit`", "LIMIT")}
        for name, goal in GOALS.items()
    ]


def list_statuses() -> list[ListingRow]:
    """Return how a trial can end."""
    return [{"name": name, "means": means} for name, means in STATUSES.items()]


def list_variants() -> list[ListingRow]:
    """Return the variants of the models of a trial."""
    return [{"name": name, "means": means} for name, means in VARIANTS.items()]


def list_experiments() -> list[ListingRow]:
    """Return the experiments in the folder `experiments`, or else in the current folder."""
    folder = Path("experiments")
    found = folder.rglob("*.yaml") if folder.is_dir() else Path().glob("*.yaml")
    return [_experiment_row(path) for path in sorted(found)]


def template_text(template: str = DEFAULT_TEMPLATE) -> str:
    """Return a commented experiment that runs offline in seconds, for one family of goals."""
    return (STARTERS / f"{template}.yaml").read_text(encoding="utf-8")


def template_summaries() -> dict[str, str]:
    """Return the summary of each template by name, the default first."""
    names = sorted(path.stem for path in STARTERS.glob("*.yaml"))
    names.sort(key=lambda name: name != DEFAULT_TEMPLATE)
    return {name: template_text(name).partition("\n")[0].removeprefix("# ") for name in names}


LISTINGS: dict[str, Callable[[], list[ListingRow]]] = {
    "datasets": list_datasets,
    "metrics": list_metrics,
    "functions": list_functions,
    "algorithms": list_solvers,
    "plots": list_plots,
    "codes": list_codes,
    "keys": list_keys,
    "options": list_options,
    "models": list_models,
    "goals": list_goals,
    "statuses": list_statuses,
    "variants": list_variants,
    "experiments": list_experiments,
    "plugins": list_plugins,
}


def describe(name: str) -> ListingRow | None:
    """Return all details about a name, None if it is unknown."""
    written, name = name, SYNONYMS.get(name, name)
    if name in registry.source_names():
        return {"name": name, "what": "data set"} | registry.describe_source(name)
    if name.upper() in CODES:
        row = CODES[name.upper()]
        exits = row.exit_code or "none of its own"
        code = {"name": row.code, "what": "code of a message", "means": row.means}
        return code | {"help": row.help, "exit code": exits}
    if (algorithm := _describe_algorithm(name)) is not None:
        return algorithm
    words = (_describe_word(written, kind) for kind in ("goals", "statuses", "variants"))
    parts = (_describe_term(name), _describe_setting(name), _describe_model(name), *words)
    found: ListingRow = {}
    for part in filter(None, parts):
        what = f"{found['what']} and {part['what']}" if found else part["what"]
        found |= part | {"name": name, "what": what}
    return found or None


def _describe_word(name: str, listed: str) -> ListingRow:
    """Return what a name means in a listing of words; {} if it is not one of them."""
    found, what = {row["name"]: row["means"] for row in LISTINGS[listed]()}, KINDS_OF_NAMES[listed]
    return {"name": name, "what": what, what: found[name]} if name in found else {}


def _describe_model(name: str) -> ListingRow:
    """Return a model with the names of its parameters, if its library is installed."""
    found = _describe_word(name, "models")
    if found:
        from ratecli.solvers.oracles.model_names import class_path  # noqa: PLC0415

        if class_path(name):
            from ratecli.solvers.oracles import estimators  # noqa: PLC0415  very slow

            with suppress(ImportError):
                found["parameters"] = estimators.parameter_names(estimators.model_class(name))
    return found


KINDS_OF_NAMES = {
    "metrics": "metric",
    "functions": "function",
    "algorithms": "algorithm",
    "datasets": "data set",
    "plots": "plot",
    "codes": "code of a message",
    "keys": "key",
    "options": "option",
    "models": "model",
    "goals": "goal of `ratecli init`",
    "statuses": "status of a trial",
    "variants": "variant of a model",
}


def describable_names() -> dict[str, str]:
    """Return every name that `describe` knows, including synonyms, with its kind."""
    found = dict.fromkeys(SYNONYMS, "metric")
    for listed, kind in reversed(KINDS_OF_NAMES.items()):
        names = [row["name"] for row in LISTINGS[listed]()]
        if listed == "keys":
            names += [name.rpartition(".")[2] for name in names]
        found |= dict.fromkeys(names, kind)
    return found


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")


def suggest_names(name: str) -> str:
    """Return help for an unknown name: names that start with it, then the most similar ones."""
    known, plain = describable_names(), _folded(name)
    words = {_folded(word): word for word in known}
    begin = sorted(word for word in words if word.startswith(plain))
    near = difflib.get_close_matches(plain, words, n=MAX_SUGGESTIONS, cutoff=0.7)
    listed = [
        f"'{words[each]}' ({known[words[each]]})"
        for each in list(dict.fromkeys([*begin, *near]))[:MAX_SUGGESTIONS]
    ]
    hint = f"did you mean {' or '.join(listed)}? " if listed else ""
    listing = f"`ratecli ls KIND` lists {', '.join(KINDS_OF_NAMES)}"
    return f"{hint}{listing}; `ratecli show lightgbm` lists the parameters of this model"


def _describe_setting(name: str) -> ListingRow:
    """Return keys of files with a name, those below them, and options; {} if none has it."""
    from ratecli.experiment import schema  # noqa: PLC0415  slow
    from ratecli.solvers.registry import all_algorithms  # noqa: PLC0415

    keys = [
        {"key": row["name"], **{key: row[key] for key in ("type", "default", "means")}}
        for row in list_keys()
        if _is_key(name, row["name"]) or _is_key(name, _mapping_of(row["name"]))
    ]
    users: dict[str, list[str]] = {row["name"]: row["algorithms"] for row in list_options()}
    options = [
        {"algorithm": user, **{key: row[key] for key in ("type", "default", "means")}}
        for user in users.get(name, [])
        for row in schema.algorithm_options(all_algorithms()[user])
        if row["name"] == name
    ]
    found = {"keys of a file": keys, "options": options}
    what = " and ".join(word for word, rows in (("key", keys), ("option", options)) if rows)
    return {"name": name, "what": what} | found if what else {}


def _mapping_of(path: str) -> str:
    """Return the path of the mapping that a key is in."""
    return path.rpartition(".")[0].removesuffix(".NAME")


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


def _describe_algorithm(name: str) -> ListingRow | None:
    from ratecli.solvers.registry import all_algorithms  # noqa: PLC0415

    if name not in all_algorithms():
        return None
    # pydantic, and the class, are needed for a single algorithm only
    from ratecli.experiment import schema  # noqa: PLC0415

    algorithm = all_algorithms()[name]
    notes = schema.algorithm_notes(algorithm)
    options = schema.algorithm_options(algorithm)
    row = {"name": name, "what": "algorithm"} | _algorithm_row(algorithm)
    if not algorithm.path:
        row["summary"] = notes.partition("\n")[0]
    return row | {"notes": notes, "options": options}


def _describe_term(name: str) -> ListingRow:
    """Return a metric, function or plot: its row in the listing, with details of its kind.

    Return {} for any other name. Raises E210 for a plugin's metric that cannot be used.
    """
    listings = {"metric": list_metrics, "function": list_functions, "plot": list_plots}
    found = ((what, row) for what in listings for row in listings[what]() if row["name"] == name)
    what, row = next(found, ("", {}))
    if not what:
        return {}
    if row.get("kind") == "plugin":
        metric = find_metric(name)
        assert metric is not None
        rate = {"kind": "rate", "means": metric.means}
        row |= _composite_row(name, metric) if isinstance(metric, Composite) else rate
    if row.get("kind") == "argument":
        what = row.pop("kind")
    if what == "plot":
        row["keys"] = _plot_keys(name)
    return {"name": name, "what": what, **row, **dict(_details(name))}


def _details(name: str) -> Iterator[tuple[str, Any]]:
    rate = find_metric(name) if name in RATES or name in plugins_by_name("metric") else None
    if isinstance(rate, Rate):
        yield "a mean over", f"{rate.among}, inside the slice or not" if rate.whole else rate.among
        yield "counts positive decisions on", f"{rate.yes} in the slice" if rate.whole else rate.yes
        yield "counts negative decisions on", rate.no
        if rate.complement:
            yield "complement", rate.complement
        logged = bool(rate.outcome or rate.weight_power)
        if logged:
            yield "written", rate.text
        needs = {
            "labels": rate.needs_labels,
            "a deployed model": rate.needs_deployed,
            "logged decisions (key 'logged' of the data set)": logged,
        }
        yield "needs", [word for word, needed in needs.items() if needed]
    if name in FUNCTIONS:
        function = FUNCTIONS[name]
        yield "arguments", "any number" if function.arity is None else function.arity
        if function.domain != REAL_LINE:
            ends = [str(end) if math.isinf(end) else end for end in function.domain]
            yield "domain", ends
    metric = "" if name in {*MEASURES, *BALANCE_METRICS} else "tpr, "
    if name in {*TEMPLATES, *MEASURES, *VARIADIC_FUNCTIONS, *BALANCE_METRICS}:
        yield "over a column", f"{name}({metric}by=sex)"
        yield "combinations", f"{name}({metric}by=[sex, race])"
    if name in {"mean", *VARIADIC_FUNCTIONS, *BALANCE_METRICS}:
        yield "over several columns", f"{name}({metric}by=(sex, race))"


def _plot_keys(name: str) -> list[ListingRow]:
    from ratecli.config.report import PLOT_TYPES  # noqa: PLC0415

    keys = PLOT_TYPES[name].model_fields.items()
    return [{"key": key, "means": field.description} for key, field in keys if key != "kind"]


def _composite_row(name: str, row: Composite) -> ListingRow:
    kind, arguments = "composite", row.parameters
    if name in MEASURES:
        kind, arguments = "fairness measure", ("by=columns",)
    written = f"{name}({', '.join(arguments)})" if arguments else name
    text = f"{row.text} / {row.over} of all rows" if row.over else row.text
    return {"name": name, "kind": kind, "means": row.means, "is": f"{written} = {text}"}


def _experiment_row(path: Path) -> ListingRow:
    # PyYAML is needed for this listing only
    from ratecli.config.document import Document  # noqa: PLC0415

    try:
        data = Document.read(path).data
    except FaultError as error:
        broken = f"cannot be read: {error.faults[0].code}: {error.faults[0].message}"
        return {"file": str(path), "name": "", "description": broken}
    texts = {key: data.get(key) for key in ("name", "description")}
    return {"file": str(path)} | {
        key: " ".join(str(text or "").split()) for key, text in texts.items()
    }
