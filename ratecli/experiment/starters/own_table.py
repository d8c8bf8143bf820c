"""Writes a starter experiment for a user's table, from its columns and values.

Every assumption is reported as a note.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from pandas.api.types import is_numeric_dtype
from scipy.special import ndtri

from ratecli.config.document import Document
from ratecli.datasets import tables as own
from ratecli.datasets.columns import (
    as_array,
    as_float_array,
    is_text,
    label_values,
    read_label,
    read_number,
    value_key,
)
from ratecli.datasets.tables import read_table_file
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.catalogue import STARTERS
from ratecli.experiment.choices import use_and_limits_of, use_of
from ratecli.experiment.prepare import prepare_document
from ratecli.experiment.slice_columns import SliceColumns
from ratecli.experiment.starters.goals import StarterGoal, find_goals
from ratecli.experiment.starters.options import Starter, StarterOptions
from ratecli.rates.expression import Slice
from ratecli.rates.resolve import MIN_ROWS, cut_groups
from ratecli.rates.sample import Floats, Mask
from ratecli.rates.scope import Conditions
from ratecli.rates.syntax import SPLITS, Condition, is_date, parse_number, quote
from ratecli.rates.table import MEASURES
from ratecli.solvers.margin import DEFAULT_LEVEL, EXTRA_NOISE

MAX_GROUPS = 8
MAX_FEATURES_SHOWN = 12
MIN_MSE_SHARE = 0.01
"""An mse below this share of the label's variance is reported as possibly out of reach."""
TRAIN_SHARE = 2 / 3
"""Share of the rows that the starter file trains on."""
MAX_COLUMNS = 10
"""With more metrics, the table of the results leaves out the rates of groups."""
FEW_DATES = 10
"""Up to this number of dates are categories, such as the days of cohorts."""
MAX_CATEGORIES = 50
"""Maximum number of values of a text column to be used as a feature, one indicator each."""
DATE = re.compile(r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{4}.*")
"""Texts that are dates, perhaps with a time."""
THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(,\d{3})+")
"""Numbers with commas between thousands; `0,125` has a decimal comma."""
WEIGHT = re.compile(r'"(.*[ _])?weight"', re.IGNORECASE)
ID = re.compile(r"(.*[ _-])?(id|ID|Id|key)|.*[a-z]I[dD]")
"""Names of columns that identify rows."""
DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
IN_USE = "decisions in use; to use them as a feature, too, copy the column under another name"
GAPS = "some values are missing, and only the score is used"
OTHER_PARTS = "another column of train and test"
DROPPED = """
    # Columns under `drop` are not features; constraints and metrics can still use them."""
MAX_STRAY_SHARE = 0.1
"""Largest share of texts in a column of numbers."""
MIN_EQUAL_PAIRS = 10
"""Numbers that all differ are IDs if random ones would have more equal pairs than this."""
LEAK_AREA = 0.99
"""Area under the ROC curve of a feature alone above which it is reported."""
MIN_KNOWN_NUMBERS = 10
"""Minimum number of known values of a numeric feature, so that training rows have some."""
BOOLEAN_LABELS = {"0", "1", "-1", "false", "true"}
"""Labels for which the positive value is clear."""


def own_table_starter(request: StarterOptions) -> Starter:
    """Return an experiment on the table that runs without changes.

    Raises
    ------
    FaultError
        E104, E404, E405 if the file is not a table, E104 for an unknown goal; E205 for a missing
        column; E406 for a label that does not have two values or whose positive value is unclear;
        E411 for a column that defines no groups. Anything else that keeps the table from a run
        raises the same error as the run.
    """
    assert request.data is not None
    separator = request.separator or own.separator_of(request.data)
    frame = read_table_file(request.data, separator, own.read_own_table)
    request.check_columns(list(frame.columns))
    keys, notes, label = _label_keys(frame[request.columns[0]], request)
    goals = find_goals(request, float(np.nanstd(label)))
    groups = _find_groups(frame, request)
    # without the groups as features, mean errors of groups can hardly be equal
    hidden = () if request.target else request.group
    others = [name for name in request.columns if name in hidden or name not in request.group]
    parts = [name for name in frame.drop(columns=others) if _has_parts(frame[name])][:1]
    features = frame.drop(columns=list(dict.fromkeys([*others, *parts])))
    reasons = {
        str(each): OTHER_PARTS if _has_parts(column) else _unusable_reason(column)
        for each, column in features.items()
    }
    left_out = {each: reason for each, reason in reasons.items() if reason}
    used = features.drop(columns=[*features] if request.score else list(left_out))
    empty = {name: rows for name, rows in used.isna().sum().items() if rows}
    gaps = {name: rows for name, rows in empty.items() if is_numeric_dtype(used[name])}
    unknown = {name: rows for name, rows in empty.items() if name not in gaps}
    if separator != own.separator_of(request.data):
        keys = {"separator": separator, **keys}
    if request.score:
        numbers = features.select_dtypes("number")  # unused, so gaps in them do not matter
        left_out = {str(each): GAPS for each in numbers if numbers[each].isna().any()}
        keys |= {"scores": [request.score], "drop": [*hidden, *left_out]}
    else:
        keys |= {"drop": [*hidden, *left_out]} | ({"missing": "mean"} if gaps else {})
        keys["categorical"] = [str(name) for name in used if _is_code(used[name], groups)]
    algorithms = _algorithms(request, goals, frame)
    algorithm, why = list(algorithms.items())[-1]
    keys = {key: value for key, value in keys.items() if value != []}
    entry = _entry_lines(keys, left_out, *parts)
    text = _write_starter(request, entry, goals, groups, algorithms)
    notes += [f"split    {_quoted(name)} says which rows to train and to test on" for name in parts]
    notes += [f"{'groups':9}{line}" for line in _group_notes(frame, request, groups)]
    if request.target and request.group:
        notes.append("features include the groups: add them to drop to estimate without them")
    if not request.score:
        reasons = left_out | ({request.deployed: IN_USE} if request.deployed else {})
        codes = keys.get("categorical", [])
        notes += _feature_notes(used, reasons, codes, label, classes=bool(request.label))
    if gaps:
        notes.append(f"missing  {_format_counts(gaps)}: set to the mean, and marked by a feature")
    if unknown:
        notes.append(f"missing  {_format_counts(unknown)}: a category of its own")
    if request.goal or request.target:
        notes += [f"goal     {goal}: {goal.requirement()}" for goal in goals]
    notes += [f"check    {line}" for line in _strict_goals(goals, groups, label)]
    notes.append(f"chosen   {algorithm}: {'the choice ' * why.startswith('if ')}{why}")
    if named := _alternatives(request, algorithms, goals):
        notes.append(f"others   {' and '.join(named)}: see the comments in the file")
    return Starter(text, tuple(notes), _check_starter(text, request.path))


def _algorithms(
    request: StarterOptions, goals: Sequence[StarterGoal], frame: pd.DataFrame
) -> dict[str, str]:
    """Return the algorithms to run and why, the chosen one last."""
    baseline = not request.score or _are_probabilities(frame[request.score])
    return dict([("unconstrained", "")] * baseline + [_algorithm(request, goals)])


def _algorithm(request: StarterOptions, goals: Sequence[StarterGoal]) -> tuple[str, str]:
    """Return the algorithm to use and why. Models trained here do not use the groups."""
    compares = bool(request.group) and any(goal.by_groups for goal in goals)
    if request.target:
        name = "least_squares"
    elif compares and request.score:
        name = "post_shift"
    elif not request.score and (compares or any(goal.name == "churn" for goal in goals)):
        name = "mixture"
    else:
        return "post_shift", "thresholds on the score of a model"
    return name, use_of(name)


def _alternatives(
    request: StarterOptions, algorithms: Iterable[str], goals: Sequence[StarterGoal]
) -> tuple[str, ...]:
    """Return the algorithms that comments of the file name beside the chosen one."""
    if not request.group or "mixture" not in algorithms:
        return ()
    affine = all(goal.name != "predictive-parity" for goal in goals)
    return ("post_shift", "majorize") if affine else ("post_shift",)


def _has_parts(column: pd.Series) -> bool:
    """Whether a column says which rows to train on and to test on."""
    return is_text(column) and {"train", "test"} <= set(column) <= set(SPLITS)


def _are_probabilities(column: pd.Series) -> bool:
    return not is_text(column) and bool(column.between(0, 1).all())


def _label_keys(
    column: pd.Series, request: StarterOptions
) -> tuple[dict[str, Any], list[str], Floats]:
    """Return the keys of the data set about its label, notes on it, and the labels (n,)."""
    name = f"label    {_quoted(request.columns[0])}"
    if request.target:
        label = read_number(column, request.target, (-math.inf, math.inf))
        if not np.nanstd(label) > 0:
            message = f"the label '{request.target}' has only one value"
            raise FaultError(Diagnostic("E406", message, "name another column"))
        low, high = np.nanmin(label), np.nanmax(label)
        mean, mse = np.nanmean(label), np.nanvar(label)
        note = f"{name}: numbers from {low:g} to {high:g}, mean {mean:.4g}, whose mse is {mse:.4g}"
        keys = {"target": "number"}
    else:
        positive, negative = _label_values(column, request)
        label = read_label(column, request.label, positive)
        note = f"{name}: {_quoted(positive)} is positive, {_quoted(negative)} is negative"
        keys = {"positive": positive}
    if unlabelled := int(np.isnan(label).sum()):
        note += f"; {_format_row_count(unlabelled)} without a label"
    return keys, [note], label


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


def _bins(column: pd.Series) -> list[float]:
    """Return where to cut a column of many numbers into groups; empty if each value is a group."""
    if is_text(column) or column.nunique() <= MAX_GROUPS:
        return []
    values = as_float_array(column)
    cuts = np.nanquantile(values, [0.25, 0.5, 0.75])
    least, most = np.nanmin(values), np.nanmax(values)
    exact = {float(cut) for cut in cuts if least < cut}
    for digits in range(2, 18):
        rounded = {float(f"{cut:.{digits}g}") for cut in exact}
        if len(rounded) == len(exact) and all(least < cut <= most for cut in rounded):
            break
    return [int(cut) if cut.is_integer() else cut for cut in sorted(rounded)]


@dataclass(frozen=True)
class Groups:
    """Groups of the rows of a table.

    Attributes
    ----------
    columns
        The columns that define them.
    bins
        Where columns of many numbers are cut.
    conditions, members
        The conditions of each group and its rows (n,), by a name for rules.
    left_out
        Whether groups with fewer than `MIN_ROWS` rows are left out.
    """

    columns: Sequence[str]
    bins: Mapping[str, Sequence[float]]
    conditions: Mapping[str, str]
    members: Mapping[str, Mask]
    left_out: bool

    @cached_property
    def rows(self) -> dict[str, int]:
        """Number of rows of each group."""
        return {name: int(members.sum()) for name, members in self.members.items()}


def _find_groups(frame: pd.DataFrame, request: StarterOptions) -> Groups:
    """Return the groups of the named columns; combinations with few rows are left out."""
    cuts = {each: _bins(frame[each]) for each in request.group}
    parts = list[dict[str, Conditions]]()
    for name in request.group:
        if cuts[name]:
            groups = cut_groups(name, cuts[name])
            edges = [f"{cut:g}".replace("-", "minus_") for cut in cuts[name]]
            between = [f"{low}_to_{high}" for low, high in itertools.pairwise(edges)]
            names = _group_names(name, [f"below_{edges[0]}", *between, f"from_{edges[-1]}"])
            parts.append(dict(zip(names, groups, strict=True)))
        else:
            values = _group_values(frame[name], name)
            written = (each if isinstance(each, str) else float(each) for each in values)
            groups = [(Condition(name, "=", (each,)),) for each in written]
            parts.append(dict(zip(_group_names(name, values), groups, strict=True)))
    columns = SliceColumns({name: as_array(frame[name]) for name in request.group})
    conditions, members = dict[str, str](), dict[str, Mask]()
    for choice in itertools.product(*(part.items() for part in parts)) if parts else ():
        name = "__".join(each for each, _ in choice)
        group = tuple(itertools.chain(*(each for _, each in choice)))
        conditions[name], members[name] = str(Slice((), group)), columns.rows(group)
    enough = {name: found for name, found in members.items() if found.sum() >= MIN_ROWS}
    if len(parts) > 1 or len(enough) > 1:
        members = enough
    kept = {name: conditions[name] for name in members}
    left_out = len(members) < len(conditions)
    bins = {name: found for name, found in cuts.items() if found}
    return Groups(request.group, bins, kept, members, left_out)


def _is_code(column: pd.Series, groups: Groups) -> bool:
    """Whether a feature is a column of groups with more than two values, whole numbers."""
    if is_text(column) or column.name not in groups.columns or column.name in groups.bins:
        return False
    known = column.dropna()
    return known.nunique() > 2 and bool((known % 1 == 0).all())


def _group_values(column: pd.Series, name: str) -> list[Any]:
    """Return the values of the column, sorted."""
    values = column.dropna().unique().tolist()
    if not 2 <= len(values) <= MAX_GROUPS:
        what = "only one value" if len(values) == 1 else f"{len(values)} values"
        message = (
            f"the column '{name}' has {what}: each value is a group, "
            f"and 2 to {MAX_GROUPS} can be compared"
        )
        hint = "name another column with --group, or add one to the table with each row's group"
        raise FaultError(Diagnostic("E411", message, hint))
    return sorted(values)


def _group_notes(
    frame: pd.DataFrame,
    request: StarterOptions,
    groups: Groups,
) -> Iterator[str]:
    """Say which groups there are, and how many rows belong to none."""
    for name in request.group:
        missing = int(frame[name].isna().sum())
        tail = f"; {_format_row_count(missing)} without a value belong to no group" * bool(missing)
        if name in groups.bins:
            cuts = ", ".join(f"{cut:g}" for cut in groups.bins[name])
            yield f"{_quoted(name)}: cut at {cuts}{tail}"
        else:
            counts = frame[name].value_counts()
            shown = {value: int(counts[value]) for value in _group_values(frame[name], name)}
            yield f"{_quoted(name)}: {_format_counts(shown)}{tail}"
    if len(request.group) > 1:
        kept = f"{len(groups.rows)} combinations with at least {MIN_ROWS} rows"
        if groups.rows:
            smallest = min(groups.rows, key=lambda name: groups.rows[name])
            kept += f", the smallest {groups.conditions[smallest]} ({groups.rows[smallest]})"
        yield kept


def _feature_notes(
    features: pd.DataFrame,
    left_out: Mapping[str, str],
    codes: Sequence[str],
    label: Floats,
    *,
    classes: bool,
) -> Iterator[str]:
    """Name the features, the columns left out with the reasons, and features to check."""
    names = [_quoted(each) for each in features]
    more = f", ... ({len(names)} in all)" if len(names) > MAX_FEATURES_SHOWN else ""
    yield f"features {', '.join(names[:MAX_FEATURES_SHOWN])}{more}"
    for name, reason in left_out.items():
        yield f"left out {_quoted(name)}: {reason}"
    for name in codes:
        yield f"codes    {_quoted(name)}: categories, not numbers"
    for name in filter(WEIGHT.fullmatch, names):
        way = f"add `weight: {name}` to the data set, and drop it"
        yield f"check    {name}: if it weighs rows, {way}"
    for line in _leaks(features, label) if classes else ():
        yield f"check    {line}"


def _leaks(features: pd.DataFrame, label: Floats) -> Iterator[str]:
    """Say which features alone nearly determine the label."""
    known = ~np.isnan(label)
    for name, column in features.items():
        score = _category_means(column, label) if is_text(column) else as_float_array(column)
        both = known & np.isfinite(score)
        if len(np.unique(label[both])) < 2:
            continue
        yes, ranks = label[both] == 1, pd.Series(score[both]).rank()
        area = (ranks[yes].mean() - (yes.sum() + 1) / 2) / (~yes).sum()  # of the ROC curve
        if max(area, 1 - area) > LEAK_AREA:
            yield (
                f"{_quoted(name)} alone predicts the label (AUC {max(area, 1 - area):.4f}): "
                "add it to drop if it is unknown when decisions are made"
            )


def _strict_goals(goals: Sequence[StarterGoal], groups: Groups, label: Floats) -> Iterator[str]:
    """Say which limits models can hardly satisfy on new rows.

    A difference of two rates is known to within the normal quantile of `holds` times its standard
    error, for the two groups with the fewest training rows, at rates of one half.
    """
    counted = {"selection_rate": label >= 0, "tpr": label == 1, "fpr": label == 0}
    for goal in goals:
        assert goal.limit is not None
        mse = float(np.nanvar(label))
        if goal.rate == "mse" and not MIN_MSE_SHARE * mse <= goal.limit < mse:
            what = "may restrict no model" if goal.limit >= mse else "may be out of reach"
            yield f"{goal}: the mse of the mean is {mse:.4g}, so this {what}"
        if goal.rate not in counted or not goal.by_groups or len(groups.members) < 2:
            continue
        rows = {name: (own & counted[goal.rate]).sum() for name, own in groups.members.items()}
        (name, fewest), (_, more), *_ = sorted(rows.items(), key=lambda item: item[1])
        error = ndtri(DEFAULT_LEVEL) * EXTRA_NOISE / 2
        error *= math.sqrt(1 / max(TRAIN_SHARE * fewest, 1) + 1 / max(TRAIN_SHARE * more, 1))
        allowed = (1 - goal.limit) * np.nanmean(label) if goal.at_least else goal.limit
        if error > allowed:
            kind = {"tpr": "positive ", "fpr": "negative "}.get(goal.rate, "")
            yield (
                f"{goal}: {name} has {fewest} {kind}rows, and the sampling error alone is about "
                f"{error:.2g}: a model is unlikely at this limit, and looser limits may work"
            )


def _category_means(column: pd.Series, label: Floats) -> Floats:
    """Return the mean label (n,) of the rows with the same text."""
    means = pd.Series(label).groupby(column.to_numpy(), dropna=False).transform("mean")
    return means.to_numpy(dtype=np.float64)


def _unusable_reason(column: pd.Series) -> str:
    """Return why a column cannot be a feature as it is, "" if it can."""
    if is_text(column):
        words = sorted(set(column) - {None})
        if len(words) > FEW_DATES and all(map(DATE.fullmatch, words)):
            way = "dates: to train with them, add numbers such as a year or an age"
            newest = f"; `split: {{order: {_quoted(column.name)}, test: 1/3}}` tests on the newest"
            return way + newest * all(map(is_date, words))
        if len(words) <= MAX_CATEGORIES:
            return ""
        if all(map(THOUSANDS.fullmatch, words)):
            way = "write them without (pandas: read_csv(FILE, thousands=','))"
            return f"numbers with commas between thousands: {way}"
        if all(map(DECIMAL_COMMA.fullmatch, words)):
            way = "write them with a point (pandas: read_csv(FILE, decimal=','))"
            return f"numbers with a decimal comma: {way}"
        others = [word for word in words if math.isnan(parse_number(word))]
        if 0 < len(others) <= MAX_STRAY_SHARE * len(words):
            return f"numbers, except for {_quoted(others[0])}: leave such cells empty"
        if len(words) < len(column):
            return f"{len(words)} different texts, too many for categories"
        return f"{len(words)} different texts: probably a row ID"
    return _unusable_numbers(as_float_array(column), str(column.name))


def _unusable_numbers(values: Floats, name: str) -> str:
    """Return why numbers (n,) cannot be a feature, "" if they can."""
    count = int(np.isfinite(values).sum())
    if count < min(len(values), MIN_KNOWN_NUMBERS):
        return f"only {_format_row_count(count)} with a number: fill in more to use it"
    if len(values) > 1 and (np.diff(values) == 1).all():
        return "consecutive row numbers"
    if not len(np.unique(values)) == len(values) == count > MIN_ROWS:
        return ""
    dense = 2 * MIN_EQUAL_PAIRS * np.ptp(values) < len(values) ** 2
    is_id = (dense and (values % 1 == 0).all()) or ID.fullmatch(name)
    return "a different number in each row: probably a row ID" if is_id else ""


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


def _entry_lines(keys: Mapping[str, Any], left_out: Mapping[str, str], split_by: str = "") -> str:
    """Return the lines of the data set's keys, with the reason for each column that is left out."""
    reasons = (f"\n    # {_quoted(name)}: {reason}" for name, reason in left_out.items())
    split = _yaml({"by": split_by}) if split_by else "{train: 2/3, test: 1/3}"
    dropped = DROPPED * ("drop" in keys) + "".join(reasons)
    return f"{_yaml_lines(keys, 4)}{dropped}\n    split: {split}"


def _write_starter(
    request: StarterOptions,
    keys: str,
    goals: Sequence[StarterGoal],
    groups: Groups,
    algorithms: Mapping[str, str],
) -> str:
    columns = [quote(each) for each in request.group]
    joint = len(columns) > 1 or groups.left_out
    by = f"[{', '.join(columns)}]" if joint else "".join(columns)
    rate, error = goals[0].rate, "mse" if request.target else "error"
    rules, metrics = dict[str, str](), {error: error}
    for goal in goals:
        measure = ((columns and goal.by_groups) or goal.whole).format(by=by)
        rule, shown = goal.name.replace("-", "_"), measure.partition("(")[0]
        shown = shown if shown in MEASURES else rule if rule != error else f"largest_{error}"
        rules[rule] = goal.rule(measure, goal.limit_text if rules else "limit")
        metrics |= {shown: measure} if measure != error else {}
    metrics |= {"churn": "churn"} if request.deployed else {}
    of_groups = {f"{rate}_{group}": f"{rate}[{group}]" for group in groups.conditions}
    columns_shown = [*metrics, *(of_groups if len(metrics | of_groups) <= MAX_COLUMNS else ())]
    metrics |= of_groups
    # without a score, the baseline is the kind of model that the others train
    options: dict[str, Any] = {
        "unconstrained": {"loss": "squared" if request.target else "logistic"}
    }
    if request.score:
        options = {name: {"model": {"score": request.score}} for name in algorithms}
    entries = [
        f"  - {_yaml({each: options[each]} if each in options else each)}"
        + f"  # {why}" * bool(why)
        for each, why in algorithms.items()
    ]
    alternatives = _alternatives(request, algorithms, goals)
    entries += [f"  # - {each}  # {use_and_limits_of(each)}" for each in alternatives]
    target, several = goals[0], len(goals) > 1
    question = f"What {'do' if several else 'does'} the goal{'s' * several}"
    current = {"column": request.deployed, "positive": request.deployed_positive}
    current = {key: value for key, value in current.items() if value}
    deployed = f"\ndeployed: {_yaml(current)}\n" if request.deployed else ""
    template = (STARTERS / "own-table.yaml.template").read_text("utf-8")
    return template.format(
        slug=_slug(request.path.stem),
        question=f"{question} {' and '.join(map(str, goals))} cost?",
        path=_yaml(_relative_table_path(request)),
        label=_yaml(request.columns[0]),
        keys=keys,
        bins=f"\nbins:\n{_yaml_lines(groups.bins)}\n" if groups.bins else "",
        groups=f"\ngroups:\n{_yaml_lines(groups.conditions)}\n" if groups.conditions else "",
        deployed=deployed,
        means="\n# ".join([target.means, *(goal.requirement() for goal in goals[1:])]),
        error=error,
        rules=_yaml_lines(rules),
        limits=_yaml(target.limits()),
        target=target.limit_text,
        algorithms="\n".join(entries),
        metrics=_yaml_lines(metrics),
        columns=", ".join([*columns_shown, *(f"violation.{rule}" for rule in rules)]),
        shown=[*metrics, "limit"][1],
    )


def _relative_table_path(request: StarterOptions) -> str:
    """Return the table's path, relative if it is in the experiment's folder."""
    assert request.data is not None
    folder, table = request.path.absolute().parent, request.data.absolute()
    return table.relative_to(folder).as_posix() if table.is_relative_to(folder) else str(table)


def _slug(stem: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")[:60] or "my-table"


def _group_names(column: str, values: Iterable[Any]) -> list[str]:
    """Return unique names for groups that can be used in rules, such as `sex_Female`."""
    found: list[str] = []
    for value in values:
        text = unicodedata.normalize("NFKD", f"{column}_{value}")  # accents become characters
        plain = text.encode("ascii", "ignore").decode()
        name = re.sub("[^A-Za-z0-9]+", "_", plain).strip("_")[:60] or "group"
        name = name if re.match("[A-Za-z_]", name) else f"group_{name}"
        taken = [each for each in found if each == name or each.startswith(f"{name}__")]
        found.append(f"{name}__{len(taken) + 1}" if taken else name)
    return found


def _yaml_lines(values: Mapping[str, Any], indent: int = 2) -> str:
    return "\n".join(f"{' ' * indent}{name}: {_yaml(value)}" for name, value in values.items())


def _yaml(value: Any) -> str:
    """Return the value as YAML on one line, quoted if needed."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")


def _format_counts(rows: Mapping[Any, int]) -> str:
    return ", ".join(
        f"{_quoted(name)} ({_format_row_count(count)})" for name, count in rows.items()
    )


def _format_row_count(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _quoted(value: Any) -> str:
    """Quote a column or value for a message, on one line."""
    return json.dumps(str(value), ensure_ascii=False)
