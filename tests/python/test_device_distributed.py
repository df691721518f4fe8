"""torch.distributed over device rgpu: each process has a session of its own, Gloo connects them."""

import json
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
    import json, sys
    import torch
    import torch.distributed as dist
    import rgpu

    rank, world, store, backend = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    backend = None if backend == "none" else backend
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world)

    def full(value, size=2):
        return torch.full((size,), float(value), device="rgpu")
"""
EPILOGUE = """
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(out))
"""


def run_processes(code, world, folder, backend="gloo"):
    """What each of `world` processes leaves in `out`, in order of rank."""
    program = textwrap.dedent(PRELUDE) + textwrap.dedent(code) + textwrap.dedent(EPILOGUE)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), str(world), str(folder / "store"), backend],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        answers = [process.communicate(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, err) in zip(processes, answers, strict=True):
        assert process.returncode == 0, err
        assert "Time stats" not in err  # DistributedDataParallel's, of a device it cannot time.
    return [json.loads(out) for out, _ in answers]


def test_collectives_move_device_tensors_between_processes(tmp_path):
    code = """
    out = {}
    out["all_reduce"] = full(rank + 1)
    dist.all_reduce(out["all_reduce"])
    out["broadcast"] = full(rank)
    dist.broadcast(out["broadcast"], 1)
    out["reduce"] = full(rank + 1)
    dist.reduce(out["reduce"], 0)
    out["all_gather"] = [full(-1) for _ in range(world)]
    dist.all_gather(out["all_gather"], full(rank))
    out["all_gather_into_tensor"] = full(-1, 4)
    dist.all_gather_into_tensor(out["all_gather_into_tensor"], full(rank))
    out["gather"] = [full(-1) for _ in range(world)]
    dist.gather(full(rank), out["gather"] if rank == 0 else None, 0)
    out["scatter"] = full(-1)
    dist.scatter(out["scatter"], [full(5), full(6)] if rank == 0 else None, 0)
    out["reduce_scatter"] = full(-1)
    dist.reduce_scatter(out["reduce_scatter"], [full(rank), full(10 + rank)])
    out["all_to_all"] = [full(-1) for _ in range(world)]
    dist.all_to_all(out["all_to_all"], [full(10 * rank), full(10 * rank + 1)])
    out["columns"] = torch.zeros(2, 3, device="rgpu")
    column = out["columns"][:, 1]  # Not contiguous, and inside a larger storage.
    column += rank + 1
    dist.all_reduce(column)
    out = {name: torch.stack(v).tolist() if isinstance(v, list) else v.tolist()
           for name, v in out.items()}
    """
    first, second = run_processes(code, 2, tmp_path)
    assert first == {
        "all_reduce": [3, 3], "broadcast": [1, 1], "reduce": [3, 3],
        "all_gather": [[0, 0], [1, 1]], "all_gather_into_tensor": [0, 0, 1, 1],
        "gather": [[0, 0], [1, 1]], "scatter": [5, 5], "reduce_scatter": [1, 1],
        "all_to_all": [[0, 0], [10, 10]], "columns": [[0, 3, 0], [0, 3, 0]],
    }  # fmt: skip
    assert second == first | {
        "reduce": [2, 2], "gather": [[-1, -1], [-1, -1]], "scatter": [6, 6],
        "reduce_scatter": [21, 21], "all_to_all": [[1, 1], [11, 11]],
    }  # fmt: skip


def test_sends_and_receives_cross(tmp_path):
    code = """
    got = full(-1)
    pending = [dist.isend(full(rank), 1 - rank), dist.irecv(got, 1 - rank)]
    for work in pending:
        work.wait()
    out = got.tolist()
    """
    assert run_processes(code, 2, tmp_path) == [[1, 1], [0, 0]]


def test_a_future_and_a_wait_give_the_result_on_the_device(tmp_path):
    code = """
    first, second = full(1), full(2)
    work = dist.all_reduce(first, async_op=True)
    future = dist.all_reduce(second, async_op=True).get_future()
    work.wait()
    [result] = future.wait()
    out = [first.tolist(), result.tolist(), str(result.device), result is second or
           result.data_ptr() == second.data_ptr()]
    """
    assert run_processes(code, 1, tmp_path) == [[[1, 1], [2, 2], "rgpu:0", True]]


def test_a_collective_is_one_wait_whatever_the_number_of_tensors(tmp_path):
    code = """
    parts = [full(rank) for _ in range(5)]
    rgpu.reset_stats()
    dist.all_reduce(full(1))
    one = rgpu.stats()["waits"]
    dist.reduce_scatter(full(0), parts[:1])
    dist.all_reduce_coalesced(parts)
    out = [one, rgpu.stats()["waits"] - one]
    """
    assert run_processes(code, 1, tmp_path) == [[1, 2]]


DDP = """
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    model = torch.nn.parallel.DistributedDataParallel(model.to("rgpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = torch.arange(32.0).view(8, 4).sin()
    for step in range(3):
        optimizer.zero_grad()
        rows = data[rank * 8 // world : (rank + 1) * 8 // world].to("rgpu")
        model(rows).square().mean().backward()
        optimizer.step()
    out = [p.tolist() for p in model.parameters()]
"""


@pytest.mark.parametrize("world", [1, 2])
def test_distributed_data_parallel_trains_as_one_process_on_the_cpu(tmp_path, world):
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.arange(32.0).view(8, 4).sin()).square().mean().backward()
        optimizer.step()
    for answer in run_processes(DDP, world, tmp_path):
        for got, want in zip(answer, model.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(got), want.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["none", "rgpu", "cpu:gloo,rgpu:rgpu"])
def test_the_backend_has_a_name_of_its_own(tmp_path, backend):
    code = """
    x = full(3)
    dist.all_reduce(x)
    out = x.tolist()
    """
    assert run_processes(code, 1, tmp_path, backend) == [[3, 3]]
