"""cuGetProcAddress: a function by name, version and kind of stream; and no private tables."""

import ctypes

from cuda_driver import (
    Code,
    bind,
    cu,
    download,
    i32,
    in_process,
    ints,
    pointer,
    refused,
    start,
    u64,
    upload,
)

FOUND, NOT_FOUND, TOO_OLD = 0, 1, 2
DEFAULT, LEGACY, PER_THREAD = 0, 1, 2


def ask(name, version, flags=DEFAULT):
    """The address and what is said of it."""
    return cu.cuGetProcAddress_v2(name.encode(), pointer, version, flags, i32)


def exported(name):
    return ctypes.cast(getattr(cu.library, name), pointer).value


def calls(address, signature):
    kinds = {"p": pointer, "Q": ctypes.c_uint64, "u": ctypes.c_uint32, "i": ctypes.c_int}
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[kinds[letter] for letter in signature])
    return bind("by address", prototype(address), signature)


@in_process
def test_names_have_versions():
    cu.cuInit(0)
    assert ask("cuInit", 13000) == (exported("cuInit"), FOUND)
    assert ask("cuMemAlloc", 13000) == (exported("cuMemAlloc_v2"), FOUND)
    assert ask("cuMemAlloc", 3020) == (exported("cuMemAlloc_v2"), FOUND)
    assert ask("cuCtxCreate", 12000) == (exported("cuCtxCreate_v3"), FOUND)
    assert ask("cuCtxCreate", 11000) == (exported("cuCtxCreate_v2"), FOUND)
    assert ask("cuCtxCreate", 13000) == (exported("cuCtxCreate_v4"), FOUND)
    assert ask("cuEventElapsedTime", 12000) == (exported("cuEventElapsedTime"), FOUND)
    assert ask("cuEventElapsedTime", 13000) == (exported("cuEventElapsedTime_v2"), FOUND)


@in_process
def test_both_versions_of_one_name_work():
    start()
    old = calls(ask("cuCtxCreate", 12000)[0], "ppiui")
    new = calls(ask("cuCtxCreate", 13000)[0], "ppui")
    first, second = old(pointer, None, 0, 0, 0), new(pointer, None, 0, 0)
    assert cu.cuCtxPopCurrent_v2(pointer) == second
    assert cu.cuCtxPopCurrent_v2(pointer) == first


@in_process
def test_a_threads_default_stream_has_functions_of_its_own():
    start()
    assert ask("cuStreamSynchronize", 13000, LEGACY) == (exported("cuStreamSynchronize"), FOUND)
    assert ask("cuStreamSynchronize", 13000, PER_THREAD)[0] == exported("cuStreamSynchronize_ptsz")
    assert ask("cuMemcpyHtoD", 13000, PER_THREAD)[0] == exported("cuMemcpyHtoD_v2_ptds")
    assert ask("cuMemAlloc", 13000, PER_THREAD)[0] == exported("cuMemAlloc_v2")  # Has none.
    a = upload(ints(0, 0))
    fill = calls(ask("cuMemsetD32", 13000, PER_THREAD)[0], "QuQ")
    fill(a, 5, 2)
    calls(ask("cuStreamSynchronize", 13000, PER_THREAD)[0], "p")(None)
    assert download(a, i32, 2) == [5, 5]
    refused(Code.INVALID_VALUE, ask, "cuInit", 13000, 3)


@in_process
def test_unknown_names_and_versions():
    cu.cuInit(0)
    for name, version, said in (
        ("cuNoSuchFunction", 13000, NOT_FOUND),
        ("cuGreenCtxCreate", 11000, TOO_OLD),
        ("cuLibraryLoadData", 11040, TOO_OLD),
    ):
        out, status = pointer(1), i32(-1)
        refused(
            Code.NOT_FOUND,
            cu.cuGetProcAddress_v2,
            name.encode(),
            ctypes.byref(out),
            version,
            0,
            ctypes.byref(status),
        )
        assert (out.value, status.value) == (None, said), name
    refused(Code.INVALID_VALUE, cu.cuGetProcAddress_v2, None, pointer, 13000, 0, i32)
    refused(Code.INVALID_VALUE, cu.cuGetProcAddress_v2, b"cuInit", None, 13000, 0, i32)
    assert cu.cuGetProcAddress_v2(b"cuInit", pointer, 13000, 0, None) == exported("cuInit")


@in_process
def test_the_older_query_has_no_status():
    old = bind("cuGetProcAddress", cu.library.cuGetProcAddress, "ppiQ")
    assert old(b"cuMemAlloc", pointer, 11030, 0) == exported("cuMemAlloc_v2")
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
