"""Memory: device allocations, host memory of every kind, and what pointers say of themselves."""

import ctypes
import mmap

from cuda_driver import (
    Code,
    cu,
    download,
    i32,
    in_process,
    in_process_with,
    ints,
    pointer,
    refused,
    start,
    u32,
    u64,
    upload,
)

CONTEXT, TYPE, DEVICE_POINTER, HOST_POINTER = 1, 2, 3, 4
SYNC_MEMOPS, BUFFER_ID, IS_MANAGED, ORDINAL = 6, 7, 8, 9
RANGE_START, RANGE_SIZE, MAPPED = 11, 12, 13
HOST, DEVICE = 1, 2
PORTABLE, MAPPED_FLAG, WRITE_COMBINED = 1, 2, 4


def asked(kind, attribute, address):
    """cuPointerGetAttribute."""
    return cu.cuPointerGetAttribute(kind, attribute, address)


@in_process
def test_allocations_are_distinct_and_aligned():
    start()
    addresses = [cu.cuMemAlloc_v2(u64, size) for size in (1, 3, 256, 257, 70000)]
    assert len(set(addresses)) == 5
    assert all(address % 256 == 0 for address in addresses)
    for i, address in enumerate(addresses):
        cu.cuMemsetD8_v2(address, i + 1, 1)
    assert [download(a, ctypes.c_uint8, 1)[0] for a in addresses] == [1, 2, 3, 4, 5]
    for address in addresses:
        cu.cuMemFree_v2(address)
    refused(Code.INVALID_VALUE, cu.cuMemAlloc_v2, u64, 0)
    refused(Code.INVALID_VALUE, cu.cuMemAlloc_v2, None, 16)


@in_process
def test_freeing_twice_or_elsewhere_is_refused():
    start()
    address = cu.cuMemAlloc_v2(u64, 1024)
    refused(Code.INVALID_VALUE, cu.cuMemFree_v2, address + 8)
    cu.cuMemFree_v2(address)
    refused(Code.INVALID_VALUE, cu.cuMemFree_v2, address)
    refused(Code.INVALID_VALUE, cu.cuMemFree_v2, 0x1000)
    cu.cuMemFree_v2(0)  # Nothing.


@in_process
def test_free_memory_goes_down_and_up():
    start()
    free, total = cu.cuMemGetInfo_v2(u64, u64)
    size = 64 << 20
    address = cu.cuMemAlloc_v2(u64, size)
    less, same = cu.cuMemGetInfo_v2(u64, u64)
    assert same == total
    assert free - less >= size
    cu.cuMemFree_v2(address)
    assert cu.cuMemGetInfo_v2(u64, u64)[0] >= free - (2 << 20)


@in_process
def test_more_than_the_device_has_is_refused():
    start()
    total = cu.cuMemGetInfo_v2(u64, u64)[1]
    refused(Code.OUT_OF_MEMORY, cu.cuMemAlloc_v2, u64, total + (1 << 20))
    refused(Code.OUT_OF_MEMORY, cu.cuMemAlloc_v2, u64, 1 << 60)
    cu.cuCtxSynchronize()
    assert download(upload(ints(5)), i32, 1) == [5]


@in_process
def test_pitched_memory_holds_its_rows():
    start()
    address, pitch = cu.cuMemAllocPitch_v2(u64, u64, 100, 7, 4)
    assert pitch >= 100
    assert pitch % 32 == 0
    assert cu.cuMemGetAddressRange_v2(u64, u64, address)[1] >= pitch * 6 + 100
    for row in range(7):
        cu.cuMemsetD8_v2(address + row * pitch, row, 100)
    rows = [download(address + row * pitch, ctypes.c_uint8, 100) for row in range(7)]
    assert rows == [[row] * 100 for row in range(7)]
    refused(Code.INVALID_VALUE, cu.cuMemAllocPitch_v2, u64, u64, 100, 7, 5)
    refused(Code.INVALID_VALUE, cu.cuMemAllocPitch_v2, u64, u64, 0, 7, 4)


@in_process
def test_an_address_knows_its_allocation():
    start()
    address = cu.cuMemAlloc_v2(u64, 5000)
    for inside in (0, 1, 4999):
        assert cu.cuMemGetAddressRange_v2(u64, u64, address + inside) == (address, 5000)
    assert cu.cuMemGetAddressRange_v2(None, u64, address) == 5000
    assert cu.cuMemGetAddressRange_v2(u64, None, address + 9) == address
    refused(Code.NOT_FOUND, cu.cuMemGetAddressRange_v2, u64, u64, 0x10)
    cu.cuMemFree_v2(address)
    refused(Code.NOT_FOUND, cu.cuMemGetAddressRange_v2, u64, u64, address)


