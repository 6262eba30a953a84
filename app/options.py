"""Words of the command line as the fields of a dataclass: exit rules and charts get their options from their own fields."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_WORDS: Mapping[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
_YES_NO: Mapping[str, bool] = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class OptionError(ValueError):
    """An option that cannot be used; the message says what was given, what was expected and what to do."""


def pairs(option: str, items: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` items of a repeatable option as a mapping. Raises OptionError for another form or a repeated name."""
    found: dict[str, str] = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise OptionError(f"{option} {item} was given; write {option} NAME=VALUE.")
        if name in found:
            raise OptionError(f"{option} names {name} twice; give it once.")
        found[name] = value
    return found


def filled(kind: type[T], given: Mapping[str, str], *, what: str, ready: Mapping[str, Any] = MappingProxyType({})) -> T:
    """An instance of the dataclass ``kind`` with the given fields read from words, the others at their defaults.

    ``ready`` holds fields whose values are no words (the projection of a chart).

    Raises OptionError when there is no such field, a word does not fit its type, or the class refuses the values.
    """
    hints = get_type_hints(kind)
    own = {field.name: field for field in fields(cast("Any", kind)) if field.init}
    unknown = [name for name in (*given, *ready) if name not in own]
    if unknown:
        listed = ", ".join(own) if own else "none"
        raise OptionError(f"{what} has no option {unknown[0]!r}; its options are: {listed}.")
    absent = [n for n, f in own.items() if f.default is MISSING and f.default_factory is MISSING and n not in {*given, *ready}]
    if absent:
        raise OptionError(f"{what} needs a value for {absent[0]!r}; give it.")
    values = {name: read(hints[name], word, where=f"{what}, {name}") for name, word in given.items()}
    try:
        return kind(**values, **ready)
    except ValueError as error:
        raise OptionError(str(error)) from error


def read(kind: Any, word: str, *, where: str) -> Any:
    """A word as a value of the type ``kind``: numbers, true or false, words, choices, None, tuples ``a,b``.

    Raises OptionError that starts with ``where``.
    """
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _one_of(get_args(kind), word, where)
    if origin is Literal:
        choices = {str(choice): choice for choice in get_args(kind)}
        if word not in choices:
            raise OptionError(f"{where}: {word!r} is unknown; choose one of {', '.join(choices)}.")
        return choices[word]
    if origin is tuple:
        return _tuple(get_args(kind), word, where)
    if kind is bool:
        if word.lower() not in _YES_NO:
            raise OptionError(f"{where}: {word!r} was given; write true or false.")
        return _YES_NO[word.lower()]
    if kind in (int, float, str):
        try:
            return kind(word)
        except ValueError as error:
            raise OptionError(f"{where}: {word!r} was given; {_WORDS[kind]} was expected.") from error
    raise OptionError(f"{where} cannot be set from the command line; use the page for it.")


def _one_of(kinds: tuple[Any, ...], word: str, where: str) -> Any:
    if NoneType in kinds and word.lower() == "none":
        return None
    failed: OptionError | None = None
    for kind in kinds:
        if kind is not NoneType:
            try:
                return read(kind, word, where=where)
            except OptionError as error:
                failed = failed or error
    raise failed or OptionError(f"{where}: {word!r} was given; only none is possible.")


def _tuple(kinds: tuple[Any, ...], word: str, where: str) -> tuple[Any, ...]:
    parts = [part for part in word.split(",") if part]
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(read(kinds[0], part, where=where) for part in parts)
    if len(parts) != len(kinds):
        raise OptionError(f"{where}: {word!r} has {len(parts)} parts; give {len(kinds)}, with commas between them.")
    return tuple(read(kind, part, where=where) for kind, part in zip(kinds, parts, strict=True))
