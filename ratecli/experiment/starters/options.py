"""The options of `ratecli init`: templates, and the goals that it can write for an own table."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ratecli.errors import Diagnostic, FaultError, did_you_mean, unknown_name
from ratecli.rates.syntax import parse_number

FOLDER = Path(__file__).parent
DEFAULT_TEMPLATE = "quickstart"
OWN_DATA = "own-data"
"""The template that is written for a user's table."""
NEEDING_A_TABLE = (
    *("label", "target", "group", "goal", "model", "score", "deployed", "positive", "order"),
    *("separator", "decimal", "thousands", "encoding"),
)
"""Options that need a table."""
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
    model
        The name of the model to train; "" for that of the algorithm.
    score
        The column of an existing model's score; "" to train models.
    deployed
        The column with the decisions of the model in use; "" if there is none.
    deployed_positive
        The word for a positive decision in that column; None if it has the words of the label.
    positive
        The positive value of the label; None if the labels are 0 and 1, or false and true.
    order
        The column of dates or numbers whose largest values are for testing; "" to sample the rows.
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
    model: str = ""
    score: str = ""
    deployed: str = ""
    deployed_positive: str | None = None
    positive: str | None = None
    order: str = ""
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that options name, the label's first."""
        named = (self.label or self.target, *self.group, self.score, self.deployed, self.order)
        return [name for name in named if name]

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise E205 if an option names a column that the table lacks, E411 if it is the label."""
        for name in self.columns:
            if name not in columns:
                hint = did_you_mean(name, columns, "columns")
                raise FaultError(Diagnostic("E205", f"'{self.data}' has no column '{name}'", hint))
        label = self.label or self.target
        if label and label in (*self.group, self.score, self.deployed, self.order):
            message = f"'{label}' is the label, so it cannot have another role"
            raise FaultError(Diagnostic("E411", message, "name another column"))

    def check_path(self) -> None:
        """Raise E104 if the path is a number, such as the limit of a goal without quotes."""
        if self.goal and math.isfinite(parse_number(self.path.name)):
            hint = f"put the goal in quotes: --goal '{self.goal[-1]} {self.path.name}'"
            raise refusal(f"'{self.path.name}' is a number, not the name of a file", hint)

    def template_starter(self) -> Starter:
        """Return the template; raise E104 if it is unknown or an option needs a table."""
        self.check_path()
        for name in NEEDING_A_TABLE:
            if getattr(self, name):
                raise refusal(f"--{name} needs a table", "add --data CSV")
        name, known = self.template or DEFAULT_TEMPLATE, template_summaries()
        if name == OWN_DATA:
            raise refusal(f"the template '{OWN_DATA}' needs a table", f"write {OWN_DATA_USAGE}")
        if name not in known:
            raise FaultError(unknown_name("E104", "template", name, [*known, OWN_DATA]))
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
        if self.model and self.score:
            raise refusal("--model and --score exclude each other", "a score is used as it is")
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


@dataclass(frozen=True)
class StarterGoal:
    """A constraint that `ratecli init` can write, and what to say about it.

    Attributes
    ----------
    means
        What the constraint requires, as a sentence.
    by_groups
        The expression with groups, where `{by}` stands for the columns; "" if the constraint is
        always on all rows.
    whole
        The expression without groups; "" if it needs groups.
    limit
        The default limit; None, for numeric labels, for a tenth of the label's spread (mse: its
        mean square).
    at_least
        Whether the limit is a lower bound.
    numbers
        Whether labels are numbers.
    rate
        The rate of each group that the constraint compares.
    """

    name: str
    means: str
    by_groups: str = ""
    whole: str = ""
    limit: float | None = None
    at_least: bool = False
    numbers: bool = False
    rate: str = "selection_rate"

    def __str__(self) -> str:
        return f"{self.name} {self.limit_text}"

    @property
    def limit_text(self) -> str:
        """The limit with all of its digits."""
        return f"{self.limit:.12g}"

    def requirement(self) -> str:
        """Return what the constraint requires, with the limit."""
        return self.means.replace("`limit`", self.limit_text)

    def rule(self, measure: str, limit: str) -> str:
        """Return the constraint on a measure."""
        return f"{measure} {'>=' if self.at_least else '<='} {limit}"

    def limits(self) -> list[float]:
        """Return five limits around that of the goal, from loose to strict."""
        assert self.limit is not None
        if self.at_least:
            found = [1 - (1 - self.limit) * factor for factor in LIMIT_FACTORS]
        else:
            found = [self.limit * factor for factor in LIMIT_FACTORS]
        kept = [float(f"{limit:.12g}") for limit in found]
        return [limit for limit in kept if limit > 0 and (self.numbers or limit < 1)]


SYNONYMS = {
    "disparate-impact": "demographic-parity",
    "fpr": "predictive-equality",
    "tpr": "equal-opportunity",
}
"""Other names of goals."""
LIMIT_FACTORS = (4, 2, 1.5, 1, 0.5)
"""How far the swept limits are from a perfect value, in multiples of the target's distance."""
_FILE = Path(__file__).with_name("goals.toml")
GOALS = {
    name: StarterGoal(name, **row) for name, row in tomllib.loads(_FILE.read_text("utf-8")).items()
}
"""Goals of `ratecli init --goal`; the first of each kind of label is the default."""


def goal_meanings() -> dict[str, str]:
    """Return what each goal requires, by name."""
    return {name: goal.means.replace("`limit`", "LIMIT") for name, goal in GOALS.items()}


def find_goals(request: StarterOptions, spread: float) -> list[StarterGoal]:
    """Return the goals of the options, with the required limits or default ones.

    `spread` is the standard deviation of the label. Raises E104 for goals that are not possible.
    """
    numbers = bool(request.target)
    known = [
        name
        for name, goal in GOALS.items()
        if goal.numbers == numbers and (goal.whole or request.group)
        if name != "churn" or request.deployed
    ]
    found = dict[str, StarterGoal]()
    for text in request.goal or known[:1]:
        name, _, limit = re.sub(r"[<>=]+", " ", text).strip().partition(" ")
        name = SYNONYMS.get(name, name)
        if name not in known:
            hint = f"{did_you_mean(name, known, 'goals')}; other rules can be written in the file"
            if name in GOALS and GOALS[name].numbers == numbers:
                hint = "name a column: --group COLUMN"
            if name == "churn":
                hint = "name the column with the decisions of the model in use: --deployed COLUMN"
            raise FaultError(Diagnostic("E104", f"'{name}' is not a goal here", hint))
        if name in found:
            message = f"the goal '{name}' is given twice"
            raise FaultError(Diagnostic("E104", message, "give each goal once"))
        found[name] = _with_limit(GOALS[name], limit.strip(), spread)
    return list(found.values())


def _with_limit(goal: StarterGoal, limit: str, spread: float) -> StarterGoal:
    if not limit:
        default = spread / 10 if "mean_error" in goal.by_groups else spread**2
        return replace(goal, limit=float(f"{goal.limit or default:.2g}"))
    percent = limit.endswith("%")
    value = parse_number(limit.rstrip("% ")) / (100 if percent else 1)
    if not 0 < value < (math.inf if goal.numbers else 1):
        wanted = "positive" if goal.numbers else "between 0 and 1"
        message = f"the limit of a goal must be {wanted}, not '{limit}'"
        example = f"for example --goal '{goal.name} {goal.limit or 1:g}'"
        raise FaultError(Diagnostic("E104", message, example))
    return replace(goal, limit=value)
