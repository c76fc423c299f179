"""Parser of schemas in Spark's DDL syntax: ``user string, amount double not null``."""

from __future__ import annotations

import re
from typing import NoReturn

from penstock.errors import SettingError, shown
from penstock.schema.data_types import ArrayType, DataType, DecimalType, Field, MapType, PlainType, StructType

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\W\d]\w*|\d+|[<>(),:])")
_MOST_DIGITS = 38

_PLAIN = {
    "string": "string",
    "boolean": "boolean",
    "byte": "byte",
    "tinyint": "byte",
    "short": "short",
    "smallint": "short",
    "int": "int",
    "integer": "int",
    "long": "long",
    "bigint": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
_NAMES = f"{', '.join(dict.fromkeys(_PLAIN.values()))}, decimal(p,s), array<…>, map<…,…>, struct<…>"
_DECIMAL = ("decimal", "dec", "numeric")


def read_fields(text: str) -> tuple[Field, ...]:
    """Parse the fields of a schema.

    >>> [field.ddl for field in read_fields("user STRING, amount: decimal(10, 2) NOT NULL")]
    ['user string', 'amount decimal(10,2) not null']
    """
    reader = _Parser(text)
    return reader.fields(until=None)


def read_type(text: str) -> DataType:
    """Parse a single type.

    >>> read_type("array<bigint>").ddl
    'array<long>'
    """
    reader = _Parser(text)
    found = reader.type()
    if reader.peek() is not None:
        reader.fail("unexpected text after the type")
    return found


class _Parser:
    """A recursive-descent parser over the tokens of a schema."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words: list[tuple[str, int]] = []
        self._next = 0
        place = 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                self._words.append((text[place:].strip()[0], place))
                self._next = len(self._words) - 1
                self.fail("a name, a type or one of < > ( ) , : was expected")
            self._words.append((match[1], match.start(1)))
            place = match.end()

    def peek(self) -> str | None:
        return self._words[self._next][0] if self._next < len(self._words) else None

    def fail(self, reason: str) -> NoReturn:
        if self._next < len(self._words):
            word, place = self._words[self._next]
            raise SettingError(f"schema {shown(self._text)}, at {word!r} (character {place + 1}): {reason}")
        raise SettingError(f"schema {shown(self._text)}, at its end: {reason}")

    def fields(self, until: str | None) -> tuple[Field, ...]:
        found: list[Field] = []
        while True:
            field = self._field()
            if any(field.name.lower() == other.name.lower() for other in found):
                self._next -= 1
                self.fail(f"the field {field.name!r} is declared twice")
            found.append(field)
            if self.peek() == until:
                return tuple(found)
            self._take(",")

    def type(self) -> DataType:
        word = self._word("a type")
        name = word.lower()
        if name in _PLAIN:
            return PlainType(_PLAIN[name])
        if name in _DECIMAL:
            return self._decimal()
        if name == "array":
            self._take("<")
            element = self.type()
            self._take(">")
            return ArrayType(element)
        if name == "map":
            self._take("<")
            key = self.type()
            self._take(",")
            value = self.type()
            self._take(">")
            return MapType(key, value)
        if name == "struct":
            self._take("<")
            fields = self.fields(until=">")
            self._take(">")
            return StructType(fields)
        self._next -= 1
        return self.fail(f"{word!r} is not a type: use one of {_NAMES}")

    def _field(self) -> Field:
        name = self._word("the name of a field")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        if self.peek() == ":":
            self._next += 1
        kind = self.type()
        nullable = True
        if (self.peek() or "").lower() == "not":
            self._next += 1
            if (self.peek() or "").lower() != "null":
                self.fail("NULL was expected after NOT")
            self._next += 1
            nullable = False
        if (self.peek() or "").lower() == "comment":
            self._next += 2
        return Field(name, kind, nullable)

    def _decimal(self) -> DecimalType:
        precision, scale = 10, 0
        if self.peek() == "(":
            self._next += 1
            precision = self._number()
            if self.peek() == ",":
                self._next += 1
                scale = self._number()
            self._take(")")
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            self._next -= 1
            self.fail(f"a decimal has 1 to {_MOST_DIGITS} digits, and at most as many after the point")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        word = self.peek()
        if word is None or not word.isdecimal():
            self.fail("a number was expected")
        self._next += 1
        return int(word)

    def _word(self, what: str) -> str:
        word = self.peek()
        if word is None or not (word[0] == "`" or word[0].isalpha() or word[0] == "_"):
            self.fail(f"{what} was expected")
        self._next += 1
        return word

    def _take(self, symbol: str) -> None:
        if self.peek() != symbol:
            self.fail(f"{symbol!r} was expected")
        self._next += 1
