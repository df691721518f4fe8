"""Libraries and kernels: images without a context, and what a kernel says of itself."""

import os

from cuda_driver import (
    FIXTURES,
    Code,
    cu,
    download,
    fixture,
    function,
    i32,
    in_process,
    in_process_with,
    ints,
    launch,
    pointer,
    refused,
    start,
    text,
    u32,
    u64,
    upload,
)

MAX_THREADS, SHARED_SIZE, MAX_DYNAMIC = 0, 1, 8


def library(name="driver_kernels.ptx"):
    return cu.cuLibraryLoadData(pointer, fixture(name), None, None, 0, None, None, 0)


def kernel(of, name):
    return cu.cuLibraryGetKernel(pointer, of, name.encode())


def adds(kernel_or_function):
    values = upload(ints(1, 2, 3))
    launch(kernel_or_function, 1, 32, u64(values), i32(3), i32(10))
    return download(values, i32, 3) == [11, 12, 13]


@in_process
def test_a_library_loads_before_any_context():
    cu.cuInit(0)
    loaded = library("driver_kernels_zstd.fatbin")
    found = kernel(loaded, "add_to_each")
    assert cu.cuLibraryGetKernelCount(u32, loaded) == 14
    start()
    assert adds(found)


@in_process
def test_a_library_comes_from_a_file():
    start()
    path = os.fsencode(FIXTURES / "driver_kernels_raw.fatbin")
    loaded = cu.cuLibraryLoadFromFile(pointer, path, None, None, 0, None, None, 0)
    assert adds(kernel(loaded, "add_to_each"))
    missing = (b"/no/such/file", None, None, 0, None, None, 0)
    refused(Code.FILE_NOT_FOUND, cu.cuLibraryLoadFromFile, pointer, *missing)


@in_process
def test_kernels_are_listed_and_named():
    start()
    loaded = library()
    count = cu.cuLibraryGetKernelCount(u32, loaded)
    kernels = list(cu.cuLibraryEnumerateKernels(pointer * count, count, loaded))
    names = [cu.cuKernelGetName(text, k) for k in kernels]
    assert len(set(names)) == count == 14
    assert kernel(loaded, "vec_add") == kernels[names.index(b"vec_add")]
    assert {cu.cuKernelGetLibrary(pointer, k) for k in kernels} == {loaded}
    refused(Code.NOT_FOUND, kernel, loaded, "no_such_kernel")


@in_process
def test_a_kernel_has_a_function_in_the_current_context():
    start()
    found = kernel(library(), "add_to_each")
    in_primary = cu.cuKernelGetFunction(pointer, found)
    assert cu.cuFuncGetName(text, in_primary) == b"add_to_each"
    assert adds(in_primary)
    assert cu.cuKernelGetFunction(pointer, found) == in_primary
    cu.cuCtxCreate_v4(pointer, None, 0, 0)
    in_other = cu.cuKernelGetFunction(pointer, found)
    assert adds(in_other)


@in_process
def test_a_librarys_module_and_variables_are_the_contexts():
    start()
    loaded = library()
    module = cu.cuLibraryGetModule(pointer, loaded)
    address, size = cu.cuLibraryGetGlobal(u64, u64, loaded, b"counters")
    assert size == 16
    assert cu.cuModuleGetGlobal_v2(u64, u64, module, b"counters") == (address, size)
    launch(function(module, "count_up"), 1, 4)
    launch(kernel(loaded, "count_up"), 1, 4)
    assert download(address, i32, 4) == [3, 4, 5, 6]
    assert cu.cuLibraryGetGlobal(None, u64, loaded, b"counters") == 16
    refused(Code.NOT_FOUND, cu.cuLibraryGetGlobal, u64, u64, loaded, b"absent")
    refused(Code.NOT_FOUND, cu.cuLibraryGetManaged, u64, u64, loaded, b"absent")
    refused(Code.NOT_FOUND, cu.cuLibraryGetUnifiedFunction, pointer, loaded, b"absent")


@in_process
def test_attributes_of_kernels_are_a_devices():
    start()
    loaded = library()
    bounded, shared = kernel(loaded, "at_most_64_threads"), kernel(loaded, "static_shared")
    assert cu.cuKernelGetAttribute(i32, MAX_THREADS, bounded, 0) == 64
    assert cu.cuKernelGetAttribute(i32, SHARED_SIZE, shared, 0) == 1024
    cu.cuKernelSetAttribute(MAX_DYNAMIC, 60000, shared, 0)
    assert cu.cuKernelGetAttribute(i32, MAX_DYNAMIC, shared, 0) == 60000
    refused(Code.INVALID_VALUE, cu.cuKernelSetAttribute, MAX_THREADS, 32, shared, 0)
    refused(Code.INVALID_VALUE, cu.cuKernelSetAttribute, MAX_DYNAMIC, 1 << 30, shared, 0)
    refused(Code.INVALID_DEVICE, cu.cuKernelGetAttribute, i32, MAX_THREADS, shared, 9)
    cu.cuKernelSetCacheConfig(shared, 1, 0)
    refused(Code.INVALID_VALUE, cu.cuKernelSetCacheConfig, shared, 99, 0)


@in_process
def test_parameters_of_kernels_have_their_places():
    start()
    mixed = kernel(library(), "mixed_parameters")
    places = [cu.cuKernelGetParamInfo(mixed, i, u64, u64) for i in range(5)]
    assert places == [(0, 1), (8, 40), (48, 2), (56, 8), (64, 8)]
    assert cu.cuKernelGetParamInfo(mixed, 4, u64, None) == 64
    refused(Code.INVALID_VALUE, cu.cuKernelGetParamInfo, mixed, 5, u64, u64)


@in_process
def test_an_unloaded_library_is_gone():
    start()
    loaded = library()
    assert adds(kernel(loaded, "add_to_each"))
    cu.cuLibraryUnload(loaded)
    refused(Code.INVALID_HANDLE, cu.cuLibraryUnload, loaded)
    refused(Code.INVALID_HANDLE, kernel, loaded, "vec_add")
    assert adds(kernel(library(), "add_to_each"))


@in_process_with(quiet=False)
def test_a_bad_library_is_refused():
    start()
    rest = (None, None, 0, None, None, 0)
    refused(Code.INVALID_VALUE, cu.cuLibraryLoadData, pointer, None, *rest)
    refused(Code.INVALID_IMAGE, cu.cuLibraryLoadData, pointer, b"\x7fELF" + bytes(64), *rest)


@in_process_with(server="two_cuda_devices")
def test_a_library_serves_both_devices():
    cu.cuInit(0)
    found = kernel(library(), "add_to_each")
    for device in range(2):
        cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(pointer, device))
        assert adds(found)
