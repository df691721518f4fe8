"""Functions: attributes, parameters, occupancy, and how a launch is configured."""

import ctypes

from cuda_driver import (
    Code,
    bind,
    cu,
    download,
    function,
    i32,
    in_process,
    launch,
    load,
    parameters,
    pointer,
    refused,
    start,
    u64,
)

MAX_THREADS, SHARED, CONST, LOCAL, REGISTERS, PTX_VERSION, BINARY_VERSION = range(7)
MAX_DYNAMIC, CARVEOUT = 8, 9


def attribute(kernel, number):
    return cu.cuFuncGetAttribute(i32, number, kernel)


@in_process
def test_attributes_come_from_the_image():
    start()
    module = load()
    bounded, shared, plain = (
        function(module, name) for name in ("at_most_64_threads", "static_shared", "vec_add")
    )
    assert attribute(bounded, MAX_THREADS) == 64
    assert attribute(plain, MAX_THREADS) == 1024
    assert (attribute(shared, SHARED), attribute(plain, SHARED)) == (1024, 0)
    assert attribute(plain, PTX_VERSION) == 75
    major, minor = cu.cuDeviceComputeCapability(i32, i32, 0)
    assert attribute(plain, BINARY_VERSION) == 10 * major + minor
    assert attribute(plain, REGISTERS) > 0
    assert attribute(plain, LOCAL) == 0
    assert attribute(plain, CONST) >= 0
    refused(Code.INVALID_VALUE, attribute, plain, 999)
    refused(Code.INVALID_HANDLE, attribute, None, MAX_THREADS)


@in_process
def test_dynamic_shared_memory_is_opted_into():
    start()
    module = load()
    kernel = function(module, "reverse_shared")
    out = cu.cuMemAlloc_v2(u64, 4)
    values = cu.cuMemAlloc_v2(u64, 128)
    arguments = (u64(values), u64(out))
    assert attribute(kernel, MAX_DYNAMIC) == cu.cuDeviceGetAttribute(i32, 8, 0)
    most = cu.cuDeviceGetAttribute(i32, 97, 0)

    def run(shared):
        launch(kernel, 1, 32, *arguments, shared=shared)

    refused(Code.INVALID_VALUE, run, most)
    cu.cuFuncSetAttribute(kernel, MAX_DYNAMIC, most)
    assert attribute(kernel, MAX_DYNAMIC) == most
    run(most)
    assert download(out, i32, 1) == [most]
    refused(Code.INVALID_VALUE, run, most + 1)
    refused(Code.INVALID_VALUE, cu.cuFuncSetAttribute, kernel, MAX_DYNAMIC, most + 1)
    cu.cuCtxSynchronize()


@in_process
def test_settings_of_functions_are_kept():
    start()
    kernel = function(load(), "vec_add")
    cu.cuFuncSetAttribute(kernel, CARVEOUT, 50)
    assert attribute(kernel, CARVEOUT) == 50
    refused(Code.INVALID_VALUE, cu.cuFuncSetAttribute, kernel, REGISTERS, 1)
    cu.cuFuncSetCacheConfig(kernel, 2)
    refused(Code.INVALID_VALUE, cu.cuFuncSetCacheConfig, kernel, 99)
    cu.cuFuncSetSharedMemConfig(kernel, 1)
    refused(Code.INVALID_VALUE, cu.cuFuncSetSharedMemConfig, kernel, 99)


@in_process
def test_parameters_have_their_places():
    start()
    mixed = function(load(), "mixed_parameters")
    places = [cu.cuFuncGetParamInfo(mixed, i, u64, u64) for i in range(5)]
    assert places == [(0, 1), (8, 40), (48, 2), (56, 8), (64, 8)]
    assert cu.cuFuncGetParamInfo(mixed, 1, u64, None) == 8
    refused(Code.INVALID_VALUE, cu.cuFuncGetParamInfo, mixed, 5, u64, u64)


@in_process
def test_functions_are_loaded_on_request():
    start()
    kernel = function(load(), "nothing")
    cu.cuFuncLoad(kernel)
    assert cu.cuFuncIsLoaded(i32, kernel) == 1
    refused(Code.INVALID_VALUE, cu.cuFuncIsLoaded, None, kernel)


