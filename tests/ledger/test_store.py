import math
import random
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from resealed import change_ledger

from ratecli.errors import FaultError
from ratecli.ledger import records
from ratecli.ledger.store import MAX_WAITING, LedgerStore, LedgerWriter, recover_ledger


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "results" / "trials.sqlite"


def trial(key="k", status="ok", **more):
    return records.TrialResult(key, status, **more)


FULL = trial(
    status="not_met",
    reason="parity > 0",
    seconds=0.1 + 0.2,
    info={"rows": {"train": 3}, "warnings": ["W401 \u00e9"], "gap": None},
    trace=({"objective": 0.1, "violation": float("inf")}, {"objective": -0.0, "violation": 1e-300}),
    multipliers={"parity": 0.7},
    values=(
        records.MeasuredValue("last", "test", "error", 0.25),
        records.MeasuredValue("last", "train", "error", 1 / 3),
    ),
    models={"last": b"\x00npz", "best": bytes(range(256)) * 100},
    encoding='{"blocks": ["\u00e9"]}',
)


def test_a_stored_trial_is_read_unchanged(ledger):
    with LedgerStore(ledger) as store:
        store.put(FULL)
    with LedgerStore(ledger, readonly=True) as store:
        assert store.result("k") == FULL
        (light,) = store.results().values()
        assert store.result("k").encoding == FULL.encoding
    assert (light.models, light.encoding) == ({}, "")
    assert (light.values, light.trace, light.info) == (FULL.values, FULL.trace, FULL.info)


@pytest.mark.parametrize(
    "number",
    [0.0, -0.0, 0.1, 1.0, -3.0, 5e-324, 1.7976931348623157e308, 2.0**60, math.inf, -math.inf],
)
def test_numbers_keep_every_bit(ledger, number):
    values = tuple(records.MeasuredValue("a", "b", str(each), each) for each in (number, math.nan))
    with LedgerStore(ledger) as store:
        store.put(trial(values=values, trace=({"x": number},)))
        result = store.result("k")
    assert {each.hex() for each in (result.values[0].value, result.trace[0]["x"])} == {number.hex()}
    assert math.isnan(result.values[1].value)


def test_a_final_result_is_kept_and_a_failed_one_is_replaced(ledger):
    def measured(value, **more):
        return trial(values=(records.MeasuredValue("a", "b", "c", value),), **more)

    with LedgerStore(ledger) as store:
        store.put(measured(1.0, status="error", reason="first"))
        store.put(trial(status="timeout", reason="second"))
        assert store.result("k").reason == "second"
        store.put(measured(2.0), measured(3.0), trial(status="error", reason="late"))
        assert store.results() == {"k": measured(2.0)}
        with pytest.raises(KeyError):
            store.result("x")
        statuses = records.CACHED_STATUSES | records.FAILED_STATUSES
        store.put(*(trial(status, status) for status in statuses))
        assert set(store.results()) == statuses | {"k"}
        assert set(store.known()) == records.CACHED_STATUSES | {"k"}


def test_begin_replaces_plan_and_metadata_and_keeps_trials(ledger):
    point = {"kappa": 0.8, "on": True, "k": 1, "name": "a"}
    plan = [
        records.PlannedTrial("k", "m", "majorize", {"iterations": 6}, point, 2**70, {"e": "x"}),
        records.PlannedTrial("k", "n", "majorize", {}, {}, 0, {}),
    ]
    with LedgerStore(ledger) as store:
        store.begin(plan[:1], {"old": 1})
        store.put(FULL)
        store.begin(plan, {"goals": [{"name": "parity"}], "frontier": None})
        assert store.plan() == plan
        assert store.meta() == {"goals": [{"name": "parity"}], "frontier": None}
        assert store.result("k") == FULL
        with pytest.raises(TypeError):
            store.begin([], {"b": object()})
        assert store.plan() == plan


def fault(path, **options):
    with pytest.raises(FaultError) as caught:
        LedgerStore(path, **options)
    (fault,) = caught.value.faults
    return fault


def test_a_readonly_ledger_must_exist_and_cannot_be_written(ledger):
    assert fault(ledger, readonly=True).code == "E503"
    assert not ledger.parent.exists()
    LedgerStore(ledger).close()
    with LedgerStore(ledger, readonly=True) as store, pytest.raises(FaultError, match="E503"):
        store.put(trial())


def test_trials_of_the_same_rows_share_an_encoding(ledger):
    with LedgerStore(ledger) as store:
        store.put(trial("k0", "error", encoding="of a failed trial"))
        for number in range(6):
            store.put(trial(f"k{number}", encoding=f"{number % 2}" * 9000))
        store.put(trial("none"))
        assert [store.result(f"k{number}").encoding[0] for number in range(6)] == [*"010101"]
        assert store.result("none").encoding == ""
        found = store._db.execute("SELECT length(data) FROM blobs").fetchall()
    assert sorted(found) == [(17,), (9000,), (9000,)]


