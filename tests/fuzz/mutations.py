"""Files and rules changed as people, editors and attackers change them.

They start from shipped experiments, starter files and small files of all kinds. Each step takes a
source of chance with the methods of `random.Random`, so that a seed, or Hypothesis, determines the
result.
"""

from __future__ import annotations

import copy
import re
import sys
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import yaml
from nested import paths

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "cli")]

from broken_files import BROKEN, TABLES  # noqa: E402  it is among the tests of commands
from marked import marked  # noqa: E402

__all__ = ["TABLES", "file_with", "mutated_file", "mutated_rule"]

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MOST = 3000
LONGEST = 8
TOKEN = re.compile(r"\w+|[^\S\n]+|\n|.", re.DOTALL)
BYTES = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b"\t", b"\x1b[31m", b"\x7f"),
    *(b"\x85", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x80\xa8", b"\xe2\x80\xae", b"\xf4\x8f\xbf\xbf"),
    *(b"\xf0\x9f\x98\x80", b"\xc2\xa0", b"\xe2\x80\x8b", b"e\xcc\x81" * 20),
)
RULE_TEXT = """
<= >= < > = != == + - * / ** ( ) [ ] , % ^ & | ~ ! ? ; by= abs( max( min( sqrt( log( exp( kl( of(
max_gap( mean( imbalance( tpr error share roc_auc mse churn
"""
WORDS = (
    *("<<: *a", "&a ", "*a", "!!python/object/apply:os.system ['id']", "!!binary aGk=", "!!set"),
    *("!x", "? ", "- ", ": ", "|", ">-", "---\n", "...\n", "%YAML 1.2\n---\n", "'", '"', "#", "@"),
    *("{{ x }}", "${HOME}", "../../etc/passwd", "~/x", "$(id)", "C:\\x", "<script>", "{", "}", "`"),
    *(
        "\u202e",
        "\U0001f600",
        "'\\ud800'",
        '"\\ud800"',
        '"\\u0000"',
        '"\\x1b[2J"',
        "\x1b",
        "\u00b2",
    ),
    *("0", "-1", "2", "-0.0", "1e999", "1e-999", ".inf", "-.inf", ".nan", "9223372036854775808"),
    *("1" + "0" * 400, "1/0", "1/3", "0x7f", "1_0", "1e308", "5e-324", "1000%", "30 s", "4 GiB"),
    *RULE_TEXT.split(),
)
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, -(2**64), 10**40, -0.0, 1e308, float("inf"), float("nan"), "", " "),
    *("null", "a: b", "a" * 5000, "\u0000", "\x1b[31m", "\u202e", "../..", "/etc/passwd", [], {}),
    *([[]], [None], {"": ""}, {"a": None}, [{}], [1, "a", None, {}], {"a": {"b": {"c": []}}}),
    *([0] * 300, {f"k{k}": k for k in range(200)}, "linspace(0, 1, 3)", "linspace(0, 1, 100000)"),
)
TOWERS = (
    *("9**9**9 * {0}", "exp(exp(exp(9))) + {0}", "({0}) ** 1e300", "({0}) / 0", "0 * ({0})"),
    *("1e308 * 10 * ({0})", "({0}) * ({0}) * ({0}) * ({0}) * ({0})", "log(-1) + {0}", "{0} @ test"),
    *("min(by=({0}))", "max_gap(max_gap({0}, by=sex), by=sex)", "tpr[sex = '\\'', {0}]"),
    *("max_gap(tpr, by=(sex, region, purpose)) + {0}", "{0} <= {0} <= {0}", "{0} + {0} = {0}, {0}"),
)


@cache
def files() -> tuple[str, ...]:
    """Return texts of YAML files with short sweeps, so that a file is read in milliseconds."""
    places = [*sorted((ROOT / "experiments").rglob("*.yaml"))]
    places += sorted((ROOT / "ratecli" / "experiment" / "starters").rglob("*.yaml"))
    shipped = [_brief(path.read_text("utf-8")) for path in places]
    small = [text for broken in BROKEN if len(text := marked(broken.text)[0]) < 2000]
    return (*shipped, *dict.fromkeys(small))


def _brief(text: str) -> str:
    """Return the same file with at most `LONGEST` values a sweep and few generated rows."""

    def shorter(space: re.Match[str]) -> str:
        return f"{space[1]}{min(int(space[2]), LONGEST)})"

    text = text.replace("source: clicks,", "source: clicks, rows: 3000,")
    return re.sub(r"((?:lin|log)space\([^)]*, *)(\d+)\)", shorter, text)


@cache
def rules() -> tuple[str, ...]:
    """Return the rules of all these files."""
    found: dict[str, None] = {}
    for text in files():
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(data, dict):
            parts = [data.get(key) for key in ("constraints", "metrics", "groups")]
            inner = [rule for part in parts if isinstance(part, dict) for rule in part.values()]
            texts = [each for each in (data.get("objective"), *inner) if isinstance(each, str)]
            found |= dict.fromkeys(each for each in texts if len(each) < 1000)
    return tuple(found)


