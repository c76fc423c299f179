"""Documents of a mirrored tree: decoded once, and forgotten when they are gone."""

from __future__ import annotations

from penstock.cluster.assignment_documents import ExecutorSlot
from penstock.cluster.document_codec import encode
from penstock.coord.mirrored_documents import Documents
from penstock.coord.store_mirror import StoreMirror
from penstock.testing.memory_store import MemoryEnsemble, MemoryStore


def test_what_did_not_change_is_not_decoded_again_and_what_is_gone_is_forgotten() -> None:
    store = MemoryStore(MemoryEnsemble())
    store.create("/slots/a", encode(ExecutorSlot(1, "n1", 1, 1)))
    store.create("/slots/b", b"no document")
    mirror = StoreMirror(store, ["/slots"], lambda: None)
    documents = Documents(mirror)
    mirror.refresh()
    first = documents.all(ExecutorSlot, "/slots")
    assert list(first) == ["a"]
    assert documents.all(ExecutorSlot, "/slots")["a"] is first["a"]
    store.delete("/slots/a")
    store.delete("/slots/b")
    mirror.refresh()
    assert documents.all(ExecutorSlot, "/slots") == {}
    assert documents._decoded == {}, "a cluster runs for years, and its workers have ever new names"
