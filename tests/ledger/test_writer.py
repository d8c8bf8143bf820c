"""The background thread that stores results."""

import sqlite3

import pytest

from ratecli.errors import FaultError
from ratecli.ledger.records import MeasuredValue, TrialResult
from ratecli.ledger.store import MAX_WAITING, LedgerStore, LedgerWriter

RESULTS = [
    TrialResult(f"k{at}", "ok", values=(MeasuredValue("v", "test", "m", at / 7),))
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
    assert list(store.results()) == [result.key for result in RESULTS]
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
    bad = TrialResult("bad", "ok", info={"what": object()})
    with pytest.raises(TypeError):
        store.put(RESULTS[0], bad)
    assert store.results() == {}
