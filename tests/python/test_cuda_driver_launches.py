"""Launches: parameters in both forms, shapes, attributes, host functions, bad configurations."""

import ctypes
import struct
import threading

from cuda_driver import (
    Code,
    CudaError,
    cu,
    download,
    f32,
    f64,
    function,
    i32,
    in_process,
    ints,
    launch,
    load,
    parameters,
    pointer,
    refused,
    start,
    u32,
    u64,
    upload,
)

BUFFER_POINTER, BUFFER_SIZE = 1, 2


class Mixed(ctypes.Structure):
    """What the kernel mixed_parameters takes by value."""

    _fields_ = [("tag", ctypes.c_char), ("weights", f64 * 3), ("tail", ctypes.c_short)]


class Attribute(ctypes.Structure):
    """CUlaunchAttribute, of whose value the tests need an integer."""

    _fields_ = [("id", i32), ("pad", i32), ("value", i32 * 16)]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", u32 * 3),
        ("block", u32 * 3),
        ("shared", u32),
        ("stream", pointer),
        ("attributes", pointer),
        ("attribute_count", u32),
    ]


class LaunchParams(ctypes.Structure):
    """CUDA_LAUNCH_PARAMS."""

    _fields_ = [
        ("function", pointer),
        ("grid", u32 * 3),
        ("block", u32 * 3),
        ("shared", u32),
        ("stream", pointer),
        ("parameters", pointer),
    ]


def config(grid, block, *attributes, stream=None):
    array = (Attribute * max(1, len(attributes)))(*attributes)
    made = Config((u32 * 3)(grid, 1, 1), (u32 * 3)(block, 1, 1), 0, stream)
    made.attributes, made.attribute_count = ctypes.addressof(array), len(attributes)
    made.kept_alive = array
    return made


@in_process
def test_vectors_are_added():
    start()
    n = 1000
    a, b = upload((f32 * n)(*range(n))), upload((f32 * n)(*range(0, 2 * n, 2)))
    out = cu.cuMemAlloc_v2(u64, 4 * n)
    launch(function(load(), "vec_add"), 4, 256, u64(a), u64(b), u64(out), i32(n))
    assert download(out, f32, n) == [3.0 * i for i in range(n)]


@in_process
def test_parameters_of_mixed_sizes_arrive():
    start()
    kernel = function(load(), "mixed_parameters")
    out = cu.cuMemAlloc_v2(u64, 48)
    mixed = Mixed(b"\x05", (f64 * 3)(1.5, 2.5, 3.5), -7)
    arguments = (ctypes.c_char(b"\x03"), mixed, ctypes.c_short(-2), f64(9.25), u64(out))
    launch(kernel, 1, 1, *arguments)
    assert download(out, f64, 6) == [3, 5, 7.5, -7, -2, 9.25]


@in_process
def test_parameters_may_come_in_one_buffer():
    start()
    kernel = function(load(), "mixed_parameters")
    out = cu.cuMemAlloc_v2(u64, 48)
    packed = struct.pack("=b7xb7x3dh6xh6xdQ", 3, 5, 1.5, 2.5, 3.5, -7, -2, 9.25, out)
    buffer, size = ctypes.create_string_buffer(packed, len(packed)), u64(len(packed))
    extra = (pointer * 5)(
        BUFFER_POINTER, ctypes.addressof(buffer), BUFFER_SIZE, ctypes.addressof(size), 0
    )
    cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, extra)
    assert download(out, f64, 6) == [3, 5, 7.5, -7, -2, 9.25]
    both = (kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters(u64(0)), extra)
    refused(Code.INVALID_VALUE, cu.cuLaunchKernel, *both)


@in_process
def test_arguments_are_copied_before_the_call_returns():
    start()
    kernel = function(load(), "add_to_each")
    values = upload(ints(*[0] * 4))
    amount = i32(3)
    array = parameters(u64(values), i32(4), amount)
    cu.cuLaunchKernel(kernel, 1, 1, 1, 4, 1, 1, 0, None, array, None)
    amount.value = 1000
    assert download(values, i32, 4) == [3] * 4


@in_process
def test_grids_have_three_dimensions():
    start()
    count = 2 * 3 * 2 * 4 * 2 * 2
    out = cu.cuMemAlloc_v2(u64, 4 * count)
    launch(function(load(), "places"), (2, 3, 2), (4, 2, 2), u64(out))
    assert download(out, u32, count) == [b * 10000 + t for b in range(12) for t in range(16)]


@in_process
def test_dynamic_shared_memory_has_the_size_asked_for():
    start()
    values, size = upload(ints(*range(32))), upload(ints(0))
    launch(function(load(), "reverse_shared"), 1, 32, u64(values), u64(size), shared=256)
    assert download(values, i32, 32) == list(range(31, -1, -1))
    assert download(size, i32, 1) == [256]


@in_process
def test_bad_configurations_are_refused_at_once():
    start()
    module = load()
    kernel = function(module, "nothing")
    for grid, block in (
        ((0, 1, 1), (1, 1, 1)),
        ((1, 0, 1), (1, 1, 1)),
        ((1, 65536, 1), (1, 1, 1)),
        ((1, 1, 65536), (1, 1, 1)),
        ((0x80000000, 1, 1), (1, 1, 1)),
        ((1, 1, 1), (0, 1, 1)),
        ((1, 1, 1), (4096, 1, 1)),
        ((1, 1, 1), (32, 64, 1)),
        ((1, 1, 1), (1, 1, 65)),
    ):
        refused(Code.INVALID_VALUE, launch, kernel, grid, block)
    refused(Code.INVALID_VALUE, lambda: launch(kernel, 1, 1, shared=1 << 20))
    refused(Code.INVALID_HANDLE, launch, None, 1, 1)
    refused(Code.INVALID_HANDLE, lambda: launch(kernel, 1, 1, stream=0x123456))
    cu.cuCtxSynchronize()
    assert download(upload(ints(4)), i32, 1) == [4]


