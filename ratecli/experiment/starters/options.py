"""The options of `ratecli init`, and the file that they ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ratecli.datasets.text_format import FORMAT_KEYS
from ratecli.errors import Diagnostic, FaultError, did_you_mean
from ratecli.rates.syntax import parse_number

FOLDER = Path(__file__).parent
DEFAULT_TEMPLATE = "quickstart"
OWN_DATA = "own-data"
"""The template that is written for a user's table."""
OWN_DATA_USAGE = "--data CSV --label COLUMN --group COLUMN"


@dataclass(frozen=True)
class Starter:
    """The text of the experiment, notes on what was assumed, and warnings."""

    text: str
    notes: tuple[str, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class StarterOptions:
    """Options of `ratecli init`; the field `NAME` is the option `--NAME` of the command.

    Attributes
    ----------
    path
        The experiment file to write.
    template
        The name of a template; None for the default, or for `data`.
    data
        The user's table.
    label, target
        Its column of labels: of two classes, or of numbers.
    group
        The columns of groups; of several columns, all combinations are compared.
    goal
        Names in `GOALS`, each with a limit or without; empty for the default.
    score
        The column of an existing model's score; "" to train models.
    deployed
        The column with the decisions of the model in use; "" if there is none.
    deployed_positive
        The word for a positive decision in that column; None if it has the words of the label.
    positive
        The positive value of the label; None if the labels are 0 and 1, or false and true.
    separator, decimal, thousands, encoding
        How the table writes rows and numbers; None to look at the table.
    """

    path: Path
    template: str | None = None
    data: Path | None = None
    label: str = ""
    target: str = ""
    group: tuple[str, ...] = ()
    goal: tuple[str, ...] = ()
    score: str = ""
    deployed: str = ""
    deployed_positive: str | None = None
    positive: str | None = None
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that options name, the label's first."""
        named = (self.label or self.target, *self.group, self.score, self.deployed)
        return [name for name in named if name]

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise E205 if an option names a column that the table lacks, E411 if it is the label."""
        for name in self.columns:
            if name not in columns:
                hint = did_you_mean(name, columns, "columns")
                raise FaultError(Diagnostic("E205", f"'{self.data}' has no column '{name}'", hint))
        label = self.label or self.target
        if label and label in (*self.group, self.score, self.deployed):
            message = f"'{label}' cannot be both the label and the group, score or decisions in use"
            raise FaultError(Diagnostic("E411", message, "name another column"))

    def check_path(self) -> None:
        """Raise E104 if the path is a number, such as the limit of a goal without quotes."""
        if self.goal and math.isfinite(parse_number(self.path.name)):
            hint = f"put the goal in quotes: --goal '{self.goal[-1]} {self.path.name}'"
            raise refusal(f"'{self.path.name}' is a number, not the name of a file", hint)

    def template_starter(self) -> Starter:
        """Return the template; raise E104 if it is unknown or an option needs a table."""
        self.check_path()
        needing = ("label", "target", "group", "goal", "score", "deployed", "positive")
        for name in (*needing, *FORMAT_KEYS):
            if getattr(self, name):
                raise refusal(f"--{name} needs a table", "add --data CSV")
        name, known = self.template or DEFAULT_TEMPLATE, template_summaries()
        if name == OWN_DATA:
            raise refusal(f"the template '{OWN_DATA}' needs a table", f"write {OWN_DATA_USAGE}")
        if name not in known:
            hint = did_you_mean(name, [*known, OWN_DATA], "templates")
            raise refusal(f"no template is called '{name}'", hint)
        return Starter(template_text(name))

    def check_table_options(self) -> None:
        """Raise E104 if options for an own table contradict each other."""
        self.check_path()
        if self.template not in {None, OWN_DATA}:
            hint = "leave out --data or --template"
            raise refusal(f"--data is for the template '{OWN_DATA}', not '{self.template}'", hint)
        if self.label and self.target:
            hint = "give --label for two classes, or --target for numbers"
            raise refusal("--label and --target exclude each other", hint)
        for name in ("score", "deployed"):
            if self.target and getattr(self, name):
                hint = "leave it out, or use --label"
                raise refusal(f"--{name} is for labels of two classes", hint)


def refusal(message: str, hint: str) -> FaultError:
    """Return an E104."""
    return FaultError(Diagnostic("E104", message, hint))


def template_text(template: str = DEFAULT_TEMPLATE) -> str:
    """Return a commented experiment that runs offline in seconds, for one family of goals."""
    return (FOLDER / f"{template}.yaml").read_text(encoding="utf-8")


def template_summaries() -> dict[str, str]:
    """Return the summary of each template by name, the default first."""
    names = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    names.sort(key=lambda name: name != DEFAULT_TEMPLATE)
    return {name: template_text(name).partition("\n")[0].removeprefix("# ") for name in names}
