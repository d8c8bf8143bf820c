"""What all commands share: faults become messages and exit codes."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ratecli.cli.console import print_diagnostics
from ratecli.errors import FaultError

EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
"""128 + SIGPIPE, which is what a shell says of any program whose reader went away."""


class CommandGroup(TyperGroup):
    """The commands in the order in which they are added."""

    def invoke(self, ctx: Any) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except FaultError as error:
            print_diagnostics(error.faults)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # Python flushes once more at its end, and would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_PIPE_CLOSED) from None
        return answer

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(self.commands)
