"""Addresses and memory apart: reserving, creating, mapping, and giving back."""

import ctypes

from cuda_driver import (
    Code,
    cu,
    download,
    i32,
    in_process,
    in_process_with,
    pointer,
    refused,
    start,
    u64,
)
from cuda_driver_signatures import Location

MIB = 1 << 20


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", i32),
        ("handles", i32),
        ("location", Location),
        ("metadata", pointer),
        ("flags", ctypes.c_uint8 * 8),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("where", Location), ("flags", i32)]


def properties(device=0):
    return Properties(type=1, location=Location(1, device))


def create(size, device=0):
    return cu.cuMemCreate(u64, size, ctypes.byref(properties(device)), 0)


def allow(address, size, device=0):
    both = Access(Location(1, device), 3)
    cu.cuMemSetAccess(address, size, ctypes.byref(both), 1)


def granularity():
    return cu.cuMemGetAllocationGranularity(u64, ctypes.byref(properties()), 0)


@in_process
def test_two_allocations_make_one_range():
    start()
    unit = granularity()
    assert unit > 0
    assert (2 * MIB) % unit == 0 or unit % MIB == 0
    address = cu.cuMemAddressReserve(u64, 2 * unit, 0, 0, 0)
    pieces = [create(unit), create(unit)]
    for i, piece in enumerate(pieces):
        cu.cuMemMap(address + i * unit, unit, 0, piece, 0)
    allow(address, 2 * unit)
    cu.cuMemsetD8_v2(address + unit - 4, 1, 4)
    cu.cuMemsetD8_v2(address + unit, 2, 4)
    assert download(address + unit - 4, i32, 1) == [0x01010101]
    assert download(address + unit, i32, 1) == [0x02020202]
    here = Location(1, 0)
    assert cu.cuMemGetAccess(u64, ctypes.byref(here), address + unit + 5) == 3
    assert cu.cuMemRetainAllocationHandle(u64, address + unit + 5) == pieces[1]
    cu.cuMemRelease(pieces[1])
    found = cu.cuMemGetAllocationPropertiesFromHandle(Properties, pieces[0])
    assert (found.type, found.location.type, found.location.id) == (1, 1, 0)
    cu.cuMemUnmap(address, 2 * unit)
    for piece in pieces:
        cu.cuMemRelease(piece)
        refused(Code.INVALID_VALUE, cu.cuMemRelease, piece)
    cu.cuMemAddressFree(address, 2 * unit)
    refused(Code.INVALID_VALUE, cu.cuMemAddressFree, address, 2 * unit)


@in_process
def test_memory_that_is_mapped_counts():
    start()
    unit = granularity()
    size = 16 * unit
    free = cu.cuMemGetInfo_v2(u64, u64)[0]
    piece, address = create(size), cu.cuMemAddressReserve(u64, size, 0, 0, 0)
    cu.cuMemMap(address, size, 0, piece, 0)
    assert free - cu.cuMemGetInfo_v2(u64, u64)[0] >= size
    cu.cuMemUnmap(address, size)
    cu.cuMemRelease(piece)
    cu.cuCtxSynchronize()
    assert cu.cuMemGetInfo_v2(u64, u64)[0] >= free
    total = cu.cuMemGetInfo_v2(u64, u64)[1]
    refused(Code.OUT_OF_MEMORY, create, (total // unit + 1) * unit)


@in_process
def test_what_is_not_mapped_is_not_there():
    start()
    unit = granularity()
    address = cu.cuMemAddressReserve(u64, unit, 0, 0, 0)
    refused(Code.INVALID_VALUE, cu.cuMemsetD8_v2, address, 1, 4)
    refused(Code.INVALID_VALUE, cu.cuMemUnmap, address, unit)
    refused(Code.INVALID_VALUE, cu.cuMemMap, address, unit, 0, 0x7777, 0)
    refused(Code.INVALID_VALUE, cu.cuMemRetainAllocationHandle, u64, address)
    here = Location(1, 0)
    refused(Code.INVALID_VALUE, cu.cuMemGetAccess, u64, ctypes.byref(here), address)
    refused(Code.INVALID_VALUE, cu.cuMemFree_v2, address)


@in_process
def test_sizes_are_whole_units():
    start()
    refused(Code.INVALID_VALUE, cu.cuMemAddressReserve, u64, 1000, 0, 0, 0)
    refused(Code.INVALID_VALUE, create, 1000)
    refused(Code.INVALID_DEVICE, create, granularity(), 99)
    aligned = cu.cuMemAddressReserve(u64, granularity(), 64 * MIB, 0, 0)
    assert aligned % (64 * MIB) == 0
    refused(Code.INVALID_VALUE, cu.cuMemAddressReserve, u64, granularity(), 3 * MIB, 0, 0)


@in_process_with(server="two_cuda_devices")
def test_memory_is_of_the_device_that_it_was_made_for():
    cu.cuInit(0)
    cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(pointer, 1))
    unit = granularity()
    address = cu.cuMemAddressReserve(u64, unit, 0, 0, 0)
    cu.cuMemMap(address, unit, 0, create(unit, 1), 0)
    allow(address, unit, 1)
    cu.cuMemsetD8_v2(address, 7, 4)
    assert download(address, i32, 1) == [0x07070707]
    assert cu.cuPointerGetAttribute(i32, 9, address) == 1
