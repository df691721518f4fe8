"""Facts of a C header through libclang: functions, types with layout, integer macros.

Only facts leave this module (names, types, values, sizes, offsets), never a header's text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clang import cindex
from clang.cindex import CursorKind, TokenKind, TypeKind

RECORDS = (CursorKind.STRUCT_DECL, CursorKind.UNION_DECL)
# A name for a translation unit that exists in memory only.
MEMORY_FILE = "rgpu_model.cc"
# Headers of others that CUDA's include: the names they use, no more. With them the model
# does not depend on the machine's C library.
FOREIGN = {
    "stdlib.h": "",
    "string.h": "",
    "stdio.h": "typedef struct _IO_FILE FILE;\n",
    "limits.h": "",
    "math.h": "",
    "assert.h": "",
    "stddef.h": "typedef __SIZE_TYPE__ size_t;\n#undef NULL\n#define NULL 0\n",
    "stdint.h": "#include <stddef.h>\n"
    + "".join(
        f"typedef __INT{n}_TYPE__ int{n}_t; typedef __UINT{n}_TYPE__ uint{n}_t;\n"
        for n in (8, 16, 32, 64)
    )
    + "typedef __INTPTR_TYPE__ intptr_t; typedef __UINTPTR_TYPE__ uintptr_t;\n",
    "GL/gl.h": "typedef unsigned int GLuint; typedef unsigned int GLenum;\n",
    "vdpau/vdpau.h": "typedef unsigned int VdpDevice; typedef int VdpStatus;"
    "typedef unsigned int VdpFuncId; typedef unsigned int VdpVideoSurface;"
    "typedef unsigned int VdpOutputSurface;"
    "typedef VdpStatus VdpGetProcAddress(VdpDevice, VdpFuncId, void**);\n",
    "EGL/egl.h": "typedef int EGLint; typedef unsigned int EGLBoolean;\n",
    "EGL/eglext.h": "typedef void* EGLImageKHR; typedef void* EGLStreamKHR;"
    "typedef void* EGLSyncKHR;\n",
}


FOREIGN_DIR = Path("/rgpu-foreign")


def foreign_files() -> list[tuple[str, str]]:
    """FOREIGN as libclang's in-memory files."""
    return [(str(FOREIGN_DIR / name), text) for name, text in FOREIGN.items()]


@dataclass
class Facts:
    """What one translation unit declares, in its order."""

    declarations: list[dict[str, Any]] = field(default_factory=list)
    functions: list[dict[str, Any]] = field(default_factory=list)
    macros: list[dict[str, Any]] = field(default_factory=list)


def parse(text: str, include_dirs: list[Path], arguments: list[str]) -> cindex.TranslationUnit:
    """Parses `text`; a header that does not parse cleanly is an error, not a gap in the model."""
    unit = cindex.Index.create().parse(
        MEMORY_FILE,
        args=["-nostdinc", *arguments, *(f"-isystem{d}" for d in [FOREIGN_DIR, *include_dirs])],
        unsaved_files=[(MEMORY_FILE, text), *foreign_files()],
        options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD,
    )
    errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        raise SystemExit("read_headers: " + "; ".join(str(e) for e in errors[:5]))
    return unit


def is_unnamed(cursor: cindex.Cursor) -> bool:
    """Whether a record or enum has no tag of its own."""
    return not cursor.spelling or "(unnamed" in cursor.spelling or "(anonymous" in cursor.spelling


def clean(spelling: str) -> str:
    """A type as one line that does not depend on clang's spacing."""
    return re.sub(r"\s+", " ", spelling).strip()


def describe_field(cursor: cindex.Cursor, record: cindex.Type) -> dict[str, Any]:
    """One member: name, type, offset in bits, and its own record when that has no name."""
    kind = cursor.type
    name = "" if "(" in cursor.spelling else cursor.spelling  # clang describes what has no name.
    entry: dict[str, Any] = {"name": name, "type": clean(kind.spelling)}
    entry["offset"] = cursor.get_field_offsetof()
    if cursor.is_bitfield():
        entry["bits"] = cursor.get_bitfield_width()
    dimensions = ""
    while kind.kind == TypeKind.CONSTANTARRAY:
        dimensions += f"[{kind.element_count}]"
        kind = kind.element_type
    declared = kind.get_declaration()
    nested = declared.kind in RECORDS and declared.semantic_parent.kind in RECORDS
    if nested or (declared.kind in RECORDS and is_unnamed(declared)):
        entry["type"] = dimensions
        entry["record"] = describe_record(declared)
    return entry


def alignment(kind: cindex.Type) -> int | None:
    """A record's alignment where it is more than its members need: alignas somewhere in it."""
    members = [f.type.get_align() for f in kind.get_fields()]
    return kind.get_align() if kind.get_align() > max(members, default=1) else None


def describe_record(cursor: cindex.Cursor) -> dict[str, Any]:
    """A struct or union with its layout."""
    entry: dict[str, Any] = {"kind": "union" if cursor.kind == CursorKind.UNION_DECL else "struct"}
    entry["name"] = "" if is_unnamed(cursor) else cursor.spelling
    if not cursor.is_definition():
        return entry
    if asked := alignment(cursor.type):
        entry["align"] = asked
    entry["size"] = cursor.type.get_size()
    entry["fields"] = [describe_field(f, cursor.type) for f in cursor.type.get_fields()]
    return entry


def describe_enum(cursor: cindex.Cursor) -> dict[str, Any]:
    """An enumeration with its values."""
    constants = [c for c in cursor.get_children() if c.kind == CursorKind.ENUM_CONSTANT_DECL]
    return {
        "kind": "enum",
        "name": "" if is_unnamed(cursor) else cursor.spelling,
        "underlying": clean(cursor.enum_type.spelling),
        "values": [[c.spelling, c.enum_value] for c in constants],
    }