@in_process
def test_occupancy_follows_from_the_limits():
    start()
    module = load()
    plain, shared = function(module, "nothing"), function(module, "static_shared")
    threads = cu.cuDeviceGetAttribute(i32, 39, 0)
    blocks = cu.cuDeviceGetAttribute(i32, 106, 0)

    def active(kernel, block, dynamic=0):
        plain_call = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(i32, kernel, block, dynamic)
        flags_call = cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        assert flags_call(i32, kernel, block, dynamic, 0) == plain_call
        return plain_call

    assert active(plain, 1024) == threads // 1024
    assert active(plain, 256) == min(blocks, threads // 256)
    assert active(plain, 32) == min(blocks, threads // 32)
    assert active(plain, 33) == min(blocks, threads // 64)  # Whole warps.
    per_block, reserved = 40000, cu.cuDeviceGetAttribute(i32, 111, 0)
    in_all = cu.cuDeviceGetAttribute(i32, 81, 0)
    expected = min(threads // 32, in_all // (per_block + reserved + 1024))
    assert abs(active(shared, 32, per_block) - expected) <= 1
    assert active(function(module, "at_most_64_threads"), 65) == 0
    refused(Code.INVALID_VALUE, active, plain, 0)
    refused(
        Code.INVALID_VALUE,
        cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        i32,
        plain,
        32,
        0,
        77,
    )


@in_process
def test_the_best_block_size_fills_the_device():
    start()
    module = load()
    plain = function(module, "nothing")
    processors = cu.cuDeviceGetAttribute(i32, 16, 0)
    threads = cu.cuDeviceGetAttribute(i32, 39, 0)
    grid, block = cu.cuOccupancyMaxPotentialBlockSize(i32, i32, plain, None, 0, 0)
    each = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(i32, plain, block, 0)
    assert block % 32 == 0
    assert each * block == threads
    assert grid == each * processors
    limited = cu.cuOccupancyMaxPotentialBlockSizeWithFlags(i32, i32, plain, None, 0, 96, 0)
    assert limited[1] <= 96
    bounded = function(module, "at_most_64_threads")
    assert cu.cuOccupancyMaxPotentialBlockSize(i32, i32, bounded, None, 0, 0)[1] <= 64

    asked = []

    @ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
    def dynamic_for(block_size):
        asked.append(block_size)
        return block_size * 4

    callback = ctypes.cast(dynamic_for, pointer)
    chosen = cu.cuOccupancyMaxPotentialBlockSize(i32, i32, plain, callback, 0, 256)[1]
    assert chosen in asked


@in_process
def test_shared_memory_left_for_blocks():
    start()
    plain = function(load(), "nothing")
    most = cu.cuDeviceGetAttribute(i32, 8, 0)
    available = cu.cuOccupancyAvailableDynamicSMemPerBlock(u64, plain, 2, 64)
    assert 0 < available <= cu.cuDeviceGetAttribute(i32, 81, 0) // 2
    assert cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(i32, plain, 64, available) >= 2
    assert cu.cuOccupancyAvailableDynamicSMemPerBlock(u64, plain, 1, 64) >= most
    refused(Code.INVALID_VALUE, cu.cuOccupancyAvailableDynamicSMemPerBlock, u64, plain, 0, 64)


@in_process
def test_the_oldest_launch_functions_still_work():
    """cuFuncSetBlockShape, cuParamSet* and cuLaunch: a function's own state."""
    start()
    module = load()
    kernel = function(module, "add_to_each")
    values = cu.cuMemAlloc_v2(u64, 4 * 64)
    cu.cuMemsetD32_v2(values, 0, 64)
    cu.cuFuncSetBlockShape(kernel, 8, 1, 1)
    cu.cuFuncSetSharedSize(kernel, 128)
    address = u64(values)
    cu.cuParamSetv(kernel, 0, ctypes.byref(address), 8)
    cu.cuParamSeti(kernel, 8, 20)
    cu.cuParamSeti(kernel, 12, 7)
    cu.cuParamSetSize(kernel, 16)
    cu.cuLaunch(kernel)
    assert download(values, i32, 24) == [7] * 8 + [0] * 16
    cu.cuLaunchGrid(kernel, 2, 1)
    assert download(values, i32, 24) == [14] * 8 + [7] * 8 + [0] * 8
    stream = cu.cuStreamCreate(pointer, 0)
    cu.cuLaunchGridAsync(kernel, 3, 1, stream)
    cu.cuStreamSynchronize(stream)
    assert download(values, i32, 24) == [21] * 8 + [14] * 8 + [7] * 4 + [0] * 4
    refused(Code.INVALID_VALUE, cu.cuFuncSetBlockShape, kernel, 0, 1, 1)
    refused(Code.INVALID_VALUE, cu.cuParamSeti, kernel, 1 << 20, 1)
    refused(Code.INVALID_VALUE, cu.cuLaunchGrid, kernel, 0, 1)


@in_process
def test_a_float_parameter_is_set_by_its_bits():
    start()
    module = load()
    kernel = function(module, "add_to_each")
    values = cu.cuMemAlloc_v2(u64, 4)
    cu.cuMemsetD32_v2(values, 0, 1)
    address = u64(values)
    cu.cuFuncSetBlockShape(kernel, 1, 1, 1)
    cu.cuParamSetv(kernel, 0, ctypes.byref(address), 8)
    cu.cuParamSeti(kernel, 8, 1)
    cu.cuParamSetf(kernel, 12, 1.0)
    cu.cuParamSetSize(kernel, 16)
    cu.cuLaunch(kernel)
    assert download(values, i32, 1) == [0x3F800000]


@in_process
def test_per_thread_variants_use_the_threads_stream():
    """cuLaunchKernel_ptsz and cuMemcpyDtoH_v2_ptds: stream 0 means the thread's own."""
    start()
    module = load()
    values = cu.cuMemAlloc_v2(u64, 4 * 8)
    call = bind("cuMemsetD32_v2_ptds", cu.library.cuMemsetD32_v2_ptds, "QuQ")
    call(values, 5, 8)
    run = bind("cuLaunchKernel_ptsz", cu.library.cuLaunchKernel_ptsz, "puuuuuuuppp")
    arguments = parameters(u64(values), i32(8), i32(2))
    run(function(module, "add_to_each"), 1, 1, 1, 8, 1, 1, 0, None, arguments, None)
    out = (i32 * 8)()
    bind("cuMemcpyDtoH_v2_ptds", cu.library.cuMemcpyDtoH_v2_ptds, "pQQ")(out, values, 32)
    assert list(out) == [7] * 8
