"""How often a program waits for the server: counted by the shim itself, scenario by scenario."""

import ctypes
import random

from cuda_driver import (
    cu,
    download,
    f32,
    function,
    i32,
    in_process,
    ints,
    launch,
    load,
    pointer,
    start,
    statistics,
    u64,
    upload,
)


class Counted:
    """`with Counted(waits=1):` the block waits exactly so often (or at most, by `at_most`)."""

    def __init__(self, *, waits=None, at_most=None):
        self.waits, self.at_most = waits, at_most

    def __enter__(self):
        self.before = statistics()
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            waited = statistics().waits - self.before.waits
            if self.waits is not None:
                assert waited == self.waits, f"{waited} waits instead of {self.waits}"
            if self.at_most is not None:
                assert waited <= self.at_most, f"{waited} waits, more than {self.at_most}"


@in_process
def test_start_up_is_one_wait():
    assert statistics().waits == 0
    start()
    assert statistics().waits == 1
    a = upload(ints(1, 2, 3))
    module = load()
    launch(function(module, "add_to_each"), 1, 3, u64(a), i32(3), i32(1))
    assert statistics().waits == 1
    assert download(a, i32, 3) == [2, 3, 4]
    assert statistics().waits == 2


@in_process
def test_a_thousand_launches_are_one_wait():
    start()
    kernel, a = function(load(), "add_to_each"), upload(ints(0))
    with Counted(waits=1):
        for _ in range(1000):
            launch(kernel, 1, 1, u64(a), i32(1), i32(1))
        cu.cuCtxSynchronize()
    assert download(a, i32, 1) == [1000]


@in_process
def test_ten_thousand_small_uploads_are_one_wait():
    start()
    chooser = random.Random(7)
    size = 256 * 1024
    expected = bytearray(size)
    device = upload((ctypes.c_uint8 * size)())
    with Counted(waits=1):
        for _ in range(10_000):
            length = chooser.randrange(1, 2048)
            at = chooser.randrange(size - length)
            piece = chooser.randbytes(length)
            expected[at : at + length] = piece
            cu.cuMemcpyHtoD_v2(device + at, piece, length)
        cu.cuCtxSynchronize()
    out = ctypes.create_string_buffer(size)
    cu.cuMemcpyDtoH_v2(out, device, size)
    assert out.raw == bytes(expected)


@in_process
def test_what_is_known_here_is_not_asked_there():
    start()
    module = load()
    kernel = function(module, "static_shared")
    a = upload(ints(1))
    stream = cu.cuStreamCreate(pointer, 0)

    def ask():
        cu.cuDeviceGetAttribute(i32, 10, 0)
        cu.cuDeviceTotalMem_v2(u64, 0)
        cu.cuFuncGetAttribute(i32, 1, kernel)
        cu.cuFuncGetParamInfo(kernel, 0, u64, u64)
        cu.cuModuleGetGlobal_v2(u64, u64, module, b"counters")
        cu.cuPointerGetAttribute(i32, 9, a)
        cu.cuMemGetAddressRange_v2(u64, u64, a)
        cu.cuStreamGetPriority(stream, i32)
        cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(i32, kernel, 64, 0)
        cu.cuCtxGetLimit(u64, 0)

    with Counted(at_most=2):  # The kernel's attributes and the variable's address, once each.
        ask()
    with Counted(waits=0):
        for _ in range(100):
            ask()


@in_process
def test_making_and_freeing_waits_for_nothing():
    start()
    with Counted(waits=0):
        for _ in range(100):
            address = cu.cuMemAlloc_v2(u64, 4096)
            cu.cuMemsetD32_v2(address, 1, 1024)
            cu.cuMemFree_v2(address)
            stream, event = cu.cuStreamCreate(pointer, 0), cu.cuEventCreate(pointer, 0)
            cu.cuEventRecord(event, stream)
            cu.cuStreamWaitEvent(None, event, 0)
            pooled = cu.cuMemAllocAsync(u64, 100, stream)
            cu.cuMemFreeAsync(pooled, stream)
            cu.cuEventDestroy_v2(event)
            cu.cuStreamDestroy_v2(stream)
        module = load()
        cu.cuModuleGetFunctionCount(i32, module)
        cu.cuModuleUnload(module)


@in_process
def test_a_download_on_a_stream_into_pinned_memory_waits_with_the_stream():
    start()
    pinned, stream = cu.cuMemHostAlloc(pointer, 400, 0), cu.cuStreamCreate(pointer, 0)
    a = upload((f32 * 100)(*range(100)))
    with Counted(at_most=1):
        for i in range(10):
            cu.cuMemcpyDtoHAsync_v2(pinned + 40 * i, a + 40 * i, 40, stream)
        cu.cuStreamSynchronize(stream)
    assert list((f32 * 100).from_address(pinned)) == list(range(100))


@in_process
def test_polling_asks_nobody_each_time():
    from test_cuda_driver_streams import Held

    start()
    stream = cu.cuStreamCreate(pointer, 1)
    held = Held(stream)
    cu.cuStreamSynchronize(held.other)
    try:
        cu.cuStreamQuery(stream)
    except Exception as error:
        assert error.code == 600
    frames = statistics().frames
    with Counted(waits=0):
        for _ in range(20_000):
            try:
                cu.cuStreamQuery(stream)
                raise AssertionError("the stream is held")
            except Exception as error:
                assert error.code == 600
    assert statistics().frames - frames < 100
    held.let_go()
    cu.cuStreamSynchronize(stream)


@in_process
def test_a_large_upload_is_sent_once():
    start()
    size = 8 << 20
    device = cu.cuMemAlloc_v2(u64, size)
    data = ctypes.create_string_buffer(random.Random(3).randbytes(size), size)
    before = statistics().bytes_out
    cu.cuMemcpyHtoD_v2(device, data, size)
    cu.cuCtxSynchronize()
    assert size <= statistics().bytes_out - before < size + (64 << 10)
