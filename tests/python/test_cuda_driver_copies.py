"""Copies and fills: every direction and shape, synchronous and on streams."""

import ctypes

from cuda_driver import (
    Code,
    cu,
    download,
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
    u64,
    upload,
)

HOST, DEVICE, UNIFIED = 1, 2, 4
u8, u16 = ctypes.c_uint8, ctypes.c_uint16


def _end(name, middle):
    return [
        (f"{name}_{field}", kind)
        for field, kind in (
            ("x", u64),
            ("y", u64),
            *middle[0],
            ("type", i32),
            ("host", pointer),
            ("device", u64),
            ("array", pointer),
            *middle[1],
        )
    ]


_FLAT = [[], [("pitch", u64)]]
_DEEP = [[("z", u64), ("lod", u64)], [("context", pointer), ("pitch", u64), ("height", u64)]]


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [*_end("src", _FLAT), *_end("dst", _FLAT), ("width", u64), ("height", u64)]


class Copy3D(ctypes.Structure):
    """CUDA_MEMCPY3D; of its peer form the contexts are used as well."""

    _fields_ = [
        *_end("src", _DEEP),
        *_end("dst", _DEEP),
        ("width", u64),
        ("height", u64),
        ("depth", u64),
    ]


def end(name, memory, pitch, **rest):
    """The fields of a copy's one end: an address of the device, or a ctypes array."""
    fields = {"pitch": pitch, **rest}
    if isinstance(memory, int):
        fields |= {"type": DEVICE, "device": memory}
    else:
        fields |= {"type": HOST, "host": ctypes.addressof(memory)}
    return {f"{name}_{field}": value for field, value in fields.items()}


@in_process
def test_bytes_go_up_across_and_down():
    start()
    for size in (1, 3, 1000, 65536, (3 << 20) + 5):
        data = ctypes.create_string_buffer(bytes(i * 7 % 251 for i in range(size)), size)
        first, second = cu.cuMemAlloc_v2(u64, size), cu.cuMemAlloc_v2(u64, size)
        cu.cuMemcpyHtoD_v2(first, data, size)
        cu.cuMemcpyDtoD_v2(second, first, size)
        out = ctypes.create_string_buffer(size)
        cu.cuMemcpyDtoH_v2(out, second, size)
        assert out.raw == data.raw, size


@in_process
def test_parts_of_allocations_are_copied():
    start()
    a = upload(ints(*range(16)))
    cu.cuMemcpyDtoD_v2(a + 32, a, 16)
    cu.cuMemcpyHtoD_v2(a + 60, ints(99), 4)
    assert download(a, i32, 16) == [*range(8), 0, 1, 2, 3, 12, 13, 14, 99]
    assert download(a + 56, i32, 2) == [14, 99]


@in_process
def test_copies_past_the_end_are_refused():
    start()
    a = upload(ints(1, 2, 3, 4))
    host = ints(*[0] * 400)
    refused(Code.INVALID_VALUE, cu.cuMemcpyHtoD_v2, a, host, 1600)
    refused(Code.INVALID_VALUE, cu.cuMemcpyDtoH_v2, host, a + 8, 1600)
    refused(Code.INVALID_VALUE, cu.cuMemcpyDtoH_v2, host, 0x1000, 4)
    refused(Code.INVALID_VALUE, cu.cuMemsetD32_v2, a, 1, 400)
    refused(Code.INVALID_VALUE, cu.cuMemcpyHtoD_v2, a, None, 4)
    cu.cuMemcpyHtoD_v2(a, None, 0)
    cu.cuCtxSynchronize()
    assert download(a, i32, 4) == [1, 2, 3, 4]


@in_process
def test_one_copy_for_all_directions():
    start()
    host, back = ints(1, 2, 3), ints(0, 0, 0)
    first, second = cu.cuMemAlloc_v2(u64, 12), cu.cuMemAlloc_v2(u64, 12)
    cu.cuMemcpy(first, ctypes.addressof(host), 12)
    cu.cuMemcpy(second, first, 12)
    cu.cuMemcpy(ctypes.addressof(back), second, 12)
    assert list(back) == [1, 2, 3]
    stream = cu.cuStreamCreate(pointer, 0)
    host[0] = 50
    cu.cuMemcpyAsync(first, ctypes.addressof(host), 12, stream)
    cu.cuMemcpyAsync(second, first, 12, stream)
    cu.cuMemcpyAsync(ctypes.addressof(back), second, 12, stream)
    cu.cuStreamSynchronize(stream)
    assert list(back) == [50, 2, 3]
    between = ints(0, 0, 0)
    cu.cuMemcpy(ctypes.addressof(between), ctypes.addressof(host), 12)
    assert list(between) == [50, 2, 3]


