"""Errors of a capture that a person should read; no torch, so that the front ends can name them."""


class CaptureError(RuntimeError):
    """A capture that would not be what was asked for; the message says what was seen and what was expected."""