@pytest.mark.parametrize("readonly", [False, True])
def test_other_files_and_versions_are_refused_and_unchanged(tmp_path, readonly):
    text, other, ledger = (tmp_path / name for name in ("notes.txt", "other.sqlite", "a.sqlite"))
    text.write_text("not a data base, but long enough to look like one\n" * 50)
    LedgerStore(ledger).close()
    for path, statement in ((other, "CREATE TABLE mine (a)"), (ledger, "PRAGMA user_version = 7")):
        with closing(sqlite3.connect(path)) as db:
            db.execute(statement)
    for path in (text, other, ledger):
        before = path.read_bytes()
        found = fault(path, readonly=readonly)
        assert found.code == "E502"
        assert ("version 7, not 3" in found.message) == (path == ledger)
        assert path.read_bytes() == before


def test_an_empty_file_becomes_a_ledger_and_a_folder_does_not(tmp_path):
    assert fault(tmp_path).code == "E503"
    path = tmp_path / "trials.sqlite"
    path.touch()
    with LedgerStore(path) as store:
        assert store.results() == {}


def test_a_locked_ledger_is_waited_for(ledger):
    with LedgerStore(ledger, timeout=0.2) as store:
        other = sqlite3.connect(ledger, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        with pytest.raises(FaultError, match=r"E503: .* database is locked"):
            store.put(trial())
        assert time.monotonic() - begun >= 0.15
        other.execute("COMMIT")
    with LedgerStore(ledger) as store:
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.2, lambda: other.execute("COMMIT"))
        release.start()
        store.put(trial())
        release.join()
        other.close()
        assert set(store.known()) == {"k"}


WRITER = """
import sys
import time
from pathlib import Path
from ratecli.ledger.records import MeasuredValue, TrialResult
from ratecli.ledger.store import LedgerStore
with LedgerStore(Path(sys.argv[1])) as store:
    for i in range(60):
        values = tuple(MeasuredValue("v", "test", f"m{j}", float(i)) for j in range(40))
        store.put(TrialResult(f"k{i}", "ok", values=values, models={"v": b"x" * 9000}))
        time.sleep(0.02)
"""


def test_two_processes_can_write_and_readers_see_complete_trials_only(ledger):
    LedgerStore(ledger).close()
    command = [sys.executable, "-c", WRITER, str(ledger)]
    writer, other = subprocess.Popen(command), subprocess.Popen(command)
    seen = [0]
    while writer.poll() is None:
        with LedgerStore(ledger, readonly=True) as store:
            results = store.results()
        assert {len(result.values) for result in results.values()} <= {40}
        assert len(results) >= seen[-1]
        seen.append(len(results))
        time.sleep(0.02)
    assert (writer.returncode, other.wait()) == (0, 0)
    assert len({count for count in seen if 0 < count < 60}) > 1
    with LedgerStore(ledger, readonly=True) as store:
        assert len(store.results()) == 60


def test_a_ledger_in_a_readonly_folder_can_be_read(ledger):
    with LedgerStore(ledger) as store:
        store.put(FULL)
    ledger.parent.chmod(0o500)
    ledger.chmod(0o400)
    try:
        with LedgerStore(ledger, readonly=True) as store:
            assert store.result("k") == FULL
    finally:
        ledger.parent.chmod(0o700)


RESULTS = [
    records.TrialResult(f"k{at}", "ok", values=(records.MeasuredValue("v", "test", "m", at / 7),))
    for at in range(3 * MAX_WAITING)
]


@pytest.fixture
def store(tmp_path):
    with LedgerStore(tmp_path / "trials.sqlite") as store:
        yield store


@pytest.mark.parametrize("end", ["flush", "close"])
def test_results_are_stored_in_the_order_of_puts(store, end):
    writer = LedgerWriter(store)
    for result in RESULTS:
        writer.put(result)
    getattr(writer, end)()
    statements = []
    store._db.set_trace_callback(statements.append)
    assert list(store.results()) == [result.key for result in RESULTS]
    assert len(statements) <= 7, "reading takes few statements for many trials"
    assert store.result("k9") == RESULTS[9]
    writer.close()


def test_after_a_failed_write_each_call_raises_and_nothing_is_stored(store, tmp_path):
    writer = LedgerWriter(store)
    writer.put(RESULTS[0])
    writer.flush()
    whole = (tmp_path / "trials.sqlite").read_bytes()
    (tmp_path / "trials.sqlite").write_bytes(b"no ledger" * 1000)
    writer.put(RESULTS[1])
    with pytest.raises(FaultError, match=r"E50[23]"):
        writer.flush()
    (tmp_path / "trials.sqlite").write_bytes(whole)
    with pytest.raises(FaultError, match=r"E50[23]"):
        writer.put(RESULTS[2])
    writer.close()
    with sqlite3.connect(tmp_path / "trials.sqlite") as db:
        assert db.execute("SELECT key FROM trials").fetchall() == [("k0",)]
    db.close()


def test_put_stores_all_trials_or_none(store):
    bad = records.TrialResult("bad", "ok", info={"what": object()})
    with pytest.raises(TypeError):
        store.put(RESULTS[0], bad)
    assert store.results() == {}


