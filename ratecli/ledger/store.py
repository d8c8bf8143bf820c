"""The ledger: one SQLite file with an experiment's plan and every finished trial.

A trial is stored completely or not at all. The ledger uses a rollback journal instead of WAL: when
nobody writes, it is one file that can be copied, read from a read-only folder, or kept on a network
disk, and a commit takes about a millisecond. While a ledger is open for writing, the empty journal
file is kept: creating and deleting it for each transaction takes half as long again. With
`synchronous = FULL` a stored trial survives a power failure, not only `kill -9`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import is_dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Self

from pydantic import TypeAdapter

from ratecli.errors import Diagnostic, FaultError, exception_line
from ratecli.files import check_no_links, report_write_errors
from ratecli.ledger.records import (
    CACHED_STATUSES,
    END_WARNINGS_KEY,
    FAILED_STATUSES,
    MeasuredValue,
    PlannedTrial,
    TrialResult,
)

if sys.platform != "win32":
    import fcntl

LOCK_FILE = ".lock"
REPORT_LOCK_FILE = ".report.lock"
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another report in the same folder."""
PAUSE = 0.05
"""Seconds between attempts to get a lock."""


def lock_results(folder: Path) -> AbstractContextManager[None]:
    """Lock `folder` against other runs, creating it if missing; a killed process frees the lock.

    Raises
    ------
    FaultError
        E504 if another process holds the lock, E505 if the folder cannot be created or written, or
        contains links that lead elsewhere.
    """
    return _lock(folder, LOCK_FILE, 0.0)


def lock_report(folder: Path, *, timeout: float = LOCK_TIMEOUT) -> AbstractContextManager[None]:
    """Lock the report in `folder`, after waiting for other writers.

    A run takes this lock in addition to the folder's, because `ratecli report` may run meanwhile.
    The ledger is read while holding the lock, so that the last report written covers all trials.

    Raises
    ------
    FaultError
        E504 if another process holds the lock for longer than `timeout` seconds, E505 as
        `lock_results`.
    """
    return _lock(folder, REPORT_LOCK_FILE, timeout)


@contextmanager
def _lock(folder: Path, name: str, timeout: float) -> Iterator[None]:
    """Lock a file in `folder`.

    It is never deleted: otherwise, a third process could lock a new file while a second one has the
    old file open.
    """
    check_no_links(folder, name)
    with report_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / name).open("ab")
    deadline = time.monotonic() + timeout
    with file:
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                hint = "wait until it has ended, or choose another folder with --output"
                message = f"another command is writing to {folder}"
                raise FaultError(Diagnostic("E504", message, hint))
            time.sleep(PAUSE)
        yield


def _try_lock(file: BinaryIO) -> bool:
    """Try to lock the file; succeed if locks are unsupported (Windows, some network disks)."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
    return True


LEDGER_VERSION = 1
"""Stored as `user_version`; incremented when the tables below change incompatibly."""

APPLICATION_ID = 0x72617465
"""`application_id` of a ledger: "rate" in ASCII."""

# `numbers.value` is untyped on purpose: in a REAL column SQLite would turn -0.0 into 0.0.
# NaN is stored as NULL. Trials of the same rows share an encoding.
SCHEMA = f"""
CREATE TABLE plan (
    position INTEGER PRIMARY KEY, key TEXT NOT NULL, label TEXT NOT NULL, algorithm TEXT NOT NULL,
    options TEXT NOT NULL, point TEXT NOT NULL, seed TEXT NOT NULL, metrics TEXT NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, status TEXT NOT NULL, reason TEXT NOT NULL,
    seconds REAL NOT NULL, info TEXT NOT NULL, trace TEXT NOT NULL, multipliers TEXT NOT NULL);
CREATE TABLE measures (
    id INTEGER PRIMARY KEY, variant TEXT NOT NULL, split TEXT NOT NULL, metric TEXT NOT NULL,
    UNIQUE (variant, split, metric));
CREATE TABLE numbers (
    trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE, position INTEGER NOT NULL,
    measure INTEGER NOT NULL REFERENCES measures, value,
    PRIMARY KEY (trial, position)) WITHOUT ROWID;
CREATE TABLE models (
    trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE, variant TEXT NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (trial, variant));
CREATE VIEW metrics AS
    SELECT key, status, variant, split, metric, value FROM numbers
    JOIN trials ON trials.id = trial JOIN measures ON measures.id = measure;
CREATE TABLE encodings (
    id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, content TEXT NOT NULL);
