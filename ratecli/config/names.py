"""What a person may call things."""

from __future__ import annotations

import re

from ratecli.config.complaint import Complaint, missing_space_hint, quote_value
from ratecli.config.document import Loc

IDENTIFIER_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SLUG_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
SOLUTION_RATE = "solution_rate"
FAILURE_RATE = "failure_rate"
"""What tables and expectations call the share of trials that gave a classifier, and of those that gave
one which breaks a constraint (with a dot behind it: that constraint); no metric may be called so."""
RESERVED_RESULT_FILES = {
    "reference": "the folder of pinned numbers",
    "report.html": "the page over several experiments",
}
"""What the folder of results holds beside experiments: none of these may have such a name."""
NAME_HELP = "a name begins with a letter or '_' and goes on with letters, digits and '_'"
SLUG_HELP = "use small letters, digits, '.', '_' and '-', beginning with a letter or digit"


def check_name(loc: Loc, name: str, *, key: bool = True) -> list[Complaint]:
    """The complaint about a name that rules could not refer to, if it is one."""
    if IDENTIFIER_PATTERN.fullmatch(name) and len(name) <= 100:
        return []
    hint = missing_space_hint(name) or NAME_HELP
    return [Complaint(loc, "E104", f"{quote_value(name)} is not a name", hint, key=key)]


def check_slug(loc: Loc, text: str) -> list[Complaint]:
    """The complaint about a text that could not be a plain file name, if it is one."""
    if SLUG_PATTERN.fullmatch(text):
        return []
    return [Complaint(loc, "E104", f"{quote_value(text)} cannot name a file or folder", SLUG_HELP)]
