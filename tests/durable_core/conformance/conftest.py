"""Show what an assertion of the kit compared.

What lives here: assertion rewriting for the kit's modules. What does not: fixtures, they come with `StoreBench`.
"""

import pytest

pytest.register_assert_rewrite("durable_core.testing")
