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
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import (
    CACHED_STATUSES,
    END_WARNINGS_KEY,
    FAILED_STATUSES,
    MeasuredValue,
    PlannedTrial,
    TrialResult,
)

SqlRow = tuple[Any, ...]
KNOWN_STATUSES = CACHED_STATUSES | FAILED_STATUSES
SCALAR_TYPES = (str, int, float, bool)


class InvalidRowError(ValueError):
    """A row that ratecli cannot have written."""


def parse_planned_trial(row: SqlRow) -> PlannedTrial:
    """Return the planned trial in a row of `plan`, given without its position."""
    key, label, algorithm = map(_text, row[:3])
    options, point, seed, metrics = map(_parse_json, row[3:])
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise InvalidRowError("a seed is no whole number")
    for name, value in _mapping(point).items():
        if not isinstance(value, SCALAR_TYPES):
            raise InvalidRowError(f"the sweep's {name!r} is no single value")
    texts = {name: _text(text) for name, text in _mapping(metrics).items()}
    return PlannedTrial(key, label, algorithm, _mapping(options), point, seed, texts)


def parse_trial_result(
    row: SqlRow,
    values: tuple[MeasuredValue, ...],
    models: Mapping[str, bytes] | None = None,
    encoding: str = "",
) -> TrialResult:
    """Return the result in a row of `trials`, with its values, models and encoding."""
    _, key, status, reason, seconds, info, trace, multipliers = row
    if status not in KNOWN_STATUSES:
        raise InvalidRowError(f"no trial ends as {status!r}")
    steps = _parse_json(trace)
    if not isinstance(steps, list):
        raise InvalidRowError("a trace is no list")
    return TrialResult(
        key=_text(key),
        status=status,
        reason=_text(reason),
        seconds=parse_sql_number(seconds),
        info=_mapping(_parse_json(info)),
        trace=tuple(map(_mapping, steps)),
        multipliers={
            name: parse_sql_number(each)
            for name, each in _mapping(_parse_json(multipliers)).items()
        },
        values=values,
        models=models or {},
        encoding=encoding,
    )


def parse_measured_value(measure: SqlRow, given: object) -> MeasuredValue:
    """Return a value of `numbers`; `measure` is (variant, split, metric), and NULL is NaN."""
    if len(measure) != 3:
        raise InvalidRowError("a number measures nothing")
    variant, split, metric = map(_text, measure)
    return MeasuredValue(
        variant, split, metric, float("nan") if given is None else parse_sql_number(given)
    )


def parse_sql_number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidRowError(f"{str(given)[:40]!r} stands where a number should")
    return float(given)


def parse_meta(name: str, text: object) -> Any:
    """Parse the value that `meta` holds under a name."""
    found = _parse_json(text)
    if name in {"warnings", END_WARNINGS_KEY} and not isinstance(found, list):
        raise InvalidRowError(f"{str(found)[:40]!r} stands where a list should")
    return [_text(each) for each in found] if name in {"warnings", END_WARNINGS_KEY} else found


def _parse_json(text: object) -> Any:
    try:
        return json.loads(_text(text))
    except (ValueError, RecursionError) as error:
        raise InvalidRowError("it holds text that is no JSON") from error


def _mapping(given: object) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise InvalidRowError(f"{str(given)[:40]!r} stands where a mapping should")
    return given


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise InvalidRowError(f"{str(given)[:40]!r} stands where text should")
    return given


LEDGER_VERSION = 1
"""Stored as `user_version`; incremented when the tables below change incompatibly."""

APPLICATION_ID = 0x72617465
"""`application_id` of a ledger: "rate" in ASCII."""

