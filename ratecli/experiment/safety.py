"""The settings of a case's safety test, and how they follow from the file at a sweep point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ratecli.certify.trees import SafetyTestSpec
from ratecli.config.base import NumberRange, describe_type, exact_number, quote_value
from ratecli.config.dataset import RESAMPLE_RANGE
from ratecli.config.document import LOCATION_MARK
from ratecli.config.experiment import Experiment
from ratecli.config.sweep import SweepPoint, SweepValue, sweep_points
from ratecli.config.training import (
    AIM_RANGE,
    DEFAULT_DELTA,
    PROBABILITY_RANGE,
    AlgorithmSpec,
    SafetySpec,
)
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean
from ratecli.rates.scope import Scope
from ratecli.sampling.resampling import Holdout


@dataclass(frozen=True)
class SafetyAtPoint:
    """An entry's safety settings: the held-out rows, the test on them, and its aim, if any.

    The number of rows of the test is not known yet. `aim` is the probability with which a model
    should pass. Without a test, rows may be held out all the same.
    """

    holdout: Holdout | None = None
    test: SafetyTestSpec | None = None
    aim: float | None = None


@dataclass(frozen=True)
class EntryAtPoint:
    """One algorithm's entry at one sweep point; `scope` resolves names there."""

    experiment: Experiment
    entry: AlgorithmSpec
    point: SweepPoint
    scope: Scope

    def share(self) -> Fraction | None:
        """Return the share of rows to sample for training; raise E104, E203 if it is invalid."""
        share = self.experiment.resample
        return None if share is None else self.number(share, ("resample",), RESAMPLE_RANGE)

    def safety(self) -> SafetyAtPoint:
        """Return the safety settings; raise E104, E203 if names have no value or no valid one."""
        test = merged_safety(self.experiment, self.entry)
        if test is None:
            return SafetyAtPoint()
        if test.stratify and test.order == "positional":
            message = "the last rows of the file are held out, so they cannot be stratified"
            hint = "leave out 'stratify', or set order: shuffled"
            loc = self._loc("stratify")
            raise FaultError(Diagnostic("E104", message, hint, loc=loc, key=True))
        joint = self._tested_algorithms() if test.guarantee == "joint" else 0
        loc, delta = self._loc("delta"), {}
        for name in self.experiment.constraints:
            own, place = test.delta, loc
            if isinstance(own, dict):
                own, place = own.get(name, DEFAULT_DELTA), (*loc, name)
            delta[name] = float(self.number(own, place, PROBABILITY_RANGE)) / max(joint, 1)
        fraction = self.number(test.fraction, self._loc("fraction"), PROBABILITY_RANGE)
        holdout = Holdout(fraction, test.stratify or (), test.order == "positional")
        aim = test.aim
        if aim is not None:
            aim = float(self.number(aim, self._loc("aim"), AIM_RANGE))
        if not test.test:
            return SafetyAtPoint(holdout)
        spec = SafetyTestSpec(delta, 0, test.bound, test.method, joint=joint)
        return SafetyAtPoint(holdout, spec, aim)

    def _tested_algorithms(self) -> int:
        """Return how many algorithms are tested at this point of the file's sweep.

        An algorithm with a sweep of its own counts once for each of its points.
        """
        experiment, common = self.experiment, self.experiment.sweep.names
        tests = ((entry, merged_safety(experiment, entry)) for entry in experiment.algorithms)
        return sum(
            all(point.get(name) == self.point.get(name) for name in common)
            for entry, test in tests
            if test is not None and test.test
            for point in sweep_points(experiment.sweep, entry.sweep)
        )

    def _loc(self, key: str) -> Loc:
        return safety_key_loc(self.experiment, self.entry.label, key)

    def number(self, written: SweepValue, loc: Loc, limits: NumberRange) -> Fraction:
        """Return a number, or the value of a name at this point after checking it."""
        number = exact_number(written)
        if number is not None:
            return number
        name = str(written)
        if name in self.scope.unset:
            raise FaultError(replace(self.scope.unset[name], loc=loc))
        if name not in self.point:
            message = f"{quote_value(name)} is not a swept name"
            hint = did_you_mean(name, self.point, "names of the sweep")
            raise FaultError(Diagnostic("E203", message, hint, loc=loc))
        value = self.point[name]
        number = exact_number(value)
        if number is None or value not in limits:
            found = describe_type(value)
            message = f"{LOCATION_MARK} must be {limits.words}, and '{name}' is {found}"
            raise FaultError(Diagnostic("E104", message, loc=loc))
        return number


def safety_key_loc(experiment: Experiment, label: str, key: str) -> Loc:
    """Return the location of a key of an algorithm's safety test, whether or not it is present."""
    entry = next(entry for entry in experiment.algorithms if entry.label == label)
    if key in own_safety_keys(entry) or experiment.safety is None:
        return experiment.entry_loc(label, "safety", key)
    return ("safety", key)


def merged_safety(experiment: Experiment, entry: AlgorithmSpec) -> SafetySpec | None:
    """Return the settings of an algorithm's safety test: the file's, updated by its own entry."""
    if entry.safety is False or (entry.safety is None and experiment.safety is None):
        return None
    common = experiment.safety or SafetySpec.model_validate({})
    return common.model_copy(update=own_safety_keys(entry))


def own_safety_keys(entry: AlgorithmSpec) -> dict[str, Any]:
    """Return the keys of the safety test that an entry sets itself."""
    own = entry.safety
    if not isinstance(own, SafetySpec):
        return {}
    return {key: getattr(own, key) for key in own.model_fields_set}
