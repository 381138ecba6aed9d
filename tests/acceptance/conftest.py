"""A session in memory, and the engine tests' watch over the background loop."""

from tests.engine.conftest import nothing_is_left_on_the_loop, session, store

__all__ = ["nothing_is_left_on_the_loop", "session", "store"]
