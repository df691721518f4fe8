"""Modules: images of every kind, their kernels and variables, and what is wrong with a bad one."""

import ctypes
import os
import tempfile

from cuda_driver import (
    FIXTURES,
    Code,
    cu,
    download,
    f32,
    fixture,
    function,
    i32,
    in_process,
    in_process_with,
    ints,
    launch,
    load,
    pointer,
    refused,
    start,
    text,
    u32,
    u64,
    upload,
)

BROKEN = b".version 7.0\n.target sm_75\n.address_size 64\n.entry k() { mov.u32 %r1, 5 }\n"
ALL_KERNELS = {
    b"vec_add",
    b"add_to_each",
    b"mixed_parameters",
    b"places",
    b"scale_by_factors",
    b"count_up",
    b"reverse_shared",
    b"static_shared",
    b"at_most_64_threads",
    b"wait_for",
    b"grid_total",
    b"write_to",
    b"give_up",
    b"nothing",
}


def adds(module):
    """Whether the module's add_to_each does what it should."""
    values = upload(ints(1, 2, 3))
    launch(function(module, "add_to_each"), 1, 32, u64(values), i32(3), i32(10))
    return download(values, i32, 3) == [11, 12, 13]


@in_process
def test_every_kind_of_image_loads_and_runs():
    start()
    for name in ("driver_kernels.ptx", "driver_kernels_raw.fatbin", "driver_kernels_zstd.fatbin"):
        module = cu.cuModuleLoadData(pointer, fixture(name))
        assert adds(module), name
        cu.cuModuleUnload(module)
        module = cu.cuModuleLoad(pointer, os.fsencode(FIXTURES / name))
        assert adds(module), name
    module = cu.cuModuleLoadFatBinary(pointer, fixture("driver_kernels_zstd.fatbin"))
    assert adds(module)


@in_process
def test_a_wrapped_fatbinary_loads():
    """As the structure that nvcc puts into a program: magic, version, data, nothing."""

    class Wrapper(ctypes.Structure):
        _fields_ = [("magic", u32), ("version", u32), ("data", pointer), ("unused", pointer)]

    start()
    bytes_ = ctypes.create_string_buffer(fixture("driver_kernels_zstd.fatbin"))
    wrapper = Wrapper(0x466243B1, 1, ctypes.addressof(bytes_), None)
    assert adds(cu.cuModuleLoadFatBinary(pointer, ctypes.byref(wrapper)))
    assert adds(cu.cuModuleLoadData(pointer, ctypes.byref(wrapper)))


@in_process
def test_images_are_read_before_the_call_returns():
    start()
    image = ctypes.create_string_buffer(fixture("driver_kernels.ptx"))
    module = cu.cuModuleLoadData(pointer, image)
    ctypes.memset(image, 0x7F, len(image))
    assert adds(module)


@in_process
def test_kernels_are_listed():
    start()
    module = load()
    assert cu.cuModuleGetFunctionCount(u32, module) == len(ALL_KERNELS)
    functions = cu.cuModuleEnumerateFunctions(pointer * len(ALL_KERNELS), len(ALL_KERNELS), module)
    assert {cu.cuFuncGetName(text, f) for f in functions} == ALL_KERNELS
    two = cu.cuModuleEnumerateFunctions(pointer * 2, 2, module)
    assert {cu.cuFuncGetName(text, f) for f in two} < ALL_KERNELS


@in_process
def test_functions_know_where_they_are_from():
    start()
    module = load()
    kernel = function(module, "vec_add")
    assert cu.cuFuncGetModule(pointer, kernel) == module
    assert cu.cuFuncGetName(text, kernel) == b"vec_add"
    refused(Code.NOT_FOUND, function, module, "no_such_kernel")
    refused(Code.NOT_FOUND, function, module, "counters")
    refused(Code.INVALID_VALUE, cu.cuModuleGetFunction, pointer, module, None)
    refused(Code.INVALID_HANDLE, cu.cuModuleGetFunction, pointer, None, b"vec_add")


@in_process
def test_variables_are_memory():
    start()
    module = load()
    address, size = cu.cuModuleGetGlobal_v2(u64, u64, module, b"counters")
    assert size == 16
    assert download(address, i32, 4) == [1, 2, 3, 4]
    launch(function(module, "count_up"), 2, 8)
    assert download(address, i32, 4) == [5, 6, 7, 8]
    assert cu.cuModuleGetGlobal_v2(u64, u64, module, b"untouched")[1] == 4096
    assert cu.cuModuleGetGlobal_v2(u64, u64, load(), b"counters")[0] != address


