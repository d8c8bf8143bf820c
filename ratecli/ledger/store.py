"""The ledger: one SQLite file with an experiment's plan and every finished trial.

A trial is stored completely or not at all. The ledger uses a rollback journal instead of WAL: when
nobody writes, it is one file that can be copied, read from a read-only folder, or kept on a network
disk, and a commit takes about a millisecond. While a ledger is open for writing, the empty journal
file is kept: creating and deleting it for each transaction takes half as long again. With
`synchronous = FULL` a stored trial survives a power failure, not only `kill -9`.

The plan, its metadata and each trial are JSON documents. Models and encodings are blobs, named by
their SHA-256, so that trials of the same rows share an encoding. Each document is stored with its
checksum, which is compared when it is read: a damaged file raises an error instead of giving other
numbers or names.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from ratecli.errors import Diagnostic, FaultError, exception_line
from ratecli.files import UNFINISHED_PREFIX, report_write_errors, temporary_path
from ratecli.ledger import records as rc

LEDGER_VERSION = 3
"""Stored as `user_version`; incremented when the tables below change incompatibly."""

APPLICATION_ID = 0x72617465
"""`application_id` of a ledger: "rate" in ASCII."""

# `blobs` of a trial is JSON: the checksums of its encoding and of its models by variant.
SCHEMA = f"""
CREATE TABLE documents (name TEXT PRIMARY KEY, content TEXT NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, status TEXT NOT NULL, content TEXT NOT NULL,
    blobs TEXT NOT NULL, sha256 TEXT NOT NULL);
