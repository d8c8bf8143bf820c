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
TWO_SWEEPS = """\
sweep: {k: 'linspace(0, 1, 400)'}
algorithms: [{a: {⟦sweep⟧: {j: 'linspace(0, 1, 400)'}}}]
"""

SYNTAX = [
    ("a: ⟦[⟧1, 2\nb: 3\n", "this bracket is not closed"),
    ("a: ⟦{⟧b: 1\n", "not closed"),
    ("a: 1\n⟦\t⟧b: 2\n", "a tab"),
    ("a⟦:⟧1\nb: 2\n", "space is missing"),
    ("b: 2\na⟦:⟧1\n", "space is missing"),
    ("a: b⟦:⟧ c\n", "second ':'"),
    ("x: ⟦'⟧abc\ny: 2\n", "never ends"),
    ("x: ⟦@⟧y\n", "cannot begin with '@'"),
    ("x: ⟦%⟧y\n", "cannot begin with '%'"),
    ("a:\n  b: 1\n ⟦c⟧: 2\n", "not indented like"),
    ("l:\n  - a\n ⟦-⟧ b\n", "not indented like"),
    ("a: [1, 2]⟦]⟧\n", "no opening"),
    ("a: 'x' ⟦y⟧\n", "after the end of"),
    ('a: "\\⟦q⟧"\n', "not an escape"),
    ('a: "\\x⟦z⟧z"\n', "not an escape"),
    ("a: ⟦>⟧= 3\n", "begins on the next line"),
    ("a: 1\n⟦b⟧cd\ne: 2\n", "not 'key: value'"),
    ("a: ⟦*b⟧\n", "no anchor '&b'"),
    ("a: ⟦-⟧ b\n", "list entry cannot"),
    ("a: {b: tpr⟦[⟧women] >= 1}\n", "cannot contain '['"),
    ("a: [⟦linspace(1⟧, 6.5, 96)]\n", "cuts this value in two"),
    ("a: {b: ⟦linspace(1⟧, 6.5, 96)}\n", "cuts this value in two"),
    ("⟦:⟧ 3\n", "key is missing"),
]

YAML = [
    ("E002", "a: 1\n⟦a⟧: 2\n"),
    ("E002", "a: {b: 1, c: 2, ⟦b⟧: 2}\n"),
    ("E003", "a: &x [⟦*x⟧]\n"),
    ("E004", "a: ⟦!!python/object:os.system⟧ x\n"),
    ("E004", "a: ⟦!!str⟧ x\n"),
    ("E004", "a: ⟦!⟧ x\n"),
    ("E004", "⟦%TAG ! tag:x,2000:⟧\n---\na: b\n"),
    ("E004", "a: &a {b: 1}\nc: {⟦<<⟧: *a}\n"),
    ("E004", "⟦1⟧: 2\n"),
    ("E004", "a: {⟦true⟧: 2}\n"),
    ("E004", "⟦~⟧: 2\n"),
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
    ("E101", "regularization: {⟦l1⟧: 3}\n", "allowed keys: l2"),
    ("E101", "regularization: {⟦l2:3⟧}\n", "space is missing"),
    ("E103", "report: {⟦tables⟧: }\n", None),
    ("E102", "report:\n  tables:\n    - ⟦rows⟧: [a]\n", None),
    ("E102", "⟦deployed⟧: {}\n", "column"),
    ("E103", "seeds: ⟦banana⟧\n", "write 5"),
    ("E103", "seeds: ⟦true⟧\n", "write 5"),
    ("E103", "seeds: ⟦[a]⟧\n", "write 5"),
    ("E103", "seeds: ⟦2.5⟧\n", "write 5"),
    ("E103", "⟦groups⟧:\n", "remove the key"),
    ("E103", "groups: ⟦[a]⟧\n", None),
    ("E103", "groups: {w: ⟦5⟧}\n", "quotes"),
    ("E103", "constraints: {⟦w⟧: }\n", None),
    ("E103", "objective: ⟦[error]⟧\n", None),
    ("E103", "description: ⟦3⟧\n", "in quotes"),
    ("E103", "regularization: {l2: ⟦true⟧}\n", "1/n"),
    ("E103", "sweep: ⟦5⟧\n", "linspace"),
    ("E103", "deployed: ⟦majorize⟧\n", None),
    ("E103", "report: {tables: [{rows: [⟦1⟧], columns: [a]}]}\n", "in quotes"),
    ("E103", "report: {tables: [{rows: ⟦a⟧, columns: [a]}]}\n", "[a]"),
    ("E103", "report: {plots: [{kind: tradeoff, x: a, y: b, optimum: ⟦yes⟧}]}\n", None),
    ("E103", "report: {plots: [{kind: tradeoff, x: a, y: b, diagonal: ⟦1⟧}]}\n", None),
    ("E103", "report: {plots: [{kind: tradeoff, x: a, y: b, lines: ⟦c⟧}]}\n", "[c]"),
    ("E104", "report: {plots: [{kind: tradeoff, x: a, y: b, lines: [⟦c d⟧]}]}\n", None),
    ("E104", "report: {plots: [{kind: tradeoff, x: a, y: b, algorithms: ⟦[]⟧}]}\n", None),
    ("E103", "report: {plots: [{kind: tradeoff, x: a, y: b, variants: [⟦1⟧]}]}\n", "in quotes"),
    ("E104", "seeds: ⟦0⟧\n", None),
    ("E103", "seeds: ⟦1_0⟧\n", None),
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
    ("E104", "deployed: {model: a.npz, ⟦column⟧: a}\n", "{model: FILE.npz}"),
    ("E103", "deployed: {model: ⟦[a]⟧}\n", None),
    ("E104", "report: {plots: [{kind: ⟦tradeof⟧, x: a, y: b}]}\n", "did you mean 'tradeoff'"),
    ("E104", "report: {plots: [{kind: tradeoff, x: a, y: b, split: ⟦tets⟧}]}\n", "'test'"),
    ("E104", "report: {plots: [{kind: tradeoff, x: a, y: b, file: ⟦../f⟧}]}\n", "letters"),
    ("E104", "report: {tables: [{rows: ⟦[]⟧, columns: [a]}]}\n", None),
    ("E106", "groups: {⟦d⟧: x = 1}\n", "rename"),
    ("E106", "sweep: {⟦d⟧: [1]}\n", "rename"),
    ("E106", "sweep: {⟦variant⟧: [1]}\n", None),
    ("E106", "metrics: {⟦objective⟧: error}\n", None),
    ("E106", "metrics: {⟦solution_rate⟧: error}\n", "rename"),
    ("E106", "sweep: {⟦failure_rate⟧: [1]}\n", "rename"),
    ("E106", TWO_FILES, None),
    ("E302", f"objective: ⟦{'(' * 10_000 + ')' * 10_000}⟧\n", None),
    ("E302", f"groups: {{a: ⟦'{'(' * 10_000 + ')' * 10_000}'⟧}}\n", None),
]

