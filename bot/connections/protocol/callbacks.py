"""What comes back by the browser (RFC 6749 4.1.2, RFC 9207).

What lives here: reading a callback's parameters. What does not: the state, which the caller consumed before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bot.connections.protocol.errors import ProviderNonsense
from bot.connections.protocol.refusals import refusal
from bot.connections.protocol.values import Endpoints

_CODE: Final = re.compile(r"[\x21-\x7e]{1,8000}")
_ONCE: Final = ("code", "error", "error_description", "iss", "state")


def read_callback(params: Mapping[str, str], endpoints: Endpoints) -> str:
    """Return the code. oauthlib hands `iss` on without looking at it (4.0.1); here it is looked at before anything else.

    Raises: ProviderRefused, ProviderNonsense.
    """
    several = getattr(params, "getall", None)
    if several is not None and any(len(several(name, ())) > 1 for name in _ONCE):
        raise ProviderNonsense("the callback names something twice")
    issuer = params.get("iss")
    if issuer is None and endpoints.names_issuer:
        raise ProviderNonsense("the callback does not name the provider that it comes from")
    if issuer is not None and endpoints.issuer is not None and issuer != endpoints.issuer:
        raise ProviderNonsense("the callback comes from another provider")
    refused = refusal(params)
    if refused is not None:
        raise refused
    code = params.get("code")
    if code is None or not _CODE.fullmatch(code):
        raise ProviderNonsense("the callback holds no code")
    return code
