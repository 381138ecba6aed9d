"""The twin in memory keeps the contract."""

import pytest

from op_jupyter.store.memory import MemoryStore
from op_jupyter.testing.contracts import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    def crash(self, store: MemoryStore) -> None:
        store.crash()

    def test_it_is_nowhere_on_disk(self, store: MemoryStore) -> None:
        assert store.path(store.create_session("s1")) is None
