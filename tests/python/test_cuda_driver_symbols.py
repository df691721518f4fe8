"""cuGetProcAddress: a function by name, version and kind of stream; and no private tables."""

import ctypes
import tempfile
import textwrap

from cuda_driver import (
    Code,
    bind,
    cu,
    i32,
    in_process,
    pointer,
    refused,
    run_child,
    start,
    u64,
)

FOUND, NOT_FOUND, TOO_OLD = 0, 1, 2
DEFAULT, LEGACY, PER_THREAD = 0, 1, 2


def ask(name, version, flags=DEFAULT):
    """The address and what is said of it."""
    return cu.cuGetProcAddress_v2(name.encode(), pointer, version, flags, i32)


def calls(address, signature):
    kinds = {"p": pointer, "Q": ctypes.c_uint64, "u": ctypes.c_uint32, "i": ctypes.c_int}
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[kinds[letter] for letter in signature])
    return bind("by address", prototype(address), signature)


def called(code):
    """The exported functions that a program's calls ended in."""
    with tempfile.NamedTemporaryFile("r") as log:
        names = "from cuda_driver import *\nfrom test_cuda_driver_symbols import *\n"
        program = names + "start()\n" + textwrap.dedent(code)
        done = run_child(program, RGPU_CUDA_CALL_LOG=log.name)
        assert (done.returncode, done.stderr) == (0, "")
        return set(log.read().split())


def test_names_have_versions():
    names = called("""
        calls(ask("cuCtxCreate", 11000)[0], "pui")(pointer, 0, 0)
        calls(ask("cuMemAlloc", 3020)[0], "pQ")(u64, 16)
        calls(ask("cuStreamDestroy", 13000)[0], "p")(cu.cuStreamCreate(pointer, 0))
    """)
    assert {"cuCtxCreate_v2", "cuMemAlloc_v2", "cuStreamDestroy_v2"} <= names
    assert not names & {"cuCtxCreate_v3", "cuCtxCreate_v4", "cuMemAlloc", "cuStreamDestroy"}
    names = called("""
        calls(ask("cuCtxCreate", 12000)[0], "ppiui")(pointer, None, 0, 0, 0)
        calls(ask("cuCtxCreate", 13000)[0], "ppui")(pointer, None, 0, 0)
    """)
    assert {"cuCtxCreate_v3", "cuCtxCreate_v4"} <= names


@in_process
def test_a_version_holds_until_the_next():
    cu.cuInit(0)
    assert ask("cuMemAlloc", 3020) == ask("cuMemAlloc", 13000)
    assert ask("cuCtxCreate", 11040) == ask("cuCtxCreate", 12040)
    assert ask("cuCtxCreate", 12050) == ask("cuCtxCreate", 13000)
    assert len({ask("cuCtxCreate", version)[0] for version in (11000, 12000, 13000)}) == 3
    assert len({ask("cuEventElapsedTime", version)[0] for version in (12000, 13000)}) == 2


@in_process
def test_both_versions_of_one_name_work():
    start()
    old = calls(ask("cuCtxCreate", 12000)[0], "ppiui")
    new = calls(ask("cuCtxCreate", 13000)[0], "ppui")
    first, second = old(pointer, None, 0, 0, 0), new(pointer, None, 0, 0)
    assert cu.cuCtxPopCurrent_v2(pointer) == second
    assert cu.cuCtxPopCurrent_v2(pointer) == first


def test_a_threads_default_stream_has_functions_of_its_own():
    code = """
        a = upload(ints(0, 0))
        calls(ask("cuMemsetD32", 13000, FLAGS)[0], "QuQ")(a, 5, 2)
        calls(ask("cuStreamSynchronize", 13000, FLAGS)[0], "p")(None)
        assert download(a, i32, 2) == [5, 5]
    """
    plain, own = (called(code.replace("FLAGS", flags)) for flags in ("LEGACY", "PER_THREAD"))
    assert {"cuMemsetD32_v2", "cuStreamSynchronize"} <= plain
    assert {"cuMemsetD32_v2_ptds", "cuStreamSynchronize_ptsz"} <= own


@in_process
def test_flags_choose_among_functions():
    cu.cuInit(0)
    for name in ("cuMemAlloc", "cuCtxSynchronize"):  # Of those there is one.
        assert ask(name, 13000, PER_THREAD) == ask(name, 13000, LEGACY) == ask(name, 13000)
    for name in ("cuMemcpyHtoD", "cuLaunchKernel"):
        assert ask(name, 13000, PER_THREAD) != ask(name, 13000, LEGACY) == ask(name, 13000)
    refused(Code.INVALID_VALUE, ask, "cuInit", 13000, 8)


@in_process
def test_unknown_names_and_versions():
    cu.cuInit(0)
    assert ask("cuNoSuchFunction", 13000) == (None, NOT_FOUND)
    assert ask("cuGreenCtxCreate", 11000) == (None, TOO_OLD)
    assert ask("cuLibraryLoadData", 11040) == (None, TOO_OLD)
    refused(Code.INVALID_VALUE, ask, "cuInit", 99000)
    refused(Code.INVALID_VALUE, cu.cuGetProcAddress_v2, None, pointer, 13000, 0, i32)
    refused(Code.INVALID_VALUE, cu.cuGetProcAddress_v2, b"cuInit", None, 13000, 0, i32)
    assert cu.cuGetProcAddress_v2(b"cuInit", pointer, 13000, 0, None) == ask("cuInit", 13000)[0]


@in_process
def test_the_older_query_has_no_status():
    old = bind("cuGetProcAddress", cu.library.cuGetProcAddress, "ppiQ")
    assert old(b"cuMemAlloc", pointer, 11030, 0) == ask("cuMemAlloc", 13000)[0]
    refused(Code.NOT_FOUND, old, b"cuNothing", pointer, 11030, 0)


@in_process
def test_every_function_of_the_header_has_an_address():
    from cuda_driver_signatures import SIGNATURES

    cu.cuInit(0)
    for exported_name in SIGNATURES:
        name = exported_name.split("_v")[0]
        address, said = ask(name, 13000)
        assert address, name
        assert said == FOUND, name


@in_process
def test_private_tables_are_not_there():
    table = (ctypes.c_ubyte * 16)(*range(16))
    out = pointer(5)
    try:
        cu.cuGetExportTable(ctypes.byref(out), table)
    except Exception as error:
        assert error.code != 0
    assert out.value is None


@in_process
def test_memory_of_one_library_is_seen_by_functions_got_by_address():
    start()
    allocate = calls(ask("cuMemAlloc", 13000)[0], "pQ")
    address = allocate(u64, 64)
    assert cu.cuMemGetAddressRange_v2(u64, u64, address) == (address, 64)
