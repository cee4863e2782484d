"""Lines of keys in TOML, which the parsers for Python do not report (tomllib has none, tomlkit keeps none).

The text has been parsed by tomllib before, so that a scan for keys is enough: it knows strings and comments, headers, dotted
keys, and what is nested in values.

    document := (NEWLINE | header | pair NEWLINE)*          header := "[" key "]" | "[" "[" key "]" "]"
    pair     := key "=" value                               key    := name ("." name)*
    value    := "[" value, ... "]" | "{" pair, ... "}" | any other words, up to "," "]" "}" or a new line
"""

from __future__ import annotations

import re
import tomllib

Path = tuple[str | int, ...]  # keys from the top of the document, and indices of lists

TOKEN = re.compile(r"""
    (?P<word> [^][{}=,."'\#\s]+ ) | (?P<mark> [][{}=,.\n] ) | (?P<comment> \#[^\n]* )
    | (?P<string> \"{3} (?:\\.|[^\\])*? \"{3,5} | '{3} .*? '{3,5} | " (?:\\.|[^"\\\n])* " | ' [^'\n]* ' )
""", re.VERBOSE | re.DOTALL)


def lines(text: str) -> dict[Path, int]:
    """Returns the line of each key and list's item of a valid document; that of a table is its first one's."""
    return _Scan(text).lines


class _Scan:
    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._tokens: list[tuple[str, int]] = []
        line = 1
        for match in TOKEN.finditer(text):
            if match.lastgroup != "comment":
                self._tokens.append((match[0], line))
            if match.lastgroup in ("string", "mark"):
                line += match[0].count("\n")
        self._tokens.append(("", line))
        self._next = 0
        self._counts: dict[Path, int] = {}  # tables of each [[...]]
        self._document()

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1][0]

    def _at(self, *tokens: str) -> bool:
        return self._tokens[self._next][0] in tokens

    def _skip(self, *tokens: str) -> None:
        while self._at(*tokens):
            self._next += 1

    def _more(self, end: str, *separators: str) -> bool:
        """Skips separators. Returns True unless the end follows, which is taken."""
        self._skip(*separators)
        if self._at(end):
            self._next += 1
            return False
        return True

    def _note(self, path: Path, line: int) -> None:
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], line)

    def _document(self) -> None:
        table: Path = ()
        while self._more("", "\n"):
            line = self._tokens[self._next][1]
            if self._at("["):
                self._take()
                several = self._at("[")
                self._skip("[")
                table = self._header(self._key(), several)
                self._skip("]")
                self._note(table, line)
            else:
                self._pair(table)

    def _header(self, key: tuple[str, ...], several: bool) -> Path:
        """Returns the path of a header's table: below the last one of each list of tables on the way."""
        path: Path = ()
        for place, name in enumerate(key, start=1):
            path = (*path, name)
            if several and place == len(key):
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _key(self) -> tuple[str, ...]:
        names = [self._name()]
        while self._at("."):
            self._take()
            names.append(self._name())
        return tuple(names)

    def _name(self) -> str:
        text = self._take()
        return str(tomllib.loads(f"name = {text}")["name"]) if text[0] in "\"'" else text

    def _pair(self, table: Path) -> None:
        line = self._tokens[self._next][1]
        path = (*table, *self._key())
        self._note(path, line)
        self._take()  # =
        self._value(path)

    def _value(self, path: Path) -> None:
        if self._at("{"):
            self._take()
            while self._more("}", "\n", ","):
                self._pair(path)
        elif self._at("["):
            self._take()
            index = 0
            while self._more("]", "\n", ","):
                self.lines.setdefault((*path, index), self._tokens[self._next][1])
                self._value((*path, index))
                index += 1
        else:
            while not self._at("\n", ",", "]", "}", ""):
                self._take()
