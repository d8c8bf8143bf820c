"""Files and rules changed as people, editors and attackers change them.

Each step takes a source of chance with the methods of `random.Random`, so that a seed, or
Hypothesis, determines the result.
"""

from __future__ import annotations

import re
from itertools import islice
from random import Random
from typing import Any

import corpus
import yaml
from nested import paths

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MOST = 3000
TOKEN = re.compile(r"\w+|[^\S\n]+|\n|.", re.DOTALL)
BYTES = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b"\t", b"\x1b[31m", b"\x7f"),
    *(b"\x85", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x80\xa8", b"\xe2\x80\xae", b"\xf4\x8f\xbf\xbf"),
    *(b"\xf0\x9f\x98\x80", b"\xc2\xa0", b"\xe2\x80\x8b", b"e\xcc\x81" * 20),
)
YAML_WORDS = (
    *("<<: *a", "&a ", "*a", "!!python/object/apply:os.system ['id']", "!!binary aGk=", "!!set"),
    *("!x", "? ", "- ", ": ", "|", ">-", "---\n", "...\n", "%YAML 1.2\n---\n", "'", '"', "#", "@"),
    *("{{ x }}", "${HOME}", "../../etc/passwd", "/etc/passwd", "~/x", "$(id)", "C:\\x"),
    *("file:///etc/passwd", "<script>", "{", "}", "`", "%"),
    *("\u202e", "\u00e9", "\U0001f600", "'\\ud800'", '"\\ud800"', '"\\u0000"'),
    '"\\x1b[2J"',
)
NUMBERS = (
    *("0", "-1", "1", "2", "-0.0", "1e999", "-1e999", "1e-999", ".inf", "-.inf", ".nan", "0.1"),
    *("9223372036854775807", "9223372036854775808", "1" + "0" * 400, "1/0", "1/3", "999999/1"),
    *("0x7f", "0o7", "1_0", "1e308", "5e-324", "50%", "1000%", "30 s", "4 GiB", "100000"),
)
RULE_TEXT = """
<= >= < > = != == + - * / ** ( ) [ ] , @ % ' " \\ ^ & | ~ ! ? ; by= abs( max( min( sqrt( log( exp(
kl( of( max_gap( min_ratio( mean( imbalance( tpr error share roc_auc mse precision positive_rate
base_rate churn
"""
RULE_WORDS = [*RULE_TEXT.split(), *"\u00b2\u0663\u2264\u2212\u00d7\ufeff\x1b\n\t"]
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63 - 1, 2**63, -(2**64), 10**40, 0.0, -0.0, 1e308),
    *(float("inf"), float("nan"), "", " ", "x", "null", "a: b", "a" * 5000, "\u0000", "\x1b[31m"),
    *("\u202e", "\U0001f600", "../..", "/etc/passwd", [], {}, [[]], [None], {"": ""}, {"a": None}),
    *([{}], [1, "a", None, {}], {"a": {"b": {"c": []}}}, [0] * 300, "error"),
    {f"k{k}": k for k in range(200)},
    *("linspace(0, 1, 3)", "logspace(1, 2, 3)", "linspace(0, 1, 100000)"),
)


def mutated_file(chance: Random) -> bytes:
    """Return a file of the corpus after some changes, mostly of its data, otherwise of its text."""
    text, kind = chance.choice(corpus.files()), chance.random()
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        changes = (_change_data,) if kind < 0.7 else (_change_tokens, _change_lines)
        text = chance.choice(changes)(chance, text)
    raw = text.encode("utf-8", "surrogatepass")
    return _change_bytes(chance, raw) if 0.8 < kind < 0.9 else raw


def mutated_rule(chance: Random) -> str:
    """Return a rule after one to four changes."""
    rule = chance.choice(corpus.rules())
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


def _change_bytes(chance: Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw) + 1)
    more = chance.choice((bytes([chance.randrange(256)]), chance.choice(BYTES)))
    return chance.choice((raw[:at], raw[:at] + more + raw[at:], more + raw))


def _change_tokens(chance: Random, text: str) -> str:
    tokens = TOKEN.findall(text) or [" "]
    start, at = chance.randrange(len(tokens)), chance.randrange(len(tokens))
    end = start + chance.choice((1, 1, 2, 5, 20, 200))
    word = chance.choice(chance.choice((corpus.words(), NUMBERS, YAML_WORDS, RULE_WORDS)))
    match chance.randrange(5):
        case 0:
            solid = [k for k, token in enumerate(tokens) if token.strip()] or [0]
            tokens[chance.choice(solid)] = word
        case 1:
            tokens.insert(at, word)
        case 2:
            del tokens[start:end]
        case 3:
            tokens[start:start] = tokens[start:end]
        case _:
            tokens[start], tokens[at] = tokens[at], tokens[start]
    return "".join(tokens)


def _change_lines(chance: Random, text: str) -> str:
    lines = text.split("\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(5):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at] = " " * chance.randrange(1, 5) + lines[at]
        case 3:
            lines[at] = lines[at].lstrip()
        case _:
            lines.insert(at, chance.choice(chance.choice(corpus.files()).split("\n")))
    return chance.choice(("\n", "\n", "\n", "\n", "\n", "\r\n", "\r")).join(lines)


def _change_data(chance: Random, text: str) -> str:
    """Return YAML with one part of its data changed."""
    try:
        data = yaml.load(text, Loader=LOADER)
        places = list(islice(paths(data), MOST + 1))  # aliases may make them endless
        if len(places) > MOST:
            return _change_lines(chance, text)
        flow, width = chance.choice((True, False, None)), chance.choice((80, 10**6))
        changed = _changed(chance, data, places)
        return yaml.dump(changed, Dumper=DUMPER, default_flow_style=flow, width=width)
    except (yaml.YAMLError, ValueError, RecursionError, MemoryError):
        return _change_lines(chance, text)


def _changed(chance: Random, data: Any, places: list[tuple[Any, ...]]) -> Any:
    path, word = chance.choice(places), chance.choice(corpus.words())
    if not path:
        return chance.choice(ODD)
    holder, key = _at(data, path[:-1]), path[-1]
    match chance.randrange(8):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [holder[key]]
        case 2:
            holder[key] = {word: holder[key]}
        case 3:
            holder[key] = _copy(_at(data, chance.choice(places)))
        case 4 if isinstance(holder, dict):
            holder[chance.choice((word, word, 1, None, True, ""))] = holder.pop(key)
        case 5 if isinstance(holder, list):
            holder.append(_copy(holder[key]))
        case 6 if isinstance(holder[key], str):
            holder[key] = word
        case _:
            holder[key] = _copy(chance.choice(ODD))
    return data


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


TOWERS = (
    *("9**9**9 * {0}", "exp(exp(exp(9))) + {0}", "({0}) ** 1e300", "({0}) / 0", "0 * ({0})"),
    *("1e308 * 10 * ({0})", "({0}) * ({0}) * ({0}) * ({0}) * ({0})", "log(-1) + {0}"),
    *("sqrt({0} - {0})", "min(by=({0}))", "max_gap(max_gap({0}, by=sex), by=sex)", "5% {0} %"),
    *("max_gap(tpr, by=(sex, region, purpose)) + {0}", "tpr[sex = '\\'', {0}]", "({0})[women]"),
    *("tpr[sex = Female, sex = Male] + {0}", "{0} @ test"),
)


def _change_rule(chance: Random, rule: str) -> str:
    """Nest a rule, chain it with itself or another, or put it where numbers grow without end."""
    other = chance.choice(corpus.rules())
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
