"""What waits for a click is shown once more where its output was cleared."""

from __future__ import annotations

import asyncio

import pytest

from op_jupyter.notebook.in_sight import kept_in_sight

MOMENT = 0.02


class Output:
    """An output that may be cleared, and what is put there again."""

    def __init__(self, *, comes_back: bool = True) -> None:
        self.seen = True
        self.shown = 0
        self.again = asyncio.Event()
        self._comes_back = comes_back

    def is_seen(self) -> bool:
        return self.seen

    async def show_again(self) -> None:
        self.shown += 1
        self.seen = self._comes_back
        self.again.set()

    async def clear(self) -> None:
        """Until it was shown again, and looked at."""
        self.again.clear()
        self.seen = False
        async with asyncio.timeout(10):
            await self.again.wait()
        await asyncio.sleep(3 * MOMENT)


async def test_each_time_that_it_was_cleared_it_is_shown_again() -> None:
    output = Output()
    async with kept_in_sight(output.is_seen, output.show_again, gone_seconds=MOMENT):
        for times in (1, 2):
            await output.clear()
            assert output.shown == times
    output.seen = False
    await asyncio.sleep(5 * MOMENT)
    assert output.shown == 2  # nobody watches any more


async def test_what_has_no_place_any_more_is_shown_once_and_not_again_and_again() -> None:
    output = Output(comes_back=False)
    async with kept_in_sight(output.is_seen, output.show_again, gone_seconds=MOMENT):
        await output.clear()
        assert output.shown == 1


async def test_what_comes_back_by_itself_is_left_alone() -> None:
    output = Output()
    async with kept_in_sight(output.is_seen, output.show_again, gone_seconds=60):
        output.seen = False  # its cell is being moved
        await asyncio.sleep(0.15)
        output.seen = True
        await asyncio.sleep(0.15)
    assert output.shown == 0


async def test_who_waits_is_called_off_as_before() -> None:
    output = Output()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(MOMENT):
            async with kept_in_sight(output.is_seen, output.show_again):
                await asyncio.Event().wait()
