"""Keys that a user sets: a dataclass has one in each field, with its default, help, range and unit; and errors about them."""

from __future__ import annotations

import dataclasses
import difflib
import numbers
import os
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ina.base.bounds import Range, noun
from ina.base.documents import Document

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Value = TypeVar("Value")
Settings = TypeVar("Settings", bound="DataclassInstance")


@dataclass(frozen=True)
class Problem:
    """A wrong key or value. ``key``: its name, "": of all keys together; ``text``: what is there, and what was expected."""

    key: str
    text: str


class ConfigError(ValueError):
    """Keys that do not exist, or values that do not fit; the message names file, key and what was expected, in a line for each of
    the ``problems``. A message that begins with ``key = `` is that key's."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        key = re.match(r"(\w+) = ", message)
        self.problems = tuple(problems) or (Problem(key[1] if key else "", message),)

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> ConfigError:
        """Returns the error of problems whose texts are complete."""
        return cls("\n".join(problem.text for problem in problems), problems)


def nearest(word: str, known: list[str]) -> str:
    """Returns ``; did you mean 'workers'?`` for a similar word, else the list of ``known`` words."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"


REQUIRED: Any = dataclasses.MISSING  # the default of a key that has none


@dataclass(frozen=True)
class Form:
    """Texts of one form: ``noun`` describes it in messages, with an example; ``fits``: whether a text has it."""

    noun: str
    fits: Callable[[Any], object]


@dataclass(frozen=True)
class Key:
    """A key. ``type``: of its values; ``choices``: the only texts, if there are any; ``unit``: such as "s", "": a bare number;
    ``form``: of a text."""

    name: str
    type: type
    default: object
    help: str
    range: Range | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    form: Form | None = None

    @property
    def noun(self) -> str:
        """Its type in messages, with the unit of what is measured."""
        return noun(self.type, self.unit) if self.type in (int, float) else NOUNS[self.type]

    def fits(self, value: object) -> bool:
        """Tells whether a value has the key's type: 1.0 is no whole number, and True is no number; None is a default only."""
        if value is None:
            return self.default is None
        kinds: Any = {int: numbers.Integral, float: numbers.Real, tuple: (list, tuple)}.get(self.type, self.type)
        return isinstance(value, kinds) and (self.type is bool or not isinstance(value, bool))

    def expected(self, value: object) -> str:
        """Returns text with what was expected, or "" if the value, of the right type, is in range, or one of the choices."""
        if self.range and isinstance(value, (int, float)) and not isinstance(value, bool):
            return self.range.outside(value)
        if self.form and not self.form.fits(value):
            return f"expected {self.form.noun}"
        return f"expected {' or '.join(map(repr, self.choices))}" if self.choices and value not in self.choices else ""


def key(
    default: Value, text: str, range: Range | None = None, *, choices: Iterable[str] = (), unit: str = "",
    form: Form | None = None,
) -> Value:
    """Returns a dataclass's field: a key with its default and its help."""
    unit = unit or (range.unit if range else "")
    metadata = {"help": text, "range": range, "choices": tuple(choices), "unit": unit, "form": form}
    return dataclasses.field(default=default, metadata=metadata)


def keys(kind: type[DataclassInstance]) -> dict[str, Key]:
    """Returns the keys of a dataclass by name, in its order."""
    if kind not in _KEYS:
        _KEYS[kind] = _read_keys(kind)
    return _KEYS[kind]


_KEYS: dict[type, dict[str, Key]] = {}  # reading them takes a millisecond


def _read_keys(kind: type[DataclassInstance]) -> dict[str, Key]:
    types = typing.get_type_hints(kind)
    return {field.name: Key(field.name, _plain(types[field.name]), field.default, **{"help": "", **field.metadata})
            for field in dataclasses.fields(kind)}


def _plain(hint: object) -> type:
    """Returns the type of the values of a key: of ``tuple[str, ...]`` tuple, of ``int | None`` int."""
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    plain = typing.get_origin(hint) if typing.get_origin(hint) is tuple else options[0] if options else hint
    assert isinstance(plain, type), hint
    return plain


def wrong(settings: DataclassInstance) -> Iterator[Problem]:
    """Yields the values of a dataclass that are of another type, out of range, or none of the choices."""
    for name, each in keys(type(settings)).items():
        value = getattr(settings, name)
        if text := each.expected(value) if each.fits(value) else f"expected {each.noun}":
            yield Problem(name, f"{name} = {shown(value)}: {text}")


