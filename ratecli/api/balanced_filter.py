"""An estimator that filters rows to balance groups (Deng, Diana, Kearns, Roth 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ratecli.api.errors import (
    NoSolutionFoundError,
    check_parameters,
    convert_errors,
    issue_warnings,
)
from ratecli.api.estimators import MappingParamsEstimator
from ratecli.api.fitting import FitResult, fit_rows
from ratecli.api.inputs import InputRows, LabelledRows, seed_from_random_state
from ratecli.apply.predict import prediction_columns
from ratecli.experiment.filters import (
    MAIN_VARIANT,
    empty_group_warning,
    filter_alone,
    filter_class,
    why_unusable,
)
from ratecli.models.base import Array
from ratecli.models.proxies import ProxyFilter
from ratecli.sampling.summaries import few_kept_warning


@dataclass(eq=False, repr=False)
class BalancedFilter(MappingParamsEstimator):
    """Keep rows so that groups have equal shares, revealing little about anyone's group.

    Groups are given by columns of `X`, if it is a DataFrame, or of `sensitive_features`. The filter
    uses these columns only in training, to measure the balance; they are never its inputs. Its
    probabilities equal those of `ratecli filter` on the same table, with the same options and seed.

    The columns of a DataFrame are encoded as by that command; an array is used as it is.

    As in imbalanced-learn, `fit_resample` returns the rows that are kept. Use `sample_weight` for
    classifiers that weight all rows instead.

    Parameters
    ----------
    by : str or list of str, default=None
        Columns whose values should have equal shares; None for all sensitive features.
    disclosivity : float, default=0.1
        Upper limit, from 0 to 1, on how much the filter's output for a training row may change the
        probability of any value of these columns.
    algorithm : str, default="balanced_tree"
        `balanced_tree`, `qp_proxy` or `naive_proxy`.
    kept : float, default=0.1
        Minimum fraction of the training rows to keep. Ignored by `naive_proxy`.
    objective : str, default=None
        A distance to minimize instead of `imbalance(by=...)`, such as `rms(share[sex = Female] -
        0.4)`.
    solver_options : dict, default=None
        Further options of the algorithm. Each is also available as the parameter
        `solver_options__NAME`.
    drop : list of str, default=()
        Further columns of X that are not inputs of the filter.
    missing : {"error", "mean"}, default="error"
        How to treat missing numbers in a DataFrame, as in `RateConstrainedClassifier`.
    random_state : int, RandomState or None, default=None
        Seed of the algorithm and of the sampling of rows.

    Attributes
    ----------
    filter_
        The filter, a `ratecli.models.proxies.ProxyFilter`; None if there were no groups.
    imbalance_, disclosivity_ : float
        The objective and the disclosivity of the filter on the training rows.
    kept_ : float
        Expected fraction of the training rows that is kept.
    sample_indices_ : ndarray
        Indices of the rows kept by the last call of `fit_resample`.

    References
    ----------
    Deng, Diana, Kearns, Roth (2023), "Balanced Filtering via Disclosure-Controlled Proxies".
    """

    _mappings: ClassVar[tuple[str, ...]] = ("solver_options",)
    _found: ClassVar[str] = "filter_"

    by: str | Sequence[str] | None = None
    _: KW_ONLY
    disclosivity: float = 0.1
    algorithm: str = "balanced_tree"
    kept: float = 0.1
    objective: str | None = None
    solver_options: Mapping[str, Any] | None = None
    drop: Sequence[str] = ()
    missing: Literal["error", "mean"] = "error"
    random_state: Any = None

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> BalancedFilter:
        """Learn a filter; without groups, it keeps every row.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n, d)
        y : array of shape (n,), default=None
            Not used, but if both are pandas objects, its index must equal that of X.
        sensitive_features : DataFrame, Series, dict or array, default=None
            n rows with the groups.

        Raises
        ------
        ValueError
            If an argument is invalid or arguments do not fit together; the attribute `faults` lists
            the errors.
        NoSolutionFoundError
            If no filter satisfies the limit on disclosivity.
        """
        with convert_errors():
            check_parameters(self)
            filter_class(self.algorithm)
            inputs = self._inputs(X, sensitive_features, reset=True, y=y)
            self._seed = seed_from_random_state(self.random_state)
            by = self._columns() or list(map(str, inputs.beside.columns))
            if not by:
                self._keep_all()
                hint = "pass column names as `by`, or pass sensitive_features"
                issue_warnings([f"there are no groups to balance: {hint}"])
                return self
            count = len(inputs)
            rows = LabelledRows.of(inputs, np.full(count, np.nan), np.ones(count))
            columns = rows.sample(None).columns
            for name in (each for each in by if each in columns):  # others are an error below
                issue_warnings(empty_group_warning(name, columns[name]))
            found = fit_rows(rows, self._seed, self.algorithm, **self._arguments(by, inputs))
        issue_warnings(found.warnings)
        self._keep(found)
        return self

    def _columns(self) -> list[str]:
        return [self.by] if isinstance(self.by, str) else list(() if self.by is None else self.by)

    def _arguments(self, by: Sequence[str], inputs: InputRows) -> dict[str, Any]:
        """Return the arguments of `fit_rows` about the filter."""
        options, goals = filter_alone(self.algorithm, by, float(self.disclosivity), self.kept)
        options |= self.solver_options or {}
        goals |= {} if self.objective is None else {"objective": self.objective}
        drop = [name for name in self.drop if name not in by]
        features = {"drop": drop, "encode": inputs.matrix is None, "missing": self.missing}
        return {"options": options, **features, **goals}

    def _keep_all(self) -> None:
        self.filter_: ProxyFilter | None = None
        self.imbalance_, self.disclosivity_, self.kept_ = 0.0, 0.0, 1.0

    def _keep(self, found: FitResult) -> None:
        ending, values = found.measured, found.values.get(MAIN_VARIANT, {})
        chosen: Any = ending.solution.variants.get(MAIN_VARIANT)
        disclosed = values["disclosivity"] if isinstance(chosen, ProxyFilter) else None
        reason = ending.reason or ending.status
        if why := why_unusable(self.algorithm, disclosed, self.disclosivity, reason):
            raise NoSolutionFoundError(why)
        self.filter_, self._reader = chosen, found.reader
        self.imbalance_, self.disclosivity_ = values["objective"], values["disclosivity"]
        self.kept_ = values["kept"]
        few = few_kept_warning(self.kept_, "kept=0.3 with balanced_tree or qp_proxy")
        issue_warnings(f"{each.code}: {each.message}; {each.help}" for each in few)

    def chances(self, X: Any) -> Array:
        """Return the probability (n,) of keeping each row.

        X may lack the columns `by` and `drop`.
        """
        check_is_fitted(self, self._found)
        if self.filter_ is None:
            return np.ones(len(self._inputs(X, None, reset=False)))
        return self.filter_.keep_probability(self._shown(X))

    def sample_weight(self, X: Any) -> Array:
        """Return weights (n,) under which groups are as balanced as among kept rows: `chances`."""
        return self.chances(X)

    def fit_resample(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None
    ) -> tuple[Any, Any]:
        """Learn a filter and sample the rows to keep.

        Returns
        -------
        X, y
            The rows that are kept, with the types of the arguments; y is None if it was None.
        """
        self.fit(X, y, sensitive_features=sensitive_features)
        if self.filter_ is None:
            kept: NDArray[Any] = self.chances(X)
        else:
            kept = prediction_columns(self.filter_, self._shown(X), self._seed).columns["kept"]
        self.sample_indices_ = rows = np.flatnonzero(kept)
        if not len(rows):
            raise NoSolutionFoundError(f"none of {len(kept)} rows is kept: increase `kept`")
        return _safe_indexing(X, rows), None if y is None else _safe_indexing(y, rows)

    def _unseen(self) -> list[str]:
        return [*self._columns(), *self.drop]
