"""collect(package): the extensions of a folder by name; one mechanism for analysis and model."""

from model.capture.registry import collect

__all__ = ["collect"]
