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
        ("a:\n- ⟦b⟧: 3\n", ("a", 0)),
        ("a: ⟦[1,⟧\n  2]\n", ("a",)),
        ("x: &y ⟦5⟧\na: *y\n", ("a",)),
    ],
)
def test_values(text, loc):
    document, place = document_of(text)
    assert spot(document.place(loc)) == place


@pytest.mark.parametrize(
    ("text", "loc"),
    [
        ("⟦a⟧: 3\n", ("a",)),
        ("a: {⟦b⟧: 3}\n", ("a", "b")),
        ("a: {⟦'b'⟧: 3}\n", ("a", "b")),
        ("a: [{⟦b⟧: 3}]\n", ("a", 0, "b")),
    ],
)
def test_keys(text, loc):
    document, place = document_of(text)
    assert spot(document.place(loc, key=True)) == place


@pytest.mark.parametrize(
    ("text", "loc"),
    [
        ("⟦b⟧: 3\n", ("missing",)),
        ("# c\n⟦b⟧: 3\n", ("missing", "deep", 3)),
        ("⟦b⟧: {c: 3}\n", ("b", "missing")),
        ("b:\n  - ⟦c⟧\n", ("b", 0, "c", "iterations")),
        ("⟦b⟧: [c]\n", ("b", 7)),
        ("b: ⟦t⟧\n", ("b", "missing")),  # the short form of a mapping
    ],
)
def test_what_is_missing_is_placed_at_its_parent(text, loc):
    document, place = document_of(text)
    assert spot(document.place(loc)) == place
    assert spot(document.place(loc, Span(0, 1))) == place


@pytest.mark.parametrize(
    "text",
    [
        "  a: tpr[⟦women⟧] >= 0.8\n",
        "a: 'tpr[⟦women⟧] >= 0.8'\n",
        'a: "tpr[⟦women⟧] >= 0.8"\n',
        "a: 'it''s ''tpr'' ⟦women⟧'\n",
        'a: "\\x41\\u0042\\U00000043\\n\\t ⟦women⟧"\n',
        "a: tpr +\n   tpr[⟦women⟧]\n",
        "a: tpr\n\n\n   tpr[⟦women⟧]\n",
        "a: 'tpr +\n   tpr[⟦women⟧]'\n",
        "a: |\n  tpr +\n  ⟦women⟧ x\n",
        "a: >-\n  tpr +\n  ⟦women⟧\n  x\n",
        "a: >\n  tpr\n\n  ⟦women⟧\n",
        "a: 名前 ⟦women⟧\n",
    ],
)
def test_a_span_is_traced_back_to_the_file(text):
    document, place = document_of(text)
    start = document.data["a"].index("women")
    assert spot(document.place(("a",), Span(start, start + 5))) == place


@pytest.mark.parametrize("text", ["a: tpr[⟦⟧\n", "a: 'tpr[⟦'⟧\n"])
def test_a_span_behind_the_end(text):
    document, place = document_of(text)
    assert spot(document.place(("a",), Span(4, 4))) == place


@pytest.mark.parametrize(
    ("text", "span"),
    [('a: "⟦\\x41\\x42⟧c"\n', Span(0, 2)), ("a: '⟦''x⟧'\n", Span(0, 2)), ("a: ⟦'''x'⟧\n", None)],
)
def test_escapes_are_underlined_whole(text, span):
    document, place = document_of(text)
    assert spot(document.place(("a",), span)) == place


def test_a_span_of_a_number():
    document, place = document_of("a: 0.⟦5⟧\n")
    assert spot(document.place(("a",), Span(2, 3))) == place


def test_a_span_over_several_lines_ends_with_the_first():
    document, place = document_of("a: tpr ⟦>=⟧\n   0.5\n")
    assert spot(document.place(("a",), Span(4, 9))) == place
