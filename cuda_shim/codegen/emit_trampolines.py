"""The public libraries: a trampoline for each export, a version script, and the names' table."""

from __future__ import annotations

from emit_types import preamble
from model import Model

X86 = """\
#if defined(__x86_64__)

.macro RGPU_ENTRY name, slot
  .globl \\name
  .type \\name, @function
  .weak rgpu_\\name
  .p2align 4
\\name:
  .cfi_startproc
  endbr64
  movq rgpu_api_calls@GOTPCREL(%rip), %r11
  lock incq 8*\\slot(%r11)
  movq rgpu_current_slot@gottpoff(%rip), %r11
  movl $\\slot, %fs:(%r11)
  movq rgpu_\\name@GOTPCREL(%rip), %r11
  testq %r11, %r11
  jz 1f
  jmp *%r11
1:
  movl $\\slot, %r10d
  jmp not_supported
  .cfi_endproc
  .size \\name, . - \\name
.endm

  .text
  .type not_supported, @function
  .p2align 4
not_supported:
  .cfi_startproc
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movl %r10d, %edi
  call *rgpu_not_supported@GOTPCREL(%rip)
  xorps %xmm0, %xmm0  // The result of a function that returns a float or a complex number.
  xorps %xmm1, %xmm1
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  ret
  .cfi_endproc
  .size not_supported, . - not_supported
"""
ARM = """\
#elif defined(__aarch64__)

.macro RGPU_ENTRY name, slot
  .globl \\name
  .type \\name, %function
  .weak rgpu_\\name
  .p2align 4
\\name:
  .cfi_startproc
  hint #34  // bti c
  adrp x9, :got:rgpu_api_calls
  ldr x9, [x9, :got_lo12:rgpu_api_calls]
  mov w10, #\\slot
  add x9, x9, x10, lsl #3
1:
  ldxr x11, [x9]
  add x11, x11, #1
  stxr w12, x11, [x9]
  cbnz w12, 1b
  mrs x9, tpidr_el0
  adrp x11, :gottprel:rgpu_current_slot
  ldr x11, [x11, :gottprel_lo12:rgpu_current_slot]
  str w10, [x9, x11]
  adrp x16, :got:rgpu_\\name
  ldr x16, [x16, :got_lo12:rgpu_\\name]
  cbz x16, 2f
  br x16
2:
  mov w9, w10
  b not_supported
  .cfi_endproc
  .size \\name, . - \\name
.endm

  .text
  .type not_supported, %function
  .p2align 4
not_supported:
  .cfi_startproc
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset 29, -16
  .cfi_offset 30, -8
  mov w0, w9
  bl rgpu_not_supported
  movi v0.2d, #0
  movi v1.2d, #0
  ldp x29, x30, [sp], #16
  .cfi_restore 29
  .cfi_restore 30
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .size not_supported, . - not_supported
#else
#error "no trampolines for this processor"
#endif
"""
# What a function without an implementation returns, by library.
NOT_SUPPORTED = {
    "libcuda": 801,
    "libcudart": 801,
    "libcublas": 15,
    "libcublasLt": 15,
    "libcudnn": 3000,
    "libnvidia-ml": 3,
}


def assembly(model: Model, library: str) -> str:
    """<library>.S."""
    lines = [
        preamble(model),
        f"// The exports of {model.libraries[library]['soname']}. Each counts its call in"
        " rgpu_api_calls and jumps to the\n// implementation in librgpu_cuda.so; where there is"
        " none, to what says so. Argument registers\n// and al survive.\n",
        X86,
        ARM,
        "\n",
    ]
    for slot, (owner, name) in enumerate(model.slots):
        if owner == library:
            lines.append(f"RGPU_ENTRY {name}, {slot}\n")
    lines.append('\n  .section .note.GNU-stack, "", %progbits\n')
    return "".join(lines)


def version_script(model: Model, library: str) -> str:
    """<library>.map: the names, under the real library's version node."""
    listing = model.libraries[library]
    node = f"{listing['node']} " if listing["node"] else ""
    names = "".join(f"    {n};\n" for n in listing["exports"])
    head = preamble(model).replace("//", "#", 1)
    return f"{head}{node}{{\n  global:\n{names}  local: *;\n}};\n"


def unsupported_result(model: Model, library: str, name: str) -> str:
    """What a function returns that is not implemented: a code, a text, or zero."""
    returns = model.returns(library, name)
    if returns is None or returns.endswith(("_t", "CUresult")) and returns != "size_t":
        return str(NOT_SUPPORTED[library])
    return "kTextResult" if returns == "const char *" else "0"


def names_table(model: Model) -> str:
    """api_names.inc: RGPU_API(library, name, result) for each slot, in order."""
    lines = [preamble(model), "// RGPU_API(library, name, result when not implemented), by slot.\n"]
    for library, name in model.slots:
        result = unsupported_result(model, library, name)
        lines.append(f'RGPU_API("{library}", "{name}", {result})\n')
    return "".join(lines)


def outputs(model: Model) -> dict[str, str]:
    """Every file of this module by name."""
    files = {"api_names.inc": names_table(model)}
    for library in model.libraries:
        files[f"{library}.S"] = assembly(model, library)
        files[f"{library}.map"] = version_script(model, library)
    return files
