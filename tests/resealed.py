"""Changes of a ledger with matching checksums, as its writer or an attacker would make them."""

import hashlib
import sqlite3

from ratecli.ledger.store import SEAL, plan_sha256, trial_contents


def change_ledger(path, *statements, values=()):
    """Execute statements on a ledger, renew its checksums, and return the number of changed rows.

    `values` are the parameters of the first statement.
    """
    db = sqlite3.connect(path)
    with db:
        changed = db.execute(statements[0], values).rowcount
        for statement in statements[1:]:
            db.execute(statement)
        for table, content, *key in (
            ("models", "data", "trial", "variant"),
            ("encodings", "content", "id"),
        ):
            for *place, old in db.execute(
                f"SELECT {', '.join(key)}, {content} FROM {table}"
            ).fetchall():
                data = old if isinstance(old, bytes) else str(old).encode()
                where = " AND ".join(f"{name} = ?" for name in key)
                new = hashlib.sha256(data).hexdigest(), *place
                db.execute(f"UPDATE {table} SET sha256 = ? WHERE {where}", new)
        for row in db.execute("SELECT * FROM trials").fetchall():
            new = trial_contents(db, row)[-1], row[0]
            db.execute("UPDATE trials SET sha256 = ? WHERE id = ?", new)
        db.execute("UPDATE meta SET value = ? WHERE name = ?", (plan_sha256(db), SEAL))
    db.close()
    return changed