# `numbers.value` is untyped on purpose: in a REAL column SQLite would turn -0.0 into 0.0.
# NaN is stored as NULL.
SCHEMA = (
    (
        "CREATE TABLE plan (\n"
        "        position INTEGER PRIMARY KEY, key TEXT NOT NULL, label TEXT NOT NULL, "
        "algorithm TEXT NOT NULL,\n"
        "        options TEXT NOT NULL, point TEXT NOT NULL, seed TEXT NOT NULL, "
        "metrics TEXT NOT NULL)"
    ),
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    (
        "CREATE TABLE trials (\n"
        "        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, status TEXT NOT NULL, "
        "reason TEXT NOT NULL,\n"
        "        seconds REAL NOT NULL, info TEXT NOT NULL, trace TEXT NOT NULL, "
        "multipliers TEXT NOT NULL)"
    ),
    """CREATE TABLE measures (
        id INTEGER PRIMARY KEY, variant TEXT NOT NULL, split TEXT NOT NULL, metric TEXT NOT NULL,
        UNIQUE (variant, split, metric))""",
    """CREATE TABLE numbers (
        trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE, position INTEGER NOT NULL,
        measure INTEGER NOT NULL REFERENCES measures, value,
        PRIMARY KEY (trial, position)) WITHOUT ROWID""",
    """CREATE TABLE models (
        trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE, variant TEXT NOT NULL,
        data BLOB NOT NULL, PRIMARY KEY (trial, variant))""",
    """CREATE VIEW metrics AS
        SELECT key, status, variant, split, metric, value FROM numbers
        JOIN trials ON trials.id = trial JOIN measures ON measures.id = measure""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {LEDGER_VERSION}",
)

# Trials of the same rows share an encoding, which is stored once. Older ledgers lack these tables:
# they are added when a ledger is opened for writing.
ENCODINGS = (
    """CREATE TABLE IF NOT EXISTS encodings (
        id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, content TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS encoded (
        trial INTEGER PRIMARY KEY REFERENCES trials ON DELETE CASCADE,
        encoding INTEGER NOT NULL REFERENCES encodings)""",
)


class LedgerStore:
    """The ledger at `path`, created if it does not exist.

    A `readonly` store must exist. It still opens the file for writing if possible, because the next
    process to open the file must roll back what a killed run left unfinished. `patience` is the
    number of seconds to wait for another process that locks the file.
    """

    def __init__(self, path: Path, readonly: bool = False, *, patience: float = 30.0) -> None:
        self._path = path
        self._patience = patience
        if readonly and not path.is_file():
            raise FaultError(
                Diagnostic("E503", f"there is no ledger at '{path}'", help="run it first")
            )
        if not readonly:
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._told():
            self._db = _connect(path, "rw" if readonly else "rwc", patience)
        try:
            with self._told():
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

    def note(self, name: str, value: Any) -> None:
        """Add or replace one entry of the plan's metadata."""
        with self._transaction("IMMEDIATE") as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value)))

    def known(self) -> dict[str, str]:
        """Return key and status of the trials that need not run again."""
        with self._transaction() as db:
            rows = db.execute("SELECT key, status FROM trials ORDER BY id").fetchall()
        return {key: status for key, status in rows if status in CACHED_STATUSES}

    def put(self, result: TrialResult) -> None:
        """Store a trial: a cached result of its key is kept, a failed one is replaced."""
        self.put_all([result])

    def put_all(self, results: Iterable[TrialResult]) -> None:
        """Store all trials in one transaction."""
        with self._transaction("IMMEDIATE") as db:
            for result in results:
                query = "SELECT status FROM trials WHERE key = ?"
                row = db.execute(query, (result.key,)).fetchone()
                if row is None or row[0] not in CACHED_STATUSES:
                    db.execute("DELETE FROM trials WHERE key = ?", (result.key,))
                    _insert(db, result)

    def read(self) -> tuple[list[PlannedTrial], dict[str, TrialResult], dict[str, Any]]:
        """Return `plan`, `results` and `meta` in one transaction, so that they are consistent."""
        with self._transaction() as db:
            return _plan(db), _results(db), _meta(db)

    def plan(self) -> list[PlannedTrial]:
        with self._transaction() as db:
            return _plan(db)

    def meta(self) -> dict[str, Any]:
        with self._transaction() as db:
            return _meta(db)

    def results(self) -> dict[str, TrialResult]:
        """Return every stored trial by key, including failed ones, without models and encodings."""
        with self._transaction() as db:
            return _results(db)

    def result(self, key: str) -> TrialResult:
        """Return a trial with its models and their encoding; raise KeyError if it is not stored."""
        with self._transaction() as db:
            row = db.execute("SELECT * FROM trials WHERE key = ?", (key,)).fetchone()
            if row is None:
                raise KeyError(key)
            values = _values(db, "WHERE trial = ?", row[0])
            models, encoding = _models(db, key), _encoding(db, key)
            return parse_trial_result(row, values.get(row[0], ()), models, encoding)

    def models(self, key: str) -> dict[str, bytes]:
        """Return a trial's classifiers by variant, main one first; empty if it is not stored."""
        with self._transaction() as db:
            return _models(db, key)

    def encoding(self, key: str) -> str:
        """Return the encoding of one trial's features; empty if it is not stored."""
        with self._transaction() as db:
            return _encoding(db, key)

    def _open(self, readonly: bool) -> None:
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("PRAGMA synchronous = FULL")
        if not readonly and self._version() == (0, 0):
            with self._transaction("IMMEDIATE") as db:
                tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
                for statement in SCHEMA if not tables else ():
                    db.execute(statement)
        application, version = self._version()
        if application != APPLICATION_ID:
            raise _not_a_ledger(self._path)
        if version != LEDGER_VERSION:
            message = f"'{self._path}' is a ledger of version {version}, not {LEDGER_VERSION}"
            help_ = "read it with the ratecli that wrote it, or begin a new one with --fresh"
            raise FaultError(Diagnostic("E502", message, help=help_))
        if readonly:
            self._db.execute("PRAGMA query_only = ON")
            return
        self._db.execute("PRAGMA journal_mode = PERSIST")
        if not _knows_encodings(self._db):
            with self._transaction("IMMEDIATE") as db:
                for statement in ENCODINGS:
                    db.execute(statement)

    def _version(self) -> tuple[int, int]:
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        return application, self._db.execute("PRAGMA user_version").fetchone()[0]

    @contextmanager
    def _transaction(self, kind: str = "DEFERRED") -> Iterator[sqlite3.Connection]:
        with self._told():
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Convert SQLite errors about the file into one diagnostic."""
        try:
            yield
        except InvalidRowError as error:
            message = f"the ledger '{self._path}' holds what no run has written: {error}"
            hint = "begin a new one with --fresh, or move it away"
            raise FaultError(Diagnostic("E503", message, help=hint)) from error
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError):
            raise  # a bug in ratecli, not a problem of the file
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_NOTADB:
                raise _not_a_ledger(self._path) from error
            message = f"the ledger '{self._path}' cannot be used: {error}"
            help_ = None
            if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                message = f"another process holds '{self._path}' (waited {self._patience:g} s)"
                help_ = "wait until it has ended, or end it, and run again"
            raise FaultError(Diagnostic("E503", message, help=help_)) from error


def _connect(path: Path, mode: str, patience: float) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,  # used by one thread at a time, which may change (`LedgerWriter`)
    )


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
        ((trial, at, float(value.value), *measures[at]) for at, value in enumerate(result.values)),
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


def _plan(db: sqlite3.Connection) -> list[PlannedTrial]:
    query = (
        "SELECT key, label, algorithm, options, point, seed, metrics FROM plan ORDER BY position"
    )
    return [parse_planned_trial(row) for row in db.execute(query).fetchall()]


def _meta(db: sqlite3.Connection) -> dict[str, Any]:
    rows = db.execute("SELECT name, value FROM meta ORDER BY rowid").fetchall()
    return {str(name): parse_meta(str(name), value) for name, value in rows}


def _results(db: sqlite3.Connection) -> dict[str, TrialResult]:
    trials = db.execute("SELECT * FROM trials ORDER BY id").fetchall()
    values = _values(db)
    return {row[1]: parse_trial_result(row, values.get(row[0], ())) for row in trials}


def _values(
    db: sqlite3.Connection, where: str = "", *given: int
) -> dict[int, tuple[MeasuredValue, ...]]:
    """Return the values of each trial by its row ID, in the order in which they were stored."""
    names = {at: (v, s, m) for at, v, s, m in db.execute("SELECT * FROM measures")}
    query = (
        f"SELECT trial, measure, value FROM numbers {where}"  # noqa: S608
        " ORDER BY trial, position"
    )
    return {
        trial: tuple(
            parse_measured_value(names.get(measure, ()), given) for _, measure, given in rows
        )
        for trial, rows in groupby(db.execute(query, given), key=itemgetter(0))
    }


def _models(db: sqlite3.Connection, key: str) -> dict[str, bytes]:
    query = (
        "SELECT variant, data FROM models JOIN trials ON trials.id = trial"
        " WHERE key = ? ORDER BY models.rowid"
    )
    found = dict(db.execute(query, (key,)).fetchall())
    if not all(isinstance(data, bytes) and isinstance(name, str) for name, data in found.items()):
        raise InvalidRowError("a model is no bytes")
    return found


def _knows_encodings(db: sqlite3.Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_schema WHERE name = 'encoded'"
    return bool(db.execute(query).fetchone()[0])


def _encoding(db: sqlite3.Connection, key: str) -> str:
    if not _knows_encodings(db):
        return ""
    query = (
        "SELECT content FROM encodings JOIN encoded ON encoding = encodings.id"
        " JOIN trials ON trials.id = trial WHERE key = ?"
    )
    row = db.execute(query, (key,)).fetchone()
    return "" if row is None else str(row[0])


MAX_QUEUED = 64
"""Maximum number of results that wait to be stored; beyond it, trials wait for the disk."""


class LedgerWriter:
    """Stores results in order from a background thread.

    All results that wait are stored in one transaction, so that a slow disk syncs less often. A
    kill loses the results that are not written yet; an interrupt or any other end that calls
    `close` loses none. Nobody else may use the store before `flush`.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._waiting: Queue[TrialResult | None] = Queue(MAX_QUEUED)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def put(self, result: TrialResult) -> None:
        """Queue a result; raise the error of an earlier write, if any."""
        self._tell()
        self._waiting.put(result)

    def flush(self) -> None:
        """Wait until all results are stored; raise the error of a write, if any."""
        self._waiting.join()
        self._tell()

    def close(self) -> None:
        """Store the waiting results and stop the thread.

        Errors are not raised here: call `flush` first to get them.
        """
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _tell(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        while (first := self._waiting.get()) is not None:
            found = [first, *self._others()]
            try:
                if self._error is None:
                    self._store.put_all(found)
            except BaseException as error:  # noqa: BLE001  raised by the next `put` or `flush`
                self._error = error
            for _ in found:
                self._waiting.task_done()

    def _others(self) -> list[TrialResult]:
        """Return the other waiting results, up to the stop signal, which is put back."""
        found: list[TrialResult] = []
        while True:
            try:
                each = self._waiting.get_nowait()
            except Empty:
                return found
            if each is None:
                self._waiting.task_done()
                self._waiting.put(None)
                return found
            found.append(each)
