"""Which folders can take a run, asked before the work."""

from model.capture.place import checkpoint_in

__all__ = ["checkpoint_in"]
