"""A starter experiment on the user's own table: `ratecli init --data t.csv --label y --group sex`.

The table is read as a run reads it; a run would accept the written file as it is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import yaml
from scipy.special import ndtri

from ratecli.config.document import Document
from ratecli.datasets import tables as own
from ratecli.datasets.columns import is_text, label_values, read_label, read_number_label, value_key
from ratecli.datasets.files import check_is_file, read_errors
from ratecli.datasets.text_format import (
    FORMAT_KEYS,
    PLAIN,
    TextFormat,
    sniff_format,
    sniff_notation,
)
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.entries import make_solver
from ratecli.experiment.prepare import prepare_document
from ratecli.experiment.starters.columns import (
    Groups,
    find_features,
    find_groups,
    find_leaks,
    format_counts,
    format_rows,
    quoted,
)
from ratecli.experiment.starters.options import (
    FOLDER,
    Starter,
    StarterGoal,
    StarterOptions,
    find_goals,
    refusal,
)
from ratecli.rates.resolve import MIN_ROWS
from ratecli.rates.sample import Floats
from ratecli.rates.syntax import quote
from ratecli.rates.table import MEASURES
from ratecli.render import render_text, terminal_safe
from ratecli.solvers.judges import EXTRA_NOISE
from ratecli.solvers.margin import DEFAULT_LEVEL
from ratecli.solvers.oracles.model_names import class_path
from ratecli.solvers.registry import all_algorithms

MIN_MSE_SHARE = 0.01
"""An mse below this share of the label's variance is reported as possibly out of reach."""
TRAIN_SHARE = 2 / 3
"""Share of the rows that the starter file trains on."""
MAX_COLUMNS = 10
"""With more metrics, the table of the results leaves out the rates of groups."""
SNIFFED_ROWS = 100_000
"""Rows whose numbers show which signs the table uses."""
BOOLEAN_LABELS = {"0", "1", "-1", "false", "true"}
"""Labels for which the positive value is clear."""


def own_table_starter(request: StarterOptions) -> Starter:
    """Return an experiment on the table that runs without changes.

    Raises
    ------
    FaultError
        E104, E404, E405 if the file is not a table, E104 for an unknown goal and for options that
        exclude or require others; E205 for a missing column; E406 for a label that does not have
        two values or whose positive value is unclear; E411 for a column that defines no groups.
        Anything else that keeps the table from a run raises the same error as the run.
    """
    request.check_table_options()
    form, frame, unsure = sniff_table(request)
    columns = [str(name) for name in frame.columns]
    request.check_columns(columns)
    if not (request.label or request.target) or not (request.group or request.goal):
        needed = "--data needs --label or --target COLUMN, and --group COLUMN or --goal NAME"
        raise refusal(needed, f"columns: {', '.join(columns[:20])}")
    label = _label(frame[request.columns[0]], request)
    goals = find_goals(request, float(np.nanstd(label.values)))
    groups = find_groups(frame, request)
    features = find_features(frame, request, groups, form)
    algorithms, others = _algorithms(request, goals, frame)
    current = {"column": request.deployed, "positive": request.deployed_positive}
    slug = re.sub(r"[^a-z0-9._-]+", "-", request.path.stem.lower()).strip("-._")[:60]
    facts = _rules_and_metrics(request, goals, groups) | {
        "request": request,
        "form": form,
        "unsure": unsure,
        "slug": slug or "my-table",
        "path": _relative_table_path(request),
        "keys": {**form.stated(), **label.keys, **features.keys()},
        "names": [str(name) for name in features.used],
        "features": features,
        "leaks": list(find_leaks(features.used, label.values)) if request.label else [],
        "groups": groups,
        "min_rows": MIN_ROWS,
        "label": label,
        "goals": goals,
        "strict_goals": list(_strict_goals(goals, groups, label.values)),
        "deployed": {key: value for key, value in current.items() if value},
        "algorithms": algorithms,
        "others": others,
    }
    text = render_text(FOLDER / "own-table.yaml.jinja", facts, FILTERS)
    notes = render_text(FOLDER / "own-table.notes.jinja", facts, FILTERS)
    return Starter(text, tuple(notes.rstrip("\n").split("\n")), _check_starter(text, request.path))


