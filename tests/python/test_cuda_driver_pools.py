"""Memory pools: allocation in stream order, what a pool counts and keeps, pools of one's own."""

import ctypes

from cuda_driver import (
    Code,
    cu,
    download,
    i32,
    in_process,
    pointer,
    refused,
    start,
    u64,
)
from cuda_driver_signatures import Location

MIB = 1 << 20


class Pool(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = [
        ("allocation", i32),
        ("handles", i32),
        ("location_type", i32),
        ("location", i32),
        ("security", pointer),
        ("size_max", u64),
        ("usage", ctypes.c_uint16),
        ("reserved", ctypes.c_uint8 * 54),
    ]


THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8


def of_pool(pool, attribute):
    return cu.cuMemPoolGetAttribute(pool, attribute, u64)


@in_process
def test_the_default_pool_gives_memory_in_stream_order():
    start()
    stream = cu.cuStreamCreate(pointer, 0)
    address = cu.cuMemAllocAsync(u64, 4000, stream)
    cu.cuMemsetD32Async(address, 17, 1000, stream)
    cu.cuStreamSynchronize(stream)
    assert download(address, i32, 1000) == [17] * 1000
    assert cu.cuMemGetAddressRange_v2(u64, u64, address)[0] == address
    cu.cuMemFreeAsync(address, stream)
    cu.cuStreamSynchronize(stream)
    refused(Code.INVALID_VALUE, cu.cuMemFreeAsync, address, stream)
    refused(Code.INVALID_VALUE, cu.cuMemFreeAsync, 0x4000, stream)
    refused(Code.OUT_OF_MEMORY, cu.cuMemAllocAsync, u64, 1 << 60, stream)


@in_process
def test_a_pool_counts_what_it_gave():
    start()
    pool = cu.cuDeviceGetDefaultMemPool(pointer, 0)
    assert cu.cuDeviceGetMemPool(pointer, 0) == pool
    before = of_pool(pool, USED)
    address = cu.cuMemAllocAsync(u64, 4 * MIB, None)
    cu.cuCtxSynchronize()
    assert of_pool(pool, USED) >= before + 4 * MIB
    assert of_pool(pool, RESERVED) >= of_pool(pool, USED)
    assert of_pool(pool, USED_HIGH) >= before + 4 * MIB
    cu.cuMemFreeAsync(address, None)
    cu.cuCtxSynchronize()
    assert of_pool(pool, USED) == before
    cu.cuMemPoolTrimTo(pool, 0)
    assert of_pool(pool, RESERVED) < 4 * MIB
    zero = u64(0)
    cu.cuMemPoolSetAttribute(pool, USED_HIGH, ctypes.byref(zero))
    assert of_pool(pool, USED_HIGH) == before
    refused(Code.INVALID_VALUE, of_pool, pool, 999)


@in_process
def test_settings_of_a_pool_are_kept():
    start()
    pool = cu.cuDeviceGetDefaultMemPool(pointer, 0)
    assert of_pool(pool, THRESHOLD) == 0
    much = u64(1 << 40)
    cu.cuMemPoolSetAttribute(pool, THRESHOLD, ctypes.byref(much))
    assert of_pool(pool, THRESHOLD) == 1 << 40
    for reuse in (1, 2, 3):
        assert cu.cuMemPoolGetAttribute(pool, reuse, i32) == 1
        no = i32(0)
        cu.cuMemPoolSetAttribute(pool, reuse, ctypes.byref(no))
        assert cu.cuMemPoolGetAttribute(pool, reuse, i32) == 0


@in_process
def test_pool_memory_is_freed_with_cuMemFree_too():
    start()
    address = cu.cuMemAllocAsync(u64, 64, None)
    cu.cuMemsetD32_v2(address, 3, 16)
    assert download(address, i32, 16) == [3] * 16
    cu.cuMemFree_v2(address)
    refused(Code.INVALID_VALUE, cu.cuMemFree_v2, address)


def own_pool(size_max=0):
    properties = Pool(allocation=1, location_type=1, size_max=size_max)
    return cu.cuMemPoolCreate(pointer, ctypes.byref(properties))


@in_process
def test_a_pool_of_ones_own():
    start()
    pool = own_pool()
    assert pool != cu.cuDeviceGetDefaultMemPool(pointer, 0)
    address = cu.cuMemAllocFromPoolAsync(u64, 4096, pool, None)
    cu.cuMemsetD32Async(address, 9, 1024, None)
    assert download(address, i32, 1024) == [9] * 1024
    assert of_pool(pool, USED) >= 4096
    cu.cuMemFreeAsync(address, None)
    cu.cuCtxSynchronize()
    assert of_pool(pool, USED) == 0
    cu.cuMemPoolDestroy(pool)
    refused(Code.INVALID_VALUE, cu.cuMemAllocFromPoolAsync, u64, 16, pool, None)
    refused(Code.INVALID_VALUE, cu.cuMemPoolDestroy, pool)
    refused(Code.INVALID_VALUE, cu.cuMemPoolCreate, pointer, None)


@in_process
def test_a_pool_has_a_bound():
    start()
    pool = own_pool(size_max=32 * MIB)
    kept = cu.cuMemAllocFromPoolAsync(u64, 16 * MIB, pool, None)
    refused(Code.OUT_OF_MEMORY, cu.cuMemAllocFromPoolAsync, u64, 64 * MIB, pool, None)
    cu.cuMemFreeAsync(kept, None)
    cu.cuCtxSynchronize()


@in_process
def test_the_current_pool_of_a_device_is_chosen():
    start()
    default, pool = cu.cuDeviceGetDefaultMemPool(pointer, 0), own_pool()
    here, pinned = Location(1, 0), 1
    assert cu.cuMemGetDefaultMemPool(pointer, ctypes.byref(here), pinned) == default
    cu.cuDeviceSetMemPool(0, pool)
    assert cu.cuDeviceGetMemPool(pointer, 0) == pool
    assert cu.cuMemGetMemPool(pointer, ctypes.byref(here), pinned) == pool
    assert cu.cuDeviceGetDefaultMemPool(pointer, 0) == default
    address = cu.cuMemAllocAsync(u64, 4096, None)
    assert of_pool(pool, USED) >= 4096
    cu.cuMemFreeAsync(address, None)
    cu.cuMemSetMemPool(ctypes.byref(here), pinned, default)
    assert cu.cuDeviceGetMemPool(pointer, 0) == default
    cu.cuDeviceSetMemPool(0, pool)
    cu.cuMemPoolDestroy(pool)
    assert cu.cuDeviceGetMemPool(pointer, 0) == default
    refused(Code.INVALID_VALUE, cu.cuMemPoolDestroy, default)


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("where", Location), ("flags", i32)]


