"""Providers' errors in our words.

What lives here: which failure may pass by itself, and after how long. What does not: retrying, which the core decides.
"""

from __future__ import annotations

from typing import Final

from pydantic_ai import exceptions as pai

from bot.errors import BadHistory, ModelFailed

_MESSAGE_LIMIT: Final = 2_000
_TRANSPORTS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "botocore", "grpc"})
_RETRYABLE_STATUS: Final = frozenset({408, 409, 425, 429})

# First match wins: a category comes before what it is a subclass of.
_CATEGORIES: Final[tuple[tuple[type[BaseException], str, bool], ...]] = (
    (pai.ContentFilterError, "content_filter", False),
    (pai.ModelQuotaExceededError, "quota_exceeded", False),
    (pai.ModelRateLimitError, "rate_limited", True),
    (pai.ModelOverloadedError, "overloaded", True),
    (pai.ModelUnavailableError, "unavailable", True),
    (pai.ModelServerError, "provider_error", True),
    (pai.ModelTimeoutError, "timeout", True),
    (pai.ModelRequestTimeout, "timeout", True),
    (pai.ModelConnectionError, "connection", True),
    (pai.ModelContextWindowExceededError, "context_window", False),
    (pai.ModelAuthenticationError, "unauthorized", False),
    (pai.ModelNotFoundError, "unknown_model", False),
    (pai.ModelRequestRejectedError, "rejected", False),
)
_OTHERS: Final[tuple[tuple[type[BaseException], str, bool], ...]] = (
    (pai.ModelAPIError, "provider_error", True),
    (pai.UnexpectedModelBehavior, "bad_reply", True),
    (pai.UserError, "not_configured", False),
    (ImportError, "not_configured", False),
    (BadHistory, "bad_history", False),
    (TimeoutError, "timeout", True),
    (OSError, "connection", True),
)


def to_failure(error: Exception) -> ModelFailed:
    """Say what failed, whether it may pass by itself, and what the provider asked to wait."""
    if isinstance(error, ModelFailed):
        return error
    if isinstance(error, ExceptionGroup):
        return _of_group(error)
    code, retryable = _classify(error)
    retry_after = getattr(error, "retry_after", None)
    message = str(error) or type(error).__name__
    return ModelFailed(
        code,
        message[:_MESSAGE_LIMIT],
        retryable=retryable,
        retry_after=float(retry_after) if retryable and isinstance(retry_after, int | float) else None,
    )


def _classify(error: Exception) -> tuple[str, bool]:
    for kind, code, retryable in _CATEGORIES:
        if isinstance(error, kind):
            return code, retryable
    if isinstance(error, pai.ModelHTTPError):
        return _by_status(error.status_code)
    for kind, code, retryable in _OTHERS:
        if isinstance(error, kind):
            return code, retryable
    # Some adapters let their transport's own error through.
    if type(error).__module__.partition(".")[0] in _TRANSPORTS:
        return "connection", True
    return "unexpected", False


def _by_status(status: int) -> tuple[str, bool]:
    if status == 429:
        return "rate_limited", True
    if status in {401, 403}:
        return "unauthorized", False
    if status == 408:
        return "timeout", True
    if status >= 500:
        return "provider_error", True
    return "rejected", status in _RETRYABLE_STATUS


def _of_group(group: ExceptionGroup[Exception]) -> ModelFailed:
    """Several models were tried in turn: one that may work later is enough to try again."""
    failures = [to_failure(error) for error in group.exceptions]
    return next((failure for failure in failures if failure.retryable), failures[0])