@in_process
def test_more_threads_than_a_kernel_bears_are_refused():
    start()
    kernel = function(load(), "at_most_64_threads")
    out = upload(ints(*[0] * 64))
    try:
        launch(kernel, 1, 65, u64(out))
    except CudaError as error:  # Drivers differ.
        assert error.code in (Code.INVALID_VALUE, Code.LAUNCH_OUT_OF_RESOURCES)
    else:
        raise AssertionError("65 threads were launched")
    launch(kernel, 1, 64, u64(out))
    assert download(out, i32, 64) == [64] * 64


@in_process
def test_missing_parameters_are_refused():
    start()
    kernel = function(load(), "vec_add")
    call = (kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    refused(Code.INVALID_VALUE, cu.cuLaunchKernel, *call)
    cu.cuCtxSynchronize()


@in_process
def test_extended_launches_take_attributes():
    start()
    module = load()
    values = upload(ints(0, 0))
    array = parameters(u64(values), i32(2), i32(5))
    stream = cu.cuStreamCreate(pointer, 0)
    plain = config(1, 2, stream=stream)
    cu.cuLaunchKernelEx(ctypes.byref(plain), function(module, "add_to_each"), array, None)
    cu.cuStreamSynchronize(stream)
    assert download(values, i32, 2) == [5, 5]
    ignored, priority = Attribute(id=0), Attribute(id=8)
    with_some = config(1, 2, ignored, priority)
    cu.cuLaunchKernelEx(ctypes.byref(with_some), function(module, "add_to_each"), array, None)
    assert download(values, i32, 2) == [10, 10]
    refused(
        Code.INVALID_VALUE, cu.cuLaunchKernelEx, None, function(module, "add_to_each"), array, None
    )


@in_process
def test_cooperative_grids_meet():
    start()
    kernel = function(load(), "grid_total")
    blocks = 8
    partial, total = upload(ints(*[0] * blocks)), upload(ints(0))
    arguments = parameters(u64(partial), u64(total))
    cu.cuLaunchCooperativeKernel(kernel, blocks, 1, 1, 32, 1, 1, 0, None, arguments)
    assert download(total, i32, 1) == [36]
    cooperative = Attribute(id=2)
    cooperative.value[0] = 1
    again = config(blocks, 32, cooperative)
    cu.cuLaunchKernelEx(ctypes.byref(again), kernel, arguments, None)
    assert download(total, i32, 1) == [72]
    limit = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(i32, kernel, 1024, 0)
    too_many = limit * cu.cuDeviceGetAttribute(i32, 16, 0) + 1
    large = (kernel, too_many, 1, 1, 1024, 1, 1, 0, None, arguments)
    refused(Code.COOPERATIVE_LAUNCH_TOO_LARGE, cu.cuLaunchCooperativeKernel, *large)
    cu.cuCtxSynchronize()


@in_process
def test_host_functions_run_in_stream_order():
    start()
    module = load()
    stream = cu.cuStreamCreate(pointer, 0)
    host = ctypes.c_void_p(cu.cuMemHostAlloc(pointer, 4, 0))
    seen = []
    done = threading.Event()

    @ctypes.CFUNCTYPE(None, pointer)
    def look(data):
        seen.append((data, i32.from_address(host.value).value))
        done.set()

    values = upload(ints(41))
    launch(function(module, "add_to_each"), 1, 1, u64(values), i32(1), i32(1), stream=stream)
    cu.cuMemcpyDtoHAsync_v2(host, values, 4, stream)
    cu.cuLaunchHostFunc(stream, ctypes.cast(look, pointer), 0x1234)
    assert done.wait(20)
    cu.cuStreamSynchronize(stream)
    assert seen == [(0x1234, 42)]
    refused(Code.INVALID_VALUE, cu.cuLaunchHostFunc, stream, None, None)


@in_process
def test_a_stream_waits_for_its_host_function():
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    values = upload(ints(0))
    let_go = threading.Event()

    @ctypes.CFUNCTYPE(None, pointer)
    def hold(_):
        let_go.wait(20)

    cu.cuLaunchHostFunc(stream, ctypes.cast(hold, pointer), None)
    cu.cuMemsetD32Async(values, 9, 1, stream)
    refused(Code.NOT_READY, cu.cuStreamQuery, stream)
    let_go.set()
    cu.cuStreamSynchronize(stream)
    assert download(values, i32, 1) == [9]


@in_process
def test_launches_on_several_devices_at_once_are_launches():
    """cuLaunchCooperativeKernelMultiDevice on one device."""
    start()
    kernel = function(load(), "grid_total")
    stream = cu.cuStreamCreate(pointer, 0)
    partial, total = upload(ints(*[0] * 4)), upload(ints(0))
    arguments = parameters(u64(partial), u64(total))
    one = LaunchParams(kernel, (u32 * 3)(4, 1, 1), (u32 * 3)(32, 1, 1), 0, stream)
    one.parameters = ctypes.addressof(arguments)
    cu.cuLaunchCooperativeKernelMultiDevice(ctypes.byref(one), 1, 0)
    cu.cuStreamSynchronize(stream)
    assert download(total, i32, 1) == [10]