CREATE TABLE encoded (
    trial INTEGER PRIMARY KEY REFERENCES trials ON DELETE CASCADE,
    encoding INTEGER NOT NULL REFERENCES encodings);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {LEDGER_VERSION};
"""  # noqa: S608  no input


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

    def begin(self, plan: Sequence[PlannedTrial], meta: Mapping[str, Any]) -> None:
        """Replace the plan and its metadata; trials are kept."""
        with self._transaction("IMMEDIATE") as db:
            db.execute("DELETE FROM plan")
            db.execute("DELETE FROM meta")
            db.executemany(
                "INSERT INTO plan VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", map(_plan_row, plan)
            )
            rows = ((name, json.dumps(value)) for name, value in meta.items())
            db.executemany("INSERT INTO meta VALUES (?, ?)", rows)

    def set_meta(self, name: str, value: Any) -> None:
        """Add or replace one entry of the plan's metadata."""
        with self._transaction("IMMEDIATE") as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value)))

    def known(self) -> dict[str, float]:
        """Return key and seconds of the trials that need not run again."""
        with self._transaction() as db:
            rows = db.execute("SELECT key, status, seconds FROM trials ORDER BY id").fetchall()
        return {key: seconds for key, status, seconds in rows if status in CACHED_STATUSES}

    def put(self, *results: TrialResult) -> None:
        """Store all trials or none. A cached result of a key is kept, a failed one is replaced."""
        with self._transaction("IMMEDIATE") as db:
            for result in results:
                query = "SELECT status FROM trials WHERE key = ?"
                row = db.execute(query, (result.key,)).fetchone()
                if row is None or row[0] not in CACHED_STATUSES:
                    db.execute("DELETE FROM trials WHERE key = ?", (result.key,))
                    _insert(db, result)

    def read(self) -> tuple[list[PlannedTrial], dict[str, TrialResult], dict[str, Any]]:
        """Return `plan`, `results` and `meta` in one transaction, so that they are consistent."""
        with self._transaction():
            return self.plan(), self.results(), self.meta()

    def plan(self) -> list[PlannedTrial]:
        names = ("key", "label", "algorithm", "options", "point", "seed", "metrics")
        query = f"SELECT {', '.join(names)} FROM plan ORDER BY position"  # noqa: S608
        with self._transaction() as db:
            rows = [(*row[:3], *map(_parse_json, row[3:])) for row in db.execute(query)]
            return [_validate(PlannedTrial, dict(zip(names, row, strict=True))) for row in rows]

    def meta(self) -> dict[str, Any]:
        with self._transaction() as db:
            rows = db.execute("SELECT name, value FROM meta ORDER BY rowid").fetchall()
            meta = {str(name): _parse_json(value) for name, value in rows}
            for name in meta.keys() & {"warnings", END_WARNINGS_KEY}:
                _validate(list[str], meta[name])
            return meta

    def results(self) -> dict[str, TrialResult]:
        """Return every stored trial by key, including failed ones, without models and encodings."""
        with self._transaction() as db:
            trials = db.execute("SELECT * FROM trials ORDER BY id").fetchall()
            values = _values(db)
            return {row[1]: _parse_result(row, values) for row in trials}

    def result(self, key: str) -> TrialResult:
        """Return a trial with its models and their encoding; raise KeyError if it is not stored."""
        with self._transaction() as db:
            row = db.execute("SELECT * FROM trials WHERE key = ?", (key,)).fetchone()
            if row is None:
                raise KeyError(key)
            values = _values(db, "WHERE trial = ?", row[0])
            models, encoding = self.models(key), self.encoding(key)
            return _parse_result(row, values, models=models, encoding=encoding)

    def models(self, key: str) -> dict[str, bytes]:
        """Return a trial's classifiers by variant, main one first; empty if it is not stored."""
        query = (
            "SELECT variant, data FROM models JOIN trials ON trials.id = trial"
            " WHERE key = ? ORDER BY models.rowid"
        )
        with self._transaction() as db:
            models: dict[str, bytes] = _validate(dict[str, bytes], dict(db.execute(query, (key,))))
            return models

    def encoding(self, key: str) -> str:
        """Return the encoding of one trial's features; empty if it is not stored."""
        query = (
            "SELECT content FROM encodings JOIN encoded ON encoding = encodings.id"
            " JOIN trials ON trials.id = trial WHERE key = ?"
        )
        with self._transaction() as db:
            row = db.execute(query, (key,)).fetchone()
            return "" if row is None else str(row[0])

    def _open(self, readonly: bool) -> None:
        self._db.execute("PRAGMA foreign_keys = ON")
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
            message = f"the ledger '{self._path}' cannot be used: {error}"
            hint = "end other processes that use it, if there are any, and run again"
            raise FaultError(Diagnostic("E503", message, help=hint)) from error


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
        self._waiting: deque[TrialResult] = deque()
        self._thread = ThreadPoolExecutor(1)
        self._error: BaseException | None = None

    def put(self, result: TrialResult) -> None:
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


