"""The grammar of P4_16: every construct is read into the tree that ast.py describes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ina.p4.compiler import ast
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.front.lexer import integer, tokenize
from ina.p4.compiler.frontend import parse_text
from ina.p4.compiler.instances import key_name

pytestmark = pytest.mark.fast


def declaration(text: str):
    program = parse_text(text, "test.p4")
    return program.declarations[-1]


def expression(text: str) -> ast.Expr:
    return declaration(f"typedef bit<8> T; const T c = {text};").value


def statement(text: str):
    return declaration(f"typedef bit<8> T; action a() {{ {text} }}").body.statements[0]


def shape(e) -> str:
    """Fully parenthesised text"""
    match e:
        case ast.Binary():
            return f"({shape(e.left)} {e.op} {shape(e.right)})"
        case ast.Unary():
            return f"({e.op}{shape(e.operand)})"
        case ast.Ternary():
            return f"({shape(e.condition)} ? {shape(e.then)} : {shape(e.otherwise)})"
        case ast.Cast():
            return f"(cast {shape(e.operand)})"
        case _:
            return ast.source_text(e)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", (10, None, False)),
        ("0x1F", (31, None, False)),
        ("0b1111_0000", (240, None, False)),
        ("0o17", (15, None, False)),
        ("0d9", (9, None, False)),
        ("8w10", (10, 8, False)),
        ("4s0b1111", (15, 4, True)),
        ("32w0xdead_beef", (0xDEADBEEF, 32, False)),
        ("010", (10, None, False)),
    ],
)
def test_integer_literals(text, value):
    assert integer(text) == value
    literal = expression(text)
    assert (literal.value, literal.width, literal.signed) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * c - d", "((a + (b * c)) - d)"),
        ("a == b & c", "(a == (b & c))"),
        ("a | b ^ c & d << e", "(a | (b ^ (c & (d << e))))"),
        ("a >> b > c", "((a >> b) > c)"),
        ("a ++ b ++ c", "((a ++ b) ++ c)"),
        ("a |+| b |-| c", "((a |+| b) |-| c)"),
        ("a || b && !c", "(a || (b && (!c)))"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("(T) a + b", "((cast a) + b)"),
        ("(bit<8>) -a", "(cast (-a))"),
        ("(a) + b", "(a + b)"),
        ("~a[7:0]", "(~a[7:0])"),
        ("a[3 +: 8]", "a[3+:8]"),
        ("a < b", "(a < b)"),
        ("f<T>(a)", "f(a)"),
        ("h.s[1].f(x = 1, y = _).g", "h.s[1].f(1, _).g"),
    ],
)
def test_precedence_and_primaries(text, expected):
    assert shape(expression(text)) == expected


def test_shift_and_nested_type_arguments():
    instance = declaration("extern E<A> { E(); } extern L<A> { L(); } L<E<bit<(1+1)>>>() x;")
    assert isinstance(instance, ast.Instantiation)
    inner = instance.type_ref.args[0]
    assert inner.name == "E" and inner.args[0].kind == "bit"
    assert shape(declaration("const bit<a < 3 ? 5 : (b > 2 ? 1 : 2)> x = 0;").type_ref.width).startswith("((a < 3) ? 5")


def test_initialisers():
    assert isinstance(expression("{#}"), ast.InvalidHeader)
    fields = expression("{ a = 1, b = { 2, 3, }, ... }")
    assert [name for name, _ in fields.fields] == ["a", "b"] and fields.dots
    items = expression("{ 1, ... }")
    assert len(items.items) == 1 and items.dots
    assert isinstance(expression("..."), ast.Dots)
    for text, count in (("{ a = 1, ..., }", 1), ("{ 1, 2, ..., }", 2), ("{ ..., }", 0)):
        trailing = expression(text)
        assert trailing.dots and len(trailing.fields if isinstance(trailing, ast.StructInit) else trailing.items) == count
    assert expression('"a\\"b\\n"').value == 'a"b\n'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a = b;", ast.Assign),
        ("a.b[1].c[3:0] |+|= 2;", ast.Assign),
        ("a >>= 2;", ast.Assign),
        ("f();", ast.CallStatement),
        ("t.apply();", ast.CallStatement),
        ("T.apply(x);", ast.CallStatement),
        ("T a;", ast.VarDecl),
        ("T[3] a;", ast.VarDecl),
        ("Unknown a = 3;", ast.VarDecl),
        ("T(1, 2) a;", ast.Instantiation),
        ("tuple<T, bool> t = {1, true};", ast.VarDecl),
        ("const bit<8> k = 1;", ast.ConstDecl),
        ("if (a) b = 1; else { c = 2; }", ast.If),
        ("switch (t.apply().action_run) { a: b: { } default: { } }", ast.Switch),
        ("for (bit<8> i = 0, T j = 1; i < 4; i += 1, j = j + 1) { continue; }", ast.ForC),
        ("for (;a < b;) break;", ast.ForC),
        ("for (bit<8> i in 0 .. 3) { break; }", ast.ForIn),
        ("@unroll for (T x in h.stack) { }", ast.ForIn),
        ("return;", ast.Return),
        ("exit;", ast.Exit),
        (";", ast.EmptyStatement),
        ("@annotated { a = 1; }", ast.Block),
    ],
)
def test_statements(text, kind):
    assert type(statement(text)) is kind


def test_compound_operators():
    ops = ["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "|+|=", "|-|="]
    for op in ops:
        assert statement(f"a {op} b;").op == (op if op == "=" else op[:-1])


def test_declarations():
    text = """
        error { E1, E2 }
        match_kind { fuzzy }
        enum Colour { red, green }
        enum bit<8> Code { a = 1, b = 2 }
        header h_t<T> { @field_list(1) bit<8> a; varbit<32> v; T t; }
        header_union u_t { h_t<bit<8>> a; }
        struct s_t { h_t<bit<8>>[4] stack; tuple<bit<8>, bool> pair; list<bit<8>> l; }
        typedef bit<9> port_t;
        type bit<9> new_port_t;
        typedef struct inner_t { bit<1> x; } alias_t;
        extern X<T> { X(bit<32> n); T get<U>(in U u); abstract void handle(inout T t); }
        extern T f<T>(in T a, @optional in bit<8> b = 3);
        bit<8> g<T>(in T a) { return 1; }
        parser PT<H>(packet_in p, out H h);
        control CT<H>(inout H h);
        package Pk<H>(PT<H> p, CT<H> c = X());
        X<bit<8>>(3) x = { void handle(inout bit<8> t) { t = this.get<bool>(true); } };
        ;
    """
    program = parse_text(text, "test.p4")
    kinds = [type(d).__name__ for d in program.declarations]
    expected = """ErrorDecl MatchKindDecl EnumDecl EnumDecl RecordDecl RecordDecl RecordDecl TypedefDecl TypedefDecl
        TypedefDecl ExternDecl ExternFunctionDecl FunctionDecl ParserTypeDecl ControlTypeDecl PackageDecl Instantiation"""
    assert kinds == expected.split()
    extern = program.declarations[10]
    assert [m.return_ref is None for m in extern.methods] == [True, False, False] and extern.methods[2].abstract


def test_parsers():
    parser = declaration("""
        parser p(packet_in b, out h_t h)(bool flag) {
            value_set<bit<16>>(4) vs;
            bit<8> x = 1;
            state start {
                b.extract(h);
                transition select(h.a, h.b[3:0]) {
                    (1, 2 &&& 3): one;
                    (1 .. 5, _): accept;
                    (vs, default): reject;
                    default: one;
                }
            }
            @name("first") state one { { x = 2; } transition accept; }
            state none { }
        }
    """)
    assert [s.name for s in parser.state_list] == ["start", "one", "none"]
    cases = parser.state_list[0].transition.cases
    assert [[type(k).__name__ for k in c.keys] for c in cases] == [
        ["IntLiteral", "Mask"],
        ["Range", "DontCare"],
        ["Name", "DontCare"],
        ["DontCare"],
    ]
    assert parser.state_list[2].transition is None and parser.state_list[1].cp_name == "first"
    assert parser.ctor_params[0].is_ctor


def test_tables():
    control = declaration("""
        control c(inout h_t h) {
            action a(in bit<8> x, bit<8> y) {}
            table t {
                key = { h.a: exact; h.b + 1: ternary @name("sum"); }
                actions = { a(h.a); @defaultonly .NoAction; }
                const entries = {
                    (1, 2 &&& 3): a(4);
                    priority = 10: (_, 5): a(6) @note(x y);
                    const (8w1 ++ 8w2, (bit<8>) 3): a(7);
                }
                const default_action = NoAction();
                size = 1 << 10;
                implementation = action_profile(32);
                @meta largest_priority_wins = false;
            }
            apply @here { t.apply(); }
        }
    """)
    table = control.locals[1]
    assert [k.match_kind for k in table.keys] == ["exact", "ternary"]
    assert [key_name(k) for k in table.keys] == ["h.a", "sum"]
    assert [a.name for a in table.actions] == ["a", "NoAction"] and table.actions[1].absolute
    assert (
        table.const_entries
        and table.const_default
        and list(table.properties) == ["implementation", "largest_priority_wins"]
    )
    assert [len(e.keys) for e in table.entries] == [2, 2, 2]
    assert control.body.annotations[0].name == "here"


def test_annotations():
    record = declaration(
        '@a @b("s") @c(1, x + 2) @d(any : tokens { here }) @e[1, "x"] @f[k=1, l=true]\n@pragma p q r\nstruct s {}'
    )
    by_name = {a.name: a for a in record.annotations}
    assert by_name["b"].string == "s" and len(by_name["c"].exprs) == 2
    assert by_name["d"].tokens == ["any", ":", "tokens", "{", "here", "}"] and by_name["d"].exprs == []
    assert by_name["e"].structured and list(by_name["f"].pairs) == ["k", "l"]
    assert by_name["p"].tokens == ["q", "r"]


def test_words_that_are_reserved_only_in_places():
    struct = declaration(
        "struct s { bit<8> key; bit<8> actions; bit<8> apply; bit<8> state; bit<8> entries; bit<8> type; bit<8> list; }"
    )
    assert len(struct.fields) == 7


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("const bit<8> a = 1\nconst bit<8> b = 2;", (1, 19), "expected ';' after the constant before 'const'"),
        ("struct s { bit<8> a }", (1, 21), "expected ';' after the field, found '}'"),
        ("control c() { }", (1, 15), "control c has no 'apply' block"),
        ("control c() { apply { a = ; } }", (1, 27), "expected an expression, found ';'"),
        ("control c() { apply { a b c } }", (1, 27), "expected ';' after the declaration, found 'c'"),
        ("control c() { apply { if a { } } }", (1, 26), "expected '(' after 'if', found 'a'"),
        (
            "parser p() { state start { transition select(a) { 1 accept; } } }",
            (1, 53),
            "expected ':' after the keyset, found 'accept'",
        ),
        ("struct table { }", (1, 8), "expected a name of the struct, found 'table'"),
        ("bit<8> x = 3;", (1, 8), "a variable cannot be declared at the top level"),
        ("control c() { table t { key = { a: exact; } } apply {} }", (1, 21), "table 't' has no actions"),
        ("control c() { apply { ", (1, 21), "'{' is never closed"),
        ("/* never", (1, 1), "comment is never closed: expected '*/'"),
        ('const string s = "never;', (1, 18), "string literal is never closed: expected '\"'"),
        ("const bit<8> a = 8w;", (1, 18), "malformed integer literal '8w'"),
        ("const bit<8> a = 3 $ 4;", (1, 20), "expected ';' after the constant, found '$'"),
        ("frobnicate", (1, 11), "expected a name of a function, found end of file"),
    ],
)
def test_syntax_errors(text, place, message):
    with pytest.raises(CompileError) as caught:
        parse_text(text, "test.p4")
    assert caught.value.message == message
    assert caught.value.span[1:3] == place


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="(){}[]<>;:,.=+-&|_@\"'/* \nabT018wx", max_size=60))
def test_no_text_makes_the_parser_crash(text):
    try:
        parse_text("control c() { apply { " + text, "fuzz.p4")
    except CompileError as error:
        assert error.message


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a", " ", "\n", "/* x\ny */", "// z\n", '"s"', "8w1", "..", "&&&", "+"]), max_size=30))
def test_spans_point_at_the_text(parts):
    text = " ".join(parts) + "\n"
    lines = text.split("\n")
    tokens = tokenize(text, "t.p4")
    for word, span in zip(tokens.texts[:-1], tokens.spans[:-1], strict=True):
        assert lines[span.line - 1][span.col - 1 :].startswith(word)
