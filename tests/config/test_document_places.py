import pytest
from marked import spot, unmarked

from ratecli.config.document import Document
from ratecli.errors import Span


def document_of(text):
    plain, places = unmarked(text)
    return Document.of_text(plain), places[0]


@pytest.mark.parametrize(
    ("text", "loc"),
    [
        ("a: ⟦b c⟧  # comment\n", ("a",)),
        ("a: ⟦'b'⟧\n", ("a",)),
        ("a: [1, ⟦2⟧]\n", ("a", 1)),
        ("a: ⟦[1, 2]⟧\n", ("a",)),
        ("a: {b: ⟦3⟧}\n", ("a", "b")),
        ("⟦a⟧:\n  b: 3\n", ("a",)),
        ("⟦a⟧:\n- 3\n", ("a",)),
        ("⟦a⟧:\n", ("a",)),
        ("a:\n- ⟦b: 3⟧\n", ("a", 0)),
        ("a: ⟦[1,⟧\n  2]\n", ("a",)),
        ("x: ⟦&y 5⟧\na: *y\n", ("a",)),
        # missing values are placed at their parents
        ("# c\n⟦b: 3⟧\n", ("missing", "deep", 3)),
        ("⟦b⟧: {c: 3}\n", ("b", "missing")),
        ("b:\n  - ⟦c⟧\n", ("b", 0, "c", "iterations")),
        ("⟦b⟧: [c]\n", ("b", 7)),
        ("b: ⟦t⟧\n", ("b", "missing")),  # the short form of a mapping
    ],
)
def test_value_is_placed_at_itself_its_key_or_its_parent(text, loc):
    document, place = document_of(text)
    assert spot(document.place(loc)) == place
    if loc[0] != "a":
        assert spot(document.place(loc, Span(0, 1))) == place


@pytest.mark.parametrize(
    ("text", "loc"),
    [("⟦a⟧: 3\n", ("a",)), ("a: {⟦'b'⟧: 3}\n", ("a", "b")), ("a: [{⟦b⟧: 3}]\n", ("a", 0, "b"))],
)
def test_key_is_placed(text, loc):
    document, place = document_of(text)
    assert spot(document.place(loc, key=True)) == place


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("  a: tpr[⟦women⟧] >= 0.8\n", "women"),
        ("a: 'tpr[⟦women⟧] >= 0.8'\n", "women"),
        ('a: "tpr[⟦women⟧] >= 0.8"\n', "women"),
        ("a: ⟦'it''s ''tpr'' women'⟧\n", "women"),
        ('a: ⟦"\\x41\\u0042\\U00000043\\n\\t women"⟧\n', "women"),
        ("a: tpr +\n   tpr[⟦women⟧]\n", "women"),
        ("a: tpr\n\n\n   tpr[⟦women⟧]\n", "women"),
        ("a: 'tpr +\n   tpr[⟦women⟧]'\n", "women"),
        ("a: |\n  tpr +\n  ⟦women⟧ x\n", "women"),
        ("a: >-\n  tpr +\n  ⟦women⟧\n  x\n", "women"),
        ("a: >\n  tpr\n\n  ⟦women⟧\n", "women"),
        ("a: 名前 ⟦women⟧\n", "women"),
        ("a: ⟦'''x'⟧\n", None),
        ("a: 0.⟦5⟧\n", Span(2, 3)),
        ("a: tpr ⟦>=⟧\n   0.5\n", Span(4, 9)),  # ends with its first line
        ("a: tpr⟦[⟧\n", Span(4, 4)),
        ("a: 'tpr[⟦'⟧\n", Span(4, 4)),
    ],
)
def test_span_is_mapped_to_the_file(text, part):
    document, place = document_of(text)
    if part == "women":
        start = document.data["a"].index(part)
        part = Span(start, start + 5)
    assert spot(document.place(("a",), part)) == place
