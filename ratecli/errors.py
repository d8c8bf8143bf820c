"""Diagnostics: all errors and warnings that ratecli reports, and the catalogue of their codes.

The code that finds an error sets the location that it knows: `rates` the characters of a rule's
text, `config`, `datasets` and `solvers` the path of keys to a value. `config.document` adds file
and line. The command line prints diagnostics and derives its exit code from theirs.
"""

from __future__ import annotations

import difflib
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

    def at(self, place: SourceLocation) -> Diagnostic:
        return replace(self, place=place)


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


def did_you_mean(word: str, known: Iterable[str], what: str = "known") -> str:
    """Return help for an unknown name: the closest known one, and the list if it is short."""
    names = sorted(known)
    folded = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    hint = f"did you mean '{folded[near[0]]}'? " if near else ""
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"{hint}{what}: {listed}" if names else f"{hint}there are none here"


FAMILIES = {
    "E0": "YAML: the text of the file",
    "E1": "keys and types",
    "E2": "names: data sets, columns, values, algorithms, metrics",
    "E3": "rules, and what an algorithm accepts",
    "E4": "data",
    "E5": "trials and what is stored of them",
    "W2": "warnings of names",
    "W3": "warnings of rules",
    "W4": "warnings of data",
    "W5": "warnings of results",
}
"""The meaning of the first two characters of a code."""


@dataclass(frozen=True)
class ErrorCode:
    """A kind of error: its meaning in one sentence, usual causes, and what to do."""

    code: str
    means: str
    cause: str
    way_out: str

    @property
    def exit_code(self) -> int:
        """Exit code of a command that reports only this code; 0 for a warning."""
        if self.code.startswith("W"):
            return 0
        return FaultError(Diagnostic(self.code, self.means)).exit_code


