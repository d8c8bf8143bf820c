"""A ledger written by a thread of its own: trials need not wait for a disk."""

from __future__ import annotations

import threading
from queue import Empty, Queue

from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import LedgerStore

MAX_QUEUED = 64
"""Results that wait to be stored; when there are more, trials do wait for the disk."""


class LedgerWriter:
    """Stores results in their order, all that wait in one transaction: a slow disk syncs less often.

    A kill loses what ended while the disk was at it; an interrupt, or any other end that comes to
    `close`, loses nothing. Nobody else may use the store before `flush`.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._waiting: Queue[TrialResult | None] = Queue(MAX_QUEUED)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def put(self, result: TrialResult) -> None:
        """Raises what storing an earlier one raised."""
        self._tell()
        self._waiting.put(result)

    def flush(self) -> None:
        """Wait until all is stored; raises what that raised."""
        self._waiting.join()
        self._tell()

    def close(self) -> None:
        """Store what waits and end. What that raises is not told: `flush` before, to hear of it."""
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
            except BaseException as error:  # noqa: BLE001  for whoever puts the next
                self._error = error
            for _ in found:
                self._waiting.task_done()

    def _others(self) -> list[TrialResult]:
        """What else waits, up to the sign to end, which is put back."""
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
