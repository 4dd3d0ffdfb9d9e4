"""The kit that proves a channel adapter keeps its contract.

What lives here: `ChannelContract`, a class to subclass in a test module, and `ChannelCase`, its input. What does not: pytest.
"""

from channels.testing.case import ChannelCase
from channels.testing.contract import ChannelContract

__all__ = ["ChannelCase", "ChannelContract"]