@cache
def words() -> tuple[str, ...]:
    """Return names and numbers that occur in the files, and unusual words."""
    found = (word for text in files() for word in re.findall(r"[\w.%@]+", text))
    return (*dict.fromkeys(found), *WORDS * 3)


def mutated_file(chance: Random) -> bytes:
    """Return a file of the corpus after some changes, mostly of its data, otherwise of its text."""
    text, kind = chance.choice(files()), chance.random()
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        text = (_change_data if kind < 0.7 else _change_tokens)(chance, text)
    raw = text.encode("utf-8", "surrogatepass")
    if not 0.8 < kind < 0.9:
        return raw
    at = chance.randrange(len(raw) + 1)
    more = chance.choice((bytes([chance.randrange(256)]), chance.choice(BYTES)))
    return chance.choice((raw[:at], raw[:at] + more + raw[at:], more + raw))


def mutated_rule(chance: Random) -> str:
    """Return a rule after one to four changes."""
    rule = chance.choice(rules())
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        rule = chance.choice((_change_tokens, _change_tokens, _change_rule))(chance, rule)
    return rule


def file_with(chance: Random, rule: str) -> bytes:
    """Return a small file that contains the rule."""
    quoted = yaml.safe_dump(rule, allow_unicode=True, width=10**6).removesuffix("...\n").strip()
    places = ("constraints: {a: %s}", "objective: %s", "metrics: {m: %s}", "groups: {g: %s}")
    place = chance.choice(places)
    algorithms = "unconstrained majorize three_player mixture seldonian balanced_tree post_shift"
    groups = "groups: {women: sex = Female, men: sex = Male}\n"
    groups = "" if place.startswith("groups") else groups
    sweep = chance.choice(("", "", "sweep: {kappa: [0.5, 1]}\n"))
    line = place.replace("%s", "\n  " + quoted if "{" not in place else quoted)
    text = (
        f"name: x\ndatasets: {{d: {{source: loans, rows: 60}}}}\n{groups}{sweep}{line}\n"
        f"algorithms: [{chance.choice(algorithms.split())}]\n"
    )
    return text.encode("utf-8", "surrogatepass")


def _change_tokens(chance: Random, text: str) -> str:
    """Replace, insert, delete, repeat or swap words, or whole lines."""
    by_line = chance.random() < 0.3
    tokens = text.splitlines(keepends=True) if by_line else TOKEN.findall(text)
    tokens = tokens or [" "]
    start, at = chance.randrange(len(tokens)), chance.randrange(len(tokens))
    end = start + chance.choice((1, 1, 2, 5, 20, 200))
    match chance.randrange(5):
        case 0:
            solid = [k for k, token in enumerate(tokens) if token.strip()] or [0]
            tokens[chance.choice(solid)] = chance.choice(words())
        case 1:
            tokens.insert(at, chance.choice(words()))
        case 2:
            del tokens[start:end]
        case 3:
            tokens[start:start] = tokens[start:end]
        case _:
            tokens[start], tokens[at] = tokens[at], tokens[start]
    return "".join(tokens)


def _change_data(chance: Random, text: str) -> str:
    """Return YAML with one part of its data changed."""
    try:
        data = yaml.load(text, Loader=LOADER)
        places = list(islice(paths(data), MOST + 1))  # aliases may make them endless
        if len(places) > MOST:
            return _change_tokens(chance, text)
        flow, width = chance.choice((True, False, None)), chance.choice((80, 10**6))
        changed = _changed(chance, data, places)
        return yaml.dump(changed, Dumper=DUMPER, default_flow_style=flow, width=width)
    except (yaml.YAMLError, ValueError, RecursionError, MemoryError):
        return _change_tokens(chance, text)


def _changed(chance: Random, data: Any, places: list[tuple[Any, ...]]) -> Any:
    path, word, odd = chance.choice(places), chance.choice(words()), chance.choice(ODD)
    if not path:
        return odd
    holder, key = _at(data, path[:-1]), path[-1]
    match chance.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice((word, word, 1, None, True, ""))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        case 3:
            holder[key] = copy.deepcopy(_at(data, chance.choice(places)))
        case 4:
            holder[key] = chance.choice(([holder[key]], {word: holder[key]}, word))
        case _:
            holder[key] = copy.deepcopy(odd)
    return data


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def _change_rule(chance: Random, rule: str) -> str:
    """Nest a rule, chain it with itself or another, or put it where numbers grow without end."""
    other = chance.choice(rules())
    match chance.randrange(4):
        case 0:
            depth = chance.choice((3, 30, 45, 200, 900))
            opening = chance.choice(("(", "abs(", "-", "max(0, ", "of(a, "))
            return opening * depth + rule + (")" if "(" in opening else "") * depth
        case 1:
            signs = (" + ", " - ", " * ", " / ", " ** ", " <= ", " >= ", ", ", "", " and ")
            return chance.choice(signs).join([rule] * chance.choice((2, 3, 8, 30)))
        case 2:
            return chance.choice(TOWERS).format(rule)
        case _:
            a, b = chance.randrange(len(rule) + 1), chance.randrange(len(other) + 1)
            return rule[:a] + other[b:]
