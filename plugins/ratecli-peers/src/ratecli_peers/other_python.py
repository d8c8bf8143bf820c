"""Packages that need an interpreter of their own: rows go out as Parquet, decisions come back.

A script of `scripts/` gets a folder with `rows.parquet` (features, `label` and `group`) and
`facts.json`. It leaves `decisions.parquet`, its chances of positive decisions on these rows, and
`model.json`, from which the adapter makes a classifier of ratecli: it must decide alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Gt

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.solvers.base import Solution, Solver
from ratecli.solvers.problem import Problem

if TYPE_CHECKING:
    from ratecli_peers.rows import GroupRows

SCRIPTS = Path(__file__).with_name("scripts")
TIES = 1e-6
"""Share of rows on which the package and the classifier may decide differently: rounding."""
THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


@dataclass(frozen=True, kw_only=True)
class OtherPython(Solver):
    """Base of algorithms that another interpreter runs.

    Attributes
    ----------
    python
        Path of the interpreter that has the package, pandas and pyarrow; "" for ratecli's own.
    seconds
        Limit of time.

    `script` is the first part of the script's name. `no_model` says why the script may return no
    model, "" if it has to return one.
    """

    python: str = ""
    seconds: Annotated[float, Gt(0)] = 600.0

    script: ClassVar[str] = ""
    no_model: ClassVar[str] = ""

    def run_script(
        self,
        problem: Problem,
        rows: GroupRows,
        columns: Array,
        facts: Mapping[str, Any],
        classifier_of: Callable[[Any], Classifier],
    ) -> Solution:
        """Run the script on columns (m, C) of the rows, and return its model as a classifier.

        Raises
        ------
        FaultError
            E202 if there is no such interpreter; E501 if the script fails, takes too long or
            returns no model, or if the classifier decides differently from the package.
        """
        import numpy as np
        import pandas as pd

        from ratecli_peers.rows import solution

        begun = time.perf_counter()
        table = pd.DataFrame(columns).rename(columns=str)
        with TemporaryDirectory() as name:
            folder = Path(name)
            table.assign(label=rows.label, group=rows.group).to_parquet(folder / "rows.parquet")
            (folder / "facts.json").write_text(json.dumps(facts))
            self._call(folder)
            decided = pd.read_parquet(folder / "decisions.parquet")["decision"].to_numpy()
            model = json.loads((folder / "model.json").read_text())
        if model is None and self.no_model:
            return Solution({}, "no_solution_found", self.no_model)
        if model is None:
            raise FaultError(Diagnostic("E501", f"{self.script} returned no model"))
        found = classifier_of(model)
        apart = np.abs(problem.decisions(found)[rows.rows] - decided).mean()
        if not apart <= max(TIES, 1.5 / len(decided)):
            message = f"{self.script} decides differently on {apart:.2%} of the rows when stored"
            raise FaultError(Diagnostic("E501", message))
        return solution(problem, found, begun, self.script)

    def _call(self, folder: Path) -> None:
        call = [
            self.python or sys.executable,
            str(SCRIPTS / f"{self.script}_script.py"),
            str(folder),
        ]
        quiet = {**dict.fromkeys(THREADS, "1"), "TF_CPP_MIN_LOG_LEVEL": "3"}
        own = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
        try:
            done = subprocess.run(  # noqa: S603  the user names the interpreter
                call,
                check=False,
                env=own | quiet,
                capture_output=True,
                text=True,
                timeout=self.seconds,
            )
        except OSError as error:
            message = f"'{call[0]}' cannot be run: {error.strerror}"
            hint = f"set `python` to an interpreter that has {self.script}"
            raise FaultError(Diagnostic("E202", message, hint)) from None
        except subprocess.TimeoutExpired:
            message = f"{self.script} took more than {self.seconds:g} seconds"
            raise FaultError(Diagnostic("E501", message)) from None
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it ended without a message"])[-1]
            raise FaultError(Diagnostic("E501", f"{self.script} failed: {said}"))