@in_process
def test_host_memory_is_the_programs_own():
    start()
    plain = cu.cuMemAllocHost_v2(pointer, 4096)
    flagged = cu.cuMemHostAlloc(pointer, 4096, PORTABLE | WRITE_COMBINED)
    ctypes.memmove(plain, b"abcd", 4)
    device = cu.cuMemAlloc_v2(u64, 4)
    cu.cuMemcpyHtoD_v2(device, plain, 4)
    cu.cuMemcpyDtoH_v2(flagged, device, 4)
    assert ctypes.string_at(flagged, 4) == b"abcd"
    assert cu.cuMemHostGetFlags(u32, flagged) & (PORTABLE | WRITE_COMBINED) == 5
    assert cu.cuMemHostGetFlags(u32, plain) & WRITE_COMBINED == 0
    cu.cuMemFreeHost(plain)
    cu.cuMemFreeHost(flagged)
    refused(Code.INVALID_VALUE, cu.cuMemFreeHost, plain)
    refused(Code.INVALID_VALUE, cu.cuMemHostAlloc, pointer, 16, 0xF00)


@in_process
def test_registered_memory_is_pinned_until_unregistered():
    start()
    pages = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    refused(Code.HOST_MEMORY_NOT_REGISTERED, cu.cuMemHostUnregister, address)
    cu.cuMemHostRegister_v2(address, 8192, PORTABLE)
    refused(Code.HOST_MEMORY_ALREADY_REGISTERED, cu.cuMemHostRegister_v2, address, 8192, 0)
    assert asked(u32, TYPE, address) == HOST
    assert cu.cuMemHostGetFlags(u32, address) & PORTABLE
    device = upload(ints(77))
    cu.cuMemcpyDtoHAsync_v2(address, device, 4, None)
    cu.cuCtxSynchronize()
    assert i32.from_address(address).value == 77
    cu.cuMemHostUnregister(address)
    refused(Code.INVALID_VALUE, asked, u32, TYPE, address)
    refused(Code.INVALID_VALUE, cu.cuMemHostRegister_v2, None, 8192, 0)
    refused(Code.INVALID_VALUE, cu.cuMemHostRegister_v2, address, 0, 0)


@in_process
def test_pointers_of_the_device_describe_themselves():
    context = start()
    address = cu.cuMemAlloc_v2(u64, 600)
    other = cu.cuMemAlloc_v2(u64, 600)
    inside = address + 100
    assert asked(u32, TYPE, inside) == DEVICE
    assert asked(pointer, CONTEXT, inside) == context
    assert asked(u64, DEVICE_POINTER, inside) == inside
    assert asked(i32, ORDINAL, inside) == 0
    assert asked(u64, RANGE_START, inside) == address
    assert asked(u64, RANGE_SIZE, inside) == 600
    assert asked(u32, IS_MANAGED, inside) == 0
    assert asked(u32, MAPPED, inside) == 1
    assert asked(u64, BUFFER_ID, inside) != asked(u64, BUFFER_ID, other)
    refused(Code.INVALID_VALUE, asked, u64, HOST_POINTER, inside)
    refused(Code.INVALID_VALUE, asked, u32, TYPE, 0x1234)
    refused(Code.INVALID_VALUE, asked, u32, 999, inside)
    yes = u32(1)
    cu.cuPointerSetAttribute(ctypes.byref(yes), SYNC_MEMOPS, address)
    refused(Code.INVALID_VALUE, cu.cuPointerSetAttribute, ctypes.byref(yes), TYPE, address)


@in_process
def test_several_attributes_are_asked_at_once():
    context = start()
    address = cu.cuMemAlloc_v2(u64, 600)
    kinds = ints(TYPE, CONTEXT, RANGE_SIZE)
    type_, owner, size = u32(), pointer(), u64()
    into = (pointer * 3)(*[ctypes.addressof(x) for x in (type_, owner, size)])
    cu.cuPointerGetAttributes(3, kinds, into, address + 5)
    assert (type_.value, owner.value, size.value) == (DEVICE, context, 600)
    cu.cuPointerGetAttributes(3, kinds, into, 0x1234)  # Unknown addresses give nothing.
    assert (type_.value, owner.value) == (0, None)


@in_process
def test_pinned_memory_describes_itself():
    start()
    host = cu.cuMemHostAlloc(pointer, 4096, 0)
    assert asked(u32, TYPE, host) == HOST
    assert asked(pointer, HOST_POINTER, host + 12) == host + 12


@in_process
def test_memory_survives_a_change_of_context():
    primary = start()
    address = upload(ints(1, 2, 3))
    other = cu.cuCtxCreate_v4(pointer, None, 0, 0)
    assert download(address, i32, 3) == [1, 2, 3]
    assert asked(pointer, CONTEXT, address) == primary
    cu.cuMemFree_v2(address)
    assert asked(pointer, CONTEXT, upload(ints(1))) == other


@in_process_with(server="two_cuda_devices")
def test_each_device_has_memory_of_its_own():
    cu.cuInit(0)
    found = []
    for device in range(2):
        cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(pointer, device))
        found.append(upload(ints(10 + device)))
    assert [asked(i32, ORDINAL, address) for address in found] == [0, 1]
    assert [download(address, i32, 1) for address in found] == [[10], [11]]


@in_process
def test_stray_access_from_the_host_faults():
    """Device memory is not readable here: a child of this process dies of it."""
    import os
    import signal

    start()
    address = upload(ints(1))
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        i32.from_address(address).value = 5
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