@in_process
def test_copies_on_a_stream_are_in_order():
    start()
    stream = cu.cuStreamCreate(pointer, 1)
    pinned = cu.cuMemHostAlloc(pointer, 8, 0)
    a, b = upload(ints(0, 0)), upload(ints(0, 0))
    source = ints(5, 6)
    cu.cuMemcpyHtoDAsync_v2(a, source, 8, stream)
    source[0] = 1000  # The bytes were taken before the call returned.
    cu.cuMemcpyDtoDAsync_v2(b, a, 8, stream)
    cu.cuMemcpyDtoHAsync_v2(pinned, b, 8, stream)
    cu.cuStreamSynchronize(stream)
    assert list((i32 * 2).from_address(pinned)) == [5, 6]


@in_process
def test_downloads_into_pageable_memory_are_there_at_return():
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    a = upload(ints(1, 2))
    cu.cuMemsetD32Async(a, 8, 2, stream)
    out = ints(0, 0)
    cu.cuMemcpyDtoHAsync_v2(out, a, 8, stream)
    assert list(out) == [8, 8]


@in_process
def test_bytes_that_came_down_may_go_up_again():
    """Down into pinned memory, then up from it, with no wait between them."""
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    pinned = cu.cuMemHostAlloc(pointer, 4, 0)
    i32.from_address(pinned).value = -1
    a, b = upload(ints(123)), upload(ints(0))
    cu.cuMemcpyDtoHAsync_v2(pinned, a, 4, stream)
    cu.cuMemcpyHtoDAsync_v2(b, pinned, 4, stream)
    cu.cuStreamSynchronize(stream)
    assert download(b, i32, 1) == [123]


@in_process
def test_a_delivery_is_made_once():
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    pinned = cu.cuMemHostAlloc(pointer, 4, 0)
    a = upload(ints(5))
    cu.cuMemcpyDtoHAsync_v2(pinned, a, 4, stream)
    cu.cuStreamSynchronize(stream)
    i32.from_address(pinned).value = 6
    cu.cuStreamSynchronize(stream)
    cu.cuCtxSynchronize()
    assert i32.from_address(pinned).value == 6


@in_process
def test_rectangles_are_copied():
    start()
    host = (u8 * (10 * 8))(*range(80))
    device, pitch = cu.cuMemAllocPitch_v2(u64, u64, 10, 8, 4)
    up = Copy2D(**end("src", host, 10), **end("dst", device, pitch), width=10, height=8)
    cu.cuMemcpy2D_v2(ctypes.byref(up))
    other = upload((u8 * 400)(*[200] * 400))
    inner = Copy2D(
        **end("src", device, pitch, x=2, y=3), **end("dst", other, 20, x=5, y=1), width=4, height=2
    )
    cu.cuMemcpy2DUnaligned_v2(ctypes.byref(inner))
    expected = [200] * 400
    for row in range(2):
        for column in range(4):
            expected[20 * (1 + row) + 5 + column] = (3 + row) * 10 + 2 + column
    assert download(other, u8, 400) == expected
    back = (u8 * 80)()
    stream = cu.cuStreamCreate(pointer, 0)
    down = Copy2D(**end("src", device, pitch), **end("dst", back, 10), width=10, height=8)
    cu.cuMemcpy2DAsync_v2(ctypes.byref(down), stream)
    cu.cuStreamSynchronize(stream)
    assert list(back) == list(range(80))


@in_process
def test_rectangles_wider_than_their_pitch_are_refused():
    start()
    device = cu.cuMemAlloc_v2(u64, 4096)
    host = (u8 * 4096)()
    wide = Copy2D(**end("src", host, 16), **end("dst", device, 32), width=20, height=4)
    refused(Code.INVALID_VALUE, cu.cuMemcpy2D_v2, ctypes.byref(wide))
    refused(Code.INVALID_VALUE, cu.cuMemcpy2D_v2, None)
    tall = Copy2D(**end("src", host, 32), **end("dst", device, 32), width=32, height=4096)
    refused(Code.INVALID_VALUE, cu.cuMemcpy2D_v2, ctypes.byref(tall))
    empty = Copy2D(**end("src", host, 32), **end("dst", device, 32), width=0, height=4)
    cu.cuMemcpy2D_v2(ctypes.byref(empty))


