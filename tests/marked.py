"""Broken files with the expected place of each fault drawn into them: ⟦here⟧."""

import re

from ratecli.errors import SourceLocation

MARK = re.compile("⟦([^⟧]*)⟧")


def unmarked(text):
    """The file's text, and (line, column, width) of every mark."""
    places = []
    for number, line in enumerate(text.splitlines(), start=1):
        taken = 0
        for found in MARK.finditer(line):
            places.append((number, found.start() - taken + 1, max(1, len(found.group(1)))))
            taken += 2
    return MARK.sub(r"\1", text), places


def spot(place: SourceLocation):
    return (place.line, place.column, place.width)


def marked(text):
    """The file's text, and (line, column) of every mark."""
    text, places = unmarked(text)
    return text, [place[:2] for place in places]
