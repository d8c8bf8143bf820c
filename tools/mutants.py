"""Measure what the tests notice: plant small changes in the code and count those that fail a test.

    python tools/mutants.py record FOLDER          # which test covers which line, once per commit
    python tools/mutants.py run FOLDER --out results.jsonl
    python tools/mutants.py share results.jsonl    # killed mutants by area
    python tools/mutants.py find                   # where each mutant is now, without running it
    python tools/mutants.py show rates-001         # a mutant as a diff
    python tools/mutants.py choose FOLDER          # a new list; only for a new comparison

`mutants.json` holds the list. Its mutants are anchored to expressions (see `anchors.py`), so the
same ones can be planted before and after a refactoring. `--repo` names another checkout.

Two packages are needed in addition to those of the project: coverage and pytest-cov. `record` and
`run` work in copies of the checkout. They never touch the checkout itself. `run` continues a
results file that already exists.

Each mutant is run against at most 40 tests that cover its line, and stops at the first failure.
If they take too long even without the mutant, half of them are run (`tests` is less than `of` in
the results), so run on a machine that does nothing else. The outcomes are:

- killed: a test failed that passes without the mutant;
- timeout: the tests did not end in time, but do without the mutant (counts as killed);
- survived: all tests passed;
- unjudged: the tests do not end in time, or cannot be run, without the mutant either;
- uncovered: no test covers the line any more (counts as survived);
- not planted: the expression was not found, or is no longer unique.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import anchors
from anchors import Mutant, Place, Tree

HERE = Path(__file__).resolve().parent
LIST = HERE / "mutants.json"

AREAS = {
    "rates": ["ratecli/rates/*"],
    "certify": ["ratecli/certify/*", "ratecli/solvers/seldonian/*"],
    "solvers": ["ratecli/solvers/*"],
    "sampling": ["ratecli/datasets/encode.py", "ratecli/datasets/split.py", "ratecli/sampling/*"],
    "report": ["ratecli/report/*"],
}
"""Patterns of files, as they were when the list was chosen; the first area that matches counts."""

LEAST_TESTS = 2
"""Number of tests that must cover a line for it to be chosen."""

MOST_TESTS = 40
TIME_LIMIT = 30.0
"""Seconds for the tests of one mutant."""

MOST_RECORDED = 12.0
"""Tests are taken until they take this many seconds together, as recorded."""

PYTEST = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-seed=0"]


# --- copies of the checkout ---------------------------------------------------------------------


def files_of(repo: Path) -> list[str]:
    """Return the files of a checkout that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repo,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(name for name in listed.split("\0") if name and (repo / name).is_file())