CREATE TABLE blobs (sha256 TEXT PRIMARY KEY, data BLOB NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {LEDGER_VERSION};
"""

MAX_NAMED = 5
"""Number of damaged trials that a message names."""


class LedgerStore:
    """The ledger at `path`, created if it does not exist.

    A `readonly` store must exist. It still opens the file for writing if possible, because the next
    process to open the file must roll back what a killed run left unfinished. `timeout` is the
    number of seconds to wait for another process that locks the file.
    """

    def __init__(self, path: Path, readonly: bool = False, *, timeout: float = 30.0) -> None:
        self._path = path
        if readonly and not path.is_file():
            raise FaultError(
                Diagnostic("E503", f"there is no ledger at '{path}'", help="run it first")
            )
        if not readonly:
            path.parent.mkdir(parents=True, exist_ok=True)
        uri = f"{path.absolute().as_uri()}?mode={'rw' if readonly else 'rwc'}"
        with self._report_errors():
            self._db = sqlite3.connect(
                uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
            )
        # damaged text must not prevent reading; the checksums reveal it
        self._db.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            with self._report_errors():
                self._open(readonly)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, after deleting the journal unless another process is reading."""
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()

    def begin(self, plan: Sequence[rc.PlannedTrial], meta: Mapping[str, Any]) -> None:
        """Replace the plan and its metadata; trials are kept."""
        with self._transaction("IMMEDIATE"):
            self._write_document("plan", [asdict(trial) for trial in plan])
            self._write_document("meta", meta)

    def set_meta(self, name: str, value: Any) -> None:
        """Add or replace one entry of the plan's metadata."""
        with self._transaction("IMMEDIATE"):
            self._write_document("meta", self.meta() | {name: value})

    def known(self) -> dict[str, float]:
        """Return key and seconds of the intact trials that need not run again."""
        with self._transaction():
            found, _ = self._trials()
        return {
            key: each.seconds for key, each in found.items() if each.status in rc.CACHED_STATUSES
        }

    def put(self, *results: rc.TrialResult) -> None:
        """Store all trials or none. A cached result of a key is kept, a failed one is replaced."""
        with self._transaction("IMMEDIATE") as db:
            for result in results:
                query = "SELECT status FROM trials WHERE key = ?"
                row = db.execute(query, (result.key,)).fetchone()
                if row is None or row[0] not in rc.CACHED_STATUSES:
                    db.execute("DELETE FROM trials WHERE key = ?", (result.key,))
                    self._insert(result)

    def read(self) -> tuple[list[rc.PlannedTrial], dict[str, rc.TrialResult], dict[str, Any]]:
        """Return `plan`, `results` and `meta` in one transaction, so that they are consistent.

        Raises
        ------
        FaultError
            E503 if any part of the file is damaged.
        """
        with self._transaction() as db:
            self._check_file(db)
            return self.plan(), self.results(), self.meta()

    def damaged(self) -> list[str]:
        """Return the keys of damaged trials; raise E503 if another part of the file is damaged."""
        with self._transaction() as db:
            self._check_file(db)
            self.plan(), self.meta()
            complete = {each.key for each in self.intact()}
            keys = (str(row[0]) for row in db.execute("SELECT key FROM trials ORDER BY id"))
            return [key for key in keys if key not in complete]

    def intact(self) -> Iterator[rc.TrialResult]:
        """Yield all trials that are not damaged, with models and encodings."""
        with self._report_errors(), _ignore_damage():  # a transaction of such a file may not end
            # of a damaged file, the index may lead nowhere
            for row in self._db.execute("SELECT * FROM trials NOT INDEXED ORDER BY id"):
                found = None
                with _ignore_damage():
                    found = self._complete(row)
                if found is not None:
                    yield found

    def plan(self) -> list[rc.PlannedTrial]:
        """Return the planned trials in order."""
        found: list[rc.PlannedTrial] = self._document("plan", list[rc.PlannedTrial], [])
        return found

    def meta(self) -> dict[str, Any]:
        """Return the metadata of the plan."""
        meta: dict[str, Any] = self._document("meta", dict[str, Any], {})
        for name in meta.keys() & {"warnings", rc.END_WARNINGS_KEY}:
            _adapter(list[str]).validate_python(meta[name], strict=True)
        return meta

    def results(self) -> dict[str, rc.TrialResult]:
        """Return every stored trial by key, including failed ones, without models and encodings."""
        with self._transaction():
            found, damaged = self._trials()
            if damaged:
                raise self._damage(self._named(damaged))
            return found

    def result(self, key: str) -> rc.TrialResult:
        """Return a trial with its models and their encoding; raise KeyError if it is not stored."""
        with self._transaction() as db:
            row = db.execute("SELECT * FROM trials WHERE key = ?", (key,)).fetchone()
            if row is None:
                raise KeyError(key)
            found = self._complete(row)
            if found is None:
                raise self._damage(self._named([key]))
            return found

    def models(self, key: str) -> Mapping[str, bytes]:
        """Return a trial's classifiers by variant, main one first; empty if it is not stored."""
        try:
            return self.result(key).models
        except KeyError:
            return {}

    def _write_document(self, name: str, value: Any) -> None:
        content = json.dumps(value)
        row = name, content, checksum(content)
        self._db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", row)

    def _document(self, name: str, kind: Any, empty: Any) -> Any:
        """Return a document of this type; `empty` if the ledger has none yet."""
        with self._transaction() as db:
            rows = {row[0]: row[1:] for row in db.execute("SELECT * FROM documents")}
            if not rows:
                return empty
            content, sha256 = rows.get(name, ("", None))
            if sha256 != checksum(content):
                raise self._damage("its plan is not what was stored")
            return _adapter(kind).validate_json(content, strict=True)

    def _insert(self, result: rc.TrialResult) -> None:
        blobs = [*result.models.values(), *filter(None, [result.encoding.encode()])]
        rows = [(checksum(data), data) for data in blobs]
        self._db.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", rows)
        encoding = checksum(result.encoding) if result.encoding else None
        models = {variant: checksum(data) for variant, data in result.models.items()}
        named = json.dumps({"encoding": encoding, "models": models})
        row = result.key, result.status, trial_document(result), named
        insert = "INSERT INTO trials VALUES (NULL, ?, ?, ?, ?, ?)"
        self._db.execute(insert, (*row, checksum(*row)))

    def _trials(self) -> tuple[dict[str, rc.TrialResult], list[str]]:
        """Return intact trials by key, without models and encodings, and the keys of damaged ones.

        Models and encodings are taken to have the stored checksums.
        """
        found, damaged = dict[str, rc.TrialResult](), list[str]()
        for row in self._db.execute("SELECT * FROM trials ORDER BY id"):
            if (result := _read_trial(row)) is not None:
                found[result.key] = result
            else:
                damaged.append(str(row[1]))
        return found, damaged

    def _complete(self, row: Sequence[Any]) -> rc.TrialResult | None:
        """Return the complete result in a row of `trials`, or None if it is damaged."""
        result = _read_trial(row)
        if result is None:
            return None
        named = _adapter(dict[str, Any]).validate_json(row[4])
        encoding, *models = map(self._blob, (named["encoding"], *named["models"].values()))
        if encoding is None or None in models:
            return None
        by_variant = dict(zip(named["models"], models, strict=True))
        return replace(result, models=by_variant, encoding=encoding.decode())

    def _blob(self, sha256: str | None) -> bytes | None:
        """Return a blob, None if it is damaged; the blob of no checksum is empty."""
        if sha256 is None:
            return b""
        row = self._db.execute("SELECT data FROM blobs WHERE sha256 = ?", (sha256,)).fetchone()
        return row[0] if row and isinstance(row[0], bytes) and checksum(row[0]) == sha256 else None

    def _check_file(self, db: sqlite3.Connection) -> None:
        (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise self._damage(found)

    def _named(self, keys: Sequence[str]) -> str:
        """Return the names of damaged trials, as far as they are planned."""
        planned = {trial.key: trial.name for trial in self.plan()}
        names = [planned.get(key, "a trial of another plan") for key in keys]
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return f"what it has of {', '.join(names[:MAX_NAMED])}{more} is not what was stored"

    def _damage(self, what: str) -> FaultError:
        hint = "`ratecli run FILE` keeps what is intact; if that fails, start anew with --fresh"
        return FaultError(Diagnostic("E503", f"the ledger '{self._path}' is damaged: {what}", hint))

    def _open(self, readonly: bool) -> None:
        self._db.execute("PRAGMA synchronous = FULL")
        if not readonly and self._version() == (0, 0):
            with self._transaction("IMMEDIATE") as db:
                if not db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                    for statement in SCHEMA.split(";"):  # `executescript` would commit
                        db.execute(statement)
        application, version = self._version()
        if application != APPLICATION_ID:
            raise _not_a_ledger(self._path)
        if version != LEDGER_VERSION:
            message = f"'{self._path}' is a ledger of version {version}, not {LEDGER_VERSION}"
            hint = "read it with the version that wrote it, or start a new one with --fresh"
            raise FaultError(Diagnostic("E502", message, hint))
        self._db.execute(f"PRAGMA {'query_only = ON' if readonly else 'journal_mode = PERSIST'}")

    def _version(self) -> tuple[int, int]:
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        return application, self._db.execute("PRAGMA user_version").fetchone()[0]

    @contextmanager
    def _transaction(self, kind: str = "DEFERRED") -> Iterator[sqlite3.Connection]:
        """Begin a transaction, or continue the one that is open."""
        if self._db.in_transaction:
            yield self._db
            return
        with self._report_errors():
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                self._db.rollback()  # unless it was committed

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Convert errors about the file or its contents into one diagnostic."""
        try:
            yield
        except (ValueError, RecursionError) as error:
            what = f"contains data that ratecli did not write: {exception_line(error)}"
            message = f"the ledger '{self._path}' {what}"
            hint = "start a new one with --fresh, or move it away"
            raise FaultError(Diagnostic("E503", message, help=hint)) from error
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_NOTADB:
                raise _not_a_ledger(self._path) from error
            if _is_damage(error):
                raise self._damage(str(error)) from error
            message = f"the ledger '{self._path}' cannot be used: {error}"
            hint = "end other processes that use it and run again, or start anew with --fresh"
            raise FaultError(Diagnostic("E503", message, help=hint)) from error


def recover_ledger(path: Path) -> list[str] | None:
    """If the ledger at `path` is damaged, replace it by one of its intact trials, without a plan.

    Return the keys of the damaged trials, as far as they can be read; None if nothing is damaged.

    Raises
    ------
    FaultError
        E502 if the file is no ledger, E503 if it cannot be read at all, E505 if it cannot be
        replaced.
    """
    with LedgerStore(path, readonly=True) as store:
        try:
            damaged = store.damaged()
            if not damaged:
                return None
        except FaultError:
            damaged = []
        temporary = temporary_path(path.parent, UNFINISHED_PREFIX)
        with report_write_errors(path):
            try:
                with LedgerStore(temporary) as kept:
                    for result in store.intact():
                        kept.put(result)
                store.close()  # deletes the journal, which must not be applied to the new file
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    return damaged


MAX_WAITING = 64
"""Number of results waiting to be stored at which `LedgerWriter.put` waits for the disk."""


class LedgerWriter:
    """Stores results in order, in a background thread, so that trials do not wait for the disk.

    All waiting results are stored in one transaction, because each transaction syncs the disk. A
    killed process loses the waiting results; `close` stores them. Call `flush` before you use the
    store for anything else.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._waiting: deque[rc.TrialResult] = deque()
        self._thread = ThreadPoolExecutor(1)
        self._error: BaseException | None = None

    def put(self, result: rc.TrialResult) -> None:
        """Store a result soon; raise the error of an earlier write, if any."""
        if len(self._waiting) >= MAX_WAITING:
            self.flush()
        self._raise_error()
        self._waiting.append(result)
        self._thread.submit(self._write)

    def flush(self) -> None:
        """Wait until all results are stored; raise the error of a write, if any."""
        self._thread.submit(self._write).result()
        self._raise_error()

    def close(self) -> None:
        """Store the waiting results and stop the thread, without raising errors of writes."""
        self._thread.shutdown()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        results = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            if results and self._error is None:
                self._store.put(*results)
        except BaseException as error:  # noqa: BLE001  raised by the next `put` or `flush`
            self._error = error


def _not_a_ledger(path: Path) -> FaultError:
    return FaultError(
        Diagnostic("E502", f"'{path}' is not a ledger of ratecli", help="move it away")
    )


def trial_document(result: rc.TrialResult) -> str:
    """Return a result without models and encoding as JSON; raise TypeError if it has none."""
    fields = {name: value for name, value in vars(result).items() if name not in BLOBS}
    return json.dumps(fields | {"values": [vars(each) for each in result.values]})


def check_storable(result: rc.TrialResult) -> None:
    """Raise TypeError or ValueError unless a result can be stored and read again."""
    _parse_result(trial_document(result))


BLOBS = ("models", "encoding")
"""Fields of a result that are blobs."""


def _read_trial(row: Sequence[Any]) -> rc.TrialResult | None:
    """Return the result in a row of `trials`, without its blobs; None if it is damaged."""
    _, *stored, sha256 = row
    if sha256 != checksum(*stored):
        return None
    key, status, content, _ = stored
    result = _parse_result(content)
    if (result.key, result.status) != (key, status):
        raise ValueError(f"the trial '{result.key}' is stored as '{key}'")
    return result


def _parse_result(content: str) -> rc.TrialResult:
    result: rc.TrialResult = _adapter(rc.TrialResult).validate_json(content, strict=True)
    if result.status not in rc.CACHED_STATUSES | rc.FAILED_STATUSES:
        raise ValueError(f"no trial ends as {result.status!r}")
    return result


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def checksum(*parts: object) -> str:
    """Return the SHA-256 of bytes or texts; of anything else, which is damaged, of its text."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else str(part).encode())
    return found.hexdigest()


@contextmanager
def _ignore_damage() -> Iterator[None]:
    """End the block if SQLite finds that the file is damaged."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
