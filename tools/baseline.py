"""Record the numbers of the shipped experiments, and compare two records byte for byte.

    python tools/baseline.py /tmp/before                     # of this checkout, by this Python
    python tools/baseline.py /tmp/after --repo ../other      # of another checkout
    python tools/baseline.py --compare /tmp/before /tmp/after

A record holds the `metrics.csv` of every experiment, from three runs (`RUNS`):
`smoke/NAME/metrics.csv`, `quickstart/quickstart/metrics.csv` and
`adult-check/adult-check/metrics.csv`. Their hashes are in `SHA256SUMS`, and what was run, with its
times, in `record.json`. `metrics.csv` contains no times and no
dates, so the same code always writes the same bytes.

Exit codes: 0 if everything ran or both records are equal, 1 otherwise, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS: dict[str, tuple[list[str], list[str]]] = {
    "smoke": (["experiments/**/*.yaml"], ["--smoke"]),
    "quickstart": (["experiments/quickstart.yaml"], []),
    "adult-check": (["experiments/adult-check.yaml"], []),
}
"""Each run: patterns of experiment files, and options of `ratecli run` besides the common ones."""

SHOWN = 5
"""Number of rows to show of each file that differs."""

Rows = dict[tuple[str, ...], str]


def environment(repo: Path) -> dict[str, str]:
    """Return variables with which Python imports the ratecli of `repo` and finds the data sets."""
    variables = {**os.environ, "PYTHONPATH": str(repo)}
    mirror = repo.parent / "shared" / "data"
    if mirror.is_dir():
        variables.setdefault("RATECLI_DATA_MIRROR", str(mirror))
    return variables


def commit_of(repo: Path) -> str:
    """Return the commit that is checked out, marked where files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
        cwd=repo,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def record(folder: Path, repo: Path, python: str, jobs: int, names: list[str]) -> int:
    """Run the experiments of `repo` and store their metrics under `folder`."""
    variables = environment(repo)
    used = subprocess.run(
        [python, "-c", "import ratecli; print(ratecli.__file__)"],
        cwd=tempfile.gettempdir(),
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not Path(used).is_relative_to(repo):
        print(f"{python} imports {used}, which is not in {repo}", file=sys.stderr)
        return 2
    about: dict[str, object] = {
        "commit": commit_of(repo),
        "python": platform.python_version() if python == sys.executable else python,
        "machine": platform.machine(),
    }
    missing = []
    for name in names:
        patterns, options = RUNS[name]
        files = sorted(
            {str(path.relative_to(repo)) for pattern in patterns for path in repo.glob(pattern)}
        )
        with tempfile.TemporaryDirectory() as results:
            command = [python, "-m", "ratecli", "run", *files, "--offline", "--quiet"]
            command += ["--jobs", str(jobs), "--output", results, *options]
            started, spent = time.monotonic(), sum(os.times()[2:4])
            done = subprocess.run(command, cwd=repo, env=variables, check=False)
            about[name] = {
                "files": len(files),
                "exit_code": done.returncode,
                "seconds": round(time.monotonic() - started, 1),
                "processor_seconds": round(sum(os.times()[2:4]) - spent, 1),
            }
            found = sorted(Path(results).rglob("metrics.csv"))
            for path in found:
                target = folder / name / path.relative_to(results)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        print(f"{name}: {len(found)} of {len(files)} experiments, {about[name]}", flush=True)
        if done.returncode or len(found) < len(files):
            missing.append(name)
    sums = [f"{digest}  {name}\n" for name, digest in digests(folder).items()]
    (folder / "SHA256SUMS").write_text("".join(sums))
    (folder / "record.json").write_text(json.dumps(about, indent=2) + "\n")
    if missing:
        print(f"incomplete: {', '.join(missing)}", file=sys.stderr)
    return int(bool(missing))


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each metrics file by its path in the record."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("metrics.csv"))
    }


def compare(old: Path, new: Path) -> int:
    """Print how two records differ; return 1 if they do."""
    before, after = digests(old), digests(new)
    for folder, found in ((old, before), (new, after)):
        if not found:
            print(f"no metrics.csv in {folder}", file=sys.stderr)
            return 2
    for name in sorted(before.keys() - after.keys()):
        print(f"only in {old}: {name}")
    for name in sorted(after.keys() - before.keys()):
        print(f"only in {new}: {name}")
    differing = [name for name in before if name in after and before[name] != after[name]]
    for name in differing:
        print(f"differs: {name}")
        for line in differences(old / name, new / name):
            print(f"  {line}")
    same = len(before.keys() & after.keys()) - len(differing)
    print(f"{same} files are equal, {len(differing)} differ")
    return int(before != after)


def differences(old: Path, new: Path) -> list[str]:
    """Describe the differences of two tables, the largest in the column `value` first."""
    names, before = read(old)
    names_after, after = read(new)
    if names != names_after:
        return [f"columns {names} became {names_after}"]
    lines = []
    for what, rows in (
        ("removed", [key for key in before if key not in after]),
        ("added", [key for key in after if key not in before]),
    ):
        if rows:
            lines.append(f"{len(rows)} rows {what}, such as {','.join(rows[0][:-1])}")
    changed = {
        key: distance(before[key], after[key])
        for key in before
        if key in after and before[key] != after[key]
    }
    if changed:
        worst: dict[str, float] = {}
        where = names.index("metric") if "metric" in names else None
        for key, size in changed.items():
            metric = "all" if where is None else key[where]
            worst[metric] = max(worst.get(metric, 0.0), size)
        largest = ", ".join(f"{metric} {size:.3g}" for metric, size in worst.items())
        lines.append(f"{len(changed)} values changed; largest change by metric: {largest}")
    for key in sorted(changed, key=changed.__getitem__, reverse=True)[:SHOWN]:
        name = ",".join(key[:-1])
        lines.append(f"{name}: {before[key]} became {after[key]} ({changed[key]:.3g})")
    return lines or ["same rows in another order"]


def read(path: Path) -> tuple[list[str], Rows]:
    """Return the names of the columns and each row's value by its other columns and a count."""
    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    at = names.index("value")
    values: Rows = {}
    counts: dict[tuple[str, ...], int] = {}
    for row in rows:
        key = (*row[:at], *row[at + 1 :])
        counts[key] = counts.get(key, -1) + 1
        values[*key, str(counts[key])] = row[at]
    return names[:at] + names[at + 1 :], values


def distance(old: str, new: str) -> float:
    """Return the absolute difference of two numbers, or infinity if one of them is no number."""
    try:
        size = abs(float(old) - float(new))
    except ValueError:
        return math.inf
    return math.inf if math.isnan(size) else size


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="RECORD_DIR")
    parser.add_argument("--compare", action="store_true", help="compare two records")
    parser.add_argument("--repo", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--python", default=sys.executable, help="interpreter to run ratecli with")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", choices=RUNS, help="may be repeated")
    options = parser.parse_args()
    if len(options.folders) != 1 + options.compare:
        parser.error("give one folder to record, or two to compare")
    if options.compare:
        return compare(*options.folders)
    folder = options.folders[0].resolve()
    if folder.exists() and any(folder.iterdir()):
        parser.error(f"{folder} is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    names = options.only or list(RUNS)
    return record(folder, options.repo.resolve(), options.python, options.jobs, names)


if __name__ == "__main__":
    sys.exit(main())