def identity(repo: Path) -> str:
    """Return a hash of the library and its tests."""
    digest = hashlib.sha256()
    for name in files_of(repo):
        if name.startswith(("ratecli/", "tests/")):
            digest.update(name.encode() + b"\0" + (repo / name).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def checkout(repo: Path) -> Iterator[Path]:
    """Yield a copy of a checkout with what Numba has compiled; delete it afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        target = Path(folder, "repo")
        compiled = [
            str(path.relative_to(repo)) for path in (repo / "ratecli").rglob("__pycache__/*.nb[ic]")
        ]
        for name in [*files_of(repo), *compiled]:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(
                repo / name, target / name
            )  # with its time, on which compiled files depend
        yield target


def environment(repo: Path, copy: Path) -> dict[str, str]:
    """Return variables with which Python imports the code of the copy and finds the data sets."""
    variables = {**os.environ, "PYTHONPATH": str(copy), "COVERAGE_FILE": str(copy / ".coverage")}
    variables["HYPOTHESIS_STORAGE_DIRECTORY"] = str(copy / ".hypothesis")
    mirror = repo.parent / "shared" / "data"
    if mirror.is_dir():
        variables.setdefault("RATECLI_DATA_MIRROR", str(mirror))
    return variables


# --- coverage -----------------------------------------------------------------------------------


class Recorder:
    """A pytest plugin that notes how long each test took and whether it passed."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        entry = self.tests.setdefault(report.nodeid, {"seconds": 0.0, "outcome": "passed"})
        entry["seconds"] += report.duration
        if report.outcome != "passed":
            entry["outcome"] = report.outcome


class Chosen:
    """A pytest plugin that runs some tests in a given order and notes the first that fails."""

    def __init__(self, order: Sequence[str]) -> None:
        self.order = {test: at for at, test in enumerate(order)}
        self.failed: list[str] = []
        self.ran = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.order]
        items.sort(key=lambda item: self.order[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.ran += report.when == "call"
        if report.failed:
            self.failed.append(report.nodeid)


def record(repo: Path, folder: Path, jobs: int, tests: Sequence[str]) -> int:
    """Run the tests and store the lines that each one covers."""
    folder.mkdir(parents=True, exist_ok=True)
    started, spent = time.monotonic(), sum(os.times()[2:4])
    with checkout(repo) as copy:
        settings = copy / "coverage.ini"
        settings.write_text("[run]\ncore = ctrace\nrelative_files = true\nsource_pkgs = ratecli\n")
        command = [sys.executable, str(HERE / "mutants.py"), "pytest-record"]
        command += [str(folder / "tests.json"), *PYTEST]
        command += ["-o", "filterwarnings=default", "--no-header", "-n", str(jobs)]
        command += ["--dist", "loadfile", "--cov", "--cov-report=", "--cov-context=test"]
        command += [f"--cov-config={settings}", *tests]
        done = subprocess.run(command, cwd=copy, env=environment(repo, copy), check=False)
        if done.returncode > 1:
            return done.returncode
        shutil.copyfile(copy / ".coverage", folder / "coverage.sqlite")
    about = {
        "tree": identity(repo),
        "seconds": round(time.monotonic() - started),
        "processor_seconds": round(sum(os.times()[2:4]) - spent),
    }
    (folder / "record.json").write_text(json.dumps(about) + "\n")
    print(f"{folder}: {about}")
    return 0


def pytest_record(notes: str, arguments: list[str]) -> int:
    """Run pytest in this process with `Recorder`, and write to `notes` what it noted."""
    import pytest

    recorder = Recorder()
    code = int(pytest.main(arguments, plugins=[recorder]))
    Path(notes).write_text(json.dumps(recorder.tests))
    return code


def pytest_chosen(request: str, arguments: list[str]) -> int:
    """Run pytest in this process with `Chosen`, on the tests that a file lists."""
    import pytest

    given = json.loads(Path(request).read_text())
    chosen = Chosen(given["tests"])
    names = dict.fromkeys(test.partition("[")[0] for test in given["tests"])
    code = int(pytest.main([*arguments, *names], plugins=[chosen]))
    answer = {"code": code, "failed": chosen.failed, "ran": chosen.ran}
    Path(given["notes"]).write_text(json.dumps(answer))
    return code


@dataclass
class Coverage:
    """The tests that cover each line, read from what `record` stored."""

    folder: Path

    @cached_property
    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "record.json").read_text())
        return found

    @cached_property
    def tests(self) -> dict[str, float]:
        """Seconds of each test that passed."""
        found = json.loads((self.folder / "tests.json").read_text())
        return {
            name: entry["seconds"] for name, entry in found.items() if entry["outcome"] == "passed"
        }

    def lines(self, file: str) -> dict[int, list[str]]:
        """Return the tests that cover each line of a file.

        What several tests share (a fixture of a module) is run by the first of them. All tests
        in the same file count as covering it, after those that run the line themselves.
        """
        from coverage.numbits import numbits_to_nums  # type: ignore # noqa: PGH003

        direct: dict[int, dict[str, None]] = defaultdict(dict)
        shared: dict[int, set[str]] = defaultdict(set)
        query = (
            "SELECT context.context, numbits FROM line_bits JOIN file ON file.id = file_id "
            "JOIN context ON context.id = context_id WHERE file.path = ?"
        )
        with closing(sqlite3.connect(self.folder / "coverage.sqlite")) as database:
            for context, bits in database.execute(query, [file]):
                test, _, phase = context.rpartition("|")
                if not test:
                    continue
                for line in numbits_to_nums(bits):
                    if test in self.tests:
                        direct[line][test] = None
                    if phase == "setup":
                        shared[line].add(test.partition("::")[0])
        return {
            line: [*tests, *(test for test in self.users(shared[line]) if test not in tests)]
            for line, tests in ((line, direct[line]) for line in {*direct, *shared})
        }

    def users(self, files: Iterable[str]) -> list[str]:
        return [test for file in sorted(files) for test in self.by_file.get(file, ())]

    @cached_property
    def by_file(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for test in self.tests:
            found[test.partition("::")[0]].append(test)
        return found

    def chosen(self, tests: Sequence[str]) -> list[str]:
        """Return which of the tests of a line to run, in which order.

        Fast tests come first, but only one case of each test function before all second cases, so
        that 40 cases of one function leave room for others.
        """
        ranks: Counter[str] = Counter()
        ranked = []
        for test in sorted(tests, key=self.tests.__getitem__):
            name = test.partition("[")[0]
            ranked.append((ranks[name], self.tests[test], test))
            ranks[name] += 1
        taken: list[str] = []
        total = 0.0
        for _, seconds, test in sorted(ranked):
            if len(taken) == MOST_TESTS or (taken and total + seconds > MOST_RECORDED):
                break
            taken.append(test)
            total += seconds
        # a file's tests together, so that what they share is made once
        spent: dict[str, float] = defaultdict(float)
        for test in taken:
            spent[test.partition("::")[0]] += self.tests[test]
        return sorted(
            taken,
            key=lambda test: (
                spent[test.partition("::")[0]],
                test.partition("::")[0],
                self.tests[test],
            ),
        )


def covering(lines: dict[int, list[str]], place: Place) -> list[str]:
    """Return the tests that cover a place: its own lines, or else its statement's first line."""
    node: Any = place.node
    found: dict[str, None] = {}
    for line in range(node.lineno, node.end_lineno + 1):
        found.update(dict.fromkeys(lines.get(line, ())))
    return list(found) or lines.get(place.statement.node.lineno, [])


# --- the list -----------------------------------------------------------------------------------


def area_of(file: str) -> str | None:
    """Return the area that a file belonged to when the list was chosen."""
    for area, patterns in AREAS.items():
        if any(fnmatch(file, pattern) for pattern in patterns):
            return area
    return None


def choose(repo: Path, folder: Path, count: int, seed: int) -> int:
    """Write a new list: mutants of covered lines, spread over areas, kinds and functions."""
    coverage = Coverage(folder)
    tree = Tree.read(repo)
    rng = random.Random(seed)
    candidates: dict[str, list[Candidate]] = defaultdict(list)
    for file, found in tree.files.items():
        area = area_of(file)
        # coverage does not see the lines of compiled functions
        if area is not None and "numba" not in (repo / file).read_text():
            candidates[area].extend(candidates_of(found, coverage.lines(file)))
    chosen: list[Mutant] = []
    for area in AREAS:
        wanted = count // len(AREAS) + (list(AREAS).index(area) < count % len(AREAS))
        got = 0
        for candidate in spread(candidates[area], rng):
            if got == wanted:
                break
            mutant = anchored(f"{area}-{got + 1:03}", candidate, tree)
            place = anchors.place_of(mutant, tree)
            if place is None or place.node is not candidate.place.node:
                continue
            source = (repo / place.statement.file).read_bytes()
            if anchors.planted(source, place, mutant.kind) is None:
                continue
            chosen.append(mutant)
            got += 1
        print(f"{area}: {got} of {len(candidates[area])} candidates")
    text = ",\n".join(json.dumps(asdict(mutant)) for mutant in chosen)
    LIST.write_text(f"[\n{text}\n]\n")
    return 0


class Candidate(NamedTuple):
    """A change that could be chosen."""

    kind: str
    place: Place
    position: int


def candidates_of(
    statements: Iterable[anchors.Statement], lines: dict[int, list[str]]
) -> Iterator[Candidate]:
    """Yield the mutations within functions whose lines two tests or more cover."""
    found = list(statements)
    lengths = Counter(statement.function for statement in found)
    for statement in found:
        within = anchors.nodes(statement.node)
        alone = lengths[statement.function] < 3 and len(within) < 15  # hard to find again
        if not statement.function or statement.function.endswith("__repr__") or alone:
            continue
        for position, kind in anchors.mutations(statement.node):
            place = Place(statement, within[position], 1.0, exact=True)
            if len(covering(lines, place)) >= LEAST_TESTS:
                yield Candidate(kind, place, position)


def spread(candidates: Sequence[Candidate], rng: random.Random) -> Iterator[Candidate]:
    """Yield candidates in a random order, each kind in turn and each function at most twice."""
    by_kind: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_kind[candidate.kind].append(candidate)
    for found in by_kind.values():
        rng.shuffle(found)
    used: Counter[tuple[str, str]] = Counter()
    statements: set[anchors.Statement] = set()
    while by_kind:
        for kind in sorted(by_kind):
            while by_kind[kind]:
                candidate = by_kind[kind].pop()
                statement = candidate.place.statement
                function = (statement.file, statement.function)
                if used[function] < 2 and statement not in statements:
                    used[function] += 1
                    statements.add(statement)
                    yield candidate
                    break
            else:
                del by_kind[kind]


def anchored(name: str, candidate: Candidate, tree: Tree) -> Mutant:
    """Return a mutant with the text around its statement."""
    statement = candidate.place.statement
    before, after = tree.around(statement, anchors.WINDOW)
    return Mutant(
        id=name,
        area=name.partition("-")[0],
        kind=candidate.kind,
        statement=statement.text,
        node=candidate.position,
        expression=ast.unparse(candidate.place.node)[:200],
        file=statement.file,
        function=statement.function,
        before=tuple(item.text for item in before),
        after=tuple(item.text for item in after),
        inside=tuple(anchors.header(node) for node in statement.inside[::-1]),
    )


def listed() -> list[Mutant]:
    """Return the mutants of the list."""
    entries: list[dict[str, Any]] = json.loads(LIST.read_text())
    return [Mutant(**entry) for entry in entries]


def find(repo: Path) -> int:
    """Print where each mutant is."""
    tree = Tree.read(repo)
    counts: Counter[str] = Counter()
    for mutant in listed():
        place = anchors.place_of(mutant, tree)
        how = "not found" if place is None else "exact" if place.exact else "renamed"
        counts[how] += 1
        where = ""
        if place is not None:
            node: Any = place.node
            where = f"{place.statement.file}:{node.lineno} ({place.score:.2f})"
        print(f"{mutant.id} {mutant.kind}: {how} {where}")
    print(", ".join(f"{count} {how}" for how, count in counts.items()))
    return 0


def show(repo: Path, names: Sequence[str]) -> int:
    """Print mutants as diffs."""
    tree = Tree.read(repo)
    for mutant in listed():
        if mutant.id not in names:
            continue
        place = anchors.place_of(mutant, tree)
        if place is None:
            print(f"{mutant.id} {mutant.kind}: not found")
            continue
        old = (repo / place.statement.file).read_bytes()
        new = anchors.planted(old, place, mutant.kind) or old
        print(f"{mutant.id} {mutant.kind}, score {place.score:.2f}")
        file = place.statement.file
        before, after = (text.decode().splitlines() for text in (old, new))
        print("\n".join(difflib.unified_diff(before, after, file, file, n=1, lineterm="")))
    return 0


# --- running ------------------------------------------------------------------------------------


@dataclass
class Bench:
    """A copy of the checkout in which one mutant at a time is planted and tested."""

    repo: Path
    copy: Path
    seconds: float

    def run(self, tests: Sequence[str]) -> dict[str, Any] | None:
        """Run tests until the first failure; return what came of it, or None if time ran out."""
        with tempfile.TemporaryDirectory() as folder:
            notes, chosen = Path(folder, "notes.json"), Path(folder, "tests.json")
            chosen.write_text(json.dumps({"tests": list(tests), "notes": str(notes)}))
            command = [sys.executable, str(HERE / "mutants.py"), "pytest-chosen", str(chosen)]
            command += [*PYTEST, "-x", "-n", "0", "--tb=no", "--no-header", "-m", ""]
            variables = environment(self.repo, self.copy)
            variables["PYTHONDONTWRITEBYTECODE"] = "1"  # the originals' stay good
            variables["TMPDIR"] = folder
            process = subprocess.Popen(
                command,
                cwd=self.copy,
                env=variables,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                return None
            finally:
                end(process)
                shutil.rmtree(self.copy / ".hypothesis", ignore_errors=True)
            if not notes.exists():
                return {"code": process.returncode, "failed": [], "ran": 0}
            answer: dict[str, Any] = json.loads(notes.read_text())
            return answer

    @contextmanager
    def planted(self, mutant: Mutant, place: Place) -> Iterator[bool]:
        """Write a mutant into the copy and take it out again; yield False if it changes nothing."""
        path = self.copy / place.statement.file
        source, times = path.read_bytes(), path.stat()
        mutated = anchors.planted(source, place, mutant.kind)
        if mutated is None:
            yield False
            return
        try:
            path.write_bytes(mutated)
            yield True
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def outcome(self, mutant: Mutant, place: Place, tests: Sequence[str]) -> dict[str, Any]:
        """Return whether the tests notice a mutant."""
        kept = list(tests)
        while kept:
            started = time.monotonic()
            with self.planted(mutant, place) as done:
                if not done:
                    return {"outcome": "not planted"}
                answer = self.run(kept)
            about = {"tests": len(kept), "of": len(tests)}
            about["seconds"] = round(time.monotonic() - started)
            if answer is not None and answer["code"] == 0:
                return {"outcome": "survived", **about}
            # a failure counts only if the same test passes without the mutant
            failed = (answer or {}).get("failed", [])
            control = self.run(failed or kept)
            if control is None:
                if len(kept) == 1:
                    return {"outcome": "unjudged", **about}
                kept = kept[: len(kept) // 2]
            elif control["code"] == 0:
                outcome = "timeout" if answer is None else "killed"
                return {"outcome": outcome, "by": failed[:1], **about}
            elif control["failed"]:
                kept = [test for test in kept if test not in control["failed"]]
            else:
                return {"outcome": "unjudged", "code": control["code"], **about}
        return {"outcome": "uncovered"}


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(repo: Path, folder: Path, out: Path, *, jobs: int, only: str, seconds: float) -> int:
    """Run the mutants that the results file does not have yet, and append what came of each."""
    coverage = Coverage(folder)
    tree_id = identity(repo)
    if coverage.about["tree"] != tree_id:
        print(f"{folder} was recorded from other code; record again", file=sys.stderr)
        return 2
    done: set[str] = set()
    if out.exists():
        head, *results = map(json.loads, out.read_text().splitlines())
        if head["tree"] != tree_id:
            print(f"{out} was made with other code; choose another file", file=sys.stderr)
            return 2
        done = {result["id"] for result in results}
    else:
        out.write_text(json.dumps({"tree": tree_id, "list": digest_of_list()}) + "\n")
    tree = Tree.read(repo)
    waiting = [m for m in listed() if m.id not in done and re.search(only, m.id)]
    benches: Queue[Bench] = Queue()
    read: dict[str, dict[int, list[str]]] = {}

    def one(mutant: Mutant) -> dict[str, Any]:
        place = anchors.place_of(mutant, tree)
        result: dict[str, Any] = {"id": mutant.id, "area": mutant.area, "kind": mutant.kind}
        if place is None:
            return {**result, "outcome": "not planted"}
        file = place.statement.file
        node: Any = place.node
        result |= {"where": f"{file}:{node.lineno}", "exact": place.exact}
        if file not in read:
            read[file] = coverage.lines(file)
        tests = coverage.chosen(covering(read[file], place))
        if not tests:
            return {**result, "outcome": "uncovered"}
        bench = benches.get()
        try:
            return {**result, **bench.outcome(mutant, place, tests)}
        finally:
            benches.put(bench)

    with many(repo, jobs) as copies, ThreadPoolExecutor(jobs) as pool:
        for copy in copies:
            benches.put(Bench(repo, copy, seconds))
        tasks = [pool.submit(one, mutant) for mutant in waiting]
        try:
            for at, task in enumerate(as_completed(tasks), 1):
                result = task.result()
                with out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(f"{at}/{len(waiting)} {result['id']}: {result['outcome']}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    return share(out)


def digest_of_list() -> str:
    return hashlib.sha256(LIST.read_bytes()).hexdigest()[:16]


@contextmanager
def many(repo: Path, count: int) -> Iterator[list[Path]]:
    """Yield several copies of a checkout, each with its compiled bytecode."""
    if not count:
        yield []
        return
    with checkout(repo) as copy, many(repo, count - 1) as others:
        compiling = [sys.executable, "-m", "compileall", "-q", "ratecli", "tests"]
        subprocess.run(compiling, cwd=copy, check=True)
        yield [copy, *others]


def share(out: Path) -> int:
    """Print how many mutants were killed, by area."""
    _, *results = map(json.loads, out.read_text().splitlines())
    outcomes = ("killed", "timeout", "survived", "uncovered", "unjudged", "not planted")
    print(f"{'area':10}", *(f"{name:>12}" for name in outcomes), f"{'share':>8}")
    for area in (*AREAS, "all"):
        counts = Counter(r["outcome"] for r in results if area in (r["area"], "all"))
        killed = counts["killed"] + counts["timeout"]
        judged = killed + counts["survived"] + counts["uncovered"]
        percent = f"{killed / judged:.1%}" if judged else "-"
        print(f"{area:10}", *(f"{counts[name]:12}" for name in outcomes), f"{percent:>8}")
    return 0


def main() -> int:
    """Run the command line."""
    if sys.argv[1:2] in (["pytest-record"], ["pytest-chosen"]):
        sys.path.remove(str(HERE))  # the tests have modules of the same names
        run_pytest = pytest_record if sys.argv[1] == "pytest-record" else pytest_chosen
        return run_pytest(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repo", type=Path, default=HERE.parent, help="checkout to work on")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("record", help="store which test covers which line")
    command.add_argument("folder", type=Path)
    command.add_argument("--jobs", type=int, default=2)
    command.add_argument("--tests", nargs="+", default=[], help="default: all")
    command = commands.add_parser("run", help="run the mutants")
    command.add_argument("folder", type=Path, help="what `record` stored")
    command.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    command.add_argument("--jobs", type=int, default=2)
    command.add_argument("--only", default="", help="pattern of mutant names, such as '^rates'")
    command.add_argument("--seconds", type=float, default=TIME_LIMIT)
    command = commands.add_parser("share", help="print results")
    command.add_argument("out", type=Path)
    commands.add_parser("find", help="print where each mutant is")
    command = commands.add_parser("show", help="print mutants as diffs")
    command.add_argument("names", nargs="+")
    command = commands.add_parser("choose", help="write a new list")
    command.add_argument("folder", type=Path, help="what `record` stored")
    command.add_argument("--count", type=int, default=280)
    command.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    repo = given.repo.resolve()
    match given.command:
        case "record":
            return record(repo, given.folder.resolve(), given.jobs, given.tests)
        case "run":
            limits = {"jobs": given.jobs, "only": given.only, "seconds": given.seconds}
            return run(repo, given.folder, given.out, **limits)
        case "share":
            return share(given.out)
        case "find":
            return find(repo)
        case "show":
            return show(repo, given.names)
    return choose(repo, given.folder, given.count, given.seed)


if __name__ == "__main__":
    sys.exit(main())