@in_process
def test_a_device_may_use_its_own_pool():
    start()
    pool, here = own_pool(), Location(1, 0)
    assert cu.cuMemPoolGetAccess(i32, pool, ctypes.byref(here)) == 3
    both = Access(here, 3)
    cu.cuMemPoolSetAccess(pool, ctypes.byref(both), 1)
    assert cu.cuMemPoolGetAccess(i32, pool, ctypes.byref(here)) == 3
    nothing = Access(here, 0)
    refused(Code.INVALID_VALUE, cu.cuMemPoolSetAccess, pool, ctypes.byref(nothing), 1)
    elsewhere = Access(Location(1, 99), 3)
    refused(Code.INVALID_DEVICE, cu.cuMemPoolSetAccess, pool, ctypes.byref(elsewhere), 1)


@in_process
def test_graphs_hold_no_memory():
    cu.cuInit(0)
    assert [cu.cuDeviceGetGraphMemAttribute(0, number, u64) for number in range(4)] == [0] * 4
    cu.cuDeviceGraphMemTrim(0)
    zero = u64(0)
    cu.cuDeviceSetGraphMemAttribute(0, 1, ctypes.byref(zero))
    refused(Code.INVALID_VALUE, cu.cuDeviceSetGraphMemAttribute, 0, 0, ctypes.byref(zero))
    refused(Code.INVALID_VALUE, cu.cuDeviceGetGraphMemAttribute, 0, 9, u64)
    refused(Code.INVALID_DEVICE, cu.cuDeviceGraphMemTrim, 9)
