"""The safety test of a case: what the file says of it, at the sweep point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from ratecli.certify.safety_test import Division, Method, Promise
from ratecli.config.algorithm import Algorithm
from ratecli.config.complaint import kind, shown
from ratecli.config.dataset import FRACTION
from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.config.resample import MAX_SHARE
from ratecli.config.safety import BETWEEN, DELTA, HOPEFUL, Safety, between, hopeful
from ratecli.config.sweep import Point, Value, place_in
from ratecli.errors import Fault, FaultError, did_you_mean
from ratecli.sampling.resampling import Holdout
from ratecli.solvers.base import Solver


class Limits(NamedTuple):
    """What a number may be."""

    hold: Callable[[Fraction], bool]
    words: str


CHANCES = Limits(between, BETWEEN)
HOPES = Limits(hopeful, HOPEFUL)
WITHIN = Limits(lambda n: 0 < n <= MAX_SHARE, f"greater than 0 and at most {MAX_SHARE}")

VERSION = 1
"""Of the test, in the key of every trial that has one: counts up where its answers change."""


@dataclass(frozen=True)
class SafetyTest:
    """What is tested, how, and on which rows; `delta` has every constraint of the file.

    Where it is not `taken`, rows are put aside and that is all. `aim` is the probability with which it is to
    be passed, if the file says one.
    """

    delta: Mapping[str, float]
    bound: str
    method: Method
    division: Division
    holdout: Holdout
    taken: bool = True
    aim: float | None = None

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
        return None if given is None else self.number(given, ("resample",), WITHIN)

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
        aim = None
        if test.aim is not None:
            aim = float(self.number(test.aim, self._loc("aim"), HOPES))
        how = test.bound, test.method, test.division
        return SafetyTest(chances, *how, holdout, taken=test.test, aim=aim)

    def _loc(self, key: str) -> Loc:
        return place_of(self.experiment, self.entry.label, key)

    def _chance(self, given: Value, loc: Loc) -> Fraction:
        return self.number(given, loc, CHANCES)

    def number(self, given: Value, loc: Loc, limits: Limits) -> Fraction:
        """A number as the file has it, or what a name has here, which nobody has looked at yet."""
        number = exact(given)
        if number is not None:
            return number
        name = str(given)
        found = self._value(name, loc)
        number = exact(found)
        if number is None or not limits.hold(number):
            key = f"the delta of '{loc[-1]}'" if loc[-2:-1] == ("delta",) else f"'{loc[-1]}'"
            value = shown(found) if isinstance(found, str) else kind(found).split()[-1]
            message = f"'{name}' stands for {key}, which must be {limits.words}, not {value}"
            place = self.document.place(self._given(name, found))
            raise FaultError(Fault("E104", message, place=place))
        return number

    def _value(self, name: str, loc: Loc) -> Value:
        if name in self.point:
            return self.point[name]
        place = self.document.place(loc)
        if name in self.unset:
            raise FaultError(self.unset[name].at(place))
        message = f"nothing that varies is called {shown(name)}"
        hint = did_you_mean(name, self.point, "names of the sweep")
        raise FaultError(Fault("E203", message, hint, place=place))

    def _given(self, name: str, value: Value) -> Loc:
        """Where the sweep, the algorithm's own or the file's, gives a name a value."""
        own = self.entry.sweep
        if own is not None and name in own.names:
            return (
                *loc_of(self.experiment, self.entry.label),
                "sweep",
                *place_in(own, name, value),
            )
        return ("sweep", *place_in(self.experiment.sweep, name, value))


def loc_of(experiment: Experiment, label: str) -> Loc:
    """Where the options of an algorithm stand."""
    labels = [entry.label for entry in experiment.algorithms]
    index = labels.index(label)
    return ("algorithms", index, experiment.algorithms[index].name)


def place_of(experiment: Experiment, label: str, key: str) -> Loc:
    """Where a key of an algorithm's test stands, or would stand."""
    at = loc_of(experiment, label)
    if key in own_keys(experiment.algorithms[int(at[1])]) or experiment.safety is None:
        return (*at, "safety", key)
    return ("safety", key)


def merged(experiment: Experiment, entry: Algorithm) -> Safety | None:
    """The test of an algorithm: the file's, but for what its own entry says."""
    if entry.safety is False or (entry.safety is None and experiment.safety is None):
        return None
    common = experiment.safety or Safety.model_validate({})
    return common.model_copy(update=own_keys(entry))


def tests(experiment: Experiment, entry: Algorithm) -> bool:
    """Whether what an algorithm finds is tested."""
    test = merged(experiment, entry)
    return test is not None and test.test


def tightens(found: type[Solver]) -> bool:
    """Whether it is the runner that tightens an algorithm's constraints for an aim."""
    return found.role == "enforces" and not found.needs_promise


def inflated(found: type[Solver], aim: float | None) -> dict[str, Any]:
    """What an aim is as an option of algorithms that leave room for the test themselves."""
    return {"inflation": {"pass": aim}} if aim is not None and found.needs_promise else {}


def own_keys(entry: Algorithm) -> dict[str, Any]:
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
