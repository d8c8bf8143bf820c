"""Changes of a ledger with matching checksums, as its writer or an attacker would make them."""

import json
import sqlite3
from contextlib import closing

from ratecli.ledger.store import checksum


def change_ledger(path, *, plan=None, meta=None, trial=None, blobs=None):
    """Change documents of a ledger and renew their checksums.

    `plan`, `meta`, `trial` and `blobs` (of a trial) change a parsed document in place, or return
    another one or its text.
    """
    with closing(sqlite3.connect(path)) as db, db:
        for name, change in (("plan", plan), ("meta", meta)):
            query = "SELECT content FROM documents WHERE name = ?"
            text = changed(db.execute(query, (name,)).fetchone()[0], change)
            new = text, checksum(text), name
            db.execute("UPDATE documents SET content = ?, sha256 = ? WHERE name = ?", new)
        for number, key, status, *texts, _ in db.execute("SELECT * FROM trials").fetchall():
            new = [changed(text, each) for text, each in zip(texts, (trial, blobs), strict=True)]
            stated = json.loads(new[0]).get("status", status) if trial else status
            row = stated, *new, checksum(key, stated, *new), number
            update = "UPDATE trials SET status = ?, content = ?, blobs = ?, sha256 = ? WHERE id = ?"
            db.execute(update, row)


def changed(text, change):
    if change is None:
        return text
    value = json.loads(text)
    found = change(value)
    return found if isinstance(found, str) else json.dumps(value if found is None else found)
