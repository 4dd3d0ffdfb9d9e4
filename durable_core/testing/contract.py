"""StoreContract: every promise of `store.Store`, as one suite to subclass.

What lives here: the sum of the groups. What does not: any test, each is in the module of its concept.
"""

from __future__ import annotations

from durable_core.testing.admission import Admissions
from durable_core.testing.asides import Asides
from durable_core.testing.audits import Audits
from durable_core.testing.beside import Beside
from durable_core.testing.bounds import Bounds
from durable_core.testing.claims import Claims
from durable_core.testing.commits import Commits
from durable_core.testing.deploys import Deploys
from durable_core.testing.events import Events
from durable_core.testing.interactions import Interactions
from durable_core.testing.keeping import Keeping
from durable_core.testing.keyclaims import KeyClaims
from durable_core.testing.moves import Moves
from durable_core.testing.outbox import Outbox
from durable_core.testing.prompts import Prompts
from durable_core.testing.quorums import Quorums
from durable_core.testing.records import Records
from durable_core.testing.values import Values
from durable_core.testing.vault import Vault
from durable_core.testing.workflows import Workflows

__all__ = ["StoreContract"]


class StoreContract(
    Admissions,
    Claims,
    Commits,
    Records,
    Prompts,
    Interactions,
    Quorums,
    Moves,
    Audits,
    Outbox,
    Events,
    Values,
    Workflows,
    Keeping,
    Deploys,
    KeyClaims,
    Vault,
    Asides,
    Bounds,
    Beside,
):
    """The promises of a store. Subclass it, implement `make`, and let pytest (asyncio mode "auto") collect the subclass.

    class TestMyStore(StoreContract):
        shared = True

        async def make(self, clock, place):
            return MyStore(place / "my.db", clock=clock)
    """