@in_process
def test_constants_are_written_from_the_host():
    start()
    module = load()
    address, size = cu.cuModuleGetGlobal_v2(u64, u64, module, b"factors")
    assert size == 32
    assert download(address, f32, 8) == [1, 2, 3, 4, 5, 6, 7, 8]
    cu.cuMemcpyHtoD_v2(address, (f32 * 8)(*range(10, 90, 10)), 32)
    out = upload((f32 * 8)(*[1] * 8))
    launch(function(module, "scale_by_factors"), 1, 8, u64(out))
    assert download(out, f32, 8) == list(range(10, 90, 10))


@in_process
def test_a_variables_size_or_place_alone_may_be_asked():
    start()
    module = load()
    address, size = cu.cuModuleGetGlobal_v2(u64, u64, module, b"counters")
    assert cu.cuModuleGetGlobal_v2(None, u64, module, b"counters") == size
    assert cu.cuModuleGetGlobal_v2(u64, None, module, b"counters") == address
    assert cu.cuModuleGetGlobal_v2(None, None, module, b"counters") is None
    cu.cuCtxSynchronize()
    refused(Code.NOT_FOUND, cu.cuModuleGetGlobal_v2, u64, u64, module, b"nothing_of_the_kind")
    refused(Code.NOT_FOUND, cu.cuModuleGetGlobal_v2, u64, u64, module, b"vec_add")


@in_process
def test_options_of_the_compiler_are_taken():
    """Options by value are accepted; logs of a good image come back empty."""
    start()
    info, error = ctypes.create_string_buffer(b"x" * 200), ctypes.create_string_buffer(b"x" * 200)
    # Maximum registers, both logs with their sizes, optimization level, line information.
    options = ints(0, 3, 4, 5, 6, 7, 13)
    values = (pointer * 7)(32, ctypes.addressof(info), 200, ctypes.addressof(error), 200, 4, 1)
    module = cu.cuModuleLoadDataEx(pointer, fixture("driver_kernels.ptx"), 7, options, values)
    assert adds(module)
    assert error.value == b""
    assert (values[4] or 0) == 0  # The sizes become those of the texts.


@in_process_with(quiet=False)
def test_a_bad_image_says_what_is_wrong():
    start()
    error = ctypes.create_string_buffer(1024)
    values = (pointer * 2)(ctypes.addressof(error), 1024)
    options = ints(5, 6)
    refused(Code.INVALID_PTX, cu.cuModuleLoadDataEx, pointer, BROKEN, 2, options, values)
    assert b"';' expected" in error.value, error.value
    assert values[1] >= len(error.value)
    assert adds(load())


@in_process_with(quiet=False)
def test_a_bad_image_is_reported_by_the_next_wait():
    """A load waits for nothing, unless a program asks to read what is wrong."""
    start()
    module = cu.cuModuleLoadData(pointer, BROKEN)
    refused(Code.INVALID_PTX, cu.cuCtxSynchronize)
    cu.cuModuleUnload(module)
    cu.cuCtxSynchronize()
    assert adds(load())


@in_process_with(quiet=False)
def test_what_is_no_image_is_refused():
    start()
    refused(Code.INVALID_VALUE, cu.cuModuleLoadData, pointer, None)
    refused(Code.INVALID_IMAGE, cu.cuModuleLoadData, pointer, b"\x7fELF" + bytes(100))
    refused(Code.INVALID_IMAGE, cu.cuModuleLoadData, pointer, b"\x50\xed\x55\xba" + bytes(100))
    refused(Code.FILE_NOT_FOUND, cu.cuModuleLoad, pointer, b"/no/such/file.ptx")
    with tempfile.NamedTemporaryFile() as empty:
        refused(Code.INVALID_IMAGE, cu.cuModuleLoad, pointer, empty.name.encode())
    assert adds(load())


@in_process_with(quiet=False)
def test_an_image_for_newer_devices_only_is_refused():
    start()
    newer = fixture("driver_kernels.ptx").replace(b".target sm_75", b".target sm_120")
    refused(Code.NO_BINARY_FOR_GPU, cu.cuModuleLoadData, pointer, newer)
    newer_language = fixture("driver_kernels.ptx").replace(b".version 9.0", b".version 9.3")
    assert adds(cu.cuModuleLoadData(pointer, newer_language))


@in_process
def test_an_unloaded_module_is_gone():
    start()
    module = load()
    cu.cuModuleUnload(module)
    refused(Code.INVALID_HANDLE, cu.cuModuleUnload, module)
    refused(Code.INVALID_HANDLE, cu.cuModuleGetFunction, pointer, module, b"vec_add")
    refused(Code.INVALID_HANDLE, cu.cuModuleGetFunctionCount, u32, module)
    assert adds(load())


@in_process
def test_the_loading_mode_is_one_of_two():
    cu.cuInit(0)
    assert cu.cuModuleGetLoadingMode(i32) in (1, 2)
