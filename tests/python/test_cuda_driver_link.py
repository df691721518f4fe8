"""cuLink*: pieces of PTX become one image, whose private names do not collide."""

import ctypes
import os

from cuda_driver import (
    FIXTURES,
    Code,
    cu,
    download,
    function,
    i32,
    in_process,
    in_process_with,
    ints,
    launch,
    pointer,
    refused,
    run_child,
    start,
    u64,
    upload,
)

CUBIN, PTX, FATBINARY = 0, 1, 2


def add(state, name, kind=PTX):
    data = (FIXTURES / name).read_bytes()
    cu.cuLinkAddData_v2(state, kind, data, len(data), name.encode(), 0, None, None)


def complete(state):
    """The linked image's bytes; the linker owns them until it is destroyed."""
    image, size = cu.cuLinkComplete(state, pointer, u64)
    return ctypes.string_at(image, size)


def calls_across(module):
    values = upload(ints(5, 6, 7, 8))
    launch(function(module, "call_across"), 1, 4, u64(values))
    return download(values, i32, 4) == [1211, 2213, 1215, 2217]


@in_process
def test_one_piece_comes_back_loadable():
    start()
    state = cu.cuLinkCreate_v2(0, None, None, pointer)
    add(state, "driver_kernels.ptx")
    image = complete(state)
    cu.cuLinkDestroy(state)
    module = cu.cuModuleLoadData(pointer, image)
    values = upload(ints(1, 2))
    launch(function(module, "add_to_each"), 1, 2, u64(values), i32(2), i32(1))
    assert download(values, i32, 2) == [2, 3]


@in_process
def test_pieces_call_each_other():
    start()
    pieces = ("linked_caller.ptx", "linked_callee.ptx")
    for order in (pieces, pieces[::-1]):
        state = cu.cuLinkCreate_v2(0, None, None, pointer)
        for name in order:
            add(state, name)
        module = cu.cuModuleLoadData(pointer, complete(state))
        cu.cuLinkDestroy(state)
        assert calls_across(module), order
        address, size = cu.cuModuleGetGlobal_v2(u64, u64, module, b"offsets")
        assert (size, download(address, i32, 2)) == (8, [1000, 2000])


def test_private_names_stay_apart():
    """Both pieces have a text named $str: each prints its own."""
    done = run_child("""
        from cuda_driver import *
        from test_cuda_driver_link import *
        start()
        state = cu.cuLinkCreate_v2(0, None, None, pointer)
        add(state, "linked_callee.ptx")
        add(state, "linked_caller.ptx")
        module = cu.cuModuleLoadData(pointer, complete(state))
        launch(function(module, "call_across"), 1, 1, u64(upload(ints(-7))))
        cu.cuCtxSynchronize()
    """)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["caller saw -7", "callee saw 93"]


@in_process
def test_files_and_fatbinaries_are_pieces_too():
    start()
    state = cu.cuLinkCreate_v2(0, None, None, pointer)
    path = os.fsencode(FIXTURES / "linked_caller.ptx")
    cu.cuLinkAddFile_v2(state, PTX, path, 0, None, None)
    add(state, "linked_callee.ptx")
    add(state, "driver_kernels_zstd.fatbin", FATBINARY)
    module = cu.cuModuleLoadData(pointer, complete(state))
    assert calls_across(module)
    assert function(module, "vec_add")
    missing = (PTX, b"/no/such.ptx", 0, None, None)
    other = cu.cuLinkCreate_v2(0, None, None, pointer)
    refused(Code.FILE_NOT_FOUND, cu.cuLinkAddFile_v2, other, *missing)


@in_process
def test_a_missing_piece_is_named():
    start()
    log = ctypes.create_string_buffer(1024)
    options, values = ints(5, 6), (pointer * 2)(ctypes.addressof(log), 1024)
    state = cu.cuLinkCreate_v2(2, options, values, pointer)
    add(state, "linked_caller.ptx")
    refused(Code.INVALID_IMAGE, cu.cuLinkComplete, state, pointer, u64)
    assert b"twice" in log.value, log.value
    cu.cuLinkDestroy(state)


@in_process
def test_two_definitions_of_one_name_are_refused():
    start()
    log = ctypes.create_string_buffer(1024)
    options, values = ints(5, 6), (pointer * 2)(ctypes.addressof(log), 1024)
    state = cu.cuLinkCreate_v2(2, options, values, pointer)
    add(state, "linked_callee.ptx")
    add(state, "linked_callee.ptx")
    refused(Code.INVALID_IMAGE, cu.cuLinkComplete, state, pointer, u64)
    assert b"offsets" in log.value or b"twice" in log.value, log.value


@in_process_with(quiet=False)
def test_bad_pieces_are_refused_at_once():
    start()
    state = cu.cuLinkCreate_v2(0, None, None, pointer)
    bad = b"this is not PTX"
    refused(Code.INVALID_PTX, cu.cuLinkAddData_v2, state, PTX, bad, len(bad), b"bad", 0, None, None)
    refused(Code.INVALID_VALUE, cu.cuLinkAddData_v2, state, PTX, None, 4, b"bad", 0, None, None)
    refused(Code.INVALID_VALUE, cu.cuLinkAddData_v2, state, 99, bad, 4, b"bad", 0, None, None)
    refused(
        Code.INVALID_HANDLE, cu.cuLinkAddData_v2, None, PTX, bad, len(bad), b"bad", 0, None, None
    )
    cu.cuLinkDestroy(state)
    refused(Code.INVALID_HANDLE, cu.cuLinkDestroy, state)
    refused(Code.INVALID_HANDLE, cu.cuLinkComplete, state, pointer, u64)
