import pytest
from marked import spot, unmarked

HEAD = "name: x\ndatasets: {d: {source: loans}}\nalgorithms: [unconstrained]\n"
NO_DATA = "name: x\nalgorithms: [unconstrained]\n"
NO_ALGORITHMS = "name: x\ndatasets: {d: {source: loans}}\n"

TWO_FILES = """\
report:
  tables:
    - {rows: [a], columns: [b], file: f}
    - {rows: [a], columns: [b], file: ⟦f⟧}
"""
MANY_POINTS = "⟦sweep⟧: {a: 'linspace(0, 1, 1000)', b: 'linspace(0, 1, 1000)'}\n"
TWO_SWEEPS = """\
sweep: {k: 'linspace(0, 1, 400)'}
⟦algorithms⟧: [{a: {sweep: {j: 'linspace(0, 1, 400)'}}}]
"""

SYNTAX = [
    ("a: ⟦[⟧1, 2\nb: 3\n", "this bracket is not closed"),
    ("a: 1\n⟦\t⟧b: 2\n", "a tab"),
    ("a:1\nb⟦:⟧ 2\n", "write 'key: value' with a space"),
    ("a: b⟦:⟧ c\n", "quote a value"),
    ("x: ⟦'⟧abc\ny: 2\n", "is not closed"),
    ("x: ⟦@⟧y\n", "cannot begin with '@'"),
    ("a:\n  b: 1\n ⟦c⟧: 2\n", "begin in the same column"),
    ("a: [1, 2]⟦]⟧\n", "brackets"),
    ('a: "\\⟦q⟧"\n', "escape is not valid"),
    ("a: 1\n⟦b⟧cd\ne: 2\n", "not 'key: value'"),
    ("a: ⟦*⟧b\n", "undefined alias"),
    ("a: {b: tpr⟦[⟧women] >= 1}\n", "cannot contain '['"),
]

YAML = [
    ("E002", "a: 1\n⟦a⟧: 2\n"),
    ("E003", "a: ⟦&x [*x]⟧\n"),
    ("E004", "a: ⟦!!python/object:os.system x⟧\n"),
    ("E004", "a: ⟦! x⟧\n"),
    ("E004", "⟦1⟧: 2\n"),
    ("E004", "a: {⟦[b]⟧: 2}\n"),
    ("E004", "a: 1\n⟦---⟧\nb: 2\n"),
    ("E004", "⟦⟧"),
    ("E004", "⟦#⟧ nothing\n"),
    ("E004", "⟦-⟧ a\n- b\n"),
    ("E004", "⟦j⟧ust text\n"),
    ("E104", "seeds: ⟦99999999999999999999⟧\n"),
]

