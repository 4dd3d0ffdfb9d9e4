"""How the pages of /connect/ look.

What lives here: HTML, words and style. What does not: what a page says (bot/signins/page.py), routes (bot/server/connect.py).
"""

from bot.server.pages.drawing import MARK_PATH, PAGE_HEADERS, STYLE_PATH, Asset, draw, mark, style

__all__ = ["MARK_PATH", "PAGE_HEADERS", "STYLE_PATH", "Asset", "draw", "mark", "style"]
