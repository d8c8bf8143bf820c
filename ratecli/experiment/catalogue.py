"""All that has a name in ratecli. Listing it loads no numbers, no solver and no data, and of what is
slow to import only what the listing is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ratecli.datasets import registry
from ratecli.datasets.sources import SOURCES
from ratecli.error_codes import CODES
from ratecli.errors import Fault, FaultError
from ratecli.plugins import OWN, Plugin, doubts, plugins
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.interval import INFINITY
from ratecli.rates.metrics import LANGUAGE, metric
from ratecli.rates.table import (
    COMPOSITES,
    OF,
    RANKINGS,
    RATES,
    SPREADS,
    SYNONYMS,
    TEMPLATES,
    Composite,
    Rate,
)
from ratecli.rates.templates import OVER_VALUES

Row = dict[str, Any]

PLOTS = {
    "tradeoff": "a metric against another or against a swept name, a series an algorithm and variant",
    "convergence": "objective and worst violation on the way, a line an algorithm",
    "guarantee": "performance, solution rate and failure rate along a swept number, a series an algorithm",
    "posteriors": "who the values of a filter's proxy are: the shares of groups in each, a heat map a sweep point",
    "group_shares": "shares of groups among all rows and among those that a filter keeps, bars a sweep point",
}
OF_MEANS = (
    "what another algorithm measured, as in of(unconstrained, error), or the deployed model, as in "
    "of(deployed, error)"
)


def datasets() -> list[Row]:
    return registry.listing()


def metrics() -> list[Row]:
    """Rates, what is built from them, measures of scores, and those of all values of a column."""
    found = [{"name": rate.name, "kind": "rate", "means": rate.means} for rate in RATES.values()]
    found += [_composite(name) for name in COMPOSITES]
    found += [{"name": name, "kind": "ranking", "means": RANKINGS[name]} for name in RANKINGS]
    found += [{"name": name, "kind": "of a column", "means": SPREADS[name]} for name in SPREADS]
    rows = [row | {"synonyms": _synonyms(row["name"]), "from": OWN} for row in found]
    for name, claimed in plugins("metric").items():
        if name not in LANGUAGE:
            says = {"kind": "plugin", "means": f"`ratecli show {name}` says more", "synonyms": []}
            rows.append({"name": name, **says, "from": _origin(claimed)})
    return rows


def functions() -> list[Row]:
    """What rules may do with rates beside + - * / **."""
    found = [
        {"name": row.name, "kind": row.curvature, "means": row.means} for row in FUNCTIONS.values()
    ]
    found += [
        {"name": name, "kind": "template", "means": means} for name, means in TEMPLATES.items()
    ]
    return [*found, {"name": OF, "kind": "reference", "means": OF_MEANS}]


def solvers() -> list[Row]:
    from ratecli.experiment.signature import summary  # noqa: PLC0415  reads source
    from ratecli.solvers.registry import algorithms  # noqa: PLC0415  reads what is installed

    return [
        {"name": row.name, "summary": summary(row), "source": "" if row.plugged else row.source}
        | {"from": row.source if row.plugged else OWN}
        for row in algorithms().values()
    ]


def plugged() -> list[Row]:
    """Every plugin in detail: imported, and what is wrong with it."""
    from ratecli.experiment.installed_plugins import listing  # noqa: PLC0415  imports what others wrote

    return listing()


def doubtful(listed: str) -> list[Fault]:
    """Warnings about plugins among what is listed."""
    if listed == "algorithms":
        from ratecli.solvers.registry import BUILT_IN  # noqa: PLC0415

        return [*doubts("algorithm", {row.name for row in BUILT_IN})]
    return [
        *(doubts("data set", SOURCES) if listed == "datasets" else ()),
        *(doubts("metric", LANGUAGE) if listed == "metrics" else ()),
    ]


def plots() -> list[Row]:
    return [
        {"name": name, "means": means, "keys": [row["key"] for row in _plot_keys(name)]}
        for name, means in PLOTS.items()
    ]


def codes() -> list[Row]:
    """What a message's code means."""
    return [{"name": row.code, "means": row.means} for row in CODES.values()]


def experiments() -> list[Row]:
    """The experiments of the folder of that name, or of the current one if there is none."""
    folder = Path("experiments")
    found = folder.rglob("*.yaml") if folder.is_dir() else Path().glob("*.yaml")
    return [_experiment(path) for path in sorted(found)]


LISTINGS: dict[str, Callable[[], list[Row]]] = {
    "datasets": datasets,
    "metrics": metrics,
    "functions": functions,
    "algorithms": solvers,
    "plots": plots,
    "codes": codes,
    "experiments": experiments,
    "plugins": plugged,
}


def describe(name: str) -> Row | None:
    """All there is to say about a name, None if nothing is called so."""
    name = SYNONYMS.get(name, name)
    return next((row for look in (_dataset, _algorithm, _term, _code) if (row := look(name))), None)