_YAML = (
    ErrorCode(
        "E001",
        "The file is not YAML.",
        "a bracket that is not closed, a tab, a missing space behind a colon, an unknown anchor",
        "mend the character that is shown",
    ),
    ErrorCode(
        "E002", "A key stands twice.", "YAML would silently take the last one", "remove one of them"
    ),
    ErrorCode(
        "E003",
        "The file is nested too deep, or its aliases make too much of it.",
        "brackets in brackets, or aliases of aliases",
        "write the values out",
    ),
    ErrorCode(
        "E004",
        "The file is YAML that means nothing here.",
        "it is empty, a list, has a tag, a merge key, a key that is no text, or a second document",
        "`ratecli init` writes a starter file",
    ),
    ErrorCode(
        "E005",
        "The file cannot be read.",
        "it is not there, a folder, too large, or not UTF-8",
        "name another, or save it as UTF-8",
    ),
)
_KEYS = (
    ErrorCode(
        "E101",
        "A key is not known here.",
        "a typo, or an option of another algorithm or data set",
        "the help names the nearest one",
    ),
    ErrorCode(
        "E102",
        "A key is missing.",
        "something was left out that has no default",
        "write the key that is named",
    ),
    ErrorCode(
        "E103",
        "A value is of the wrong type.",
        "a word for a number, a list for a name, nothing at all",
        "write what the message asks for",
    ),
    ErrorCode(
        "E104",
        "A value is of the right type and cannot be meant.",
        "out of range, no choice of this key, or at odds with another key",
        "the message says what is allowed, or which of two to leave out",
    ),
    ErrorCode(
        "E105",
        "A sweep cannot be read.",
        "no values, half a `linspace`, lists of unlike length under `zip`, too many points",
        "give a list, `linspace(a, b, n)` or `logspace(a, b, n)`",
    ),
    ErrorCode(
        "E106",
        "Two things have the same name.",
        "one label for two algorithms, a metric named as a sweep, a group as a data set",
        "rename one of them; `as:` gives an algorithm another label",
    ),
    ErrorCode(
        "E107",
        "`--set` names what is not there, or a value that cannot be read.",
        "a typo in the path, brackets that the shell took",
        "quote it: --set 'sweep.kappa=[0.8, 0.9]'",
    ),
)
_NAMES = (
    ErrorCode(
        "E201",
        "No data set is registered under this name.",
        "a typo in `source`",
        "`ratecli ls datasets`; `path:` names a table of your own",
    ),
    ErrorCode(
        "E202",
        "There is no such algorithm, or it needs a package that is not installed.",
        "a typo in `algorithms` or `of(...)`, or an optional extra",
        "`ratecli ls algorithms`",
    ),
    ErrorCode(
        "E203",
        "A rule uses a name that is nothing it knows.",
        "a typo in a metric, a sweep or a constraint; a name that only another algorithm sweeps",
        "`ratecli ls metrics`, `ratecli ls functions`",
    ),
    ErrorCode(
        "E204",
        "A slice names neither a group nor a data set.",
        "a group that `groups` does not state",
        "state it, or write the condition: tpr[sex = Female]",
    ),
    ErrorCode(
        "E205",
        "There is no such column.",
        "a typo, or a source that calls it otherwise",
        "`ratecli show SOURCE` lists the columns",
    ),
    ErrorCode(
        "E206",
        "A column has no such value.",
        "another spelling, or words where numbers are compared",
        "the help lists the values",
    ),
    ErrorCode(
        "E208",
        "A table, plot or metric speaks of what the experiment does not measure.",
        "a column that is no metric, an axis that is not swept, a split without rows",
        "add it under `metrics`, or name another",
    ),
    ErrorCode(
        "E209",
        "There is no such split.",
        "a word behind @ that is none of train, validation, test, safety",
        "name one of these",
    ),
    ErrorCode(
        "E210",
        "A plugin cannot be used.",
        "it cannot be imported, is none of what its group asks for, or two packages claim its name",
        "`ratecli test-plugin PACKAGE` says all that is wrong",
    ),
)
_RULES = (
    ErrorCode(
        "E301",
        "A rule cannot be parsed.",
        "a character that rules do not have, an operator without its right side",
        "powers are `**`, slices are in brackets",
    ),
    ErrorCode(
        "E302",
        "A rule is too long or nested too deep.",
        "more than 2,000 characters or 40 levels",
        "split it into several constraints",
    ),
    ErrorCode(
        "E303",
        "A constraint compares nothing, or a metric does.",
        "`tpr[women]` under `constraints`, `tpr <= 1` under `metrics`",
        "constraints are `value <= bound` or `value >= bound`, metrics are values",
    ),
    ErrorCode(
        "E304",
        "A function or metric is given the wrong arguments.",
        "one argument too few, a rate as an exponent, `of` inside `of`",
        "`ratecli show NAME`",
    ),
    ErrorCode(
        "E305",
        "A rule always holds or never does, or speaks of no rate.",
        "a bound outside of what a rate can be, targets that are no shares",
        "check the number",
    ),
    ErrorCode(
        "E306",
        "A rate needs labels that the rows do not have, or labels of another kind.",
        "recall on an unlabelled data set, error of labels that are numbers",
        "name another data set in the slice; `mse` and `mean_error` are for numbers",
    ),
    ErrorCode(
        "E307",
        "A rate or algorithm needs a deployed model.",
        "`churn`, `wins`, `of(deployed, ...)` or `audit` without `deployed:`",
        "say {column: NAME}, {algorithm: LABEL} or {model: FILE.npz} under `deployed`",
    ),
    ErrorCode(
        "E308",
        "An algorithm cannot take a goal.",
        "its class (affine, convex, ratio, ...) is none of those that the algorithm takes",
        "the help names algorithms that can; `ratecli explain FILE` shows each goal's class",
    ),
    ErrorCode(
        "E309",
        "A goal looks at rows that no training may see.",
        "@test or @safety in the objective or in a constraint",
        "measure it under `metrics`",
    ),
    ErrorCode(
        "E310",
        "Trials would need one another in a circle, or it is not clear which is meant.",
        "`of(...)` of an algorithm that is held to this one, or that has several sweep points; "
        "numbers of a model that saw the rows of a safety test",
        "name another algorithm, or give it the same rows: `safety: {test: false}`",
    ),
    ErrorCode(
        "E311",
        "An expression has no value.",
        "a division by 0, the logarithm of a negative number, a ratio of counts that are 0 "
        "whatever is decided",
        "the underlined part is the one without a value",
    ),
)
_DATA = (
    ErrorCode(
        "E401",
        "Data are missing and the network may not be used.",
        "`--offline` before anything was fetched",
        "`ratecli fetch FILE`, or set RATECLI_DATA_MIRROR",
    ),
    ErrorCode(
        "E402",
        "A download failed.",
        "the address does not answer, or holds another archive",
        "try again later, or use a mirror",
    ),
    ErrorCode(
        "E403",
        "A file's checksum is not the known one.",
        "it was changed or cut off, or no checksum is known",
        "delete it and fetch it again; `sha256:` vouches for a file",
    ),
    ErrorCode(
        "E404",
        "A file is not in the format that it should be in.",
        "a web page in place of a table, ragged rows, a model file that holds no model",
        "open it: the message says where it goes wrong",
    ),
    ErrorCode(
        "E405",
        "A file that the experiment names cannot be read.",
        "it is not there, is a folder, or lies outside of the experiment's folder",
        "paths are relative to the experiment's file",
    ),
    ErrorCode(
        "E406",
        "Labels or decisions are not what they should be.",
        "one class, three classes, a positive value that no row has, a number out of its range",
        "`positive:` says which value is the positive one",
    ),
    ErrorCode(
        "E407",
        "A feature has no number where it needs one.",
        "a missing or infinite value in your own table, or numbers too large or too small to be "
        "scaled",
        "`missing: mean` takes the mean for a missing one; or fill it in, or drop the column or "
        "the rows",
    ),
    ErrorCode(
        "E408",
        "A group or slice has no rows.",
        "a condition that none of the training rows meets",
        "state it otherwise, or use more rows",
    ),
    ErrorCode(
        "E409",
        "An archive holds a path that leaves its folder.",
        "a hostile or broken archive",
        "nothing was extracted; use another address",
    ),
    ErrorCode(
        "E410",
        "Rows cannot be divided as asked.",
        "too few rows for a split, no official split, no validation rows for what is chosen by "
        "them",
        "`split: {validation: 0.2}` makes some",
    ),
    ErrorCode(
        "E411",
        "Tables do not fit together, or a column cannot be used as asked.",
        "data sets with other features, a model of other features, no features at all, groups "
        "unknown",
        "`features:` and `drop:` say which columns are features",
    ),
    ErrorCode(
        "E412",
        "A streamed table takes more memory than it may.",
        "wide rows, or many groups, and a small `limits: {memory: ...}`",
        "allow more, or drop columns",
    ),
    ErrorCode(
        "E413",
        "Records of a streamed table cannot be kept.",
        "no room in the data folder, or no right to write there",
        "RATECLI_DATA names another folder",
    ),
    ErrorCode(
        "E414",
        "Something does not go with a streamed data set.",
        "an algorithm that needs its rows in memory, a measure that sorts them, another data set "
        "beside it",
        "the help names algorithms that can; `stream: false` reads the table into memory",
    ),
)
_TRIALS = (
    ErrorCode(
        "E501",
        "A trial failed.",
        "an error, a time or memory limit, or a worker that ended",
        "its row in the ledger says why; the others are stored",
    ),
    ErrorCode(
        "E502",
        "A file is not a ledger of this version.",
        "another program's file, or one of a newer ratecli",
        "move it away, or update",
    ),
    ErrorCode(
        "E503",
        "There is no ledger, or it cannot be read.",
        "nothing was run yet, or no right to read",
        "run the experiment first",
    ),
    ErrorCode(
        "E504",
        "Another command is writing to the same folder.",
        "the same experiment in two terminals",
        "wait for it, or name another folder with -o",
    ),
    ErrorCode(
        "E505",
        "A file or folder cannot be written.",
        "no right to, no room left, or a file in the place of a folder",
        "name another with -o",
    ),
    ErrorCode(
        "E506",
        "A file is no reference that can be read.",
        "it was changed by hand, or is of another version",
        "pin again: `ratecli pin FILE`",
    ),
    ErrorCode(
        "E507",
        "An experiment cannot be pinned.",
        "trials that failed or are missing",
        "`ratecli run FILE` first",
    ),
    ErrorCode(
        "E508",
        "A check does not hold.",
        "a number got worse than in the reference, or differs from what `expect` says",
        "find out what moved it; if that is meant, pin again",
    ),
    ErrorCode(
        "E509",
        "A check cannot be made.",
        "no reference, trials that failed or are missing, other data",
        "`ratecli run FILE`, then `ratecli pin FILE`",
    ),
    ErrorCode(
        "E511",
        "A limit cannot be kept.",
        "this system does not say what a process holds",
        "leave `limits: {memory: ...}` out, or run elsewhere",
    ),
    ErrorCode(
        "E512",
        "Trials cannot be run on Dask.",
        "it is not installed, no scheduler answers, or its workers have other versions",
        "pip install 'ratecli[dask]', the same versions everywhere",
    ),
    ErrorCode(
        "E513",
        "The Dask cluster is lost.",
        "its scheduler ended, or all of its workers did",
        "run again: what had ended is stored",
    ),
)
_WARNINGS = (
    ErrorCode(
        "W208",
        "A plot asks for a variant that no trial gave.",
        "a typo, or an algorithm without it",
        "`summary.csv` lists the variants",
    ),
    ErrorCode(
        "W210",
        "A plugin cannot be used, or has a name of ours.",
        "its module is not there, or its name is taken",
        "rename its entry point, or install it anew",
    ),
    ErrorCode(
        "W305",
        "A constraint holds always or never at some sweep points.",
        "a sweep that goes to the end of a rate's range",
        "leave those points out",
    ),
    ErrorCode(
        "W306",
        "A plot asks for an optimum that is not known.",
        "only `loans` knows its own, for some goals",
        "leave out `optimum: true`",
    ),
    ErrorCode(
        "W401",
        "A group has few rows.",
        "fewer than 30 in a split, or none",
        "more rows, or read its rates with care",
    ),
    ErrorCode(
        "W402",
        "A constraint holds on training rows and not on test rows.",
        "chance, the more so the more a model can fit",
        "`constraints_on: validation`, `margin: 0.95`, or a `safety` test",
    ),
    ErrorCode(
        "W403",
        "The last rows of the file are tested and are not like the others.",
        "a file in some order, and `order: positional`",
        "leave out `order`",
    ),
    ErrorCode(
        "W404",
        "A table has values that no training row had.",
        "another spelling, or a new kind of row",
        "they count as none of the values known",
    ),
    ErrorCode(
        "W405",
        "A table lacks numbers that a model looks at.",
        "empty cells",
        "they count as the mean of the training rows",
    ),
    ErrorCode(
        "W406",
        "A column tells rows apart rather than kinds of them.",
        "names or numbers of rows among the features of a filter",
        "--drop it",
    ),
    ErrorCode(
        "W407",
        "A filter balances nothing.",
        "the columns tell too little of the groups, or too little may be told",
        "allow more",
    ),
    ErrorCode(
        "W408",
        "A model is no better than a constant decision.",
        "constraints that leave no room, too few rows, or an objective that few positives decide",
        "allow more, use more rows or other features; or decide alike for all and save the model",
    ),
    ErrorCode(
        "W501",
        "A number differs from what `expect` says.",
        "another result than the one that was expected",
        "`summary.md` has both",
    ),
    ErrorCode(
        "W502",
        "A check leaves seeds out, or has too few to show half a point.",
        "other seeds than those pinned, or a number that is undefined at some",
        "give the file the seeds that are pinned, or pin again",
    ),
)

CODES: dict[str, ErrorCode] = {
    each.code: each for each in (*_YAML, *_KEYS, *_NAMES, *_RULES, *_DATA, *_TRIALS, *_WARNINGS)
}
