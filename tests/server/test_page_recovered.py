"""What a killed server has left, on the page."""

from __future__ import annotations

from pathlib import Path

from browsers import find_chromium, open_page
from servers import TOKEN, recovering


async def test_the_page_shows_an_old_turn_and_how_it_has_settled(tmp_path: Path) -> None:
    find_chromium()
    async with recovering(tells=False) as served:
        await served.until("/events", "settlement")
        url = f"{served.server.url}/#token={TOKEN}"
        async with open_page(url, tmp_path) as page:
            await page.until("document.querySelector('.ending.unconfirmed')")
            turn = await page.text(".turn")
            assert "bread" in turn
            assert "left by a process that is gone" in turn
            assert await page.text("#title") == "kitchen"
            assert page.logs == []
