"""Widgets from the fields of a dataclass: a new rule, projection or chart option needs no edit here."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import streamlit as st

from analysis.thresholds import threshold_words

T = TypeVar("T")
Options = Mapping[Any, str]
"""Choices of a field: value -> what it is called on the page."""

_LABELS: Mapping[str, str] = {
    "threshold": "Threshold τ",
    "patience": "Patience p",
    "minimum_loops": "Minimum loops",
    "min_dist": "Minimum distance",
    "dims": "Dimensions",
    "fit": "Fitted on",
    "show": "Tokens drawn",
    "blocks": "Blocks",
    "show_start": "Show initial states (k = 0)",
    "leave_out": "Leave out tokens",
    "norm_limit": "Leave out norms above (× median)",
    "chosen": "Chosen tokens",
    "per_prompt": "A line per prompt",
    "others": "Other tokens",
    "x": "Cost",
    "y": "Quality",
    "bands": "Intervals",
}
_SHORT = 20
"""Characters of all labels together up to which choices lie side by side."""

_FEW = 10
"""Choices of which some are taken, up to which all are in sight."""

_WIDTH = 250
"""Pixels of a list of names: wide enough for a statistic, and not as wide as the page."""


def instance(
    kind: type[T],
    *,
    prefix: str,
    only: Sequence[str] | None = None,
    options: Mapping[str, Options] | None = None,
    ladders: Mapping[str, Sequence[float]] | None = None,
    across: int = 0,
    others: Mapping[str, Any] | None = None,
) -> T:
    """Widgets for the fields of ``kind`` in the current container, and the instance that they describe.

    ``others`` are values of fields that have no widget here. Values that the class refuses give its sentence on the
    page and the defaults; for the rest see ``values``.
    """
    given = values(kind, prefix=prefix, only=only, options=options, ladders=ladders, across=across)
    try:
        return kind(**given, **(others or {}))
    except ValueError as error:
        st.error(str(error))
        return kind(**(others or {}))


def values(
    kind: type[Any],
    *,
    prefix: str,
    only: Sequence[str] | None = None,
    options: Mapping[str, Options] | None = None,
    ladders: Mapping[str, Sequence[float]] | None = None,
    across: int = 0,
) -> dict[str, Any]:
    """Widgets for the fields of a dataclass in the current container, and their values by field.

    Each widget is bound to the URL as ``prefix.field``. ``only`` names the fields that get one (None: all with a
    widget for their type); the others keep their defaults. ``options`` gives choices for fields whose type names
    none, ``ladders`` the steps of sliders. ``across``: so many number fields side by side; 0 leaves the arrangement to
    the container.
    """
    hints = get_type_hints(kind)
    found: dict[str, Any] = {}
    cells: list[Any] = []
    for field in fields(kind):
        if field.init and (only is None or field.name in only):
            choices, key = (options or {}).get(field.name), f"{prefix}.{field.name}"
            ladder = (ladders or {}).get(field.name, ())
            beside = bool(across) and not ladder and hints[field.name] in (int, float)
            if beside and not cells:
                cells = list(st.columns(across))
            with cells.pop(0) if beside else nullcontext():
                value = _field(field, hints[field.name], key, options=choices, ladder=ladder)
            if value is not MISSING:
                found[field.name] = value
    return found


def label(name: str) -> str:
    """A field's name as words."""
    return _LABELS.get(name, name.replace("_", " ").capitalize())


def one_of(
    title: str, options: Options, *, key: str, default: Any, listed: bool = False, width: int | Literal["stretch"] = "stretch"
) -> Any:
    """One of several choices: side by side where they are short, else in a list. Bound to the URL."""
    values = list(options)
    if not listed and len("".join(options.values())) <= _SHORT and len(values) <= 4:
        return st.segmented_control(
            title,
            values,
            default=default,
            required=True,
            format_func=options.__getitem__,
            key=key,
            bind="query-params",
        )
    return st.selectbox(
        title,
        values,
        index=values.index(default),
        format_func=options.__getitem__,
        key=key,
        bind="query-params",
        width=width,
    )


def _field(field: Field[Any], kind: Any, key: str, *, options: Options | None, ladder: Sequence[float]) -> Any:
    default: Any = field.default
    title, origin = label(field.name), get_origin(kind)
    if origin is tuple:
        if options is None:
            return MISSING
        return _several(title, options, key=key, default=list(cast("Sequence[Any]", default)))
    if options is not None or origin is Literal:
        choices = options if options is not None else {choice: _choice_words(choice) for choice in get_args(kind)}
        return one_of(title, choices, key=key, default=default, width="stretch" if options is None else _WIDTH)
    if origin in (Union, UnionType):
        return _maybe(title, [part for part in get_args(kind) if part is not NoneType], key, default=default)
    if ladder:
        steps = [float(step) for step in ladder]
        return st.select_slider(
            title, steps, value=cast("float", default), format_func=threshold_words, key=key, bind="query-params"
        )
    return _plain(title, kind, key, default=default)


def _several(title: str, options: Options, *, key: str, default: list[Any]) -> tuple[Any, ...]:
    """Some of several choices: all in sight where they are few, else in a list."""
    words = options.__getitem__
    if len(options) <= _FEW:
        return tuple(
            st.pills(
                title, list(options), selection_mode="multi", default=default, format_func=words, key=key, bind="query-params"
            )
        )
    return tuple(st.multiselect(title, list(options), default=default, format_func=words, key=key, bind="query-params"))


def _choice_words(choice: Any) -> str:
    return f"{choice}-D" if isinstance(choice, int) else str(choice).replace("_", " ").capitalize()


def _maybe(title: str, kinds: Sequence[Any], key: str, *, default: Any) -> Any:
    """A number that may be absent."""
    if float not in kinds:
        return MISSING
    return st.number_input(
        title, value=default, min_value=0.0, step=1.0, format="%g", placeholder="off", key=key, bind="query-params"
    )


def _plain(title: str, kind: Any, key: str, *, default: Any) -> Any:
    if kind is bool:
        return st.toggle(title, value=default, key=key, bind="query-params")
    if kind is int:
        whole = st.number_input(title, value=cast("int", default), min_value=0, step=1, key=key, bind="query-params")
        return int(whole)
    if kind is float:
        number = st.number_input(title, value=cast("float", default), step=0.05, format="%g", key=key, bind="query-params")
        return float(number)
    if kind is str:
        return st.text_input(title, value=default, key=key, bind="query-params")
    return MISSING
