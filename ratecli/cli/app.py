"""The `ratecli` command: assembles all commands and handles internal errors."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated

import typer

import ratecli
from ratecli.cli import catalogue, data, files, results, run
from ratecli.cli.console import CommandGroup, echo, replace_unencodable
from ratecli.errors import drop_library_warnings
from ratecli.plugins import TRUST_VARIABLE

EXIT_INTERNAL_ERROR = 70

app = typer.Typer(
    cls=CommandGroup,
    help=ratecli.__doc__,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, Callable[..., None]] = {
    "run": run.run,
    "plan": run.plan,
    "fit": run.fit,
    "validate": files.validate,
    "explain": files.explain,
    "init": files.init,
    "schema": files.schema,
    "fetch": data.fetch,
    "report": results.report,
    "check": results.check,
    "pin": results.pin,
    "predict": data.predict,
    "export": data.export,
    "filter": data.filter_table,
    "ls": catalogue.ls,
    "show": catalogue.show,
    "test-plugin": catalogue.check_plugin,
}
for name, command in COMMANDS.items():
    app.command(name=name)(command)


def _version(requested: bool) -> None:
    if requested:
        echo(f"ratecli {ratecli.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an internal error.")
    ] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(
            "--trust",
            metavar="PACKAGE",
            help="Let files name classifiers of this package as models.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del debug, version  # `main` handles the first, a callback the second
    if trust:
        known = os.environ.get(TRUST_VARIABLE, "").split(",")
        os.environ[TRUST_VARIABLE] = ",".join(filter(None, [*known, *trust]))


def run_and_exit() -> None:
    """Run one command, and end even if a plugin has left a thread or a process that runs on."""
    code = main()
    others = [each for each in threading.enumerate() if not each.daemon]
    processes = sys.modules.get("multiprocessing.process")  # slow to import
    children = processes.active_children() if processes else ()
    if len(others) > 1 or children:
        for child in children:
            child.kill()
        atexit._run_exitfuncs()  # noqa: SLF001  an exit without waiting for threads skips them
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    replace_unencodable(sys.stdout, sys.stderr)
    gc.set_threshold(100_000)  # plans have many small objects, which Python would often search
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # searching for plugins takes 30 ms
    try:
        with warnings.catch_warnings():
            if "--debug" not in given:
                drop_library_warnings()
            app(given, prog_name="ratecli")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:  # noqa: BLE001  users see one line, not a traceback
        if "--debug" in given:
            import traceback  # noqa: PLC0415

            traceback.print_exception(error)
        what = " ".join(f"{type(error).__name__}: {error}".split())
        hint = "`ratecli --debug ...` shows the traceback; please report it"
        echo(f"internal error: {what} ({hint})", err=True)
        return EXIT_INTERNAL_ERROR
    return 0
