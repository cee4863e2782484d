"""The architecture of a program: v1model or TNA if its `main` is that architecture's own package, not just one of that name."""

from __future__ import annotations

from ina.p4.compiler import ast, types
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import NO_SPAN, CompileError, Span

V1MODEL_BLOCKS = (4, 2, 3, 3, 2, 2)  # parameters of V1Switch's parser and controls
PIPELINES = {"Switch": "Pipeline", "MultiParserSwitch": "MultiParserPipeline"}
STANDARD_METADATA = "standard_metadata_t"
TNA_METADATA = "ingress_intrinsic_metadata_for_tm_t"
OTHERS = {
    "PSA_Switch": "the Portable Switch Architecture (psa.p4)", "PNA_NIC": "the Portable NIC Architecture (pna.p4)",
    "IngressPipeline": "a part of PSA", "EgressPipeline": "a part of PSA", "ebpfFilter": "eBPF", "ubpf": "uBPF", "xdp": "XDP",
    "Pipeline": "a part of TNA",
}
KNOWN = "this compiler knows V1Switch of <v1model.p4> and Switch of <tna.p4>: port the program to one of them"


def sets_mirror_type(program: CheckedProgram) -> bool:
    """Returns True if the parser of a Tofino's ingress sets mirror_type to 0, as Intel's compiler makes it do for the hardware's
    sake, unless an annotation at any declaration of the program forbids that."""
    forbidden = "disable_reserved_i2e_drop_implementation"
    return not any(isinstance(d, ast.Annotated) and d.annotation(forbidden) is not None for d in program.declarations)


def architecture_of(program: CheckedProgram) -> str | None:
    """Returns "v1model" or "tna"; None for a program without `main`, and for any other package."""
    main = program.main
    if main is None:
        return None
    if main.decl.name == "V1Switch":
        return "v1model" if _is_v1switch(program, main) else None
    if main.decl.name in PIPELINES:
        return "tna" if TNA_METADATA in program.types and _holds_pipelines(main) else None
    return None


def supported_architecture(program: CheckedProgram) -> str:
    """Returns the result of `architecture_of`. Raises CompileError if this back end has no switch for the program."""
    architecture = architecture_of(program)
    if architecture is not None:
        return architecture
    main = program.main
    if main is None:
        raise CompileError(
            Span(program.filename, 0, 0, 0),
            "the program has no 'main'",
            ["a program ends with a package that is called so: V1Switch(...) main; or Switch(pipe) main;"],
        )
    name, span = main.decl.name, main.site.span if main.site else NO_SPAN
    if name in ("V1Switch", *PIPELINES):
        owner, file = ("v1model", "v1model.p4") if name == "V1Switch" else ("TNA", "tna.p4")
        raise CompileError(span, f"this package '{name}' is not {owner}'s", [f"include <{file}> instead of declaring it"])
    description = f" is for {OTHERS[name]}, which" if name in OTHERS else ""
    raise CompileError(span, f"architecture package '{name}'{description} is not supported", [KNOWN])


def _is_v1switch(program: CheckedProgram, main: Instance) -> bool:
    blocks = [main.args[p.name] for p in main.decl.params]
    if not all(isinstance(b, Instance) and isinstance(b.decl, ast.ParserDecl | ast.ControlDecl) for b in blocks):
        return False
    if tuple(len(b.decl.params) for b in blocks) != V1MODEL_BLOCKS or STANDARD_METADATA not in program.types:
        return False
    standard = (b.decl.params[-1] for i, b in enumerate(blocks) if i in (0, 2, 3))
    return all(str(types.strip_new(p.type)) == STANDARD_METADATA for p in standard)


def _holds_pipelines(main: Instance) -> bool:
    pipelines = [main.args[p.name] for p in main.decl.params]
    present = [p for p in pipelines if p is not None]
    return bool(present) and all(
        isinstance(p, Instance) and isinstance(p.decl, ast.PackageDecl) and p.decl.name == PIPELINES[main.decl.name]
        and len(p.args) == 6 and all(isinstance(block, Instance) for block in p.args.values())
        for p in present
    )
