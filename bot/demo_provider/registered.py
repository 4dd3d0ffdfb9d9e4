"""The one app that is registered at the demo's provider, and what it may ask for.

What lives here: constants that both sides know. What does not: either side (demo.py, routes.py).
"""

from __future__ import annotations

from typing import Final

CLIENT_ID: Final = "moorings-demo"
CLIENT_NAME: Final = "Moorings demo"
CLIENT_SECRET: Final = "no-secret-on-this-machine"  # noqa: S105 - the provider answers this machine only, and is the demo's
SCOPES: Final = {"issues": "Open issues and read them, in your name"}
