"""Text that a person typed or a model said, made safe for places that read Markdown."""

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|$~:&])")


def literal(text: str) -> str:
    """The text as Markdown that shows it as it is: no emphasis, link, formula, colour or icon."""
    return _SPECIAL.sub(r"\\\1", text)
