"""A filter of rows that balances groups, as an estimator (Deng, Diana, Kearns, Roth 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ratecli.api.errors import NoSolutionFoundError, convert_errors, issue_warning, issue_warnings
from ratecli.api.estimator import MappingParamsEstimator, seed_from_random_state
from ratecli.api.fitting import FitResult, LabelledRows, fit_rows
from ratecli.api.goals import FitSpec
from ratecli.api.rows import InputRows
from ratecli.apply.predict import prediction_columns
from ratecli.apply.table_filter import MAIN_VARIANT, WITHOUT_MIN_KEPT
from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import CONSTRAINT_TOLERANCE
from ratecli.models.base import Array
from ratecli.models.proxies import ProxyFilter
from ratecli.rates.syntax import number_text, quote

SECRET_RULE = "secret"  # noqa: S105  the name of a rule
DISCLOSIVITY_METRIC = "disclosivity"


class BalancedFilter(MappingParamsEstimator):
    """Keep rows so that groups have equal shares, by chances that tell little of anybody's group.

    Groups are told by columns of `X`, where it is a DataFrame, or of `sensitive_features`. The filter does not
    look at them, neither when it is learned nor when it is applied: only what they are balanced by is.
    Its chances are those of `ratecli filter` on the same table, options and seed.

    The columns of a DataFrame are encoded as by the command; an array is taken as it is.

    As in imbalanced-learn, `fit_resample` gives the rows that are kept. `sample_weight` is for classifiers that
    rather weigh all rows.

    Parameters
    ----------
    by : str or list of str, default=None
        The columns whose values are to have equal shares; None for all sensitive features.
    disclosivity : float, default=0.1
        By how much what the filter says of a training row may shift the chance of any of these values,
        from 0 to 1.
    algorithm : str, default="balanced_tree"
        `balanced_tree`, `qp_proxy` or `naive_proxy`.
    kept : float, default=0.1
        The least share of the training rows that is to be kept. `naive_proxy` keeps what it keeps.
    objective : str, default=None
        Another distance than `imbalance(by=...)`, such as `rms(share[sex = Female] - 0.4)`.
    solver_options : dict, default=None
        Further options of the algorithm. One of them is also the parameter `solver_options__NAME`.
    drop : list of str, default=()
        Further columns of X that the filter is not to look at.
    missing : {"error", "mean"}, default="error"
        What a missing number in a DataFrame is, as in `RateConstrainedClassifier`.
    random_state : int, RandomState or None, default=None
        Decides what the algorithm leaves to chance, and which rows are kept.

    Attributes
    ----------
    filter_
        What decides, a `ratecli.models.proxies.ProxyFilter`; None where there were no groups.
    imbalance_, disclosivity_ : float
        What it reaches on the training rows: the objective, and how much it tells.
    kept_ : float
        The share of these rows that is expected to be kept.
    sample_indices_ : ndarray
        Which rows `fit_resample` kept last.

    References
    ----------
    Deng, Diana, Kearns, Roth (2023), "Balanced Filtering via Disclosure-Controlled Proxies".
    """

    _mappings = ("solver_options",)
    _found = "filter_"

    def __init__(
        self,
        by: str | Sequence[str] | None = None,
        *,
        disclosivity: float = 0.1,
        algorithm: str = "balanced_tree",
        kept: float = 0.1,
        objective: str | None = None,
        solver_options: Mapping[str, Any] | None = None,
        drop: Sequence[str] = (),
        missing: Literal["error", "mean"] = "error",
        random_state: Any = None,
    ) -> None:
        self.by = by
        self.disclosivity = disclosivity
        self.algorithm = algorithm
        self.kept = kept
        self.objective = objective
        self.solver_options = solver_options
        self.drop = drop
        self.missing = missing
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None) -> BalancedFilter:
        """Learn a filter; without any groups it keeps every row.

        Parameters
        ----------
        X : DataFrame, array or sparse matrix of shape (n, d)
        y : array of shape (n,), default=None
            Not used, but its index must be that of X where both are pandas objects.
        sensitive_features : DataFrame, Series, dict or array, default=None
            n rows, the groups.

        Raises
        ------
        ValueError
            Where anything cannot be read or does not go together; `faults` has the parts.
        NoSolutionFoundError
            Where no filter is found that tells as little as it is to.
        """
        with convert_errors():
            given = self._given(X, sensitive_features, reset=True, y=y)
            self._seed = seed_from_random_state(self.random_state)
            by = self._by(given)
            if not by:
                self._keep_all()
                issue_warning(
                    "there are no groups to balance: name columns by `by`, or give sensitive_features"
                )
                return self
            nothing = np.full(len(given), np.nan)
            rows = LabelledRows(given, nothing, np.ones(len(given)))
            dropped = [name for name in self.drop if name not in by]
            encode = given.raw is not None
            found = fit_rows(
                self._question(by),
                rows,
                self._seed,
                drop=dropped,
                encode=encode,
                missing=self.missing,
            )
        issue_warnings(found.doubts)
        self._keep(found)
        return self

    def _by(self, given: InputRows) -> list[str]:
        if self.by is None:
            return [str(name) for name in given.beside.columns]
        return [self.by] if isinstance(self.by, str) else list(self.by)

    def _question(self, by: Sequence[str]) -> FitSpec:
        limit = self.disclosivity
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= 1:
            raise FaultError(Diagnostic("E104", f"disclosivity must be from 0 to 1, not {limit!r}"))
        columns = ", ".join(map(quote, by))
        over = f"by=({columns})" if len(by) > 1 else f"by={columns}"
        least = {} if self.algorithm == WITHOUT_MIN_KEPT else {"kept": self.kept}
        rule = {SECRET_RULE: f"{DISCLOSIVITY_METRIC}({over}) <= {number_text(float(limit))}"}
        return FitSpec(
            self.algorithm,
            {**least, **(self.solver_options or {})},
            f"imbalance({over})" if self.objective is None else self.objective,
            rule if limit < 1 else {},  # 1 always holds
            metrics={
                DISCLOSIVITY_METRIC: f"{DISCLOSIVITY_METRIC}({over})",
                "kept": "positive_rate",
            },
        )

    def _keep_all(self) -> None:
        self.filter_: ProxyFilter | None = None
        self.imbalance_, self.disclosivity_, self.kept_ = 0.0, 0.0, 1.0

    def _keep(self, found: FitResult) -> None:
        chosen = found.solution.variants.get(MAIN_VARIANT)
        if not isinstance(chosen, ProxyFilter):
            reason = found.ending.reason or found.ending.status
            raise NoSolutionFoundError(f"{self.algorithm} found no filter: {reason}")
        values = found.values[MAIN_VARIANT]
        if not values[DISCLOSIVITY_METRIC] <= self.disclosivity + CONSTRAINT_TOLERANCE:
            raise NoSolutionFoundError(
                f"what {self.algorithm} says of a row shifts the chance of its group by up to "
                f"{values[DISCLOSIVITY_METRIC]:.4f}, more than {self.disclosivity:g}: allow more, or take balanced_tree"
            )
        self.filter_, self._reader = chosen, found.reader
        self.imbalance_, self.disclosivity_ = values["objective"], values[DISCLOSIVITY_METRIC]
        self.kept_ = values["kept"]

    def chances(self, X: Any) -> Array:
        """The chance (n,) that each row is kept, in [0, 1]. X may lack the columns of `by` and `drop`."""
        check_is_fitted(self, self._found)
        with convert_errors():
            given = self._given(X, None, reset=False)
            if self.filter_ is None:
                return np.ones(len(given))
            chances = self.filter_.chance(self._reader.shown(given, self.filter_))
            issue_warnings(self._reader.surprises(given))
        return chances

    def sample_weight(self, X: Any) -> Array:
        """Weights (n,) under which groups are as balanced as among rows that are kept: `chances`."""
        return self.chances(X)

    def fit_resample(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None
    ) -> tuple[Any, Any]:
        """Learn a filter and draw whom to keep.

        Returns
        -------
        X, y
            The rows that are kept, of the types given; y is None where it was.
        """
        self.fit(X, y, sensitive_features=sensitive_features)
        rows = self._drawn(X)
        self.sample_indices_ = rows
        return _safe_indexing(X, rows), None if y is None else _safe_indexing(y, rows)

    def _drawn(self, X: Any) -> NDArray[np.intp]:
        with convert_errors():
            given = self._given(X, None, reset=False)
            if self.filter_ is None:
                return np.arange(len(given))
            said = prediction_columns(
                self.filter_, self._reader.shown(given, self.filter_), self._seed
            )
        rows = np.flatnonzero(said.columns["kept"])
        if not len(rows):
            raise NoSolutionFoundError(f"of {len(given)} rows none is kept: ask for more by `kept`")
        return rows

    def _unseen(self) -> list[str]:
        by = [] if self.by is None else [self.by] if isinstance(self.by, str) else list(self.by)
        return [*by, *self.drop]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