def shown(value: object) -> str:
    """Returns a value for a message: a long one is cut."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


LONGEST = 200  # characters of a value in a message
SHOWN = 20  # of the problems of a sweep's points, which may be many
NOUNS: dict[type, str] = {str: "text", bool: "true or false", tuple: "a list of texts"}


def convert(key: Key, value: object, parse: bool = False) -> object:
    """Returns a value in the type of its key. ``parse``: it is a text of the command line; in a file "4" is no number.

    Raises ConfigError: it is of another type."""
    wrong = ConfigError.of([Problem(key.name, f"{key.name} = {shown(value)}: expected {key.noun}")])
    try:
        if key.type is tuple:
            items = value.split(",") if isinstance(value, str) else value
            if not isinstance(items, (list, tuple)):
                raise wrong
            return tuple(str(item).strip() for item in items)
        if key.type is bool:
            if not isinstance(value, bool) and not (parse and value in ("true", "false", "True", "False")):
                raise wrong
            return str(value).lower() == "true"
        if isinstance(value, str) and parse:
            return {str: str, int: int, float: float}[key.type](value)
        fits = isinstance(value, (int, float) if key.type is float else key.type) and not isinstance(value, bool)
        if not fits:
            raise wrong
        return float(value) if key.type is float and isinstance(value, int) else value
    except (ValueError, OverflowError) as error:
        raise wrong from (None if error is wrong else error)


class Problems:
    """Problems of a file or a command line, which are all reported at once."""

    def __init__(self) -> None:
        self._problems: dict[Problem, None] = {}

    def add(self, place: str, text: str, key: str = "") -> None:
        """Adds a problem. ``place``: such as "file:line"."""
        self._problems[Problem(key, f"{place}: {text}" if place else text)] = None

    @contextmanager
    def at(self, place: Callable[[str], str]) -> Iterator[None]:
        """Adds the problems of a ConfigError that is raised meanwhile. ``place``: of a key."""
        try:
            yield
        except ConfigError as error:
            for problem in error.problems:
                self.add(place(problem.key), problem.text, problem.key)

    def values(
        self, kind: type[DataclassInstance], table: Mapping[str, object], place: Callable[[str], str], others: Sequence[str] = (),
        hint: Callable[[str, list[str]], str] = nearest
    ) -> dict[str, Any]:
        """Returns the values of those keys of a table that exist, and have values of their types; adds the others' problems.
        ``others``: keys that somebody else reads; ``hint``: returns the end of an unknown key's error, by the known ones."""
        known = keys(kind)
        values: dict[str, Any] = {}
        for name, value in table.items():
            if name in others:
                continue
            if name not in known:
                self.add(place(name), f"unknown key {name!r}{hint(name, [*known, *others])}", name)
                continue
            with self.at(place):
                values[name] = convert(known[name], value)
        return values

    def settings(
        self, kind: type[Settings], table: Mapping[str, object], place: Callable[[str], str], others: Sequence[str] = ()
    ) -> Settings | None:
        """Returns the keys of a table with their defaults, or None if keys are missing or unknown, or values are of another type
        or out of range: adds these problems. ``others``: keys that somebody else reads."""
        before = len(self._problems)
        values = self.values(kind, table, place, others)
        for name, each in keys(kind).items():
            if each.default is REQUIRED and name not in table:
                self.add(place(name), f"{name} is missing", name)
            elif name in values and (text := each.expected(values[name])):
                self.add(place(name), f"{name} = {shown(table[name])}: {text}", name)
        return kind(**values) if len(self._problems) == before else None

    def check(self) -> None:
        """Raises ConfigError if there are any."""
        problems = list(self._problems)
        if len(problems) > SHOWN:
            problems[SHOWN:] = [Problem("", f"and {len(problems) - SHOWN} more")]
        if problems:
            raise ConfigError.of(problems)


class Sources(Generic[Settings]):
    """Values of a dataclass's keys from several sources, of which later ones count more, and the places where they are set."""

    def __init__(self, kind: type[Settings]) -> None:
        self._kind, self._keys = kind, keys(kind)
        self._values: dict[str, object] = {}
        self._places: dict[str, str] = {}  # such as "INA_SLOTS=5"
        self.problems = Problems()

    def add(self, name: str, value: object, place: str, parse: bool = False) -> None:
        """Sets a key, which exists. ``parse``: the value is a text."""
        self._places[name] = place
        try:
            self._values[name] = convert(self._keys[name], value, parse)
        except ConfigError:
            self.wrong(name, f"expected {self._keys[name].noun}")

    def add_file(self, document: Document) -> None:
        for name, value in document.content.items():
            if name in self._keys:
                self.add(name, value, f"{document.at(name)}: {name} = {shown(value)}")
            else:
                self.problems.add(document.at(name), f"unknown key {name!r}{nearest(name, list(self._keys))}", name)

    def add_environment(self, prefix: str, others: Sequence[str]) -> None:
        """Sets keys from variables, in capitals. ``others``: variables with this prefix that are no keys."""
        for name, text in os.environ.items():
            key = name.removeprefix(prefix).lower()
            if not name.startswith(prefix) or name.removeprefix(prefix) in others:
                continue
            if key in self._keys:
                if text:
                    self.add(key, text, f"{name}={text}", parse=True)
            elif close := difflib.get_close_matches(key, self._keys, 1, 0.75):
                self.problems.add(name, f"there is no such variable; did you mean {prefix}{close[0].upper()}?")

    def is_set(self, name: str) -> bool:
        return name in self._places

    def wrong(self, name: str, expected: str) -> None:
        """Adds the problem that the value of a key does not fit."""
        self.problems.add(self._places[name], expected, name)

    @contextmanager
    def errors(self, name: str, before: str = "") -> Iterator[None]:
        """Adds a ValueError that is raised meanwhile as a problem of a key's value. ``before``: its text."""
        try:
            yield
        except ValueError as error:
            self.wrong(name, f"{before}{error}")

    def read(self) -> Settings:
        """Returns the keys' values, and the defaults of those that are not set, or of another type. ``problems`` has what is
        wrong so far: the caller adds to it, and checks it at the end."""
        for name, value in self._values.items():
            if text := self._keys[name].expected(value):
                self.wrong(name, text)
        return self._kind(**self._values)
