"""Results in the store: the last revision has the last word."""

from __future__ import annotations

from penstock.cluster.document_codec import decode
from penstock.cluster.worker_documents import Result
from penstock.coord.conditional_writes import put_result
from penstock.coord.store_paths import RESULTS
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore


def test_a_worker_that_comes_late_does_not_take_the_word_of_a_later_one_back() -> None:
    store = MemoryStore(MemoryEnsemble())

    def after(revision: int, outcome: str) -> tuple[int, str]:
        put_result(store, Result("job", revision, outcome, "", 1.0))
        node = store.get(f"{RESULTS}/job")
        assert node is not None
        found = decode(Result, node.data)
        return found.revision, found.outcome

    assert after(3, "stopped") == (3, "stopped")
    assert after(5, "drained") == (5, "drained")
    assert after(4, "stopped") == (5, "drained")
    assert after(5, "refused") == (5, "refused"), "the same revision may correct itself"
