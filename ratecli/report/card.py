"""The model card of one variant of a trial, as Markdown or HTML: data, goals, results, limits.

It is made from the ledger beside the model, without the data. Its text is in `page/card.j2`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scipy.special import ndtri

from ratecli.apply.formats import is_random
from ratecli.apply.predict import StoredModel, load_applicable_model
from ratecli.datasets.columns import MISSING_CATEGORY
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.entries import default_options
from ratecli.experiment.registry import list_metrics
from ratecli.files import LEDGER_FILE, atomic_write, shell_command
from ratecli.ledger import records as rc
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import Ledger
from ratecli.ledger.violations import measured_violation
from ratecli.rates.metrics import goal_names
from ratecli.render import terminal_safe
from ratecli.report import groups as gr
from ratecli.report import sheet as st
from ratecli.report.answer_text import incomplete_notes
from ratecli.report.plots.canvas import PlotImage
from ratecli.report.plots.curves import curves_by_group, draw_curves
from ratecli.report.templates import note, render_template
from ratecli.report.write import trials_with_files, with_manifest
from ratecli.solvers.registry import all_algorithms

FEW_ROWS = 30
"""Rates of groups with fewer new rows are too uncertain to rely on."""
QUANTILE = float(ndtri((1 + gr.LEVEL) / 2))
"""Half-width of an interval, in standard errors."""
HTML_SUFFIXES = (".html", ".htm")
SPLITS = {
    "train": "training rows",
    "validation": "validation rows",
    "test": "new rows",
    "safety": "rows of the safety test",
}
RATES = {
    "positive_rate": "positive decisions",
    "tpr": "true positive rate",
    "fpr": "false positive rate",
    "error": "wrong decisions",
    "mean_error": "mean error",
    "mse": "mean squared error",
}


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
        style = "card.html.j2" if place.suffix.lower() in HTML_SUFFIXES else "card.md.j2"
        atomic_write(place, card.text(style))
    return places


def model_card(model: StoredModel, folder: Path) -> ModelCard:
    """Return the card of a model in a trial's `folder` of a results folder, or of a final model.

    Raises E503 if there is no ledger, or it does not have the trial.
    """
    own = folder.absolute()
    results = own if (own / LEDGER_FILE).is_file() else own.parent.parent
    if not (results / LEDGER_FILE).is_file():
        message = f"'{folder}' is not in the results of a run, which a card describes"
        hint = "name results/NAME/model or results/NAME/models/TRIAL"
        raise FaultError(Diagnostic("E503", message, hint))
    with LedgerStore(results / LEDGER_FILE, readonly=True) as store:
        ledger = with_manifest(Ledger(*store.read()), results)
        found = trials_with_files(ledger)
        trials = found.values() if results == own else filter(None, [found.get(own.name)])
        for trial in trials:
            blob = store.models(trial.key).get(model.variant, b"")
            if hashlib.sha256(blob).hexdigest() == model.sha256:
                return ModelCard(model, ledger, trial)
    message = f"the last run in '{results.name}' did not make the model in '{folder}'"
    raise FaultError(Diagnostic("E503", message, "write it again: `ratecli report FILE`"))


def rows_left_out(rows: Mapping[str, int]) -> str:
    """Return which rows a model to use was not trained on: ` but the 600 validation rows`."""
    kinds = [f"{rows[each]:,} {each}" for each in ("validation", "safety") if rows.get(each)]
    return f" but the {' and '.join(kinds)} rows" if kinds else ""


@dataclass(frozen=True)
class ModelCard:
    """The facts that the template of a card words."""

    model: StoredModel
    ledger: Ledger
    trial: rc.PlannedTrial

    def text(self, style: str) -> str:
        """Return the card in the style of these macros in `page/`: Markdown or a page."""
        ledger, trial, classifier = self.ledger, self.trial, self.model.classifier
        experiment = ledger.experiment
        names = goal_names(str(experiment.get(rc.OBJECTIVE, "")), ledger.constraints.values())
        known = all_algorithms().get(trial.algorithm)
        text = render_template(
            "card.j2",
            markdown=style.endswith(".md.j2"),
            style=style,
            card=self,
            model=self.model,
            ledger=ledger,
            trial=trial,
            experiment=experiment,
            info=self.result.info,
            new_data=self.result.info.get(rc.NEW_DATA_KEY) or {"levels": {}},
            expected=ledger.meta.get(rc.EXPECTED_KEY),
            constant=(self.result.info.get(rc.BEST_CONSTANT_KEY) or {}).get("test"),
            run=ledger.meta.get("manifest") or {},
            entries=gr.trial_datasets(ledger, trial),
            groups=gr.group_rules(ledger, trial),
            group_names=gr.group_names(ledger, trial),
            summary=known.summary if known else "",
            reads=self.model.encoding.columns_for(classifier),
            points={k: v for k, v in trial.point.items() if k in names},
            meanings={r["name"]: r.get("means") for r in list_metrics() if r["name"] in names},
            random=is_random(classifier),
            kinds_of_rows=SPLITS,
            left_out=rows_left_out(self.result.info.get("rows") or {}),
            few=FEW_ROWS,
            ratio_note=note("ratios"),
            notes=incomplete_notes(ledger),
            is_violated=rc.is_violated,
            is_no_better=rc.is_no_better,
            command=shell_command,
        )
        return terminal_safe(re.sub(r"\n{3,}", "\n\n", text).strip() + "\n")

    @property
    def result(self) -> rc.TrialResult:
        return self.ledger.results[self.trial.key]

    @cached_property
    def numbers(self) -> Mapping[tuple[str, str], float]:
        """The measured numbers of the variant by split and metric."""
        values = gr.trial_values(self.ledger, self.trial)
        own = self.model.variant
        return {(split, metric): v for variant, split, metric, v in values if variant == own}

    @property
    def options(self) -> str:
        """The options that are not the defaults, with the setting that tuning chose."""
        chosen: Any = next((row["setting"] for row in self.result.trace if row.get("chosen")), {})
        options = {k: v for k, v in self.trial.options.items() if k != "tune"} | chosen
        defaults = default_options(self.trial.algorithm)
        return st.format_point({k: v for k, v in options.items() if v != defaults.get(k)})

    @property
    def expected(self) -> st.Sheet:
        """What the experiment measured, if this is the model to use."""
        found = self.ledger.meta.get(rc.EXPECTED_KEY) or {"metrics": {}}
        rows = [
            {"metric": name, SPLITS[found["split"]]: text}
            for name, text in found["metrics"].items()
        ]
        return st.make_sheet("Expected on new rows", rows)

    @property
    def columns_with_gaps(self) -> list[str]:
        """The columns with missing values in training rows."""
        ending = f"={MISSING_CATEGORY}"
        blocks = self.model.encoding.encoder.blocks
        return [each.column for each in blocks if any(n.endswith(ending) for n in each.names)]

    @property
    def datasets(self) -> st.Sheet:
        read = self.ledger.meta.get("datasets") or {}
        rows = [
            {
                "data set": name,
                "source": entry.get("path") or entry.get("source"),
                "rows": own.get("rows"),
                "sha256": ", ".join(file["sha256"][:16] for file in own.get("files", ())),
            }
            for name, entry in gr.trial_datasets(self.ledger, self.trial).items()
            for own in [read.get(name, {})]
        ]
        return st.make_sheet("Data sets", rows)

    def violation(self, split: str, constraint: str) -> float | None:
        return self.numbers.get((split, rc.VIOLATION_PREFIX + constraint))

    def sampling_error(self, constraint: str) -> tuple[float, float]:
        """Return the largest part of the violation on new rows, and half of its interval.

        They are NaN if they are unknown.
        """
        value, metric = self.violation("test", constraint), rc.VIOLATION_PREFIX + constraint
        if value is None:
            return math.nan, math.nan
        text, seed = self.trial.metrics[metric], self.trial.seed
        found = measured_violation(self.result, self.model.variant, text, value, seed)
        part, error = max(found.pieces, default=(value, math.nan))
        return part, QUANTILE * error

    @property
    def constraints(self) -> st.Sheet:
        known = {split for split, _ in self.numbers}
        splits = [split for split in ("train", "test") if split in known]
        rows = []
        for name in self.ledger.constraints:
            cells = {SPLITS[split]: self._violation_cell(split, name) for split in splits}
            error = {"interval on new rows": _interval_text(*self.sampling_error(name))}
            rows.append({"constraint": name, **cells, **(error if "test" in splits else {})})
        return st.make_sheet("Constraints", rows)

    def _violation_cell(self, split: str, name: str) -> st.SheetCell:
        value = self.violation(split, name)
        if value is None:
            return st.SheetCell("not measured")
        holds = not rc.is_violated(value)
        text = f"{st.check_mark(int(holds), 1)} {st.format_number(value)}"
        return st.SheetCell(text, value, "good" if holds else "bad")

    @property
    def results(self) -> st.Sheet:
        """The metrics, without an objective that is also a metric."""
        group = next(
            each
            for each in gr.seed_groups(self.ledger)
            if self.trial in each.trials and each.variant == self.model.variant
        )
        metrics = dict(self.trial.metrics)
        objective = metrics.pop(rc.OBJECTIVE, None)
        if objective is not None and objective not in metrics.values():
            metrics = {rc.OBJECTIVE: objective, **metrics}
        rows = []
        for name in metrics:
            if not name.startswith(rc.VIOLATION_PREFIX):
                own = {SPLITS[each]: self.numbers.get((each, name)) for each in ("train", "test")}
                cells = {
                    k: "" if value is None else st.number_cell(value) for k, value in own.items()
                }
                mean = group.estimate("test", name)
                row = {"metric": name, **cells, "new rows, all seeds": st.estimate_cell(mean)}
                rows.append(row | {"seeds": mean.n})
        return st.make_sheet("Metrics", rows)

    @property
    def group_rates(self) -> st.Sheet:
        """The rates of groups; the note names their rows."""
        found = self.result.info.get(rc.GROUP_RATES_KEY) or {"split": "test", "rates": {}}
        names = gr.group_names(self.ledger, self.trial)
        rows = []
        for group, values in found["rates"].get(self.model.variant, {}).items():
            cells = {RATES[rate]: _rate_cell(rate, *numbers) for rate, numbers in values.items()}
            row = {"group": names.get(group, group), "rows": found["rows"][group], **cells}
            rows.append(row)
        return st.make_sheet("Rates by group", rows, SPLITS[found["split"]])

    @property
    def curve_images(self) -> list[PlotImage]:
        """ROC and calibration by group, if they were measured."""
        return draw_curves(self.ledger, [self.trial], self.model.variant, "Curves by group")

    @property
    def curves(self) -> st.Sheet:
        """The area under the ROC curves by group, and parts of them; the note names their rows."""
        rows: list[st.SheetRow] = []
        found = curves_by_group(self.ledger, [self.trial], self.model.variant)
        for each in found:
            _, roc = each.curves["ROC"]
            parts = {
                f"tpr at fpr {k / rc.ROC_STEPS:g}": st.estimate_cell(roc[k]) for k in (1, 2, 4)
            }
            rows.append({"group": each.name, "area": st.estimate_cell(each.area), **parts})
        return st.make_sheet("ROC by group", rows, SPLITS[found[0].split] if found else "")

    @property
    def certificate(self) -> st.Sheet:
        rows = [
            {
                "constraint": test["constraint"],
                "passed": test["passed"],
                "upper bound of the violation": st.number_cell(float(test["upper"])),
                "delta": test["delta"],
                "bound": test["bound"],
                "confidence": "exact" if test["exact"] else "approximate",
            }
            for test in self.result.info.get("certificates") or ()
            if test.get("variant", "") == self.model.variant
        ]
        return st.make_sheet("Safety tests", rows)


def _interval_text(value: float, half: float, least: float = -math.inf) -> str:
    ends = (st.format_number(max(value - half, least)), st.format_number(value + half))
    return "" if math.isnan(half) else f"[{', '.join(ends)}]"


def _rate_cell(rate: str, value: float | None, n: int, error: float | None = None) -> st.SheetCell:
    """Return a rate over n rows with its interval: of its standard `error`, or of a share."""
    if value is None:
        return st.SheetCell(st.UNKNOWN)
    if error is not None:
        least = 0.0 if rate == "mse" else -math.inf
        return st.SheetCell(
            f"{st.format_number(value)} {_interval_text(value, QUANTILE * error, least)}", value
        )
    return st.estimate_cell(gr.estimate_share(value * n, n))
