"""Pages under /connect/: the way from a link in a private message to a provider and back.

What lives here: routes, cookies, headers, where a form may come from. What does not: what a request leads to
(bot/signins/), how a page looks: `bot.server.pages.draw(page: Page) -> str` (the whole HTML) and `bot.server.pages.STYLE: bytes`.
"""

from __future__ import annotations

from typing import Final

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""No script, picture or font from anywhere; the one style sheet is ours."""
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
STYLE_PATH: Final = "/connect/style.css"