@in_process
def test_boxes_are_copied():
    start()
    host = (u8 * (6 * 5 * 4))(*range(120))
    device = upload((u8 * 1024)(*[255] * 1024))
    box = {"width": 3, "height": 2, "depth": 2}
    up = Copy3D(
        **end("src", host, 6, height=5, x=1, y=2, z=1),
        **end("dst", device, 16, height=4, x=2, y=1, z=1),
        **box,
    )
    cu.cuMemcpy3D_v2(ctypes.byref(up))
    expected = [255] * 1024
    for z in range(2):
        for y in range(2):
            for x in range(3):
                there = ((1 + z) * 4 + 1 + y) * 16 + 2 + x
                expected[there] = ((1 + z) * 5 + 2 + y) * 6 + 1 + x
    assert download(device, u8, 1024) == expected
    back = (u8 * 12)()
    down = Copy3D(
        **end("src", device, 16, height=4, x=2, y=1, z=1), **end("dst", back, 3, height=2), **box
    )
    stream = cu.cuStreamCreate(pointer, 0)
    cu.cuMemcpy3DAsync_v2(ctypes.byref(down), stream)
    cu.cuStreamSynchronize(stream)
    assert list(back) == [
        ((1 + z) * 5 + 2 + y) * 6 + 1 + x for z in range(2) for y in range(2) for x in range(3)
    ]


@in_process
def test_bytes_and_words_are_filled():
    start()
    a = cu.cuMemAlloc_v2(u64, 64)
    cu.cuMemsetD8_v2(a, 0xAB, 64)
    cu.cuMemsetD16_v2(a + 2, 0x1234, 3)
    cu.cuMemsetD32_v2(a + 16, 0xDEADBEEF, 2)
    expected = bytearray(b"\xab" * 64)
    expected[2:8] = b"\x34\x12" * 3
    expected[16:24] = b"\xef\xbe\xad\xde" * 2
    assert bytes(download(a, u8, 64)) == expected
    refused(Code.INVALID_VALUE, cu.cuMemsetD16_v2, a + 1, 1, 1)
    refused(Code.INVALID_VALUE, cu.cuMemsetD32_v2, a + 2, 1, 1)
    cu.cuMemsetD8_v2(a, 0, 0)


@in_process
def test_fills_on_a_stream_are_in_order():
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    a = cu.cuMemAlloc_v2(u64, 64)
    cu.cuMemsetD8Async(a, 0x11, 64, stream)
    cu.cuMemsetD16Async(a, 0x2222, 8, stream)
    cu.cuMemsetD32Async(a, 0x33333333, 2, stream)
    cu.cuStreamSynchronize(stream)
    assert bytes(download(a, u8, 64)) == b"\x33" * 8 + b"\x22" * 8 + b"\x11" * 48


@in_process
def test_rectangles_are_filled():
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    a = cu.cuMemAlloc_v2(u64, 256)
    fills = (
        (cu.cuMemsetD2D8_v2, cu.cuMemsetD2D8Async, 0x5A, 1),
        (cu.cuMemsetD2D16_v2, cu.cuMemsetD2D16Async, 0x5A5B, 2),
        (cu.cuMemsetD2D32_v2, cu.cuMemsetD2D32Async, 0x5A5B5C5D, 4),
    )
    for fill, on_stream, value, width in fills:
        expected = bytearray(256)
        for row in range(3):
            expected[row * 32 : row * 32 + 5 * width] = value.to_bytes(width, "little") * 5
        for call, last in ((fill, ()), (on_stream, (stream,))):
            cu.cuMemsetD8_v2(a, 0, 256)
            cu.cuCtxSynchronize()
            call(a, 32, value, 5, 3, *last)
            cu.cuCtxSynchronize()
            assert bytes(download(a, u8, 256)) == expected, (width, last)
        refused(Code.INVALID_VALUE, fill, a, 4 * width, value, 5, 3)


@in_process
def test_copies_between_contexts_of_one_device():
    first = start()
    a = upload(ints(1, 2, 3))
    second = cu.cuCtxCreate_v4(pointer, None, 0, 0)
    b = cu.cuMemAlloc_v2(u64, 12)
    cu.cuMemcpyPeer(b, second, a, first, 12)
    assert download(b, i32, 3) == [1, 2, 3]