def names() -> list[str]:
    """Everything that `describe` knows, synonyms too."""
    listings = (datasets, solvers, metrics, functions, plots, codes)
    rows = (row for listing in listings for row in listing())
    return [*(row["name"] for row in rows), *SYNONYMS]


def _dataset(name: str) -> Row | None:
    if name not in registry.names():
        return None
    row = registry.describe(name)
    return {"name": row.pop("name"), "what": "data set", **row}


def _algorithm(name: str) -> Row | None:
    from ratecli.experiment.signature import signature, summary  # noqa: PLC0415
    from ratecli.solvers.registry import algorithms  # noqa: PLC0415

    if name not in algorithms():
        return None
    algorithm = algorithms()[name]
    if algorithm.plugged:
        algorithm.load()  # what is wrong with it is said now
    found = signature(algorithm)
    return {
        "name": name,
        "what": "algorithm",
        "summary": summary(algorithm),
        "source": "" if algorithm.plugged else algorithm.source,
        "from": algorithm.source if algorithm.plugged else OWN,
        "notes": found.text,
        "options": [asdict(option) for option in found.options],
    }


def _code(name: str) -> Row | None:
    row = CODES.get(name.upper())
    if row is None:
        return None
    exit_code = row.exit_code or "none of its own"
    return {"name": row.code, "what": "code of a message", "means": row.means} | {
        "comes of": row.cause,
        "way out": row.way_out,
        "exit code": exit_code,
    }


def _term(name: str) -> Row | None:
    """A metric, function or plot: its row, and what its kind has beside it."""
    whats = {"metric": metrics, "function": functions, "plot": plots}
    for what, listing in whats.items():
        for row in listing():
            if row["name"] == name:
                told = _of_plugin(name) if row.get("kind") == "plugin" else {}
                return {"name": name, "what": what, **row, **told, **dict(_details(name))}
    return None


def _of_plugin(name: str) -> Row:
    """What a metric of another package says of itself; raises E210."""
    found = metric(name)
    if isinstance(found, Composite):
        return _line(name, found)
    assert found is not None
    return {"kind": "rate", "means": found.means}


def _details(name: str) -> Iterator[tuple[str, Any]]:
    rate = metric(name) if name in RATES or name in plugins("metric") else None
    if isinstance(rate, Rate):
        yield "a mean over", f"{rate.among}, in the slice or not" if rate.whole else rate.among
        yield "counts a yes of", f"{rate.yes} in the slice" if rate.whole else rate.yes
        yield "counts a no of", rate.no
        if rate.complement:
            yield "complement", rate.complement
        yield "needs", _needs(rate.needs_labels, rate.needs_deployed)
    if name in FUNCTIONS:
        function = FUNCTIONS[name]
        yield "arguments", "any number" if function.arity is None else function.arity
        if function.domain != (-INFINITY, INFINITY):
            yield "takes numbers from", list(map(_finite, function.domain))
        if name in OVER_VALUES:
            yield "of a metric's values over a column", f"{name}(tpr, by=sex)"
    if name in TEMPLATES:
        yield "written", f"{name}(tpr, by=sex)"
    if name in OVER_VALUES or name == "mean":
        yield "over several columns", f"{name}(tpr, by=(sex, race))"
    if name in SPREADS:
        yield "written", f"{name}(by=sex)"
        yield "over several columns", f"{name}(by=(sex, race))"
    if name in PLOTS:
        yield "keys", _plot_keys(name)


def _plot_keys(name: str) -> list[Row]:
    # pydantic is for plots only
    from ratecli.config.report import KINDS  # noqa: PLC0415

    keys = KINDS[name].model_fields.items()
    return [{"key": key, "means": field.description} for key, field in keys if key != "kind"]


def _needs(labels: bool, deployed: bool) -> list[str]:
    words = {"labels": labels, "a deployed model": deployed}
    return [word for word, needed in words.items() if needed]


def _finite(value: float) -> float | str:
    return str(value) if value in {INFINITY, -INFINITY} else value


def _composite(name: str) -> Row:
    return _line(name, COMPOSITES[name])


def _line(name: str, row: Composite) -> Row:
    written = f"{name}({', '.join(row.parameters)})" if row.parameters else name
    text = f"{row.text} / {row.over} of all rows" if row.over else row.text
    return {"name": name, "kind": "composite", "means": row.means, "is": f"{written} = {text}"}


def _origin(claimed: Iterable[Plugin]) -> str:
    return " and ".join(each.origin for each in claimed)


def _synonyms(name: str) -> list[str]:
    return [synonym for synonym, meant in SYNONYMS.items() if meant == name]


def _experiment(path: Path) -> Row:
    # PyYAML is for this listing only
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
