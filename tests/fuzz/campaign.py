"""`python tests/fuzz/campaign.py --examples 100000`: mutated files and rules, each looked at.

Ends with 1 and keeps each example that broke something under `fuzz/`, by its number: the same seed and
number make the same example again (`--only NUMBER`).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

import corpus
import mutations
from guard import TooLongError
from looked_at import look

MEMORY = 4 * 2**30
DEAD = 600
"""Seconds after which an example that no alarm ends is given up, with the stack."""


def example(seed: int, number: int) -> bytes:
    """Every third is a rule in a small file."""
    chance = Random(f"{seed}/{number}")
    if number % 3 == 2:
        return mutations.file_with(chance, mutations.mutated_rule(chance))
    return mutations.mutated_file(chance)


def main() -> int:
    asked = _arguments()
    sys.dont_write_bytecode = True  # a module that is loaded late would write its own
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    kept = Path("fuzz").absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RATECLI_DATA"] = f"{folder}/data"
        os.environ.pop("RATECLI_DATA_MIRROR", None)
        os.chdir(folder)
        for name, text in corpus.TABLES.items():
            Path(name).write_text(text, encoding="utf-8")
        return _run(asked, Path("exp.yaml"), kept)


def _run(asked: argparse.Namespace, path: Path, kept: Path) -> int:
    _warm(path)
    begun = time.monotonic()
    codes: Counter[str] = Counter()
    slowest = (0.0, -1)
    broken = 0
    done = 0
    numbers = (
        [asked.only] if asked.only is not None else range(asked.first, asked.first + asked.examples)
    )
    for number in numbers:
        if time.monotonic() - begun > asked.seconds:
            break
        raw = example(asked.seed, number)
        path.write_bytes(raw)
        faulthandler.dump_traceback_later(DEAD, exit=True)
        start = time.perf_counter()
        try:
            codes[look(path)] += 1
        except (Exception, TooLongError):  # whatever it is, it is what we are after
            broken += 1
            kept.mkdir(exist_ok=True)
            (kept / f"{asked.seed}-{number}.yaml").write_bytes(raw)
            (kept / f"{asked.seed}-{number}.txt").write_text(
                traceback.format_exc(), "utf-8", "replace"
            )
            last = traceback.format_exc(limit=-2).strip().splitlines()
            print(
                f"example {number}: {' | '.join(line.strip() for line in last[-3:])[:400]}",
                flush=True,
            )
        slowest = max(slowest, (time.perf_counter() - start, number))
        done += 1
        if done % 5000 == 0:
            print(
                f"{done} examples, {done / (time.monotonic() - begun):.0f} a second, {broken} broken",
                flush=True,
            )
    faulthandler.cancel_dump_traceback_later()
    seconds = time.monotonic() - begun
    print(f"seed {asked.seed}: {done} examples in {seconds:.0f} s, {done / seconds:.0f} a second; "
          f"{codes['ok']} without a fault, {len(codes)} sets of codes, {broken} broke something; "
          f"slowest {slowest[0]:.1f} s (example {slowest[1]})")  # fmt: skip
    print(", ".join(f"{code} {count}" for code, count in _single(codes).most_common()))
    return int(broken > 0)


def _single(codes: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for several, count in codes.items():
        for code in several.split():
            found[code] += count
    return found


def _warm(path: Path) -> None:
    """Load whatever is loaded late, so that no example is blamed for it."""
    for text in dict.fromkeys(corpus.files()):
        path.write_text(text, encoding="utf-8")
        try:
            look(path, 60)
        except AssertionError:
            continue
        except Exception:
            continue


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first example")
    parser.add_argument("--only", type=int, help="one example alone")
    parser.add_argument("--seconds", type=float, default=3600.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