def sniff_table(request: StarterOptions) -> tuple[TextFormat, pd.DataFrame, str]:
    """Return the format of the table, as far as options do not state it, its columns, and a note.

    The note says what is unsure about the notation of numbers; "" if nothing is.

    Raises
    ------
    FaultError
        E104 for an invalid format; E404, E405 if the file is not a table.
    """
    assert request.data is not None
    given = {key: getattr(request, key) for key in FORMAT_KEYS}
    with read_errors(str(request.data)):
        check_is_file(str(request.data), request.data, "give the path of a CSV or Parquet file")
        is_csv = own.table_format(request.data) == "csv"
        form = (sniff_format(request.data) if is_csv else PLAIN).updated(given)
    file, table = own.read_table_file(request.data, form)
    first = table.slice(0, SNIFFED_ROWS)
    words = {
        name: own.read_words(file, name, first.column(name).unique()).words.tolist()
        for name in first.column_names
        if own.is_text_type(first.column(name).type)
    }
    form, unsure = sniff_notation(words, form, given, file.separator)
    return form, own.read_own_table(replace(file, form=form)), unsure


Entry: TypeAlias = tuple[str, dict[str, Any], str]
"""An algorithm, its options, and why it is chosen."""


def _algorithms(
    request: StarterOptions, goals: Sequence[StarterGoal], frame: pd.DataFrame
) -> tuple[list[Entry], list[Entry]]:
    """Return the algorithms to run, the chosen one last, and others to choose from.

    Without a score, the baseline is the kind of model that the others train. Raises E104 or E202
    for a model that the chosen algorithm cannot train.
    """
    compares = bool(request.group) and any(goal.by_groups for goal in goals)
    chosen = "post_shift"
    if request.target:
        chosen = "least_squares"
    elif not request.score and (compares or any(goal.name == "churn" for goal in goals)):
        chosen = "mixture"
    model: dict[str, Any] = {"model": request.model} if request.model else {}
    if request.score:
        model = {"model": {"score": request.score}}
    make_solver(chosen, model, ())
    why = all_algorithms()[chosen].choice
    if chosen == "post_shift" and not (compares and request.score):
        why = "thresholds on the score of a model"
    found = [(chosen, model, why)]
    # names such as `plugin` are the chosen algorithm's alone
    common = model if request.score or class_path(request.model) else {}
    if not request.score or _are_probabilities(frame[request.score]):
        loss = {"loss": "squared" if request.target else "logistic"}
        found.insert(0, ("unconstrained", common or loss, ""))
    others = list[Entry]()
    if request.group and chosen == "mixture":  # models trained here do not use the groups
        others = [("post_shift", common, all_algorithms()["post_shift"].choice)]
    return found, others


def _are_probabilities(column: pd.Series) -> bool:
    return not is_text(column) and bool(column.between(0, 1).all())


@dataclass(frozen=True)
class Label:
    """The label of a table: its keys in a file, its values (n,), and what the notes say of it.

    `words` are the positive and the negative value; empty for numbers.
    """

    keys: Mapping[str, Any]
    values: Floats
    words: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, float]:
        """Facts about labels that are numbers."""
        y = self.values
        found = {"low": np.nanmin(y), "high": np.nanmax(y), "mean": np.nanmean(y)}
        return {name: float(value) for name, value in (found | {"mse": np.nanvar(y)}).items()}

    @property
    def unlabelled(self) -> int:
        return int(np.isnan(self.values).sum())


def _label(column: pd.Series, request: StarterOptions) -> Label:
    if not request.target:
        words = _label_values(column, request)
        return Label({"positive": words[0]}, read_label(column, request.label, words[0]), words)
    values = read_number_label(column, (-math.inf, math.inf))
    if not np.nanstd(values) > 0:
        message = f"the label '{request.target}' has only one value"
        raise FaultError(Diagnostic("E406", message, "name another column"))
    return Label({"target": "number"}, values)


def _label_values(column: pd.Series, request: StarterOptions) -> tuple[str, str]:
    """Return the label's two values as written in the table, the positive one first."""
    shown = label_values(column.dropna().unique())
    if request.positive is None and len(shown) == 2 and not set(shown) <= BOOLEAN_LABELS:
        one, other = sorted(shown.values())
        message = (
            f"the label '{request.label}' has the values '{one}' and '{other}': "
            "which value is positive?"
        )
        hint = f"write --positive {json.dumps(one)} or --positive {json.dumps(other)}"
        raise FaultError(Diagnostic("E406", message, hint))
    # raises if the label cannot be used
    label = read_label(column, request.label, request.positive)
    yes = column[label == 1].iloc[0]
    return str(yes), next(word for code, word in shown.items() if code != value_key(yes))


