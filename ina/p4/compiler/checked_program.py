"""The front end's result besides the annotated tree: the program and its objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ina.p4.compiler import ast, types
from ina.p4.compiler.errors import Diagnostic


@dataclass(eq=False, slots=True)
class Instance:
    """One object of the running program: a parser, control, package or extern that was instantiated.

    `name` is its full control-plane name ("MyIngress.counters"). `decl` is the ParserDecl, ControlDecl, ExternDecl or
    PackageDecl. `args` maps constructor parameter names to values: consts as in `Expr.const`, or Instances.
    `site` is the Instantiation it came from, None for a nameless one.
    `children` maps the declared name of each Instantiation in its body to the Instance. `cp_names` maps the *declared*
    name of each table, action and value set in the body to its full control-plane name. `sizes`: sizes of the tables
    whose `size` takes constructor parameters, by declared name. `properties`: arguments of the objects that properties of its
    tables construct.
    """

    name: str
    decl: Any
    type: types.CallableType
    args: dict[str, Any] = field(default_factory=dict)
    site: ast.Instantiation | None = None
    children: dict[str, Instance] = field(default_factory=dict)
    cp_names: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    properties: dict[ast.Property, dict[str, Any]] = field(default_factory=dict)

    @property
    def origin(self) -> ast.Declaration:
        """Returns the target of messages about it: its Instantiation; for a nameless one, the declaration of its type."""
        origin: ast.Declaration = self.decl if self.site is None else self.site
        return origin


@dataclass(eq=False, slots=True)
class CheckedProgram:
    """A program that passed all checks.

    `declarations`: top-level nodes in order, core.p4's and the architecture's included.
    `main`: the package instance; `main.args` holds parser and control Instances by package parameter name,
    `main.decl.name` is the package's name ("V1Switch"). None when the program has no `main` (a library).
    `globals`: Instances of top-level extern objects by declared name.
    `warnings`: legal but doubtful constructs (literals that are cut, ...), in order; `errors.render` prints them.
    `attached`: the objects that properties of tables name.
    `errors` and `match_kinds`: member names in order of declaration. `types`: top-level type declarations by name.
    """

    filename: str
    declarations: list[ast.Node]
    main: Instance | None
    globals: dict[str, Instance]
    errors: list[str]
    match_kinds: list[str]
    types: dict[str, types.Type]
    warnings: list[Diagnostic] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict, repr=False)
    attached: set[Instance] = field(default_factory=set, repr=False)

    @property
    def package(self) -> Instance:
        """Returns `main` of a program that has one, as every program with a known architecture does."""
        assert self.main is not None
        return self.main
