"""Macros of the C preprocessor: definition, and replacement in the order of GCC's cpp.

A macro is disabled while tokens of its expansion are being read; its name, met then, is never replaced afterwards. Arguments
are read to their `)` wherever that stands, and replaced before they are substituted, unless # or ## takes them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn, Protocol

from ina.p4.compiler.front.pp_tokens import Place, Token, is_token

MAX_EXPANDED = 2_000_000  # tokens: four times the largest program of this project
_CHARACTERS = 8  # of a name or string made by a macro: they count as one token
_FUSED = re.compile(r"[-+*/%&|^~!<>=.:?]+")
END = Token("end", "", "", ("", 0))
"""Ends a file, and the search for a macro's arguments before a directive"""
_Argument = list[Token]


class Fail(Protocol):
    def __call__(self, place: Place, message: str) -> NoReturn: ...


class Part(NamedTuple):
    """A token of a macro's text. `param`: the parameter's number, or -1; `quoted` by #; `left`, `right`: a ## stands there."""

    token: Token
    param: int
    quoted: bool
    left: bool
    right: bool


class Macro(NamedTuple):
    """`params` is None where the name stands alone. `variadic`: the last one takes all further arguments."""

    params: list[str] | None
    variadic: bool
    parts: list[Part]


class Macros:
    """All macros at one point of the text. `fail(place, message)` raises the error of what a program does wrong."""

    def __init__(self, fail: Fail, built_in: Mapping[str, Callable[[Token], Token]]) -> None:
        self.fail = fail
        self.defined: dict[str, Macro] = {}
        self.built_in = dict(built_in)
        self.seeking = False
        """True while a `(` is looked for: a directive that comes first ends the search"""
        self._spent = 0

    def __contains__(self, name: str) -> bool:
        return name in self.defined or name in self.built_in

    def define(self, tokens: Sequence[Token], place: Place) -> None:
        """Takes what stands behind `#define`."""
        name = self.name(tokens, "define", place)
        params: list[str] | None = None
        variadic = False
        rest = [t._replace(before=" ") if t.before else t for t in tokens[1:]]
        if rest and rest[0].text == "(" and not rest[0].before:
            params, variadic, rest = self._parameters(name, rest[1:], place)
        self.defined[name] = Macro(params, variadic, self._parts(name, params, variadic, rest, place))

    def undefine(self, name: str) -> None:
        self.defined.pop(name, None)
        self.built_in.pop(name, None)

    def name(self, tokens: Sequence[Token], directive: str, place: Place) -> str:
        """Returns the name that a directive begins with."""
        if not tokens:
            self.fail(place, f"#{directive} needs a name")
        if tokens[0].kind != "id" or tokens[0].text == "defined" and directive in ("define", "undef"):
            self.fail(place, f"#{directive} needs a name, not '{tokens[0].text}'")
        return tokens[0].text

    def _parameters(self, macro: str, tokens: list[Token], place: Place) -> tuple[list[str], bool, list[Token]]:
        """Returns the names of `a, b, ...)`, whether the last takes all further arguments, and the tokens behind the `)`."""
        params: list[str] = []
        at = 0
        while at < len(tokens):
            if tokens[at].text == ")" and not params and at == 0:
                return params, False, tokens[1:]
            variadic = False
            if tokens[at].kind == "id":
                params.append(tokens[at].text)
                at += 1
                if at < len(tokens) and tokens[at].text == "...":
                    variadic = True
                    at += 1
            elif tokens[at].text == "...":
                params.append("__VA_ARGS__")
                variadic = True
                at += 1
            else:
                self.fail(place, f"macro '{macro}': expected a parameter, not '{tokens[at].text}'")
            if params[-1] in params[:-1]:
                self.fail(place, f"macro '{macro}' has two parameters '{params[-1]}'")
            end = tokens[at].text if at < len(tokens) else ""
            if end == ")":
                return params, variadic, tokens[at + 1 :]
            if end != "," or variadic:
                break
            at += 1
        self.fail(place, f"parameters of macro '{macro}' are never closed: expected ')'")

    def _parts(
        self, macro: str, params: list[str] | None, variadic: bool, tokens: list[Token], place: Place
    ) -> list[Part]:
        parts: list[Part] = []
        left = quoted = False
        before = ""
        numbers = {name: i for i, name in enumerate(params or ())}
        for i, token in enumerate(tokens):
            if token.text == "##" and token.kind == "op":
                if not parts or i == len(tokens) - 1:
                    self.fail(place, f"macro '{macro}': '##' needs a token on both sides")
                parts[-1] = parts[-1]._replace(right=True)
                left = True
                continue
            if token.text == "__VA_OPT__" and variadic:
                self.fail(place, f"macro '{macro}': __VA_OPT__ is not supported")
            following = tokens[i + 1] if i + 1 < len(tokens) else None
            if token.text == "#" and following is not None and following.text in numbers:
                quoted, before = True, token.before
                continue
            param = numbers.get(token.text, -1) if token.kind == "id" else -1
            parts.append(Part(token._replace(before=before if quoted else token.before), param, quoted, left, False))
            left = quoted = False
        return parts

    def spend(self, tokens: int, place: Place) -> None:
        """Counts what macros make. Raises the error of too much."""
        self._spent += tokens
        if self._spent > MAX_EXPANDED:
            self.fail(place, f"macros make more than {MAX_EXPANDED:,} tokens of this program")

    def spend_text(self, text: str, place: Place) -> None:
        self.spend(len(text) // _CHARACTERS, place)


class Expansion:
    """The tokens of `source` with macros replaced. `disabled`: names of the macros whose tokens are being read."""

    def __init__(self, macros: Macros, source: Iterator[Token], disabled: set[str] | None = None) -> None:
        self.macros = macros
        self.source = source
        self.disabled: set[str] = set() if disabled is None else disabled
        self._stack: list[tuple[list[Token], str | None]] = []
        """Tokens to read before those of `source`, in reverse order, and the macro that they come from"""
        self._seam = False

    def all(self) -> list[Token]:
        tokens = []
        while (token := self.take()) is not None:
            tokens.append(token)
        return tokens

    def take(self, raw: bool = False) -> Token | None:
        """Returns the next token, None at the end. `raw`: does not replace it."""
        stack, disabled, macros = self._stack, self.disabled, self.macros
        while True:
            if stack:
                tokens, origin = stack[-1]
                if not tokens:
                    stack.pop()
                    if origin is not None:
                        disabled.discard(origin)
                        self._seam = True
                    continue
                token = tokens.pop()
            else:
                following = next(self.source, None)
                if following is None:
                    return None
                token = following
            seam, self._seam = self._seam, False
            if token.kind == "id" and not token.painted:
                if (macro := macros.defined.get(token.text)) is not None:
                    if token.text in disabled:
                        token = token._replace(painted=True)
                    elif not raw and self._replace(token, macro):
                        continue
                elif not raw and (built_in := macros.built_in.get(token.text)) is not None:
                    token = built_in(token)
                    seam = self._seam = True
            if seam and not token.text:
                self._seam = True
            elif seam and not token.before:
                token = token._replace(seam=True)
            return token

    def _replace(self, name: Token, macro: Macro) -> bool:
        """Puts the macro's text in the place of its name and arguments. Returns False where it has no arguments and needs
        some."""
        arguments: list[_Argument | None] = []
        if macro.params is not None:
            given = self._arguments(name, macro, len(macro.params))
            if given is None:
                return False
            arguments = given
        tokens = self._substituted(name, macro, arguments)
        self.macros.spend(len(tokens), name.place)
        if tokens:
            tokens[0] = tokens[0]._replace(before=name.before)
        tokens.reverse()
        self._stack.append((tokens, name.text))
        self.disabled.add(name.text)
        self._seam = True
        return True

    def _arguments(self, name: Token, macro: Macro, arity: int) -> list[_Argument | None] | None:
        """Takes `( arguments )`; None if no `(` follows. A variadic argument that is left out is None."""
        self.macros.seeking = True
        token = self.take(raw=True)
        self.macros.seeking = False
        if token is None or token.kind == "end":
            return None
        if token.text != "(":
            self._stack.append(([token], None))
            return None
        arguments: list[_Argument | None] = []
        argument: _Argument = []
        depth = 0
        while True:
            token = self.take(raw=True)
            if token is None or token.kind == "end":
                self.macros.fail(name.place, f"arguments of macro '{name.text}' are never closed: expected ')'")
            if token.text == ")" and not depth:
                break
            if token.text == "," and not depth and not (macro.variadic and len(arguments) == arity - 1):
                arguments.append(argument)
                argument = []
                continue
            depth += (token.text == "(") - (token.text == ")")
            before = " " if token.before or (argument and argument[-1].place != token.place) else ""
            argument.append(token if token.before == before else token._replace(before=before))
        arguments.append(argument)
        self.macros.spend(sum(len(tokens or ()) for tokens in arguments), name.place)  # they are read again at each level
        if arity == 0 and arguments == [[]]:
            return []
        if macro.variadic and (len(arguments) == arity - 1 or (arity == 1 and not argument)):
            arguments[arity - 1 :] = [None]
        if len(arguments) != arity:
            self.macros.fail(name.place, f"macro '{name.text}' takes {arity} arguments, not {len(arguments)}")
        return arguments

    def _substituted(self, name: Token, macro: Macro, arguments: Sequence[_Argument | None]) -> list[Token]:
        """Returns the macro's text with its arguments, all of it at the place of its name."""
        out: list[Token] = []
        replaced: dict[int, list[Token]] = {}
        place = name.place
        nothing = Token("", "", "", place)
        seam = False
        for token, param, quoted, left, right in macro.parts:
            if param < 0:
                piece = [Token(token.kind, token.text, token.before, place, False, seam)]
                seam = False
            else:
                argument = arguments[param]
                if quoted:
                    piece = [self._quoted(argument or [], place)]
                elif left or right:
                    piece = argument or []
                    if left and out[-1].text == "," and macro.variadic and param == len(arguments) - 1:  # GNU's `, ## a`
                        left = False
                        if argument is None:
                            out[-1:] = [nothing]
                else:
                    if param not in replaced:
                        replaced[param] = Expansion(self.macros, iter(argument or []), self.disabled).all()
                    piece = replaced[param]
                piece = [t if t.place == place else t._replace(place=place) for t in piece]
                if piece:
                    piece[0] = piece[0]._replace(before=token.before, seam=True)
                seam = True
            if not piece and (left or right):
                piece = [nothing]
            if left:
                piece[:1] = self._pasted(out.pop(), piece[0])
            out += piece
        return [token for token in out if token.text]

    def _pasted(self, left: Token, right: Token) -> list[Token]:
        """Returns the token that a ## makes of two, or both if they are none together, as in assembler."""
        if not left.text or not right.text:
            return [(left if left.text else right)._replace(before=left.before)]
        text = left.text + right.text
        self.macros.spend_text(text, left.place)
        kind = is_token(text) if not text.startswith(("//", "/*")) else None
        if kind is None and _FUSED.fullmatch(text) and not text.startswith(("//", "/*")):
            kind = "op"  # operators stay side by side, and may be one of P4's
        if kind is None or kind in ("string", "char"):
            return [left, right._replace(before="", seam=False)]
        return [left._replace(kind=kind, text=text, painted=False)]

    def _quoted(self, argument: list[Token], place: Place) -> Token:
        """Returns the string that a # makes of an argument (C11 §6.10.3.2)."""
        texts: list[str] = []
        for token in argument:
            text = token.text
            if token.kind in ("string", "char"):
                text = text.replace("\\", "\\\\").replace('"', '\\"')
            texts.append(" " + text if token.before and texts else text)
        text = f'"{"".join(texts)}"'
        self.macros.spend_text(text, place)
        return Token("string", text, "", place)
