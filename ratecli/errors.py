"""Diagnostics: all errors and warnings that ratecli reports, and the catalogue of their codes.

The code that finds an error sets the location that it knows: `rates` the characters of a rule's
text, `config`, `datasets` and `solvers` the path of keys to a value. `config.document` adds file
and line. The command line prints diagnostics and derives its exit code from theirs.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

Loc = tuple[str | int, ...]
"""The path to a value in a file: keys, and indices of lists."""

CHECK_FAILURE_CODES = frozenset({"E506", "E508", "E509"})
"""Codes for a check that failed or could not be made."""


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` (exclusive) of a rule's text."""

    start: int
    end: int


@dataclass(frozen=True)
class SourceLocation:
    """A range within one line of a file; line and column count from 1."""

    file: str
    line: int
    column: int
    width: int
    excerpt: str


@dataclass(frozen=True)
class Diagnostic:
    """An error (code E..., nothing runs) or a warning (code W...).

    `loc` is the path to the value that it concerns, relative to the part of the file that was
    checked; `key` is true if it concerns the key there, not the value. `span` are characters of a
    rule. `Document.placed` turns them into `place`.
    """

    code: str
    message: str
    help: str | None = None
    span: Span | None = None
    place: SourceLocation | None = None
    loc: Loc = ()
    key: bool = False

    @property
    def is_error(self) -> bool:
        return self.code.startswith("E")

    def under(self, *outer: str | int, key: bool = False) -> Diagnostic:
        """Return the diagnostic with its location inside an outer part of the file.

        If it has no location of its own, `key` is true if it concerns the key of that part.
        """
        return replace(self, loc=(*outer, *self.loc), key=self.key or (key and not self.loc))


class FaultError(Exception):
    """All errors of one phase, to be reported together."""

    def __init__(self, faults: Diagnostic | Iterable[Diagnostic]) -> None:
        self.faults = (faults,) if isinstance(faults, Diagnostic) else tuple(faults)
        super().__init__("\n".join(f"{fault.code}: {fault.message}" for fault in self.faults))

    def __reduce__(self) -> tuple[type[FaultError], tuple[tuple[Diagnostic, ...]]]:
        return type(self), (self.faults,)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends with these errors.

        4 if all concern data, 1 for trials that failed or did not run, 3 for failed checks,
        otherwise 2.
        """
        codes = {fault.code for fault in self.faults if fault.is_error}
        if codes and codes <= CHECK_FAILURE_CODES:
            return 3
        codes -= {"E501", "E513"}
        if not codes:
            return 1
        return 4 if all(code.startswith("E4") for code in codes) else 2


class InvalidValueError(FaultError, ValueError):
    """Errors in a value, raised by a validator: pydantic adds the location of its field."""


@contextmanager
def errors_at(*loc: str | int) -> Iterator[None]:
    """Set the location of errors raised in the block, unless they have one."""
    try:
        yield
    except FaultError as error:
        located = [each if each.loc else replace(each, loc=loc) for each in error.faults]
        raise type(error)(located) from error.__cause__


@contextmanager
def errors_under(*outer: str | int) -> Iterator[None]:
    """Move the locations of errors raised in the block inside an outer part of the file."""
    try:
        yield
    except FaultError as error:
        raise type(error)([each.under(*outer) for each in error.faults]) from error.__cause__


def exception_line(error: BaseException) -> str:
    """Return an exception as one line of text."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, FaultError):
        text = "; ".join(f"{fault.code}: {fault.message}" for fault in error.faults)
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())


MAX_LISTED = 30
"""Maximum number of known names that a message lists."""


def did_you_mean(word: str, known: Iterable[str], what: str = "known") -> str:
    """Return help for an unknown name: the closest known name, and the first ones in order."""
    names = sorted(known)
    folded = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    hint = f"did you mean '{folded[near[0]]}'? " if near else ""
    listed = ", ".join(names[:MAX_LISTED]) + (", ..." if len(names) > MAX_LISTED else "")
    return f"{hint}{what}: {listed}" if names else f"{hint}there are none here"


