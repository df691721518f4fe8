"""Two devices: who may reach whose memory."""

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
    u32,
    u64,
    upload,
)


def contexts():
    cu.cuInit(0)
    return [cu.cuDevicePrimaryCtxRetain(pointer, device) for device in range(2)]


@in_process_with(server="two_cuda_devices")
def test_a_peer_is_reached_once_enabled():
    first, second = contexts()
    cu.cuCtxSetCurrent(second)
    there = upload(ints(1, 2, 3))
    cu.cuCtxSetCurrent(first)
    assert cu.cuDeviceCanAccessPeer(i32, 0, 1) == 1
    refused(Code.PEER_ACCESS_NOT_ENABLED, cu.cuCtxDisablePeerAccess, second)
    cu.cuCtxEnablePeerAccess(second, 0)
    refused(Code.PEER_ACCESS_ALREADY_ENABLED, cu.cuCtxEnablePeerAccess, second, 0)
    launch(function(load(), "add_to_each"), 1, 3, u64(there), i32(3), i32(10))
    cu.cuCtxSynchronize()
    assert download(there, i32, 3) == [11, 12, 13]
    cu.cuCtxDisablePeerAccess(second)
    refused(Code.PEER_ACCESS_NOT_ENABLED, cu.cuCtxDisablePeerAccess, second)


@in_process_with(server="two_cuda_devices")
def test_peer_attributes_agree():
    contexts()
    rank, access, atomics, arrays = 1, 2, 3, 4
    assert cu.cuDeviceGetP2PAttribute(i32, access, 0, 1) == 1
    assert cu.cuDeviceGetP2PAttribute(i32, rank, 0, 1) >= 0
    assert cu.cuDeviceGetP2PAttribute(i32, atomics, 0, 1) in (0, 1)
    assert cu.cuDeviceGetP2PAttribute(i32, arrays, 0, 1) in (0, 1)
    add, compare_and_swap = 0, 9
    found = (u32 * 2)()
    cu.cuDeviceGetP2PAtomicCapabilities(found, ints(add, compare_and_swap), 2, 0, 1)
    assert bool(found[0]) == bool(found[1]) == bool(cu.cuDeviceGetP2PAttribute(i32, atomics, 0, 1))
    refused(Code.INVALID_DEVICE, cu.cuDeviceGetP2PAtomicCapabilities, found, ints(add), 1, 0, 0)
    refused(Code.INVALID_VALUE, cu.cuDeviceGetP2PAttribute, i32, 99, 0, 1)
    refused(Code.INVALID_DEVICE, cu.cuDeviceGetP2PAttribute, i32, access, 0, 0)
    refused(Code.INVALID_DEVICE, cu.cuDeviceGetP2PAttribute, i32, access, 0, 5)


@in_process
def test_a_device_is_no_peer_of_itself():
    cu.cuInit(0)
    context = cu.cuDevicePrimaryCtxRetain(pointer, 0)
    cu.cuCtxSetCurrent(context)
    assert cu.cuDeviceCanAccessPeer(i32, 0, 0) == 0
    refused(Code.INVALID_DEVICE, cu.cuDeviceCanAccessPeer, i32, 0, 9)
    refused(Code.INVALID_VALUE, cu.cuDeviceCanAccessPeer, None, 0, 0)
    refused(Code.INVALID_DEVICE, cu.cuCtxEnablePeerAccess, context, 0)
    refused(Code.INVALID_CONTEXT, cu.cuCtxEnablePeerAccess, None, 0)


@in_process_with(server="two_cuda_devices", CUDA_VISIBLE_DEVICES="1")
def test_only_visible_devices_are_numbered():
    cu.cuInit(0)
    assert cu.cuDeviceGetCount(i32) == 1
    refused(Code.INVALID_DEVICE, cu.cuDeviceGet, i32, 1)
    cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(pointer, 0))
    assert download(upload(ints(6)), i32, 1) == [6]


@in_process_with(CUDA_VISIBLE_DEVICES="")
def test_no_visible_device_is_no_device():
    refused(100, cu.cuInit, 0)