@in_process_with(server="two_cuda_devices")
def test_copies_go_from_device_to_device():
    cu.cuInit(0)
    contexts = [cu.cuDevicePrimaryCtxRetain(pointer, device) for device in range(2)]
    cu.cuCtxSetCurrent(contexts[0])
    a = upload(ints(*range(12)))
    stream = cu.cuStreamCreate(pointer, 0)
    cu.cuCtxSetCurrent(contexts[1])
    b = upload(ints(*[0] * 12))
    cu.cuMemcpyPeer(b, contexts[1], a, contexts[0], 16)
    assert download(b, i32, 5) == [0, 1, 2, 3, 0]
    cu.cuCtxSetCurrent(contexts[0])
    cu.cuMemcpyPeerAsync(b + 16, contexts[1], a + 16, contexts[0], 16, stream)
    cu.cuStreamSynchronize(stream)
    assert download(b, i32, 9) == [*range(8), 0]
    cu.cuMemcpyDtoD_v2(b + 32, a + 32, 16)  # Addresses say which devices.
    assert download(b, i32, 12) == list(range(12))
    box = Copy3D(
        **end("src", a, 8, height=2, context=contexts[0]),
        **end("dst", b, 16, height=2, context=contexts[1]),
        width=8,
        height=2,
        depth=1,
    )
    cu.cuMemcpy3DPeer(ctypes.byref(box))
    assert download(b, i32, 6) == [0, 1, 2, 3, 2, 3]
    cu.cuMemcpy3DPeerAsync(ctypes.byref(box), stream)
    cu.cuStreamSynchronize(stream)


class CopyAttributes(ctypes.Structure):
    """CUmemcpyAttributes: in stream order, no hints."""

    _fields_ = [("order", i32), ("hints", i32 * 4), ("flags", ctypes.c_uint32)]


@in_process
def test_a_batch_of_copies_is_made():
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    a, b = upload(ints(1, 2, 3, 4)), upload(ints(*[0] * 4))
    host = ints(9)
    into = (u64 * 2)(b, b + 8)
    of = (u64 * 2)(a + 8, ctypes.addressof(host))
    sizes, attributes, first = (u64 * 2)(8, 4), CopyAttributes(1), u64(0)
    cu.cuMemcpyBatchAsync_v2(
        into, of, sizes, 2, ctypes.byref(attributes), ctypes.byref(first), 1, stream
    )
    cu.cuStreamSynchronize(stream)
    assert download(b, i32, 4) == [3, 4, 9, 0]


class Operand(ctypes.Structure):
    """CUmemcpy3DOperand of an address."""

    _fields_ = [
        ("type", i32),
        ("address", u64),
        ("row", u64),
        ("rows", u64),
        ("hint", i32 * 2),
    ]


class Operation(ctypes.Structure):
    """CUDA_MEMCPY3D_BATCH_OP."""

    _fields_ = [
        ("source", Operand),
        ("target", Operand),
        ("extent", u64 * 3),
        ("order", i32),
        ("flags", i32),
    ]


@in_process
def test_a_batch_of_boxes_is_copied():
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    a, b = upload((u8 * 64)(*range(64))), upload((u8 * 64)())
    host = (u8 * 4)(91, 92, 93, 94)
    # Rows of 8 bytes, layers of 2 rows: 3 bytes of 2 rows of 2 layers; and 4 bytes of the host's.
    box = Operation(Operand(1, a, 8, 2), Operand(1, b, 8, 2), (u64 * 3)(3, 2, 2), 1)
    line = Operation(Operand(1, ctypes.addressof(host)), Operand(1, b + 40), (u64 * 3)(4, 1, 1), 1)
    both = (Operation * 2)(box, line)
    cu.cuMemcpy3DBatchAsync_v2(2, both, 0, stream)
    cu.cuStreamSynchronize(stream)
    expected = [0] * 64
    for row in range(4):
        expected[8 * row : 8 * row + 3] = range(8 * row, 8 * row + 3)
    expected[40:44] = [91, 92, 93, 94]
    assert download(b, u8, 64) == expected
    narrow = Operation(Operand(1, a, 2, 2), Operand(1, b, 8, 2), (u64 * 3)(3, 2, 2), 1)
    refused(Code.INVALID_VALUE, cu.cuMemcpy3DBatchAsync_v2, 1, ctypes.byref(narrow), 0, stream)


@in_process
def test_every_stream_sees_what_a_blocking_copy_brought():
    """A stream that waits for no other is given work at once after large copies that block."""
    start()
    n = 1 << 20
    kernel, stream = function(load(), "add_to_each"), cu.cuStreamCreate(pointer, 1)
    device, values = cu.cuMemAlloc_v2(u64, 4 * n), (i32 * n)()
    for turn in range(30):
        values[n - 1] = turn
        cu.cuMemcpyHtoD_v2(device, values, 4 * n)
        launch(kernel, 1, 1, u64(device + 4 * (n - 1)), i32(1), i32(5), stream=stream)
        cu.cuStreamSynchronize(stream)
        assert download(device + 4 * (n - 1), i32, 1) == [turn + 5]
