"""What a person may call things."""

from __future__ import annotations

import re

from ratecli.config.complaint import Complaint, missing_space, shown
from ratecli.config.document import Loc

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
SOLUTION_RATE = "solution_rate"
FAILURE_RATE = "failure_rate"
"""What tables and expectations call the share of trials that gave a classifier, and of those that gave
one which breaks a constraint (with a dot behind it: that constraint); no metric may be called so."""
IN_RESULTS = {
    "reference": "the folder of pinned numbers",
    "report.html": "the page over several experiments",
}
"""What the folder of results holds beside experiments: none of these may have such a name."""
NAME_HELP = "a name begins with a letter or '_' and goes on with letters, digits and '_'"
SLUG_HELP = "use small letters, digits, '.', '_' and '-', beginning with a letter or digit"


def bad_name(loc: Loc, name: str, *, key: bool = True) -> list[Complaint]:
    """The complaint about a name that rules could not refer to, if it is one."""
    if NAME.fullmatch(name) and len(name) <= 100:
        return []
    hint = missing_space(name) or NAME_HELP
    return [Complaint(loc, "E104", f"{shown(name)} is not a name", hint, key=key)]


def bad_slug(loc: Loc, text: str) -> list[Complaint]:
    """The complaint about a text that could not be a plain file name, if it is one."""
    if SLUG.fullmatch(text):
        return []
    return [Complaint(loc, "E104", f"{shown(text)} cannot name a file or folder", SLUG_HELP)]