@dataclass(frozen=True)
class ErrorCode:
    """A kind of error or warning: what it means, and what to do."""

    code: str
    means: str
    help: str

    @property
    def exit_code(self) -> int:
        """Exit code of a command that reports only this code; 0 for a warning."""
        if self.code.startswith("W"):
            return 0
        return FaultError(Diagnostic(self.code, self.means)).exit_code


_CODES = (
    # YAML
    ("E001", "The file is not valid YAML.", "Correct the marked character."),
    ("E002", "A mapping has the same key twice.", "Remove one of them."),
    ("E003", "The file is nested too deeply or has too many values.", "Do not repeat aliases."),
    ("E004", "The file uses YAML that is not allowed here.", "Start from `ratecli init`."),
    ("E005", "The file cannot be read.", "Name an existing file, and save it as UTF-8."),
    # keys and types
    ("E101", "A key is unknown.", "Use one of the keys that the help lists."),
    ("E102", "A required key is missing.", "Add it."),
    ("E103", "A value has the wrong type.", "Write the type that the message requires."),
    ("E104", "A value is not allowed.", "Use an allowed value, or remove one of two keys."),
    ("E105", "A sweep is not valid.", "Write a list, linspace(a, b, n) or logspace(a, b, n)."),
    ("E106", "Two things have the same name.", "Rename one; `as:` gives an algorithm a label."),
    ("E107", "A `--set` option is not valid.", "Quote it: --set 'sweep.kappa=[0.8, 0.9]'."),
    # names
    ("E201", "A data set is unknown.", "See `ratecli ls datasets`; `path:` names your own table."),
    ("E202", "An algorithm is unknown or not installed.", "See `ratecli ls algorithms`."),
    ("E203", "A rule uses an unknown name.", "See `ratecli ls metrics` and `ls functions`."),
    ("E204", "A slice is unknown.", "Define it under `groups`, or write tpr[sex = Female]."),
    ("E205", "A column does not exist.", "`ratecli show SOURCE` lists the columns."),
    ("E206", "A column does not contain a value.", "Use one of the values that the help lists."),
    ("E208", "The report uses something that is not measured.", "Add it under `metrics`."),
    ("E209", "A split is unknown.", "Splits are train, validation, test and safety."),
    ("E210", "A plugin cannot be used.", "`ratecli test-plugin PACKAGE` lists what is wrong."),
    # rules
    ("E301", "A rule cannot be parsed.", "Powers are `**`; slices are in brackets."),
    ("E302", "A rule is too long or nested too deeply.", "Split it into several constraints."),
    ("E303", "A constraint has no comparison, or a metric has one.", "Write `value <= bound`."),
    ("E304", "The arguments of a function or metric are wrong.", "See `ratecli show NAME`."),
    ("E305", "A constraint always or never holds, or contains no rate.", "Check its numbers."),
    ("E306", "A rate needs labels, or labels of another kind.", "Name a labelled data set in it."),
    ("E307", "A rate or algorithm needs a deployed model.", "Set `deployed: {column: NAME}`."),
    ("E308", "An algorithm does not support a goal.", "The help names algorithms that do."),
    ("E309", "A goal uses rows that training must not see.", "Measure it under `metrics`."),
    ("E310", "Trials depend on each other in a circle.", "Compare with another algorithm."),
    ("E311", "An expression has no value, such as 0 / 0.", "Change the marked part."),
    # data
    ("E401", "Data is missing and downloads are off.", "Run `ratecli fetch FILE` first."),
    ("E402", "A download failed.", "Try again later, or use a mirror (RATECLI_DATA_MIRROR)."),
    ("E403", "A file's checksum is wrong or unknown.", "Delete the file and download it again."),
    ("E404", "A file has the wrong format.", "Open it at the place that the message names."),
    ("E405", "A file cannot be read.", "Paths are relative to the folder of the experiment."),
    ("E406", "Labels or decisions have unexpected values.", "`positive:` names the positive one."),
    ("E407", "A feature has missing or extreme numbers.", "Set `missing: mean`, or drop it."),
    ("E408", "A group or slice has no rows.", "Change its condition, or use more rows."),
    ("E409", "A file in an archive is larger than is allowed.", "Use another address."),
    ("E410", "Rows cannot be split as requested.", "Use other fractions under `split:`."),
    ("E411", "Tables or columns do not fit together.", "Use `features:` or `drop:`."),
    ("E412", "A streamed table needs more memory than allowed.", "Allow more, or drop columns."),
    ("E413", "Records of a streamed table cannot be written.", "Set RATECLI_DATA to a folder."),
    ("E414", "Streamed data sets do not support this.", "Read the table: `stream: false`."),
    # trials and results
    ("E501", "A trial failed.", "Its row in trials.csv has the reason; other trials are kept."),
    ("E502", "A file is not a ledger of this version.", "Move it away, or update ratecli."),
    ("E503", "There is no ledger, or it cannot be read.", "Run the experiment first."),
    ("E504", "Another command is writing to this folder.", "Wait for it, or use --output."),
    ("E505", "A file or folder cannot be written.", "Choose another folder with --output."),
    ("E506", "A reference cannot be read.", "Write it again: `ratecli pin FILE`."),
    ("E507", "An experiment cannot be pinned.", "Run it first: `ratecli run FILE`."),
    ("E508", "A check failed.", "Find the cause of the change; if it is intended, pin again."),
    ("E509", "A check is not possible.", "The message says what is missing or failed."),
    ("E511", "A memory limit cannot be enforced on this system.", "Remove `limits: {memory:}`."),
    ("E512", "Trials cannot run on Dask.", "Install the same 'ratecli[dask]' on all machines."),
    ("E513", "The Dask cluster is lost.", "Run again: finished trials are stored."),
    # warnings
    ("W208", "A plot names a variant that no trial returned.", "See `summary.csv`."),
    ("W210", "A plugin is not used.", "Rename its entry point, or install it again."),
    ("W305", "Constraints always or never hold at some sweep points.", "Leave them out."),
    ("W306", "The optimum of a plot is unknown.", "Remove `optimum: true`."),
    ("W307", "The objective is minimized, but higher is better.", "Put a minus before it."),
    ("W308", "A swept name has no effect.", "Leave it out, or correct it."),
    ("W401", "A group is small or left out, or some rows have no group.", "Use more rows."),
    ("W402", "A constraint may hold on training rows only.", "See `holds`, `safety`."),
    ("W403", "The held-out last rows differ from the others.", "Remove `order: positional`."),
    ("W404", "A table has values that no training row had.", "They count as unknown values."),
    ("W405", "A table lacks numbers that a model uses.", "The training mean replaces them."),
    ("W406", "The values of a feature hardly occur in new rows.", "Add it to `drop`."),
    ("W407", "A filter has little effect.", "Allow a larger disclosivity, or use other columns."),
    (
        "W408",
        "A model is no better than a constant decision or prediction.",
        "Relax the constraints, use other features, or replace `loss: hinge` by `logistic`.",
    ),
    ("W409", "Propensities do not fit the logged actions.", "Check `logged: propensity`."),
    ("W410", "A value of logged decisions rests on few rows.", "Use more rows."),
    ("W411", "A column has the same value in all rows.", "It is no feature: add it to `drop`."),
    ("W412", "A filter keeps few rows.", "Set a larger `kept`."),
    ("W501", "A number differs from what `expect` states.", "`summary.md` shows both."),
    ("W502", "A check omits seeds or has too few.", "Run the pinned seeds, or pin again."),
    ("W503", "A setting or the data changed since the results were pinned.", "Pin again."),
    ("W504", "A ledger was damaged.", "Check the disk: the damaged trials were run again."),
)
CODES = {code: ErrorCode(code, means, help_text) for code, means, help_text in _CODES}


def drop_library_warnings() -> None:
    """Show no Python warning from now on: what a user must know is a diagnostic.

    Filters that turn warnings into exceptions, as in tests, still do so.
    """

    def drop(*_: object, **__: object) -> None:
        pass

    warnings.showwarning = drop
