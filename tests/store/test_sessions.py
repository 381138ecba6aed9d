"""Sessions on disk keep the contract."""

from pathlib import Path

import pytest

from op_jupyter.store.sessions import SessionStore
from op_jupyter.testing.contracts import StoreContract


class TestSessionStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SessionStore:
        return SessionStore(tmp_path / "root")

    def crash(self, store: SessionStore) -> None:
        store.abandon()