SWEEPS = [
    "{k: ⟦5⟧}",
    "{⟦k⟧: }",
    "{⟦k⟧: []}",
    "{k: [1, ⟦.nan⟧]}",
    "{k: [1, ⟦[2]⟧]}",
    "{k: [1, ⟦null⟧]}",
    "{k: ⟦linspace⟧}",
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
    ("E103", "algorithms: [⟦null⟧]\n"),
    ("E103", "algorithms: [{a: ⟦5⟧}]\n"),
    ("E103", "algorithms:\n  - majorize:\n    ⟦iterations⟧: 6\n"),
    ("E103", "algorithms: [{a: {as: ⟦5⟧}}]\n"),
    ("E103", "algorithms: [{a: {sweep: ⟦5⟧}}]\n"),
    ("E104", "algorithms: ⟦[]⟧\n"),
    ("E104", "algorithms: [⟦a-b⟧]\n"),
    ("E104", "algorithms: [{⟦a-b⟧: }]\n"),
    ("E104", "algorithms: [{a: {as: ⟦b c⟧}}]\n"),
    ("E105", "algorithms: [{a: {sweep: {k: ⟦5⟧}}}]\n"),
    ("E105", TWO_SWEEPS),
    ("E106", "algorithms: [a, ⟦a⟧]\n"),
    ("E106", "algorithms:\n  - a\n  - b: {as: ⟦a⟧}\n"),
    ("E106", "algorithms:\n  - a\n  - ⟦a⟧: {x: 1}\n"),
    ("E106", "algorithms: [{a: {sweep: {⟦d⟧: [1]}}}]\n"),
]

DATASETS = [
    ("E101", "{⟦sorce⟧: adult}"),
    ("E101", "{source: adult, ⟦label⟧: y}"),
    ("E101", "{path: a.csv, ⟦rows⟧: 5}"),
    ("E103", "{source: loans, rows: ⟦many⟧}"),
    ("E103", "{source: loans, rows: ⟦4000.0⟧}"),
    ("E103", "{path: a.csv, drop: ⟦sex⟧}"),
    ("E103", "{path: a.csv, positive: ⟦[1]⟧}"),
    ("E103", "⟦adult⟧"),
    ("E104", "{source: adult, ⟦path⟧: x}"),
    ("E104", "{source: loans, rows: ⟦0⟧}"),
    ("E104", "{source: loans, seed: ⟦-1⟧}"),
    ("E104", "{path: a.csv, format: ⟦xls⟧}"),
    ("E104", "{path: a.csv, sha256: ⟦abc⟧}"),
    ("E104", "{path: a.csv, separator: ⟦';;'⟧}"),
    ("E104", "{source: a, split: {train: ⟦1.5⟧}}"),
    ("E104", "{source: a, split: {train: ⟦2/1⟧}}"),
    ("E104", "{source: a, split: {train: ⟦1/0⟧}}"),
    ("E104", "{source: a, split: {train: ⟦.nan⟧}}"),
    ("E103", "{source: a, split: {train: ⟦true⟧}}"),
    ("E104", "{source: a, ⟦split⟧: {train: 0.5, validation: 0.5, test: 0.5}}"),
    ("E104", "{source: a, ⟦split⟧: {train: 0.2, validation: 0.2, test: 0.2}}"),
    ("E104", "{source: a, ⟦split⟧: {validation: 1/2, test: 1/2}}"),
    ("E104", "{source: a, split: {official: true, ⟦test⟧: 1/2}}"),
    ("E104", "{source: a, split: {by: part, ⟦train⟧: 1/2}}"),
    ("E101", "{source: a, split: {⟦trian⟧: 1/2}}"),
]