KEYS = [
    ("E101", "⟦sedes⟧: 3\n", "did you mean 'seeds'"),
    ("E101", "report: {plots: [{kind: tradeoff, x: a, y: b, ⟦colour⟧: red}]}\n", "allowed keys"),
    (
        "E103",
        "trial_seconds: {unconstrained: ⟦a⟧}\n",
        "a number of seconds or a mapping of data sets",
    ),
    ("E104", "trial_seconds: {unconstrained: {loans: ⟦0⟧}}\n", "greater than 0"),
    ("E104", "trial_seconds: {⟦unconstraned⟧: 1}\n", "did you mean 'unconstrained'"),
    ("E104", "trial_seconds: {unconstrained: {⟦loan⟧: 1}}\n", "no data set is called 'loan'"),
    ("E101", "regularization: {⟦l1⟧: 3}\n", "allowed keys: l2"),
    ("E101", "regularization: {⟦l2:3⟧}\n", "allowed keys: l2"),
    ("E101", "⟦<<⟧: {seeds: 3}\n", None),
    ("E104", "constraints: {a: max_gap(tpr, ⟦by=sex) <= 0⟧}\n", "a comma needs quotes"),
    ("E103", "report: {⟦tables⟧: }\n", None),
    ("E102", "report:\n  tables:\n    - ⟦rows: [a]⟧\n", None),
    ("E102", "⟦deployed⟧: {}\n", "column"),
    ("E103", "seeds: ⟦banana⟧\n", "write 5"),
    ("E103", "seeds: ⟦2.5⟧\n", "write 5"),
    ("E103", "⟦groups⟧:\n", "remove the key"),
    ("E103", "groups: ⟦[a]⟧\n", None),
    ("E103", "groups: {w: ⟦5⟧}\n", "quotes"),
    ("E103", "constraints: {⟦w⟧: }\n", None),
    ("E103", "description: ⟦3⟧\n", "in quotes"),
    ("E103", "regularization: {l2: ⟦true⟧}\n", "1/n"),
    ("E105", "sweep: ⟦5⟧\n", None),
    ("E103", "deployed: ⟦majorize⟧\n", None),
    ("E103", "report: {tables: [{rows: [⟦1⟧], columns: [a]}]}\n", "in quotes"),
    ("E103", "report: {tables: [{rows: ⟦a⟧, columns: [a]}]}\n", "[a]"),
    ("E103", "report: {plots: [{kind: tradeoff, x: a, y: b, optimum: ⟦yes⟧}]}\n", None),
    ("E104", "seeds: ⟦0⟧\n", None),
    ("E104", "seeds: ⟦999999999⟧\n", None),
    ("E104", "seeds: ⟦[1, 1]⟧\n", None),
    ("E104", "seeds: ⟦[-1]⟧\n", None),
    ("E104", "seeds: ⟦[]⟧\n", None),
    ("E104", "groups: {⟦1a⟧: x = 1}\n", "begins with a letter"),
    ("E104", "objective: ⟦''⟧\n", None),
    ("E104", "regularization: {l2: ⟦-1⟧}\n", "1/n"),
    ("E104", "regularization: {l2: ⟦.inf⟧}\n", "1/n"),
    ("E104", "regularization: {l2: ⟦n/1⟧}\n", "1/n"),
    ("E104", "deployed: {algorithm: ⟦unconstraind⟧}\n", "did you mean 'unconstrained'"),
    ("E104", "deployed: {column: a, ⟦algorithm⟧: unconstrained}\n", None),
    ("E104", "deployed: {⟦model⟧: a.npz, column: a}\n", "{model: FILE.npz}"),
    ("E104", "deployed: {model: a.npz, ⟦positive⟧: keep}\n", "leave it out"),
    ("E104", "report: {plots: [{kind: ⟦tradeof⟧, x: a, y: b}]}\n", "did you mean 'tradeoff'"),
    ("E104", "report: {plots: [{kind: tradeoff, x: a, y: b, split: ⟦tets⟧}]}\n", "'test'"),
    ("E104", "report: {plots: [{kind: tradeoff, x: a, y: b, file: ⟦../f⟧}]}\n", "letters"),
    ("E104", "report: {tables: [{rows: ⟦[]⟧, columns: [a]}]}\n", None),
    ("E106", "groups: {⟦d⟧: x = 1}\n", "another name"),
    ("E106", "sweep: {⟦variant⟧: [1]}\n", None),
    ("E106", "metrics: {⟦objective⟧: error}\n", None),
    ("E106", "metrics: {⟦solution_rate⟧: error}\n", "another name"),
    ("E106", TWO_FILES, None),
    ("E105", MANY_POINTS, "1000000 points"),
    ("E302", f"objective: ⟦{'(' * 10_000 + ')' * 10_000}⟧\n", None),
    ("E302", f"groups: {{a: ⟦'{'(' * 10_000 + ')' * 10_000}'⟧}}\n", None),
]

