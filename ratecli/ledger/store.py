"""The ledger: one SQLite file with an experiment's plan and every finished trial.

A trial is stored completely or not at all. The ledger uses a rollback journal instead of WAL: when
nobody writes, it is one file that can be copied, read from a read-only folder, or kept on a network
disk, and a commit takes about a millisecond. While a ledger is open for writing, the empty journal
file is kept: creating and deleting it for each transaction takes half as long again. With
`synchronous = FULL` a stored trial survives a power failure, not only `kill -9`.

Each trial is stored with a checksum of all its contents, and so are the plan and its metadata
together. They are compared when these are read: a damaged file raises an error instead of giving
other numbers or names.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import astuple, is_dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from ratecli.errors import Diagnostic, FaultError, exception_line
from ratecli.files import UNFINISHED_PREFIX, report_write_errors, temporary_path
from ratecli.ledger.records import (
    CACHED_STATUSES,
    END_WARNINGS_KEY,
    FAILED_STATUSES,
    MeasuredValue,
    PlannedTrial,
    TrialResult,
)

LEDGER_VERSION = 2
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
    seconds REAL NOT NULL, info TEXT NOT NULL, trace TEXT NOT NULL, multipliers TEXT NOT NULL,
    sha256 TEXT NOT NULL);
CREATE TABLE measures (
    id INTEGER PRIMARY KEY, variant TEXT NOT NULL, split TEXT NOT NULL, metric TEXT NOT NULL,
    UNIQUE (variant, split, metric));
CREATE TABLE numbers (
    trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE, position INTEGER NOT NULL,
    measure INTEGER NOT NULL REFERENCES measures, value,
    PRIMARY KEY (trial, position)) WITHOUT ROWID;
CREATE TABLE models (
    trial INTEGER NOT NULL REFERENCES trials ON DELETE CASCADE, variant TEXT NOT NULL,
    data BLOB NOT NULL, sha256 TEXT NOT NULL, PRIMARY KEY (trial, variant));
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

SEAL = "sha256"
"""Row of `meta` with the checksum of the plan and of all other rows of `meta`."""
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
            db.execute("INSERT INTO meta VALUES (?, ?)", (SEAL, plan_sha256(db)))

    def set_meta(self, name: str, value: Any) -> None:
        """Add or replace one entry of the plan's metadata."""
        with self._transaction("IMMEDIATE") as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(value)))
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SEAL, plan_sha256(db)))

    def known(self) -> dict[str, float]:
        """Return key and seconds of the intact trials that need not run again."""
        with self._transaction() as db:
            found, _ = _read_trials(db)
        return {key: each.seconds for key, each in found.items() if each.status in CACHED_STATUSES}

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
            self._check_seal(db)
            found, damaged = _read_trials(db)
            blobs = db.execute("SELECT sha256, data FROM models")
            texts = db.execute("SELECT sha256, content FROM encodings")
            if all(
                sha256 == _sha256(content) for rows in (blobs, texts) for sha256, content in rows
            ):
                return damaged
            complete = {each.key for each in self.intact()}
            return [*damaged, *(key for key in found if key not in complete)]

    def intact(self) -> Iterator[TrialResult]:
        """Yield all trials that are not damaged, with models and encodings."""
        with self._report_errors(), _ignore_damage():  # a transaction of such a file may not end
            # of a damaged file, the index may lead nowhere
            for row in self._db.execute("SELECT * FROM trials NOT INDEXED ORDER BY id"):
                found = None
                with _ignore_damage():
                    found = _read_trial(self._db, row)
                if found is not None:
                    yield found

    def plan(self) -> list[PlannedTrial]:
        names = ("key", "label", "algorithm", "options", "point", "seed", "metrics")
        query = f"SELECT {', '.join(names)} FROM plan ORDER BY position"  # noqa: S608
        with self._transaction() as db:
            self._check_seal(db)
            rows = [(*row[:3], *map(_parse_json, row[3:])) for row in db.execute(query)]
            return [_validate(PlannedTrial, dict(zip(names, row, strict=True))) for row in rows]

    def meta(self) -> dict[str, Any]:
        with self._transaction() as db:
            self._check_seal(db)
            rows = db.execute("SELECT name, value FROM meta ORDER BY rowid").fetchall()
            meta = {str(name): _parse_json(value) for name, value in rows if name != SEAL}
            for name in meta.keys() & {"warnings", END_WARNINGS_KEY}:
                _validate(list[str], meta[name])
            return meta

    def results(self) -> dict[str, TrialResult]:
        """Return every stored trial by key, including failed ones, without models and encodings."""
        with self._transaction() as db:
            found, damaged = _read_trials(db)
            if damaged:
                raise self._damage(self._named(damaged))
            return found

    def result(self, key: str) -> TrialResult:
        """Return a trial with its models and their encoding; raise KeyError if it is not stored."""
        with self._transaction() as db:
            row = db.execute("SELECT * FROM trials WHERE key = ?", (key,)).fetchone()
            if row is None:
                raise KeyError(key)
            found = _read_trial(db, row)
            if found is None:
                raise self._damage(self._named([key]))
            return found

    def models(self, key: str) -> Mapping[str, bytes]:
        """Return a trial's classifiers by variant, main one first; empty if it is not stored."""
        try:
            return self.result(key).models
        except KeyError:
            return {}

    def _check_file(self, db: sqlite3.Connection) -> None:
        (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise self._damage(found)

    def _check_seal(self, db: sqlite3.Connection) -> None:
        row = db.execute("SELECT value FROM meta WHERE name = ?", (SEAL,)).fetchone()
        if row != (plan_sha256(db),) and (row or db.execute("SELECT 1 FROM plan").fetchone()):
            raise self._damage("its plan is not what was stored")

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
    found = _parse_result((0, *fields), [])
    found.reason.encode()
    for part in (found.info, found.trace):
        json.dumps(part, ensure_ascii=False).encode()  # reports cannot write lone surrogates


def _insert(db: sqlite3.Connection, result: TrialResult) -> None:
    head = result.key, result.status, result.reason, float(result.seconds)
    fields = (*head, *result_documents(result))
    values = [(*astuple(each)[:3], _stored_number(each.value)) for each in result.values]
    sums = [(variant, _sha256(data)) for variant, data in result.models.items()]
    encoding = _sha256(result.encoding) if result.encoding else ""
    trial = db.execute(
        "INSERT INTO trials VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*fields, _json_sha256(fields, values, sums, encoding)),
    ).lastrowid
    measures = [(value.variant, value.split, value.metric) for value in result.values]
    db.executemany("INSERT OR IGNORE INTO measures VALUES (NULL, ?, ?, ?)", measures)
    db.executemany(
        "INSERT INTO numbers SELECT ?, ?, id, ? FROM measures"
        " WHERE variant = ? AND split = ? AND metric = ?",
        ((trial, i, float(value.value), *measures[i]) for i, value in enumerate(result.values)),
    )
    models = ((trial, variant, result.models[variant], sha256) for variant, sha256 in sums)
    db.executemany("INSERT INTO models VALUES (?, ?, ?, ?)", models)
    if encoding:
        content = (encoding, result.encoding)
        db.execute("INSERT OR IGNORE INTO encodings VALUES (NULL, ?, ?)", content)
        db.execute(
            "INSERT INTO encoded SELECT ?, id FROM encodings WHERE sha256 = ?", (trial, encoding)
        )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _validate(kind: Any, value: Any) -> Any:
    """Return the value if it has this type, or a dataclass of such fields; raise ValueError."""
    return _adapter(kind).validate_python(value, strict=not is_dataclass(kind))


def _read_trials(db: sqlite3.Connection) -> tuple[dict[str, TrialResult], list[str]]:
    """Return intact trials by key, without models and encodings, and the keys of damaged ones.

    Models and encodings are taken to have the stored checksums.
    """
    values = _values(db)
    sums: dict[int, list[tuple[str, str]]] = {}
    for trial, *model in db.execute("SELECT trial, variant, sha256 FROM models ORDER BY rowid"):
        sums.setdefault(trial, []).append((model[0], model[1]))
    query = "SELECT trial, sha256 FROM encoded JOIN encodings ON encoding = encodings.id"
    encodings = dict(db.execute(query))
    found, damaged = dict[str, TrialResult](), list[str]()
    for row in db.execute("SELECT * FROM trials ORDER BY id"):
        own = values.get(row[0], []), sums.get(row[0], []), encodings.get(row[0], "")
        if row[-1] == _json_sha256(row[1:-1], *own):
            found[row[1]] = _parse_result(row, own[0])
        else:
            damaged.append(str(row[1]))
    return found, damaged


def _read_trial(db: sqlite3.Connection, row: Sequence[Any]) -> TrialResult | None:
    """Return the complete result in a row of `trials`, or None if it is damaged."""
    values, models, encoding, sha256 = trial_contents(db, row)
    if row[-1] != sha256:
        return None
    _validate(dict[str, bytes], models)
    return _parse_result(row, values, models=models, encoding=encoding)


def trial_contents(
    db: sqlite3.Connection, row: Sequence[Any]
) -> tuple[Sequence[tuple[Any, ...]], dict[str, bytes], str, str]:
    """Return rows of `_values`, models, encoding, and their checksum, of a row of `trials`."""
    values = _values(db, "WHERE trial = ?", row[0]).get(row[0], [])
    query = "SELECT variant, data FROM models WHERE trial = ? ORDER BY rowid"
    models = dict(db.execute(query, row[:1]))
    query = "SELECT content FROM encodings JOIN encoded ON encoding = id WHERE trial = ?"
    (encoding,) = db.execute(query, row[:1]).fetchone() or ("",)
    sums = [(variant, _sha256(data)) for variant, data in models.items()]
    content = row[1:-1], values, sums, _sha256(encoding) if encoding else ""
    return values, models, encoding, _json_sha256(*content)


def _parse_result(
    row: Sequence[Any], values: Sequence[Sequence[Any]], **others: Any
) -> TrialResult:
    """Return the result in a row of `trials` with these rows of `_values`."""
    names = ("key", "status", "reason", "seconds", "info", "trace", "multipliers")
    fields = dict(zip(names, (*row[1:5], *map(_parse_json, row[5:8])), strict=True))
    if fields["status"] not in CACHED_STATUSES | FAILED_STATUSES:
        raise ValueError(f"no trial ends as {fields['status']!r}")
    fields["values"] = tuple(
        MeasuredValue(variant, split, metric, math.nan if value is None else value)
        for variant, split, metric, value in values
    )
    types = [{type(each[at]) for each in values} for at in range(4)]
    if not all(found <= {str} for found in types[:3]) or not types[3] <= {float, int, type(None)}:
        raise ValueError("something is stored instead of a number, or without a metric")
    result: TrialResult = _validate(TrialResult, fields | others)
    return result


def _parse_json(text: object) -> Any:
    return json.loads(_validate(str, text))


def _values(
    db: sqlite3.Connection, where: str = "", *parameters: int
) -> dict[int, list[tuple[Any, ...]]]:
    """Return variant, split, metric and value of each trial's numbers by its row ID, in order."""
    names = {measure[0]: measure[1:] for measure in db.execute("SELECT * FROM measures")}
    query = (
        f"SELECT trial, measure, value FROM numbers {where}"  # noqa: S608
        " ORDER BY trial, position"
    )
    return {
        trial: [(*names.get(measure, (None, None, None)), value) for _, measure, value in rows]
        for trial, rows in groupby(db.execute(query, parameters), key=itemgetter(0))
    }


def _stored_number(value: float) -> float | None:
    """Return a number as SQLite stores it: NaN becomes NULL."""
    return None if math.isnan(value) else float(value)


def plan_sha256(db: sqlite3.Connection) -> str:
    """Return the checksum of the plan and its metadata."""
    plan = db.execute("SELECT * FROM plan ORDER BY position").fetchall()
    query = "SELECT name, value FROM meta WHERE name != ? ORDER BY name"
    return _json_sha256(plan, db.execute(query, (SEAL,)).fetchall())


def _json_sha256(*content: Any) -> str:
    """Return the checksum of values as SQLite returns them."""
    return _sha256(json.dumps(content, default=repr))


def _sha256(content: object) -> str:
    """Return the checksum of bytes or text; of anything else, which is damaged, of its text."""
    return hashlib.sha256(
        content if isinstance(content, bytes) else str(content).encode()
    ).hexdigest()


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
