"""`python tests/fuzz/campaign.py --examples 100000`: check mutated files and rules.

Exits with 1 if an example broke something, and stores it under `fuzz/` by its number: the same seed
and number make the same example again (`--only NUMBER`).
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
"""Seconds after which an example that no alarm ends is aborted with its stack."""


def example(seed: int, number: int) -> bytes:
    """Return a mutated file; each third example is a mutated rule in a small file."""
    chance = Random(f"{seed}/{number}")
    if number % 3 == 2:
        return mutations.file_with(chance, mutations.mutated_rule(chance))
    return mutations.mutated_file(chance)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first example")
    parser.add_argument("--only", type=int, help="run this example alone")
    parser.add_argument("--seconds", type=float, default=3600.0)
    arguments = parser.parse_args()
    sys.dont_write_bytecode = True  # a module that is loaded late would write its own
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    kept = Path("fuzz").absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RATECLI_DATA"] = f"{folder}/data"
        os.environ.pop("RATECLI_DATA_MIRROR", None)
        os.chdir(folder)
        for name, text in corpus.TABLES.items():
            Path(name).write_text(text, encoding="utf-8")
        return _run(arguments, Path("exp.yaml"), kept)


def _run(arguments: argparse.Namespace, path: Path, kept: Path) -> int:
    begun, codes, broken, done = time.monotonic(), Counter[str](), 0, 0
    numbers = range(arguments.first, arguments.first + arguments.examples)
    for number in numbers if arguments.only is None else [arguments.only]:
        if time.monotonic() - begun > arguments.seconds:
            break
        raw = example(arguments.seed, number)
        if trace := _broken_by(path, raw, codes):
            broken += 1
            kept.mkdir(exist_ok=True)
            (kept / f"{arguments.seed}-{number}.yaml").write_bytes(raw)
            text = kept / f"{arguments.seed}-{number}.txt"
            text.write_text(trace, "utf-8", "replace")
            print(f"example {number}: {' | '.join(trace.split()[-30:])[:400]}", flush=True)
        done += 1
        if done % 5000 == 0:
            print(f"{done} examples, {broken} broken", flush=True)
    faulthandler.cancel_dump_traceback_later()
    seconds = time.monotonic() - begun
    print(f"seed {arguments.seed}: {done} examples in {seconds:.0f} s; {broken} broke something")
    print(", ".join(f"{code} {count}" for code, count in codes.most_common()))
    return int(broken > 0)


def _broken_by(path: Path, raw: bytes, codes: Counter[str]) -> str:
    """Count the codes that a file gives; return the traceback if it broke something, or ""."""
    path.write_bytes(raw)
    faulthandler.dump_traceback_later(DEAD, exit=True)
    try:
        codes.update(look(path).split())
    except (Exception, TooLongError):  # whatever it is, it is what we are looking for
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    sys.exit(main())