def _plan_row(planned: PlannedTrial) -> tuple[str, ...]:
    rest = (dict(planned.options), dict(planned.point), planned.seed, dict(planned.metrics))
    return (planned.key, planned.label, planned.algorithm, *map(json.dumps, rest))


def result_documents(result: TrialResult) -> tuple[str, ...]:
    """Return info, trace and multipliers as JSON; raise TypeError if they cannot be encoded."""
    columns = (dict(result.info), [dict(step) for step in result.trace], dict(result.multipliers))
    return tuple(map(json.dumps, columns))


def check_storable(result: TrialResult) -> None:
    """Raise TypeError or ValueError unless a result can be stored and read again."""
    fields = result.key, result.status, result.reason, result.seconds, *result_documents(result)
    found = _parse_result((0, *fields), {0: result.values})
    found.reason.encode()
    for part in (found.info, found.trace):
        json.dumps(part, ensure_ascii=False).encode()  # reports cannot write lone surrogates


def _insert(db: sqlite3.Connection, result: TrialResult) -> None:
    trial = db.execute(
        "INSERT INTO trials VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
        (result.key, result.status, result.reason, result.seconds, *result_documents(result)),
    ).lastrowid
    measures = [(value.variant, value.split, value.metric) for value in result.values]
    db.executemany("INSERT OR IGNORE INTO measures VALUES (NULL, ?, ?, ?)", measures)
    db.executemany(
        "INSERT INTO numbers SELECT ?, ?, id, ? FROM measures"
        " WHERE variant = ? AND split = ? AND metric = ?",
        ((trial, i, float(value.value), *measures[i]) for i, value in enumerate(result.values)),
    )
    models = ((trial, variant, data) for variant, data in result.models.items())
    db.executemany("INSERT INTO models VALUES (?, ?, ?)", models)
    if result.encoding:
        sha256 = hashlib.sha256(result.encoding.encode()).hexdigest()
        content = (sha256, result.encoding)
        db.execute("INSERT OR IGNORE INTO encodings VALUES (NULL, ?, ?)", content)
        db.execute(
            "INSERT INTO encoded SELECT ?, id FROM encodings WHERE sha256 = ?", (trial, sha256)
        )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _validate(kind: Any, value: Any) -> Any:
    """Return the value if it has this type, or a dataclass of such fields; raise ValueError."""
    return _adapter(kind).validate_python(value, strict=not is_dataclass(kind))


def _parse_result(
    row: Sequence[Any], values: Mapping[int, tuple[MeasuredValue, ...]], **others: Any
) -> TrialResult:
    """Return the result in a row of `trials`, given the values of each trial by its row ID."""
    names = ("key", "status", "reason", "seconds", "info", "trace", "multipliers")
    fields = dict(zip(names, (*row[1:5], *map(_parse_json, row[5:])), strict=True))
    if fields["status"] not in CACHED_STATUSES | FAILED_STATUSES:
        raise ValueError(f"no trial ends as {fields['status']!r}")
    fields["values"] = values.get(row[0], ())
    result: TrialResult = _validate(TrialResult, fields | others)
    return result


def _parse_json(text: object) -> Any:
    return json.loads(_validate(str, text))


def _values(
    db: sqlite3.Connection, where: str = "", *parameters: int
) -> dict[int, tuple[MeasuredValue, ...]]:
    """Return the values of each trial by its row ID, in the order in which they were stored."""
    names = {measure[0]: measure[1:] for measure in db.execute("SELECT * FROM measures")}
    _validate(dict[int, tuple[str, str, str]], names)
    query = (
        f"SELECT trial, measure, value FROM numbers {where}"  # noqa: S608
        " ORDER BY trial, position"
    )
    return {
        trial: tuple(_parse_value(names.get(measure), value) for _, measure, value in rows)
        for trial, rows in groupby(db.execute(query, parameters), key=itemgetter(0))
    }


def _parse_value(measure: tuple[str, str, str] | None, value: object) -> MeasuredValue:
    if measure is None or not isinstance(value, float | int | None):
        raise ValueError(f"{str(value)[:40]!r} is stored instead of a number, or without a metric")
    return MeasuredValue(*measure, float("nan") if value is None else float(value))
