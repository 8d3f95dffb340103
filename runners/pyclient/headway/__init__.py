"""headway: forward progress of a training run, witnessed."""

from ._errors import HeadwayError, LeaseLost, RunRevoked

__all__ = ["HeadwayError", "LeaseLost", "RunRevoked"]
