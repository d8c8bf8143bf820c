"""Results that a thread stores."""

import sqlite3

import pytest

from ratecli.errors import FaultError
from ratecli.ledger.records import MeasuredValue, TrialResult
from ratecli.ledger.store import MAX_QUEUED, LedgerStore, LedgerWriter

RESULTS = [
    TrialResult(
        f"k{at}", "ok", values=(MeasuredValue("v", "test", "m", at / 7),), models={"v": b"x" * at}
    )
    for at in range(3 * MAX_QUEUED)
]


@pytest.fixture
def store(tmp_path):
    with LedgerStore(tmp_path / "trials.sqlite") as store:
        yield store


def test_what_is_flushed_is_stored_in_its_order(store):
    writer = LedgerWriter(store)
    for result in RESULTS:
        writer.put(result)
    writer.flush()
    assert list(store.results()) == [result.key for result in RESULTS]
    assert store.result("k9") == RESULTS[9]
    writer.close()


def test_what_waits_is_stored_before_the_end(store):
    writer = LedgerWriter(store)
    for result in RESULTS:
        writer.put(result)
    writer.close()
    writer.close()
    assert len(store.results()) == len(RESULTS)


def test_a_ledger_that_fails_is_told_and_gets_nothing_more(store, tmp_path):
    writer = LedgerWriter(store)
    writer.put(RESULTS[0])
    writer.flush()
    whole = (tmp_path / "trials.sqlite").read_bytes()
    (tmp_path / "trials.sqlite").write_bytes(b"no ledger" * 1000)
    writer.put(RESULTS[1])
    with pytest.raises(FaultError, match=r"E50[23]"):
        writer.flush()
    with pytest.raises(FaultError, match=r"E50[23]"):
        writer.put(RESULTS[2])
    writer.close()
    (tmp_path / "trials.sqlite").write_bytes(whole)
    with sqlite3.connect(tmp_path / "trials.sqlite") as db:
        assert db.execute("SELECT key FROM trials").fetchall() == [("k0",)]
    db.close()


def test_some_trials_are_stored_all_or_none(store):
    bad = TrialResult("bad", "ok", info={"what": object()})
    with pytest.raises(TypeError):
        store.put_all([RESULTS[0], bad])
    assert store.results() == {}
