"""The network families by name, from the files in architectures/."""

from functools import cache

from model.architecture import Architecture
from model.capture.registry import collect


@cache
def architectures() -> dict[str, Architecture]:
    """One instance of every family. Raises TypeError when a file does not define exactly one public class."""
    return {name: family() for name, family in collect("model.architectures").items()}
