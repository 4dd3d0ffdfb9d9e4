"""Whose account it is, in a provider's words.

What lives here: an account read from claims or from a userinfo answer. What does not: asking for it (provider.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from bot.connections.accounts import AccountSource
from bot.connections.protocol.errors import ProviderNonsense
from bot.connections.protocol.reading import dig, first
from bot.connections.protocol.values import Account

OPENID: Final = AccountSource()
_EMAIL: Final = re.compile(r"[^\s@<>()\[\],;:\\\"]{1,64}@[^\s@<>()\[\],;:\\\"]{1,255}")


def read_account(fields: Mapping[str, Any], source: AccountSource) -> Account:
    """Read who somebody is; an e-mail address that is none is left out, and so is a verified mark that is not plainly true.

    Raises: ProviderNonsense, where nobody is named.
    """
    subject = first(fields, source.subject, limit=255)
    if subject is None:
        raise ProviderNonsense("the provider does not say whose account it is")
    email = first(fields, source.email, limit=320)
    if email is not None and not _EMAIL.fullmatch(email):
        email = None
    mark = source.email_verified if isinstance(source.email_verified, bool) else dig(fields, source.email_verified)
    return Account(
        subject,
        first(fields, source.name, limit=200),
        email,
        email_verified=email is not None and (mark is True or mark == "true"),
    )