def assert_one(faults, code, places):
    assert [(fault.code, spot(fault.place)) for fault in faults] == [(code, places[0])]
    return faults[0]


@pytest.mark.parametrize(("text", "sentence"), SYNTAX)
def test_syntax_errors_are_said_in_plain_words(faults_of, text, sentence):
    plain, places = unmarked(text)
    fault = assert_one(faults_of(plain), "E001", places)
    assert sentence in fault.message
    assert fault.help


@pytest.mark.parametrize(("code", "text"), YAML)
def test_forbidden_yaml(faults_of, code, text):
    plain, places = unmarked(text)
    assert_one(faults_of(plain), code, places)


@pytest.mark.parametrize(("code", "text", "hint"), KEYS, ids=[row[1][:50] for row in KEYS])
def test_keys_and_values(faults_of, code, text, hint):
    plain, places = unmarked(HEAD + text)
    fault = assert_one(faults_of(plain), code, places)
    assert hint is None or hint in (fault.help or "")


@pytest.mark.parametrize("text", SWEEPS)
def test_sweeps(faults_of, text):
    plain, places = unmarked(f"{HEAD}sweep: {text}\n")
    assert_one(faults_of(plain), "E105", places)


def test_a_sweep_of_too_many_points(faults_of):
    axes = ", ".join(f"{name}: 'linspace(0, 1, 1000)'" for name in "abc")
    plain, places = unmarked(f"{HEAD}⟦sweep⟧: {{{axes}}}\n")
    fault = assert_one(faults_of(plain), "E105", places)
    assert "1000000000 points" in fault.message


@pytest.mark.parametrize(("code", "text"), ALGORITHMS)
def test_algorithms(faults_of, code, text):
    plain, places = unmarked(NO_ALGORITHMS + text)
    assert_one(faults_of(plain), code, places)


@pytest.mark.parametrize(("code", "text"), DATASETS)
def test_datasets(faults_of, code, text):
    plain, places = unmarked(f"{NO_DATA}datasets: {{d: {text}}}\n")
    assert_one(faults_of(plain), code, places)


@pytest.mark.parametrize("entry", ["{}", "{rows: 5}"])
def test_a_data_set_without_source_or_path(faults_of, entry):
    plain, places = unmarked(f"{NO_DATA}datasets: {{⟦d⟧: {entry}}}\n")
    assert_one(faults_of(plain), "E102", places)


def test_no_data_sets(faults_of):
    plain, places = unmarked(f"{NO_DATA}datasets: ⟦{{}}⟧\n")
    assert_one(faults_of(plain), "E104", places)


@pytest.mark.parametrize("name", ["../evil", "A", "a/b", "'a b'", "-a", "''", "a" * 101, "ä"])
def test_names_of_experiments_are_plain(faults_of, name):
    rest = "datasets: {d: {source: loans}}\nalgorithms: [unconstrained]\n"
    plain, places = unmarked(f"name: ⟦{name}⟧\n{rest}")
    assert_one(faults_of(plain), "E104", places)


def test_missing_keys_are_placed_at_the_files_beginning(faults_of):
    faults = faults_of("# a comment\ndescription: none\n")
    assert [(fault.code, spot(fault.place)) for fault in faults] == [("E102", (2, 1, 1))] * 3
    assert {fault.message.split("'")[1] for fault in faults} == {"name", "datasets", "algorithms"}


def test_a_misspelt_key_is_not_missing_too(faults_of):
    plain, places = unmarked(NO_DATA + "⟦dataset⟧: {d: {source: loans}}\n")
    assert_one(faults_of(plain), "E101", places)


def test_all_faults_come_at_once_in_the_files_order(faults_of):
    plain, places = unmarked(
        "name: ⟦../evil⟧\n"
        "datasets:\n"
        "  d: {⟦sorce⟧: adult}\n"
        "  e: {path: x, ⟦rows⟧: ⟦many⟧}\n"
        "groups: {⟦d⟧: x = 1}\n"
        "algorithms: [a, ⟦a⟧, {b: {as: ⟦3⟧}}, {c: {sweep: {⟦k⟧: []}}}]\n"
        "seeds: ⟦banana⟧\n"
    )
    faults = faults_of(plain)
    assert [spot(fault.place) for fault in faults] == places
    codes = "E104 E101 E101 E103 E106 E106 E103 E105 E103"
    assert [fault.code for fault in faults] == codes.split()


def test_no_word_of_pydantic(faults_of):
    faults = faults_of("name: [1]\ndatasets: 3\nalgorithms: {a: 1}\nseeds: {}\nreport: 1\n")
    text = " ".join(f"{fault.message} {fault.help}" for fault in faults).lower()
    assert not [word for word in ("input", "valid ", "pydantic", "dict", "tuple") if word in text]