SWEEPS = [
    "{k: ⟦5⟧}",
    "{⟦k⟧: }",
    "{k: ⟦[]⟧}",
    "{k: [1, ⟦.nan⟧]}",
    "{k: [1, ⟦[2]⟧]}",
    "{k: ⟦linspace⟧}",
    "{k: ⟦[linspace(1, 2, 3)]⟧}",
    "{k: ⟦'linspace(1, 2)'⟧}",
    "{k: ⟦'linspace(1, 2, 0)'⟧}",
    "{k: ⟦'linspace(1, 1e999, 3)'⟧}",
    "{k: ⟦'linspace(1, 2, 2.5)'⟧}",
    "{k: ⟦'linspace(0, 1, 100001)'⟧}",
    "{k: ⟦'logspace(0, 1, 3)'⟧}",
    "{k: [1], zip: [⟦k⟧]}",
    "{k: [1], zip: [[k, ⟦j⟧]]}",
    "{k: [1], j: [1, 2], zip: [⟦[k, j]⟧]}",
    "{k: [1], j: [1], zip: [[k, j], [⟦k⟧]]}",
    "{k: [1], exclude: [{⟦j⟧: 1}]}",
    "{k: [1], ⟦exclude⟧: [{k: 1}]}",
    "{k: [1], exclude: ⟦{k: 1}⟧}",
    "{k: [1], include: [⟦5⟧]}",
    "{k: [1], j: [1], include: [⟦{k: 7}⟧]}",
    "{k: [1, 2], include: [⟦{k: 1, j: 2}⟧]}",
]

ALGORITHMS = [
    ("E103", "algorithms: ⟦majorize⟧\n"),
    ("E103", "algorithms: [⟦5⟧]\n"),
    ("E103", "algorithms: [{a: ⟦5⟧}]\n"),
    ("E101", "algorithms: [{a: {⟦name⟧: m}}]\n"),
    ("E105", "algorithms: [{a: {sweep: ⟦5⟧}}]\n"),
    ("E103", "algorithms: [{a: {filter: ⟦{take: sample}⟧}}]\n"),
    ("E104", "algorithms: ⟦[]⟧\n"),
    ("E104", "algorithms: [⟦a-b⟧]\n"),
    ("E104", "algorithms: [{⟦a-b⟧: }]\n"),
    ("E104", "algorithms: [{a: {as: ⟦b c⟧}}]\n"),
    ("E105", TWO_SWEEPS),
    ("E106", "algorithms: [a, ⟦a⟧]\n"),
    ("E106", "algorithms:\n  - a\n  - b: {as: ⟦a⟧}\n"),
    ("E106", "algorithms: [{a: {sweep: {⟦d⟧: [1]}}}]\n"),
]

SEVERAL_KEYS = [
    "algorithms:\n  - majorize:\n    ⟦iterations⟧: 6\n",
    "algorithms: [{as: mine, ⟦majorize⟧: {gap: 1}}]\n",
    "algorithms: [{name: a, ⟦as⟧: m}]\n",
    "algorithms: [{⟦name⟧: a}]\n",
    "algorithms: [{a: {}, ⟦b⟧: {}}]\n",
]

LOGGED = "{{path: a.csv, logged: {{action: a, propensity: p, outcomes: [r]{}}}}}".format
DATASETS = [
    ("E103", LOGGED("").replace("[r]", "⟦r⟧")),
    ("E103", LOGGED("").replace("[r]", "⟦[]⟧")),
    ("E103", LOGGED("").replace("[r]", "[⟦1⟧]")),
    ("E104", LOGGED("").replace("[r]", "{r: ⟦[1, 0]⟧}")),
    ("E103", LOGGED("").replace(": p", ": ⟦[p]⟧")),
    ("E104", LOGGED("").replace(": p", ": ⟦1⟧")),
    ("E104", LOGGED(", max_weight: ⟦1⟧")),
    ("E104", LOGGED("").replace("a.csv", "a.csv, stream: true").replace("logged", "⟦logged⟧")),
    ("E104", LOGGED("").replace("a.csv", "a.csv, ⟦levels⟧: 3")),
    ("E104", LOGGED("").replace("a.csv", "a.csv, label: y, ⟦target⟧: number")),
    ("E101", "{source: adult, ⟦logged⟧: {action: a, propensity: p, outcomes: [r]}}"),
    ("E101", "{⟦sorce⟧: adult}"),
    ("E101", "{source: adult, ⟦label⟧: y}"),
    ("E101", "{path: a.csv, ⟦rows⟧: 5}"),
    ("E103", "{source: loans, rows: ⟦many⟧}"),
    ("E103", "{path: a.csv, drop: ⟦sex⟧}"),
    ("E103", "{path: a.csv, positive: ⟦[1]⟧}"),
    ("E103", "⟦adult⟧"),
    ("E104", "{source: adult, ⟦path⟧: x}"),
    ("E104", "{source: loans, rows: ⟦0⟧}"),
    ("E104", "{path: a.csv, format: ⟦xls⟧}"),
    ("E104", "{path: a.csv, sha256: ⟦abc⟧}"),
    ("E104", "{path: a.csv, separator: ⟦';;'⟧}"),
    ("E104", "{source: a, split: {train: ⟦1.5⟧}}"),
    ("E104", "{source: a, split: {train: ⟦1/0⟧}}"),
    ("E104", "{source: a, split: {train: ⟦.nan⟧}}"),
    ("E103", "{source: a, split: {train: ⟦true⟧}}"),
    ("E104", "{source: a, ⟦split⟧: {train: 0.5, validation: 0.5, test: 0.5}}"),
    ("E104", "{source: a, ⟦split⟧: {validation: 1/2, test: 1/2}}"),
    ("E104", "{source: a, split: {official: true, ⟦test⟧: 1/2}}"),
    ("E104", "{source: a, split: {by: part, ⟦train⟧: 1/2}}"),
]