def describe_function(cursor: cindex.Cursor) -> dict[str, Any]:
    """A prototype; unnamed parameters stay unnamed."""
    return {
        "name": cursor.spelling,
        "returns": clean(cursor.result_type.spelling),
        "params": [[a.spelling, clean(a.type.spelling)] for a in cursor.get_arguments()],
    }


class Reader:
    """Collects the facts of the headers whose file names are in `wanted`."""

    def __init__(self, wanted: set[str]) -> None:
        self.wanted = wanted
        self.facts = Facts()
        self.functions: dict[str, dict[str, Any]] = {}
        self.defined: dict[str, int] = {}

    def read(self, unit: cindex.TranslationUnit) -> Facts:
        """Walks the top level of the unit, `extern "C"` blocks included."""
        self.walk(unit.cursor)
        self.facts.functions = list(self.functions.values())
        return self.facts

    def walk(self, parent: cindex.Cursor) -> None:
        """Takes each declaration of a wanted header."""
        for cursor in parent.get_children():
            if cursor.kind in (CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL):
                self.walk(cursor)
            elif cursor.location.file and Path(cursor.location.file.name).name in self.wanted:
                self.take(cursor)

    def take(self, cursor: cindex.Cursor) -> None:
        """Adds one declaration; a type's forward declaration gives way to its definition."""
        if cursor.kind == CursorKind.FUNCTION_DECL:
            if not cursor.is_definition():
                entry = describe_function(cursor)
                entry["header"] = Path(cursor.location.file.name).name
                self.functions.setdefault(entry["name"], entry)
        elif cursor.kind == CursorKind.ENUM_DECL and cursor.is_definition():
            self.add(describe_enum(cursor))
        elif cursor.kind in RECORDS:
            self.add(describe_record(cursor))
        elif cursor.kind == CursorKind.TYPEDEF_DECL:
            target = clean(cursor.underlying_typedef_type.spelling)
            entry = {"kind": "typedef", "name": cursor.spelling, "type": target}
            declared = cursor.underlying_typedef_type.get_declaration()
            if declared.kind in (*RECORDS, CursorKind.ENUM_DECL) and self.names_last(declared):
                self.facts.declarations[-1]["name"] = cursor.spelling
                return
            self.add(entry)

    def names_last(self, declared: cindex.Cursor) -> bool:
        """Whether a typedef names the unnamed type just read: `typedef struct {…} X;`."""
        last = self.facts.declarations[-1] if self.facts.declarations else None
        return last is not None and last["kind"] != "typedef" and not last["name"]

    def add(self, entry: dict[str, Any]) -> None:
        """Keeps declaration order, once each."""
        key = f"{entry['kind']} {entry['name']}" if entry["name"] else ""
        complete = "fields" in entry or "values" in entry or entry["kind"] == "typedef"
        if key and key in self.defined and not (complete and self.defined[key] == 0):
            return
        if key:
            self.defined[key] = int(complete)
        self.facts.declarations.append(entry)


def macro_names(unit: cindex.TranslationUnit, wanted: set[str], pattern: str) -> list[str]:
    """Object-like macros with a body, in order, that the wanted headers define."""
    names: dict[str, None] = {}
    for cursor in unit.cursor.get_children():
        if cursor.kind != CursorKind.MACRO_DEFINITION or not cursor.location.file:
            continue
        if Path(cursor.location.file.name).name not in wanted:
            continue
        tokens = list(cursor.get_tokens())
        if len(tokens) < 2 or not re.fullmatch(pattern, cursor.spelling):
            continue
        end = tokens[0].extent.end.offset
        function_like = tokens[1].spelling == "(" and tokens[1].extent.start.offset == end
        renames = len(tokens) == 2 and tokens[1].kind == TokenKind.IDENTIFIER
        if not function_like and not renames:
            names[cursor.spelling] = None
    return list(names)


def read_macros(
    names: list[str], includes: str, include_dirs: list[Path], arguments: list[str]
) -> list[dict[str, Any]]:
    """The values of macros that are integers or casts of integers to a pointer type."""
    text = includes + "".join(
        f"enum {{ rgpu_v_{n} = (long long)({n}) }};\n__typeof__({n}) rgpu_t_{n};\n" for n in names
    )
    unit = cindex.Index.create().parse(
        "rgpu_macros.c",
        args=[
            *("-nostdinc", "-ferror-limit=0", "-xc", "-std=gnu17", *arguments),
            *(f"-isystem{d}" for d in [FOREIGN_DIR, *include_dirs]),
        ],
        unsaved_files=[("rgpu_macros.c", text), *foreign_files()],
    )
    offset = includes.count("\n")
    broken = {
        names[(d.location.line - 1 - offset) // 2]
        for d in unit.diagnostics
        if d.severity >= cindex.Diagnostic.Error
        and d.location.file
        and d.location.file.name == "rgpu_macros.c"
        and d.location.line > offset
    }
    values: dict[str, int] = {}
    types: dict[str, str] = {}
    for cursor in unit.cursor.get_children():
        if cursor.kind == CursorKind.VAR_DECL and cursor.spelling.startswith("rgpu_t_"):
            kind = cursor.type.get_canonical()
            types[cursor.spelling[7:]] = clean(kind.spelling)
            if kind.kind in (TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.RECORD):
                broken.add(cursor.spelling[7:])
        for constant in cursor.get_children():
            if constant.spelling.startswith("rgpu_v_"):
                values[constant.spelling[7:]] = constant.enum_value
    return [
        {"name": n, "type": types[n], "value": values[n]}
        for n in names
        if n in values and n in types and n not in broken
    ]