def _strict_goals(
    goals: Sequence[StarterGoal], groups: Groups, label: Floats
) -> Iterator[dict[str, Any]]:
    """Yield goals whose limits models can hardly satisfy on new rows, with what says so.

    A difference of two rates is known to within the normal quantile of `holds` times its standard
    error, for the two groups with the fewest training rows, at rates of one half.
    """
    counted = {"selection_rate": label >= 0, "tpr": label == 1, "fpr": label == 0}
    for goal in goals:
        assert goal.limit is not None
        mse = float(np.nanvar(label))
        if goal.rate == "mse" and not MIN_MSE_SHARE * mse <= goal.limit < mse:
            yield {"goal": goal, "mse": mse}
        if goal.rate not in counted or not goal.by_groups or len(groups.members) < 2:
            continue
        rows = {name: (own & counted[goal.rate]).sum() for name, own in groups.members.items()}
        (name, fewest), (_, more), *_ = sorted(rows.items(), key=lambda item: item[1])
        error = ndtri(DEFAULT_LEVEL) * EXTRA_NOISE / 2
        error *= math.sqrt(1 / max(TRAIN_SHARE * fewest, 1) + 1 / max(TRAIN_SHARE * more, 1))
        if error > ((1 - goal.limit) * np.nanmean(label) if goal.at_least else goal.limit):
            yield {"goal": goal, "group": name, "rows": fewest, "error": error}


def _check_starter(text: str, path: Path) -> tuple[Diagnostic, ...]:
    """Return warnings about the experiment; raise the errors that would keep it from running.

    Both come without places, since the file is not written yet.
    """
    try:
        found = prepare_document(Document.of_text(text, path)).warnings
    except FaultError as error:
        raise FaultError([replace(fault, place=None) for fault in error.faults]) from None
    shown = (replace(fault, place=None, loc=(), span=None) for fault in found)
    return tuple(dict.fromkeys(shown))


def _rules_and_metrics(
    request: StarterOptions, goals: Sequence[StarterGoal], groups: Groups
) -> dict[str, Any]:
    """Return the constraints and metrics by name, and those that tables and plots show."""
    by = ", ".join(quote(each) for each in request.group)
    by = f"[{by}]" if len(request.group) > 1 or groups.left_out else by
    error = "mse" if request.target else "error"
    rules, metrics = dict[str, str](), {error: error}
    for goal in goals:
        measure = ((by and goal.by_groups) or goal.whole).format(by=by)
        rule, shown = goal.name.replace("-", "_"), measure.partition("(")[0]
        shown = shown if shown in MEASURES else rule if rule != error else f"largest_{error}"
        rules[rule] = goal.rule(measure, goal.limit_text if rules else "limit")
        metrics |= {shown: measure} if measure != error else {}
    metrics |= {"churn": "churn"} if request.deployed else {}
    rate = goals[0].rate
    of_groups = {f"{rate}_{group}": f"{rate}[{group}]" for group in groups.conditions}
    columns = [*metrics, *(of_groups if len(metrics | of_groups) <= MAX_COLUMNS else ())]
    metrics |= of_groups
    return {
        "error": error,
        "rules": rules,
        "metrics": metrics,
        "columns": [*columns, *(f"violation.{rule}" for rule in rules)],
        "shown": [*metrics, "limit"][1],
    }


def _relative_table_path(request: StarterOptions) -> str:
    """Return the table's path, relative if it is in the experiment's folder."""
    assert request.data is not None
    folder, table = request.path.absolute().parent, request.data.absolute()
    return table.relative_to(folder).as_posix() if table.is_relative_to(folder) else str(table)


def _yaml(value: Any) -> str:
    """Return the value as YAML on one line, quoted if needed."""
    options: dict[str, Any] = {"default_flow_style": True, "width": 10**9}
    text = str(yaml.safe_dump(value, allow_unicode=True, **options))
    if text != terminal_safe(text):
        text = str(yaml.safe_dump(value, **options))  # with escapes
    return text.removesuffix("\n").removesuffix("\n...")


FILTERS: dict[str, Callable[..., str]] = {
    "yaml": _yaml,
    "quoted": quoted,
    "counts": format_counts,
    "rows": format_rows,
    "number": "{:g}".format,
    "safe_text": terminal_safe,
}
"""What the templates apply to values."""
