"""Failures of kernels, of handles and of processes: who hears of them, when, and who does not."""

import os
import subprocess
import sys

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


def write_to(address):
    launch(function(load(), "write_to"), 1, 1, u64(address))


@in_process_with(quiet=False)
def test_an_illegal_address_ends_the_context():
    start()
    kept, good = upload(ints(1)), function(load(), "nothing")
    write_to(0x10)
    refused(Code.ILLEGAL_ADDRESS, cu.cuCtxSynchronize)
    refused(Code.ILLEGAL_ADDRESS, cu.cuCtxSynchronize)
    refused(Code.ILLEGAL_ADDRESS, download, kept, i32, 1)
    refused(Code.ILLEGAL_ADDRESS, cu.cuMemAlloc_v2, u64, 16)
    refused(Code.ILLEGAL_ADDRESS, cu.cuStreamQuery, None)
    refused(Code.ILLEGAL_ADDRESS, launch, good, 1, 1)
    assert cu.cuDeviceGetCount(i32) >= 1  # What needs no context still answers.


@in_process_with(quiet=False)
def test_memory_that_was_freed_is_not_written():
    start()
    address = cu.cuMemAlloc_v2(u64, 4 << 20)
    cu.cuMemFree_v2(address)
    write_to(address)
    refused(Code.ILLEGAL_ADDRESS, cu.cuCtxSynchronize)


@in_process_with(quiet=False)
def test_a_trap_is_a_failed_launch():
    start()
    launch(function(load(), "give_up"), 1, 1)
    refused(Code.LAUNCH_FAILED, cu.cuCtxSynchronize)
    refused(Code.LAUNCH_FAILED, cu.cuStreamSynchronize, None)


@in_process_with(quiet=False)
def test_a_download_reports_what_went_wrong_before_it():
    start()
    out = upload(ints(1))
    write_to(0x10)
    refused(Code.ILLEGAL_ADDRESS, download, out, i32, 1)


@in_process_with(quiet=False)
def test_another_process_hears_nothing():
    """Two sessions of one server: the first one's context dies, the second goes on."""
    start()
    code = """
from cuda_driver import *
start()
address = upload(ints(1, 2))
print("ready", flush=True)
input()
print(download(address, i32, 2), flush=True)
"""
    other = subprocess.Popen(
        [sys.executable, "-S", "-c", code],  # With this child's own environment.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "ready\n"
    write_to(0x10)
    refused(Code.ILLEGAL_ADDRESS, cu.cuCtxSynchronize)
    assert other.communicate("\n", timeout=30)[0] == "[1, 2]\n"
    assert other.returncode == 0


@in_process
def test_errors_of_a_call_do_not_stay():
    start()
    refused(Code.INVALID_VALUE, cu.cuMemAlloc_v2, u64, 0)
    refused(Code.INVALID_VALUE, launch, function(load(), "nothing"), 0, 1)
    refused(Code.INVALID_HANDLE, cu.cuStreamSynchronize, 0x7777)
    refused(Code.NOT_FOUND, function, load(), "absent")
    cu.cuCtxSynchronize()
    assert download(upload(ints(2)), i32, 1) == [2]


@in_process
def test_made_up_handles_are_refused():
    start()
    for handle in (0x3, 0x1234, 0x7FFFFFFF0000, 0xFFFFFFFFFFFFFFF0):
        refused(Code.INVALID_HANDLE, cu.cuStreamSynchronize, handle)
        refused(Code.INVALID_HANDLE, cu.cuEventQuery, handle)
        refused(Code.INVALID_HANDLE, cu.cuModuleUnload, handle)
        refused(Code.INVALID_HANDLE, cu.cuLibraryUnload, handle)
        refused(Code.INVALID_HANDLE, cu.cuFuncLoad, handle)
        refused(Code.INVALID_CONTEXT, cu.cuCtxPushCurrent_v2, handle)
    cu.cuCtxSynchronize()


@in_process
def test_a_forked_child_is_not_initialized():
    start()
    address = upload(ints(4))
    child = os.fork()
    if child == 0:
        refused(Code.NOT_INITIALIZED, cu.cuMemAlloc_v2, u64, 16)
        refused(Code.NOT_INITIALIZED, cu.cuInit, 0)
        refused(Code.NOT_INITIALIZED, cu.cuCtxSynchronize)
        os._exit(42)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert download(address, i32, 1) == [4]


@in_process
def test_a_fork_before_init_has_a_session_of_its_own():
    child = os.fork()
    start()
    assert download(upload(ints(os.getpid())), i32, 1) == [os.getpid()]
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@in_process
def test_a_process_may_end_with_work_pending():
    start()
    flag = upload(ints(0))
    launch(function(load(), "wait_for"), 1, 1, u64(flag), i32(1))
    stream = cu.cuStreamCreate(pointer, 0)
    cu.cuMemsetD32Async(flag, 0, 1, stream)


@in_process_with(CUDA_LAUNCH_BLOCKING="1", quiet=False)
def test_blocking_launches_fail_themselves():
    start()
    kernel = function(load(), "write_to")
    refused(Code.ILLEGAL_ADDRESS, launch, kernel, 1, 1, u64(0x10))


@in_process_with(RGPU_OPSERVER="127.0.0.1:9", quiet=False)
def test_without_a_server_there_is_no_device():
    refused(100, cu.cuInit, 0)
