"""The model card of one variant of a trial, as Markdown or HTML: data, goals, results, limits.

It is made from the ledger beside the model, without the data.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.special import ndtri

from ratecli.apply.export.parts import is_random
from ratecli.apply.predict import StoredModel, load_applicable_model
from ratecli.datasets.columns import MISSING_CATEGORY
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.options import default_options
from ratecli.experiment.registry import list_metrics
from ratecli.files import LEDGER_FILE, atomic_write, shell_command
from ratecli.ledger.records import (
    BEST_CONSTANT_KEY,
    CONSTRAINT_TOLERANCE,
    GROUP_RATES_KEY,
    NEW_DATA_KEY,
    VIOLATION_PREFIX,
    PlannedTrial,
    is_no_better,
)
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.ledger.violations import measured_violation
from ratecli.render import terminal_safe
from ratecli.report.answer_text import incomplete_notes
from ratecli.report.certificates import RATIO_NOTE, collect_certificates
from ratecli.report.frame import LEVEL, estimate_share
from ratecli.report.groups import group_names, group_rules, seed_groups, trial_datasets
from ratecli.report.html import render_template
from ratecli.report.sheet import (
    UNKNOWN,
    Sheet,
    SheetCell,
    SheetRow,
    check_mark,
    escape,
    estimate_cell,
    format_number,
    format_point,
    make_sheet,
    number_cell,
    to_markdown,
)
from ratecli.report.write import trials_with_files, with_manifest
from ratecli.solvers.registry import all_algorithms

FEW_ROWS = 30
"""Rates of groups with fewer new rows are too uncertain to rely on."""
QUANTILE = float(ndtri((1 + LEVEL) / 2))
"""Half-width of an interval, in standard errors."""
HTML_SUFFIXES = (".html", ".htm")
SPLITS = {
    "train": "training rows",
    "validation": "validation rows",
    "test": "new rows",
    "safety": "rows of the safety test",
}
CERTIFIED = (
    "Tested on rows that training did not see. A model that violates a constraint passes with a "
    "probability of at most delta. " + RATIO_NOTE
)
RATES = {
    "positive_rate": "positive decisions",
    "tpr": "true positive rate",
    "fpr": "false positive rate",
    "error": "wrong decisions",
    "mean_error": "mean error",
    "mse": "mean squared error",
}


@dataclass(frozen=True)
class Section:
    """A part of a card: a text, facts by name, a table, a list and commands, each if any."""

    title: str
    text: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    sheet: Sheet | None = None
    items: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Card:
    """A model card; `notes` come first, such as that the data stands in for another."""

    title: str
    about: str
    notes: tuple[str, ...]
    sections: tuple[Section, ...]


def write_card(path: Path, output: Path | None = None, variant: str | None = None) -> list[Path]:
    """Write the card of a model as Markdown and HTML, or as what `output` ends in.

    `path` and `variant` are those of `load_applicable_model`. Return the files.

    Raises
    ------
    FaultError
        As `load_applicable_model`; E503 if the model is not in a results folder, E505 if a file
        cannot be written.
    """
    model = load_applicable_model(path, variant)
    card = model_card(model, path if path.is_dir() else path.parent)
    stem = f"{model.folder}-card"
    places = [output] if output else [Path(f"{stem}.md"), Path(f"{stem}.html")]
    for place in places:
        is_page = place.suffix.lower() in HTML_SUFFIXES
        atomic_write(place, card_html(card) if is_page else card_markdown(card))
    return places


def card_markdown(card: Card) -> str:
    """Return the card as Markdown."""
    parts = [f"# {escape(card.title)}", card.about, *(f"**{note}**" for note in card.notes)]
    for section in card.sections:
        parts.append(f"## {section.title}")
        parts += [section.text] if section.text else []
        facts = [
            (escape(name), text if text[0] == "`" else escape(text)) for name, text in section.facts
        ]
        parts.append("\n".join(f"- {name}: {text}" for name, text in facts))
        if section.sheet is not None:
            parts.append(to_markdown(section.sheet).partition("\n\n")[2].strip())
        parts.append("\n".join(f"- {escape(item)}" for item in section.items))
        if section.commands:
            parts.append("\n".join(["```sh", *section.commands, "```"]))
    return terminal_safe("\n\n".join(part for part in parts if part) + "\n")


def card_html(card: Card) -> str:
    """Return the card as a self-contained page."""
    return render_template("card.html.j2", card=card)


def model_card(model: StoredModel, folder: Path) -> Card:
    """Return the card of a model in a trial's `folder` of a results folder.

    Raises E503 if there is no ledger, or it does not have the trial.
    """
    results = folder.absolute().parent.parent
    if not (results / LEDGER_FILE).is_file():
        message = f"'{folder}' is not in the results of a run, which a card describes"
        hint = "name results/NAME/models/TRIAL"
        raise FaultError(Diagnostic("E503", message, hint))
    with LedgerStore(results / LEDGER_FILE, readonly=True) as store:
        ledger = with_manifest(Ledger(*store.read()), results)
        trial = trials_with_files(ledger).get(folder.absolute().name)
        blob = b"" if trial is None else store.models(trial.key).get(model.variant, b"")
    if trial is None or hashlib.sha256(blob).hexdigest() != model.sha256:
        message = f"the last run in '{results.name}' did not make the model in '{folder}'"
        raise FaultError(Diagnostic("E503", message, "write it again: `ratecli report FILE`"))
    return _CardMaker(model, ledger, trial).card()


@dataclass(frozen=True)
class _CardMaker:
    model: StoredModel
    ledger: Ledger
    trial: PlannedTrial

    @property
    def info(self) -> Mapping[str, Any]:
        return self.ledger.results[self.trial.key].info

    @property
    def datasets(self) -> Mapping[str, Any]:
        """The entries of the data sets whose rows the trial used."""
        return trial_datasets(self.ledger, self.trial)

    @property
    def run(self) -> Mapping[str, Any]:
        """The record of the last run, empty if it cannot be read."""
        return self.ledger.meta.get("manifest") or {}

    def measured(self, split: str, metric: str) -> float | None:
        """Return a measured number of the variant, None if there is none."""
        return self.ledger.numbers(self.trial).get(self.model.variant, {}).get((split, metric))

    def card(self) -> Card:
        experiment, point = self.ledger.experiment, format_point(self.trial.point)
        name = ", ".join(filter(None, [self.trial.label, point, f"seed {self.trial.seed}"]))
        about = f"A model of the experiment {experiment.get('name', '')}. "
        about += str(experiment.get("description") or "")
        sections = (
            self._model(),
            self._data(),
            self._goals(),
            self._results(),
            self._groups(),
            self._certificate(),
            Section("Limits", items=tuple(self._limits())),
            self._origin(),
        )
        notes = (*self.ledger.stand_ins, *self.ledger.row_notes)
        return Card(f"Model card: {name}", about.strip(), notes, sections)

    def _model(self) -> Section:
        trial, model = self.trial, self.model
        known = all_algorithms().get(trial.algorithm)
        summary = f": {known.summary}" if known and known.summary else ""
        kinds = model.encoding.columns_for(model.classifier)
        trace = self.ledger.results[trial.key].trace
        chosen: Any = next((row["setting"] for row in trace if row.get("chosen")), {})
        options = {k: v for k, v in trial.options.items() if k != "tune"} | chosen
        defaults = default_options(trial.algorithm)
        set_here = {k: v for k, v in options.items() if v != defaults.get(k)}
        facts = {
            "algorithm": f"{trial.algorithm}{summary}",
            "options": format_point(set_here) or "the defaults",
            "variant": model.which.removeprefix("variant "),
            "status": f"{self.ledger.status(trial)} {self.ledger.reason(trial)}".strip(),
            "predicts": model.predicts,
            "reads": ", ".join(f"{name} ({kind})" for name, kind in kinds.items()),
            "features": str(model.encoding.encoder.kernel or ""),
            "groups that it needs to know": "; ".join(model.classifier.slices),
        }
        return Section("Model", facts=_stated(facts))

    def _data(self) -> Section:
        read = self.ledger.meta.get("datasets") or {}
        rows = [
            [
                ("data set", name),
                ("source", entry.get("path") or entry.get("source")),
                ("rows", read.get(name, {}).get("rows")),
                (
                    "sha256",
                    ", ".join(f["sha256"][:16] for f in read.get(name, {}).get("files", ())),
                ),
            ]
            for name, entry in self.datasets.items()
        ]
        splits = self.info.get("rows") or {}
        with_gaps = [
            block.column
            for block in self.model.encoding.encoder.blocks
            if any(name.endswith(f"={MISSING_CATEGORY}") for name in block.names)
        ]
        facts = {
            "split": ", ".join(f"{count:,} {SPLITS[name]}" for name, count in splits.items()),
            "rows are weighted by": ", ".join(
                str(entry["weight"]) for entry in self.datasets.values() if entry.get("weight")
            ),
            "missing values in training rows": ", ".join(with_gaps) or "none",
            **{
                f"group {name}": f"`{rule}`"
                for name, rule in group_rules(self.ledger, self.trial).items()
            },
        }
        return Section("Data", facts=_stated(facts), sheet=make_sheet("Data sets", rows))

    def _goals(self) -> Section:
        experiment, point = self.ledger.experiment, self.trial.point
        rules, aim = self.ledger.constraints, str(experiment.get("objective", ""))
        words = set(re.findall(r"\w+", " ".join([aim, *rules.values()])))
        facts = {"minimize": f"`{aim}`"}
        facts |= {f"constraint {name}": f"`{rule}`" for name, rule in rules.items()}
        level = (self.info.get(NEW_DATA_KEY) or {"levels": {}})["levels"].get(self.model.variant)
        if self.ledger.constraints and level is not None:
            facts["constraints"] = f"trained to hold on new rows with probability {level:g}"
        facts["at"] = format_point({name: value for name, value in point.items() if name in words})
        for row in list_metrics():
            if row["name"] in words and row.get("means"):
                facts[row["name"]] = row["means"]
        rows = [self._constraint_row(name) for name in self.ledger.constraints]
        text = (
            f"Violations are at most 0 where satisfied; intervals have a confidence of {LEVEL:.0%}."
        )
        sheet = make_sheet("Constraints", rows) if rows else None
        return Section("Goals", text if rows else "", _stated(facts), sheet)

    def _constraint_row(self, name: str) -> SheetRow:
        values = (self.measured(split, VIOLATION_PREFIX + name) for split in ("train", "test"))
        train, test = map(_violation_cell, values)
        row = [("constraint", name), ("training rows", train), ("new rows", test)]
        return [*row, ("interval on new rows", _interval_text(*self._new_violation(name)))]

    def _new_violation(self, name: str) -> tuple[float, float]:
        """Return the violation on new rows and its standard error, NaN if they are unknown."""
        metric = VIOLATION_PREFIX + name
        value = self.measured("test", metric)
        if value is None:
            return math.nan, math.nan
        result, text = self.ledger.results[self.trial.key], self.trial.metrics[metric]
        found = measured_violation(result, self.model.variant, text, value, self.trial.seed)
        return max(found.pieces, default=(value, math.nan))

    def _results(self) -> Section:
        own = self.trial.label, self.model.variant, repr(self.trial.point)
        groups = seed_groups(self.ledger)
        group = next(each for each in groups if (each.label, each.variant, repr(each.point)) == own)
        rows, metrics = [], dict(self.trial.metrics)
        objective = metrics.pop("objective", None)
        if objective is not None and objective not in metrics.values():
            metrics = {"objective": objective, **metrics}
        for name in metrics:
            if not name.startswith(VIOLATION_PREFIX):
                row: list[tuple[str, Any]] = [("metric", name)]
                for split in ("train", "test"):
                    value = self.measured(split, name)
                    row.append((SPLITS[split], "" if value is None else number_cell(value)))
                found = group.estimate("test", name)
                rows.append(
                    [*row, ("new rows, all seeds", estimate_cell(found)), ("seeds", found.n)]
                )
        text = f"The last columns are the mean over seeds ± half of its {LEVEL:.0%} interval."
        return Section("Results", text, sheet=make_sheet("Metrics", rows))

    def _groups(self) -> Section:
        title = "Groups on new rows"
        found = self.info.get(GROUP_RATES_KEY) or {}
        rates = found.get("rates", {}).get(self.model.variant)
        if not rates:
            return Section(title, "Not stored: an older ratecli ran the trial.")
        names = group_names(self.ledger, self.trial)
        rows = [
            [
                ("group", names.get(group, group)),
                ("rows", found["rows"][group]),
                *(
                    (RATES[rate], _rate_cell(*numbers, least=0.0 if rate == "mse" else -math.inf))
                    for rate, numbers in values.items()
                ),
            ]
            for group, values in rates.items()
        ]
        text = f"Rates of the {SPLITS[found['split']]}, with {LEVEL:.0%} intervals."
        return Section(title, text, sheet=make_sheet("Rates by group", rows))

    @property
    def tests(self) -> list[Mapping[str, Any]]:
        """The records of the variant's safety test."""
        return [
            each.record
            for each in collect_certificates(self.ledger)
            if each.trial is self.trial and each.about[1] == self.model.variant
        ]

    def _certificate(self) -> Section:
        if not self.tests:
            return Section("Certificate", "No safety test was run: constraints are not guaranteed.")
        rows = [
            [
                ("constraint", test["constraint"]),
                ("passed", test["passed"]),
                ("upper bound of the violation", number_cell(float(test["upper"]))),
                ("delta", test["delta"]),
                ("bound", test["bound"]),
                ("confidence", "exact" if test["exact"] else "approximate"),
            ]
            for test in self.tests
        ]
        return Section("Certificate", CERTIFIED, sheet=make_sheet("Safety tests", rows))

    def _limits(self) -> Iterator[str]:
        """Yield sentences on what the model does not satisfy, and on what is unknown."""
        yield from self._violated()
        constant = (self.info.get(BEST_CONSTANT_KEY) or {}).get("test")
        objective = self.measured("test", "objective")
        if constant is not None and objective is not None and is_no_better(objective, constant):
            yield "On new rows, it is no better than the same answer for everyone."
        counts = (self.info.get(GROUP_RATES_KEY) or {}).get("rows", {})
        names = group_names(self.ledger, self.trial)
        few = [names.get(k, k) for k, count in counts.items() if count < FEW_ROWS]
        if few:
            yield f"Groups with fewer than {FEW_ROWS} new rows: {'; '.join(few)}."
        if "test" not in self.info.get("rows", {}):
            yield "There is no test set: all numbers are those of training rows."
        if is_random(self.model.classifier):
            yield "Decisions are random; `ratecli predict --seed` makes them repeatable."
        yield from incomplete_notes(self.ledger)
        yield from self.info.get("warnings") or ()
        yield "The numbers apply to this data only: measure again on data from elsewhere or later."
        yield "Neither its intended use nor the cost of its errors is recorded."

    def _violated(self) -> Iterator[str]:
        """Yield a sentence for each constraint and split on which it is violated."""
        for name in self.ledger.constraints:
            for split in ("train", "test"):
                value = self.measured(split, VIOLATION_PREFIX + name)
                if value is not None and not value <= CONSTRAINT_TOLERANCE:
                    chance = split == "test" and value < QUANTILE * self._new_violation(name)[1]
                    more = ", which is within the sampling error of the test set" * chance
                    yield f"{name} is violated on {SPLITS[split]} by {format_number(value)}{more}."

    def _origin(self) -> Section:
        run = self.run
        versions = {**(self.ledger.meta.get("versions") or {}), **(run.get("versions") or {})}
        facts = {
            "last run": str(run.get("started") or ""),
            "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
            "key of the trial": self.trial.key,
            "sha256 of the model": self.model.sha256,
        }
        commands = [shell_command(*run["command"][1:])] if run.get("command") else []
        commands.append(f"{shell_command('predict', self.model.name, 'NEW.csv')} -o DECIDED.csv")
        return Section("Origin and use", facts=_stated(facts), commands=tuple(commands))


def _stated(facts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in facts.items() if text)


def _violation_cell(value: float | None) -> SheetCell:
    if value is None:
        return SheetCell("not measured")
    holds = value <= CONSTRAINT_TOLERANCE
    text = f"{check_mark(int(holds), 1)} {format_number(value)}"
    return SheetCell(text, value, "good" if holds else "bad")


def _interval_text(value: float, error: float, least: float = -math.inf) -> str:
    half = QUANTILE * error
    ends = (format_number(max(value - half, least)), format_number(value + half))
    return "" if math.isnan(half) else f"[{', '.join(ends)}]"


def _rate_cell(
    value: float | None, n: int, error: float | None = None, *, least: float = -math.inf
) -> SheetCell:
    """Return a rate over n rows with its interval: of its standard `error`, or of a share.

    The rate is at least `least`.
    """
    if value is None:
        return SheetCell(UNKNOWN)
    if error is not None:
        return SheetCell(f"{format_number(value)} {_interval_text(value, error, least)}", value)
    return estimate_cell(estimate_share(value * n, n))
