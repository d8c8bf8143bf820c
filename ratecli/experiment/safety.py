"""The settings of a case's safety test, and how they follow from the file at a sweep point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ratecli.certify.safety_test import DeltaDivision, SafetyMethod, SafetyTestSpec
from ratecli.config.algorithm import AlgorithmSpec
from ratecli.config.base import NumberRange, exact_number
from ratecli.config.dataset import RESAMPLE_RANGE
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.config.safety import AIM_RANGE, DEFAULT_DELTA, PROBABILITY_RANGE, SafetySpec
from ratecli.config.sweep import SweepPoint, SweepValue, sweep_value_loc
from ratecli.config.validation import describe_type, quote_value
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean
from ratecli.sampling.resampling import Holdout
from ratecli.solvers.base import Solver

SAFETY_TEST_VERSION = 1
"""Version of the safety test in the keys of tested trials; incremented when its results change."""


@dataclass(frozen=True)
class SafetyTestSettings:
    """The settings of a safety test; `delta` has every constraint of the file.

    If it is not `taken`, rows are held out but nothing is tested. `aim` is the probability with
    which the test should be passed, if specified.
    """

    delta: Mapping[str, float]
    bound: str
    method: SafetyMethod
    division: DeltaDivision
    holdout: Holdout
    taken: bool = True
    aim: float | None = None

    def promise(self, rows: int, *, pooled: bool) -> SafetyTestSpec:
        """Return the test for candidates on this number of rows.

        The same share of each data set is held out, so rates over several data sets (`pooled`) are
        stratified.
        """
        at_random = not (pooled or self.holdout.stratify or self.holdout.positional)
        return SafetyTestSpec(self.delta, rows, self.bound, self.method, self.division, at_random)

    def content(self, rules: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings for a trial's key; `rules` are the constraints' texts by name."""
        return self.holdout.content() | {
            "version": SAFETY_TEST_VERSION,
            "delta": sorted([name, rule, self.delta[name]] for name, rule in rules.items()),
            "bound": self.bound,
            "method": self.method,
            "division": self.division,
        }


@dataclass(frozen=True)
class EntryAtPoint:
    """The settings of a trial's rows and safety test, for one algorithm at one sweep point.

    `unset` holds the diagnostics for names that vary for other algorithms only.
    """

    experiment: Experiment
    document: Document
    entry: AlgorithmSpec
    point: SweepPoint
    unset: Mapping[str, Diagnostic]

    def share(self) -> Fraction | None:
        """Return the share of rows to sample for training; raise E104, E203 if it is invalid."""
        given = self.experiment.resample
        return None if given is None else self.number(given, ("resample",), RESAMPLE_RANGE)

    def test(self) -> SafetyTestSettings | None:
        """Return the safety test, if any; E104, E203 if names have no value or no valid one."""
        test = merged_safety(self.experiment, self.entry)
        if test is None:
            return None
        if test.stratify and test.order == "positional":
            message = "the last rows of the file are taken as they are: nothing can be stratified"
            hint = "leave out 'stratify', or say order: shuffled"
            place = self.document.place(self._loc("stratify"), key=True)
            raise FaultError(Diagnostic("E104", message, hint, place=place))
        loc = self._loc("delta")
        each = test.delta if isinstance(test.delta, dict) else {}
        common = DEFAULT_DELTA if isinstance(test.delta, dict) else test.delta
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
            aim = float(self.number(test.aim, self._loc("aim"), AIM_RANGE))
        how = test.bound, test.method, test.division
        return SafetyTestSettings(chances, *how, holdout, taken=test.test, aim=aim)

    def _loc(self, key: str) -> Loc:
        return safety_key_loc(self.experiment, self.entry.label, key)

    def _chance(self, given: SweepValue, loc: Loc) -> Fraction:
        return self.number(given, loc, PROBABILITY_RANGE)

    def number(self, given: SweepValue, loc: Loc, limits: NumberRange) -> Fraction:
        """Return a number, or the value of a name at this point after checking it."""
        number = exact_number(given)
        if number is not None:
            return number
        name = str(given)
        found = self._value(name, loc)
        number = exact_number(found)
        if number is None or found not in limits:
            key = f"the delta of '{loc[-1]}'" if loc[-2:-1] == ("delta",) else f"'{loc[-1]}'"
            value = (
                quote_value(found) if isinstance(found, str) else describe_type(found).split()[-1]
            )
            message = f"'{name}' stands for {key}, which must be {limits.words}, not {value}"
            place = self.document.place(self._given(name, found))
            raise FaultError(Diagnostic("E104", message, place=place))
        return number

    def _value(self, name: str, loc: Loc) -> SweepValue:
        if name in self.point:
            return self.point[name]
        place = self.document.place(loc)
        if name in self.unset:
            raise FaultError(self.unset[name].at(place))
        message = f"nothing that varies is called {quote_value(name)}"
        hint = did_you_mean(name, self.point, "names of the sweep")
        raise FaultError(Diagnostic("E203", message, hint, place=place))

    def _given(self, name: str, value: SweepValue) -> Loc:
        """Return where the algorithm's own sweep, or the file's, gives a name its value."""
        own = self.entry.sweep
        if own is not None and name in own.names:
            return (
                *algorithm_loc(self.experiment, self.entry.label),
                "sweep",
                *sweep_value_loc(own, name, value),
            )
        return ("sweep", *sweep_value_loc(self.experiment.sweep, name, value))


def algorithm_loc(experiment: Experiment, label: str) -> Loc:
    """Return the location of an algorithm's options."""
    labels = [entry.label for entry in experiment.algorithms]
    index = labels.index(label)
    return ("algorithms", index, experiment.algorithms[index].name)


def safety_key_loc(experiment: Experiment, label: str, key: str) -> Loc:
    """Return the location of a key of an algorithm's safety test, whether or not it is present."""
    at = algorithm_loc(experiment, label)
    if key in own_safety_keys(experiment.algorithms[int(at[1])]) or experiment.safety is None:
        return (*at, "safety", key)
    return ("safety", key)


def merged_safety(experiment: Experiment, entry: AlgorithmSpec) -> SafetySpec | None:
    """Return the settings of an algorithm's safety test: the file's, updated by its own entry."""
    if entry.safety is False or (entry.safety is None and experiment.safety is None):
        return None
    common = experiment.safety or SafetySpec.model_validate({})
    return common.model_copy(update=own_safety_keys(entry))


def is_safety_tested(experiment: Experiment, entry: AlgorithmSpec) -> bool:
    """Return whether models of an algorithm are tested."""
    test = merged_safety(experiment, entry)
    return test is not None and test.test


def needs_tightening(found: type[Solver]) -> bool:
    """Return whether ratecli, not the algorithm, tightens the constraints to reach an aim."""
    return found.role == "enforces" and not found.needs_promise


def inflation_options(found: type[Solver], aim: float | None) -> dict[str, Any]:
    """Return the aim as an option of algorithms that tighten constraints themselves."""
    return {"inflation": {"pass": aim}} if aim is not None and found.needs_promise else {}


def own_safety_keys(entry: AlgorithmSpec) -> dict[str, Any]:
    """Return the keys of the safety test that an entry sets itself."""
    own = entry.safety
    return (
        {key: getattr(own, key) for key in own.model_fields_set}
        if isinstance(own, SafetySpec)
        else {}
    )
