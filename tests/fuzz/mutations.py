"""Files and rules changed as people, editors and attackers change them.

Each step takes a source of chance with the methods of `random.Random`, so that a seed, or Hypothesis,
says what comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import corpus
import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MOST = 3000
TOKEN = re.compile(r"\w+|[^\S\n]+|\n|.", re.DOTALL)
BYTES = (
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b"\t", b"\x1b[31m", b"\x7f", b"\x85",
    b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x80\xa8", b"\xe2\x80\xae", b"\xf4\x8f\xbf\xbf", b"\xf0\x9f\x98\x80",
    b"\xc2\xa0", b"\xe2\x80\x8b", b"e\xcc\x81" * 20,
)  # fmt: skip
SIGNS = (
    "<<: *a", "&a ", "*a", "!!python/object/apply:os.system ['id']", "!!binary aGk=", "!!set", "!x", "? ", "- ",
    ": ", "|", ">-", "---\n", "...\n", "%YAML 1.2\n---\n", "{", "}", "[", "]", "'", '"', "#", ",", "@", "`", "%",
    "{{ x }}", "${HOME}", "../../etc/passwd", "/etc/passwd", "~/x", "file:///etc/passwd", "C:\\x", "$(id)",
    "\u202e", "\u00e9", "\U0001f600", "'\\ud800'", '"\\ud800"', '"\\u0000"', '"\\x1b[2J"', "<script>",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "2", "-0.0", "1e999", "-1e999", "1e-999", ".inf", "-.inf", ".nan", "9223372036854775807",
    "9223372036854775808", "1" + "0" * 400, "0.1", "1/0", "1/3", "999999/1", "0x7f", "0o7", "1_0", "1e308", "5e-324",
    "50%", "1000%", "30 s", "4 GiB", "0.5", "3", "100000", "1000", "4294967296",
)  # fmt: skip
SYMBOLS = (
    "<=", ">=", "<", ">", "=", "!=", "==", "+", "-", "*", "/", "**", "(", ")", "[", "]", ",", "@", "%", "'", '"',
    "by=", "abs(", "max(", "min(", "sqrt(", "log(", "exp(", "kl(", "of(", "max_gap(", "min_ratio(", "mean(",
    "tpr", "error", "share", "roc_auc", "mse", "precision", "positive_rate", "base_rate", "churn", "imbalance(",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63 - 1, 2**63, -(2**64), 10**40, 0.0, -0.0, 1e308, float("inf"), float("nan"),
    "", " ", "x", "null", "a: b", "a" * 5000, "\u0000", "\x1b[31m", "\u202e", "\U0001f600", "../..", "/etc/passwd",
    [], {}, [[]], [None], {"": ""}, {"a": None}, [{}], [1, "a", None, {}], {"a": {"b": {"c": []}}}, [0] * 300,
    {f"k{k}": k for k in range(200)}, "linspace(0, 1, 3)", "logspace(1, 2, 3)", "linspace(0, 1, 100000)", "error",
)  # fmt: skip


def mutated_file(chance: Random) -> bytes:
    """A file of the corpus after some changes: mostly of its data, which lead deepest, else of its text."""
    text = chance.choice(corpus.files())
    kind = chance.random()
    if kind < 0.7:
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            text = _structure(chance, text)
    else:
        for _ in range(chance.choice((1, 1, 2, 4))):
            text = chance.choice(TEXT_STEPS)(chance, text)
    if kind > 0.94:
        text = chance.choice(BOMBS)(chance, text)
    raw = text.encode("utf-8", "surrogatepass")
    return chance.choice(BYTE_STEPS)(chance, raw) if 0.8 < kind < 0.9 else raw


def mutated_rule(chance: Random) -> str:
    """A rule after one to four changes."""
    rule = chance.choice(corpus.rules())
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        rule = chance.choice(RULE_STEPS)(chance, rule)
    return rule


def file_with(chance: Random, rule: str) -> bytes:
    """A small file that says the rule somewhere."""
    quoted = yaml.safe_dump(rule, allow_unicode=True, width=10**6).removesuffix("...\n").strip()
    place = chance.choice(
        ("constraints: {a: %s}", "objective: %s", "metrics: {m: %s}", "groups: {g: %s, women: sex = Female}")
    )  # fmt: skip
    algorithm = chance.choice(
        ("unconstrained", "majorize", "three_player", "mixture", "seldonian", "balanced_tree", "post_shift")
    )  # fmt: skip
    groups = (
        "" if place.startswith("groups") else "groups: {women: sex = Female, men: sex = Male}\n"
    )
    sweep = chance.choice(("", "", "sweep: {kappa: [0.5, 1]}\n"))
    line = place.replace("%s", "\n  " + quoted if "{" not in place else quoted)
    text = f"name: x\ndatasets: {{d: {{source: loans, rows: 60}}}}\n{groups}{sweep}{line}\nalgorithms: [{algorithm}]\n"
    return text.encode("utf-8", "surrogatepass")


def _cut(chance: Random, length: int) -> tuple[int, int]:
    start = chance.randrange(length + 1)
    return start, min(length, start + chance.choice((1, 1, 2, 5, 20, 200)))


def _flip(chance: Random, raw: bytes) -> bytes:
    at = chance.randrange(max(1, len(raw)))
    return raw[:at] + bytes([chance.randrange(256)]) + raw[at + 1 :]


def _put(chance: Random, raw: bytes) -> bytes:
    at = chance.choice((0, chance.randrange(len(raw) + 1)))
    return raw[:at] + chance.choice(BYTES) + raw[at:]


def _truncate(chance: Random, raw: bytes) -> bytes:
    return raw[: chance.randrange(len(raw) + 1)]


def _tokens(step: Callable[[Random, list[str]], None]) -> Callable[[Random, str], str]:
    def change(chance: Random, text: str) -> str:
        tokens = TOKEN.findall(text) or [" "]
        step(chance, tokens)
        return "".join(tokens)

    return change


def _word(chance: Random) -> str:
    kind = chance.randrange(4)
    return chance.choice((corpus.words(), NUMBERS, SIGNS, SYMBOLS)[kind])


@_tokens
def _replaced(chance: Random, tokens: list[str]) -> None:
    solid = [k for k, token in enumerate(tokens) if token.strip()] or [0]
    tokens[chance.choice(solid)] = _word(chance)


@_tokens
def _inserted(chance: Random, tokens: list[str]) -> None:
    tokens.insert(chance.randrange(len(tokens) + 1), _word(chance))


@_tokens
def _removed(chance: Random, tokens: list[str]) -> None:
    start, end = _cut(chance, len(tokens))
    del tokens[start:end]


@_tokens
def _doubled(chance: Random, tokens: list[str]) -> None:
    start, end = _cut(chance, len(tokens))
    tokens[start:start] = tokens[start:end]


@_tokens
def _swapped(chance: Random, tokens: list[str]) -> None:
    a, b = chance.randrange(len(tokens)), chance.randrange(len(tokens))
    tokens[a], tokens[b] = tokens[b], tokens[a]


@_tokens
def _number(chance: Random, tokens: list[str]) -> None:
    numbers = [k for k, token in enumerate(tokens) if token.isdecimal()] or [0]
    tokens[chance.choice(numbers)] = chance.choice(NUMBERS)


def _lines(chance: Random, text: str) -> str:
    lines = text.split("\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = " " * chance.randrange(1, 5) + lines[at]
        case 4:
            lines[at] = lines[at].lstrip()
        case _:
            lines.insert(at, chance.choice(chance.choice(corpus.files()).split("\n")))
    return chance.choice(("\n", "\n", "\n", "\n", "\n", "\r\n", "\r")).join(lines)


def _structure(chance: Random, text: str) -> str:
    """The same data with one part changed, written anew."""
    try:
        data = yaml.load(text, Loader=LOADER)
    except (yaml.YAMLError, ValueError, RecursionError, MemoryError):
        return _lines(chance, text)
    paths = list(islice(_paths(data), MOST + 1))  # aliases may make them endless
    if len(paths) > MOST:
        return _lines(chance, text)
    data = _changed(chance, data, chance.choice(paths), paths)
    try:
        return yaml.dump(
            data, Dumper=DUMPER, sort_keys=False, allow_unicode=chance.random() < 0.5,
            default_flow_style=chance.choice((True, False, None)), width=chance.choice((80, 10**6)),
        )  # fmt: skip
    except (yaml.YAMLError, UnicodeError, RecursionError):
        return _lines(chance, text)


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path
    steps = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for step, inner in steps:
        yield from _paths(inner, (*path, step))


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def _changed(chance: Random, data: Any, path: tuple[Any, ...], paths: list[tuple[Any, ...]]) -> Any:
    if not path:
        return chance.choice(ODD)
    holder, key = _at(data, path[:-1]), path[-1]
    match chance.randrange(8):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [holder[key]]
        case 2:
            holder[key] = {chance.choice(corpus.words()): holder[key]}
        case 3:
            holder[key] = _copy(_at(data, chance.choice(paths)))
        case 4 if isinstance(holder, dict):
            holder[chance.choice((*corpus.words(), 1, None, True, ""))] = holder.pop(key)
        case 5 if isinstance(holder, list):
            holder.append(_copy(holder[key]))
        case 6:
            inner = holder[key]
            holder[key] = (
                chance.choice(corpus.words()) if isinstance(inner, str) else chance.choice(ODD)
            )
        case _:
            holder[key] = _copy(chance.choice(ODD))
    return data


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, list) else value


def _aliases(chance: Random, text: str) -> str:
    """Each line ten times the one above."""
    depth = chance.choice((2, 5, 9, 30))
    bomb = ["a0: &a0 [x, x]"]
    bomb += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, depth)]
    return "\n".join([*bomb, f"name: *a{depth - 1}", text])


def _deep(chance: Random, text: str) -> str:
    depth = chance.choice((10, 49, 60, 1000, 20_000))
    pair = chance.choice(("[]", "{}"))
    opening = "[" if pair == "[]" else "{a: "
    deep = opening * depth + ("]" if pair == "[]" else "}") * chance.choice((depth, 0))
    return chance.choice((f"{text}\ndeep: {deep}", f"name: {deep}", deep))


def _blocks(chance: Random, text: str) -> str:
    depth = chance.choice((10, 60, 900))
    return text + "\n" + "\n".join(" " * k + "a:" for k in range(depth))


def _long(chance: Random, text: str) -> str:
    size = chance.choice((3000, 100_000, 1_200_000))
    line = chance.choice(
        ("a" * size, "a: " + "b" * size, "# " + "c" * size, "[" + "1," * (size // 2) + "]")
    )
    return chance.choice((f"{line}\n{text}", f"{text}\n{line}", f"description: {line}"))


def _merge(chance: Random, text: str) -> str:
    first, _, rest = text.partition("\n")
    merge = chance.choice(("<<: *x", "<<: [*x, *x]", '"<<": 1', "? <<\n: 1", "x: &x {<<: *x}"))
    return f"x: &x {{name: y}}\n{first}\n{merge}\n{rest}"


def _nested_rule(chance: Random, rule: str) -> str:
    depth = chance.choice((3, 30, 45, 200, 900))
    opening, closing = chance.choice(
        (("(", ")"), ("abs(", ")"), ("-", ""), ("max(0, ", ")"), ("of(a, ", ")"))
    )
    return opening * depth + rule + closing * depth


def _chained(chance: Random, rule: str) -> str:
    sign = chance.choice((" + ", " - ", " * ", " / ", " ** ", " <= ", " >= ", ", ", "", " and "))
    return sign.join([rule] * chance.choice((2, 3, 8, 30)))


def _tower(chance: Random, rule: str) -> str:
    """Numbers that grow without end, and rates over and over themselves."""
    return chance.choice(
        ("9**9**9 * {0}", "exp(exp(exp(9))) + {0}", "({0}) ** 1e300", "({0}) / 0", "1e308 * 10 * ({0})", "0 * ({0})",
         "({0}) * ({0}) * ({0}) * ({0}) * ({0})", "log(-1) + {0}", "sqrt({0} - {0})", "min(by=({0}))",
         "max_gap(max_gap({0}, by=sex), by=sex)", "max_gap(tpr, by=(sex, region, purpose)) + {0}", "5% {0} %",
         "tpr[sex = '\\'', {0}]", "tpr[sex = Female, sex = Male] + {0}", "({0})[women]", "{0} @ test")
    ).format(rule)  # fmt: skip


def _joined(chance: Random, rule: str) -> str:
    other = chance.choice(corpus.rules())
    a, b = chance.randrange(len(rule) + 1), chance.randrange(len(other) + 1)
    return rule[:a] + other[b:]


def _odd_sign(chance: Random, rule: str) -> str:
    at = chance.randrange(len(rule) + 1)
    sign = chance.choice(
        "\u00b2\u0663\u202e\u00e9\U0001f600\t\n\u2264\u2212\u00d7\u00a0\ufeff\x1b\\^&|~!?;:{}#$`"
    )
    return rule[:at] + sign + rule[at:]


BYTE_STEPS = (_flip, _put, _truncate)
TEXT_STEPS = (_replaced, _inserted, _removed, _doubled, _swapped, _number, _lines)
RULE_STEPS = (
    _replaced,
    _inserted,
    _removed,
    _doubled,
    _swapped,
    _number,
    _joined,
    _odd_sign,
    _nested_rule,
    _chained,
    _tower,
)
BOMBS = (_aliases, _deep, _blocks, _long, _merge)