NO_SOURCES = [("E104", "⟦{}⟧"), ("E102", "{⟦d⟧: {}}"), ("E102", "{⟦d⟧: {rows: 5}}")]
ENTRIES = [
    ("E102", "⟦{metric: m, paper: 1}⟧"),
    ("E102", "⟦{algorithm: a, metric: m, kappa: 1}⟧"),
    ("E102", "{algorithm: a, metric: m, ⟦value⟧: 1}"),
    ("E103", "⟦text⟧"),
    ("E103", "{algorithm: a, metric: m, paper: ⟦true⟧}"),
    ("E103", "{algorithm: a, metric: m, paper: 1, source: ⟦3⟧}"),
    ("E103", "{algorithm: a, metric: m, paper: 1, within: ⟦[1]⟧}"),
    ("E103", "{algorithm: a, metric: m, paper: 1, kappa: ⟦{b: 1}⟧}"),
    ("E104", "{algorithm: a, metric: m, paper: ⟦.inf⟧}"),
    ("E104", "{algorithm: a, metric: m, paper: 1, within: ⟦-1⟧}"),
    ("E104", "{algorithm: a, metric: m, paper: 1, within: ⟦2 percent⟧}"),
    ("E104", "{algorithm: a, metric: m, at_most: 1, ⟦at_least⟧: 1}"),
    ("E104", "{algorithm: a, metric: m, paper: 1, split: ⟦tets⟧}"),
]
FILTERS = [
    ("E103", "⟦filter⟧:", "give it a value, or remove the key"),
    ("E102", "⟦filter⟧: {}", "'filter' needs one of 'balance' and 'objective'"),
    ("E102", "⟦filter⟧: {balance: null}", "needs one of 'balance' and 'objective'"),
    ("E104", "filter: {balance: sex, ⟦objective⟧: error}", "only one of 'balance' and 'objective'"),
    ("E103", "filter: {balance: ⟦3⟧}", "must be a list, not the number 3"),
    ("E104", "filter: {balance: ⟦[]⟧}", "'balance' must not be empty"),
    ("E101", "filter: {⟦balans⟧: sex}", "unknown key 'balans'"),
    ("E104", "filter: {balance: sex, disclosivity: ⟦1.5⟧}", "at least 0 and at most 1, not 1.5"),
    ("E104", "filter: {balance: sex, disclosivity: ⟦10%⟧}", "such as 0.5 or 1/2"),
    ("E103", "filter: {balance: sex, disclosivity: ⟦true⟧}", "or a name of the sweep"),
    ("E103", "filter: {balance: sex, take: ⟦1⟧}", "'take' must be text"),
    ("E103", "filter: {balance: sex, algorithm: ⟦[a, b]⟧}", "a name with its options, not a list"),
]
NAMES = ["../evil", "A", "a/b", "'a b'", "-a", "''", "a" * 101, "ä"]


