"""The codes of messages: what each means, what to do, and the exit code of a command."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from ratecli.errors import Diagnostic, FaultError


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


CODES = {
    code: ErrorCode(code, *texts)
    for code, texts in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
