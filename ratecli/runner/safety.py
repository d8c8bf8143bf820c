"""The safety test of a case: what the file says of it, at the sweep point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ratecli.faults import Fault, FaultError, did_you_mean
from ratecli.runner.drawing import Holdout
from ratecli.runner.options import solver_class
from ratecli.solvers.safety.promise import Division, Method, Promise
from ratecli.spec.algorithm import Algorithm
from ratecli.spec.complaint import shown
from ratecli.spec.dataset import FRACTION
from ratecli.spec.document import Document, Loc
from ratecli.spec.experiment import Experiment
from ratecli.spec.resample import MAX_SHARE
from ratecli.spec.safety import DELTA, Safety
from ratecli.spec.sweep import Point, Value

VERSION = 1
"""Of the test, in the key of every trial that has one: counts up where its answers change."""


@dataclass(frozen=True)
class SafetyTest:
    """What is tested, how, and on which rows; `delta` has every constraint of the file.

    Where it is not `taken`, rows are put aside and that is all.
    """

    delta: Mapping[str, float]
    bound: str
    method: Method
    division: Division
    holdout: Holdout
    taken: bool = True

    def promise(self, rows: int, *, pooled: bool) -> Promise:
        """What a candidate has to pass on so many rows.

        Of each data set the same share is put aside, so rates of rows of several (`pooled`) are stratified.
        """
        at_random = not (pooled or self.holdout.stratify or self.holdout.positional)
        return Promise(self.delta, rows, self.bound, self.method, self.division, at_random)

    def content(self, rules: Mapping[str, str]) -> dict[str, Any]:
        """What of it is part of a trial's key; its record names the constraints, `rules` by name."""
        return self.holdout.content() | {
            "version": VERSION,
            "delta": sorted([name, rule, self.delta[name]] for name, rule in rules.items()),
            "bound": self.bound,
            "method": self.method,
            "division": self.division,
        }


@dataclass(frozen=True)
class AtPoint:
    """What a file says of the rows of a trial and of their test, at one sweep point of an algorithm.

    `unset` are the faults of names that vary for other algorithms only.
    """

    experiment: Experiment
    document: Document
    entry: Algorithm
    point: Point
    unset: Mapping[str, Fault]

    def share(self) -> Fraction | None:
        """How many training rows are drawn, in all rows; E104, E203 where that is no number."""
        given = self.experiment.resample
        return None if given is None else self._number(given, ("resample",), MAX_SHARE)

    def test(self) -> SafetyTest | None:
        """The test, if there is one; E104, E203 where names have no values, or no chances."""
        test = merged(self.experiment, self.entry)
        if test is None:
            return None
        if test.stratify and test.order == "positional":
            message = "the last rows of the file are taken as they are: nothing can be stratified"
            hint = "leave out 'stratify', or say order: shuffled"
            place = self.document.place(self._loc("stratify"), key=True)
            raise FaultError(Fault("E104", message, hint, place=place))
        loc = self._loc("delta")
        each = test.delta if isinstance(test.delta, dict) else {}
        common = DELTA if isinstance(test.delta, dict) else test.delta
        delta = {
            name: self._chance(each[name], (*loc, name))
            if name in each
            else self._chance(common, loc)
            for name in self.experiment.constraints
        }
        fraction = self._chance(test.fraction, self._loc("fraction"))
        holdout = Holdout(fraction, test.stratify or (), test.order == "positional")
        chances = {name: float(chance) for name, chance in delta.items()}
        return SafetyTest(chances, test.bound, test.method, test.division, holdout, taken=test.test)

    def _loc(self, key: str) -> Loc:
        return place_of(self.experiment, self.entry.label, key)

    def _chance(self, given: Value, loc: Loc) -> Fraction:
        return self._number(given, loc, 1)

    def _number(self, given: Value, loc: Loc, limit: int) -> Fraction:
        """A number above 0 and, as the file is checked, up to `limit`, or what a name has here."""
        found = self._value(given, loc)
        number = exact(found)
        if number is None or not 0 < number <= limit or (limit == 1 and number == 1):
            most = "less than 1" if limit == 1 else f"at most {limit}"
            message = f"'{loc[-1]}' must be greater than 0 and {most}, not {shown(found)}"
            place = self.document.place(loc)
            raise FaultError(Fault("E104", f"{message}, as '{given}' is once", place=place))
        return number

    def _value(self, given: Value, loc: Loc) -> Value:
        if exact(given) is not None:
            return given
        name = str(given)
        if name in self.point:
            return self.point[name]
        place = self.document.place(loc)
        if name in self.unset:
            raise FaultError(self.unset[name].at(place))
        message = f"nothing that varies is called {shown(name)}"
        hint = did_you_mean(name, self.point, "names of the sweep")
        raise FaultError(Fault("E203", message, hint, place=place))


def place_of(experiment: Experiment, label: str, key: str) -> Loc:
    """Where a key of an algorithm's test stands, or would stand."""
    labels = [entry.label for entry in experiment.algorithms]
    index = labels.index(label)
    entry = experiment.algorithms[index]
    if key in _own(entry) or experiment.safety is None:
        return ("algorithms", index, entry.name, "safety", key)
    return ("safety", key)


def merged(experiment: Experiment, entry: Algorithm) -> Safety | None:
    """The test of an algorithm: the file's, but for what its own entry says."""
    if entry.safety is False or (entry.safety is None and experiment.safety is None):
        return None
    common = experiment.safety or Safety.model_validate({})
    return common.model_copy(update=_own(entry))


def tests(experiment: Experiment, entry: Algorithm) -> bool:
    """Whether what an algorithm finds is tested."""
    test = merged(experiment, entry)
    return test is not None and test.test


def aim(experiment: Experiment, entry: Algorithm) -> float | None:
    """The probability with which constraints are tightened for, where it is the runner that does so."""
    found = solver_class(entry.name)
    if not tests(experiment, entry) or found.role != "enforces" or found.needs_promise:
        return None
    test = merged(experiment, entry)
    return test.aim if test else None


def inflated(experiment: Experiment, entry: Algorithm) -> dict[str, Any]:
    """What an aim is as an option of algorithms that leave room for the test themselves."""
    test = merged(experiment, entry)
    if test is None or test.aim is None or not solver_class(entry.name).needs_promise:
        return {}
    return {"inflation": {"pass": test.aim}}


def _own(entry: Algorithm) -> dict[str, Any]:
    """The keys of the test that an entry gives itself."""
    own = entry.safety
    return (
        {key: getattr(own, key) for key in own.model_fields_set} if isinstance(own, Safety) else {}
    )


def exact(value: Value) -> Fraction | None:
    """A number, or a text like '1/3', as it is written; None for what is neither."""
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, str) and (not FRACTION.fullmatch(value) or value.endswith("/0")):
        return None
    return Fraction(str(value))