def files():
    """Return (file, code, words of its message or help) of every broken file."""
    rows = [(text, "E001", sentence) for text, sentence in SYNTAX]
    rows += [(text, code, "") for code, text in YAML]
    rows += [(HEAD + text, code, hint or "") for code, text, hint in KEYS]
    rows += [(f"{HEAD}sweep: {text}\n", "E105", "") for text in SWEEPS]
    rows += [(NO_ALGORITHMS + text, code, "") for code, text in ALGORITHMS]
    rows += [
        (NO_ALGORITHMS + text, "E103", "write its keys under its name") for text in SEVERAL_KEYS
    ]
    rows += [(f"{NO_DATA}datasets: {{d: {text}}}\n", code, "") for code, text in DATASETS]
    rows += [(f"{NO_DATA}datasets: {text}\n", code, "") for code, text in NO_SOURCES]
    rows += [(f"{HEAD}expect:\n  - {text}\n", code, "") for code, text in ENTRIES]
    rows += [(f"{HEAD}{text}\n", code, words) for code, text, words in FILTERS]
    rows += [(HEAD.replace("name: x", f"name: ⟦{name}⟧"), "E104", "") for name in NAMES]
    return rows


@pytest.mark.parametrize(("text", "code", "words"), files(), ids=lambda part: part[:50])
def test_error_has_code_place_and_help(faults_of, text, code, words):
    plain, places = unmarked(text)
    (fault,) = faults_of(plain)
    assert (fault.code, spot(fault.place)) == (code, places[0])
    assert words in f"{fault.message} {fault.help}"
    assert fault.help or code != "E001"


def test_missing_keys_are_placed_at_the_start_of_the_file(faults_of):
    faults = faults_of("# a comment\ndescription: none\n")
    assert [(fault.code, spot(fault.place)) for fault in faults] == [("E102", (2, 1, 17))] * 3
    assert {fault.message.split("'")[1] for fault in faults} == {"name", "datasets", "algorithms"}


def test_misspelt_key_is_not_missing_too(faults_of):
    plain, places = unmarked(NO_DATA + "⟦dataset⟧: {d: {source: loans}}\n")
    (fault,) = faults_of(plain)
    assert (fault.code, spot(fault.place)) == ("E101", places[0])


def test_all_errors_are_reported_in_the_order_of_the_file(faults_of):
    plain, places = unmarked(
        "name: ⟦../evil⟧\n"
        "datasets:\n"
        "  d: {⟦sorce⟧: adult}\n"
        "  e: {source: x, rows: ⟦many⟧}\n"
        "algorithms: [⟦5⟧, {b: {as: ⟦3⟧}}, {c: {sweep: {k: ⟦[]⟧}}}]\n"
        "seeds: ⟦banana⟧\n"
    )
    faults = faults_of(plain)
    assert [spot(fault.place) for fault in faults] == places
    codes = "E104 E101 E103 E103 E103 E105 E103"
    assert " ".join(fault.code for fault in faults) == codes


def test_conflicts_between_valid_parts_are_reported_together(faults_of):
    plain, places = unmarked(
        "name: x\n"
        "datasets: {d: {source: adult}, e: {path: x, ⟦levels⟧: 2}}\n"
        "groups: {⟦d⟧: x = 1}\n"
        "algorithms: [a, ⟦a⟧]\n"
        "filter: {balance: s}\n"
    )
    found = [(fault.code, spot(fault.place)) for fault in faults_of(plain)]
    assert found[0][0] == found[1][0] == "E104"
    assert {place for _, place in found} >= set(places)
    assert [code for code, _ in found[2:]] == ["E106", "E106"]


def test_messages_have_no_word_of_pydantic(faults_of):
    faults = faults_of("name: [1]\ndatasets: 3\nalgorithms: {a: 1}\nseeds: {}\nreport: 1\n")
    text = " ".join(f"{fault.message} {fault.help}" for fault in faults).lower()
    assert not [word for word in ("input", "valid ", "pydantic", "dict", "tuple") if word in text]
