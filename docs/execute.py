"""Run what a page shows, in its order and in a folder of its own, and compare or renew what it prints.

    python docs/execute.py docs/howto/own-data.md             # tells what differs
    python docs/execute.py docs/howto/own-data.md --renew     # writes outputs, tables and pictures anew

How blocks are meant:

    console   commands after `$ `, each followed by what it prints
    sh        commands, one a line
    yaml      `# name.yaml` on the first line: the file is written and validated; `# in name.yaml`: its keys
              take the place of those of the file as written before
    python    is run; a `text` block right after it is what it prints
    text, csv what stands in the file of `from:`

The folder has links to `experiments` and `docs`; packages in its folder `site` can be imported.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from compare import same, same_line
from pages import ROOT, Page, Part, read

PLAIN = re.compile(r"(?:[\w ./=:,%+@\[\]{}()-]|'[^']*')*")
"""A command line without anything that takes a shell, but for quotes."""
NAMED = re.compile(r"# (in )?([\w./-]+\.ya?ml)$")


def missing(said: Mapping[str, str]) -> str:
    """What a page or a part needs and is not there, "" where nothing is missing."""
    for need in said.get("needs", "").split():
        if need == "mirror":
            found = bool(os.environ.get("RATECLI_DATA_MIRROR"))
        else:
            found = find_spec(need.partition(".")[0]) is not None and find_spec(need) is not None
        if not found:
            return need
    return ""


class DiffersError(AssertionError):
    """What a page shows is not what comes out."""


class Run:
    """One page in one folder. `renew` keeps what comes out in the page's lines instead of comparing."""

    def __init__(self, page: Page, folder: Path, *, slow: bool, renew: bool = False) -> None:
        self.page, self.folder, self.slow, self.renew = page, folder, slow, renew
        self.namespace: dict[str, Any] = {"__name__": "__page__"}
        self.said = ""
        self.changes: list[tuple[int, int, list[str]]] = []
        self.ran = 0
        for name in ("experiments", "docs"):
            (folder / name).symlink_to(ROOT / name)

    def all(self) -> None:
        """Every part that is to be run. Raises DiffersError, with the page's line, at the first that is not so."""
        before: Part | None = None
        for part in self.page.parts:
            if not self._skipped(part):
                with self._told(part):
                    self._one(part, before)
            before = part

    def _skipped(self, part: Part) -> bool:
        """Of a page that is slow as a whole the files are validated nevertheless."""
        if missing(part.said):
            return True
        said = self.page.said
        whole = "slow" in said and (part.kind != "yaml" or "apart" in said)
        return "not run" in part.said or (not self.slow and (whole or "slow" in part.said))

    def _one(self, part: Part, before: Part | None) -> None:
        if "instead" in part.said:
            self._command(part.said["instead"], part)
        elif "from" in part.said:
            self._of_file(part)
        elif part.kind == "text" and before is not None and before.kind == "python":
            self._shown(part.start + 1, part.lines, self.said)
        elif part.kind in {"table", "picture"}:
            return
        else:
            runners = {
                "console": self._console,
                "sh": self._lines,
                "yaml": self._file,
                "python": self._python,
            }
            if part.kind not in runners:
                message = f"blocks of '{part.kind}' cannot be run"
                raise DiffersError(message)
            runners[part.kind](part)
        self.ran += 1

    def _of_file(self, part: Part) -> None:
        ways = {"table": self._table, "picture": self._picture}
        ways.get(part.kind, self._text)(part)

    def _lines(self, part: Part) -> None:
        for line in _joined(part.lines):
            self._command(line, part)

    @contextlib.contextmanager
    def _told(self, part: Part) -> Iterator[None]:
        try:
            yield
        except DiffersError as trouble:
            message = f"{self.page.name}:{part.start + 1}: {trouble}"
            raise DiffersError(message) from None

    def _console(self, part: Part) -> None:
        starts = [k for k, line in enumerate(part.lines) if line.startswith("$ ")]
        if starts[:1] != [0]:
            message = "a console block begins with '$ '"
            raise DiffersError(message)
        for start, end in zip(starts, [*starts[1:], len(part.lines)], strict=True):
            last = start
            while part.lines[last].endswith("\\"):
                last += 1
            line = "\n".join([part.lines[start][2:], *part.lines[start + 1 : last + 1]])
            printed = self._command(line.replace("\\\n", " "), part)
            self._shown(part.start + 1 + last + 1, part.lines[last + 1 : end], printed)

    def _command(self, line: str, part: Part) -> str:
        """What a command prints, on both channels. Raises DiffersError unless it ends with the code said."""
        words = [] if "apart" in self.page.said else _words(line)
        code, printed = _ratecli(words[1:]) if words[:1] == ["ratecli"] else _shell(line)
        wanted = int(part.said.get("exits", "0"))
        if code != wanted:
            message = f"`{line}` ended with {code}, not {wanted}:\n{printed}"
            raise DiffersError(message)
        return printed

    def _file(self, part: Part) -> None:
        named = NAMED.match(part.lines[0]) if part.lines else None
        if named is None:
            message = "the first line names the file: `# name.yaml`, or `# in name.yaml`"
            raise DiffersError(message)
        path = self.folder / named[2]
        text = "\n".join(part.lines) + "\n"
        if named[1]:
            if not path.exists():
                message = f"there is no {named[2]} yet"
                raise DiffersError(message)
            merged = yaml.safe_load(path.read_text("utf-8")) | yaml.safe_load(text)
            text = yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        if "jobs:" not in part.lines:
            self._command(f"ratecli validate {named[2]}", part)
            return
        for job in yaml.safe_load(text)["jobs"].values():  # a workflow: what it does with ratecli
            for step in job["steps"]:
                for line in _joined(step.get("run", "").split("\n")):
                    if line.startswith("ratecli "):
                        self._command(line, part)

    def _python(self, part: Part) -> None:
        code = compile("\n".join(part.lines), "<page>", "exec")
        with _captured() as out, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(code, self.namespace)
        self.said = out.getvalue()

    def _shown(self, start: int, shown: list[str], printed: str) -> None:
        lines = [line.rstrip() for line in printed.split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        if not same(shown, lines):
            self._differs(start, start + len(shown), lines, shown)

    def _table(self, part: Part) -> None:
        found = _tables((self.folder / part.said["from"]).read_text("utf-8"))
        lines = found[int(part.said.get("table", "1")) - 1]
        where = re.compile(part.said.get("where", ""))
        lines = [*lines[:2], *(line for line in lines[2:] if where.search(line))]
        if not same(part.lines, lines):
            self._differs(part.start, part.end, lines, part.lines)

    def _text(self, part: Part) -> None:
        lines = (self.folder / part.said["from"]).read_text("utf-8").rstrip("\n").split("\n")
        lines = [line[:160] for line in lines]
        if not same(part.lines, lines):
            self._differs(part.start + 1, part.end - 1, lines, part.lines)

    def _picture(self, part: Part) -> None:
        made = self.folder / part.said["from"]
        if not made.is_file():
            message = f"there is no {part.said['from']}"
            raise DiffersError(message)
        kept = self.page.path.parent / part.picture
        if self.renew:
            shutil.copyfile(made, kept)
        elif not kept.is_file():
            message = f"there is no {kept}"
            raise DiffersError(message)

    def _differs(self, start: int, end: int, lines: list[str], shown: list[str]) -> None:
        if self.renew:
            self.changes.append((start, end, lines))
            return
        missing = next(
            (a for a in shown if a.strip() and not any(same_line(a, b) for b in lines)), ""
        )
        message = f"not so: {missing!r}\nwhat comes out:\n" + "\n".join(lines)
        raise DiffersError(message)

    def renewed(self) -> str:
        lines = list(self.page.lines)
        for start, end, new in reversed(self.changes):
            lines[start:end] = new
        return "\n".join(lines)


def _joined(lines: list[str]) -> list[str]:
    text = "\n".join(lines).replace("\\\n", " ")
    return [line for line in text.split("\n") if line.strip() and not line.startswith("#")]


def _words(line: str) -> list[str]:
    """The words of a line that no shell needs to see; none for another."""
    import shlex  # noqa: PLC0415

    line = re.sub(r"\s+# .*", "", line)
    return shlex.split(line) if PLAIN.fullmatch(line) else []


@contextlib.contextmanager
def _captured() -> Iterator[io.StringIO]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield out


def _ratecli(words: list[str]) -> tuple[int, str]:
    from ratecli.cli.app import main  # noqa: PLC0415

    if words[:1] == ["run"] and not {"-j", "--jobs", "--executor"} & set(words):
        words = [*words, "--jobs", "1"]  # the same numbers, without the start of workers
    with _captured() as out:
        code = main(words)
    return code, out.getvalue()


def _shell(line: str) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    python = os.pathsep.join(["site", os.environ.get("PYTHONPATH", ""), str(ROOT)])
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        env=os.environ | {"PATH": path, "PYTHONPATH": python},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def _tables(text: str) -> list[list[str]]:
    found: list[list[str]] = []
    before = ""
    for line in text.split("\n"):
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append(line)
        before = line
    return found


def main() -> None:
    """Run the pages that are named."""
    renew = "--renew" in sys.argv
    for name in (each for each in sys.argv[1:] if not each.startswith("--")):
        page = read(Path(name).resolve())
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            os.environ.setdefault("RATECLI_DATA", f"{folder}/data")
            run = Run(page, Path(folder), slow=True, renew=renew)
            try:
                run.all()
            finally:
                if renew:
                    page.path.write_text(run.renewed(), "utf-8")
            print(f"{page.name}: {run.ran} parts run, {len(run.changes)} renewed")
            os.chdir(ROOT)


if __name__ == "__main__":
    main()