PLAN = [
    records.PlannedTrial(f"t{k}", "majorize", "majorize", {}, {}, k, {"e": "x"}) for k in range(3)
]
THREE = [
    replace(
        FULL, key=f"t{k}", encoding=f"of {k}" * 99, models={"best": bytes([k, *range(256)]) * 99}
    )
    for k in range(3)
]


@pytest.fixture
def written(ledger):
    """A ledger with three trials, and its bytes."""
    with LedgerStore(ledger) as store:
        store.begin(PLAN, {"experiment": {"name": "small"}})
        store.put(*THREE)
    return ledger, ledger.read_bytes()


def read_all(path):
    """Return everything in a ledger."""
    with LedgerStore(path, readonly=True) as store:
        plan, results, meta = store.read()
        return plan, meta, [store.result(key) for key in results]


def test_no_damage_changes_what_is_read_and_intact_trials_are_kept(written):
    path, whole = written
    expected, rng = read_all(path), random.Random(0)
    refused = recovered = 0
    for number in range(300):
        at, damaged = rng.randrange(len(whole) - 10), bytearray(whole)
        if number % 2:
            damaged[at] ^= 1 << rng.randrange(8)
        else:
            damaged[at : at + 10] = rng.randbytes(10)
        path.write_bytes(damaged)
        try:
            assert read_all(path) == expected
        except FaultError:
            refused += 1
        if number % 12:  # writing takes long
            continue
        with suppress(FaultError):  # it cannot be opened
            recover_ledger(path)
            with LedgerStore(path) as store:
                found = [store.result(key) for key in store.known()]
            assert [each for each in THREE if each in found] == found
            recovered += len(found)
    assert refused > 75
    assert recovered > 50


DAMAGE = {
    "a number": "UPDATE trials SET content = replace(content, '0.25', '0.5') WHERE id = 2",
    "a status": "UPDATE trials SET status = 'ok' WHERE id = 2",
    "bytes": "UPDATE trials SET content = x'ff' WHERE id = 2",
    "a variant": "UPDATE trials SET blobs = replace(blobs, 'best', 'worst') WHERE id = 2",
    "an encoding": "UPDATE blobs SET data = 'other' WHERE data = CAST('{text}' AS BLOB)",
    "a lost encoding": "DELETE FROM blobs WHERE data = CAST('{text}' AS BLOB)",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_trial_is_named_and_the_others_are_kept(written, damage):
    path, _ = written
    with closing(sqlite3.connect(path)) as db:
        db.execute(damage.format(text="of 1" * 99))
        db.commit()
    with pytest.raises(FaultError, match=r"E503: .* is damaged: what it has of majorize seed=1 is"):
        read_all(path)
    assert recover_ledger(path) == ["t1"]
    assert recover_ledger(path) is None
    with LedgerStore(path) as store:
        assert [store.result(key) for key in store.known()] == [THREE[0], THREE[2]]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE documents SET content = replace(content, 'majorize', 'mixture')",
        "UPDATE documents SET content = '[]' WHERE name = 'plan'",
        "UPDATE documents SET content = '{}' WHERE name = 'meta'",
        "DELETE FROM documents WHERE name = 'meta'",
    ],
)
def test_damage_outside_of_trials_is_an_error(written, damage):
    path, _ = written
    with closing(sqlite3.connect(path)) as db:
        db.execute(damage)
        db.commit()
    with pytest.raises(FaultError, match=r"E503: .* is damaged"):
        read_all(path)


TAMPERED = {
    "a status": {"trial": lambda trial: trial.update(status="owned")},
    "info": {"trial": lambda trial: trial.update(info=[1])},
    "a trace": {"trial": lambda trial: trial.update(trace={})},
    "a row of a trace": {"trial": lambda trial: trial.update(trace=[1])},
    "multipliers": {"trial": lambda trial: trial.update(multipliers={"a": "b"})},
    "a reason": {"trial": lambda trial: trial.update(reason=5)},
    "seconds": {"trial": lambda trial: trial.update(seconds="long")},
    "a number": {"trial": lambda trial: trial["values"][0].update(value="much")},
    "a metric": {"trial": lambda trial: trial["values"][0].update(metric=None)},
    "a point": {"plan": lambda plan: plan[0].update(point={"kappa": {"a": 1}})},
    "options": {"plan": lambda _: "[" * 50_000},
    "a seed": {"plan": lambda plan: plan[0].update(seed="x")},
    "metrics": {"plan": lambda plan: plan[0].update(metrics={"error": 1})},
    "no JSON": {"meta": lambda _: "{"},
    "warnings": {"meta": lambda meta: meta.update(warnings=[5])},
    "warnings at the end": {"meta": lambda meta: meta.update({"warnings at the end": 5})},
}


@pytest.mark.parametrize("changes", TAMPERED.values(), ids=TAMPERED)
def test_a_ledger_that_ratecli_did_not_write_is_an_error(written, changes):
    path, _ = written
    change_ledger(path, **changes)
    with pytest.raises(FaultError, match=r"E503: .* contains data that ratecli did not write"):
        read_all(path)
