"""Several Python threads on one session, also while they stand still for room in the ring."""

PROGRAM = """
import threading, torch, rgpu

x = torch.ones(4, device="rgpu")
(x + 1).cpu()
results = []

def work():
    y = x
    for _ in range(15_000):
        y = y * 1.0
    results.append(y)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(result.cpu().tolist() == [1.0] * 4 for result in results)
print("stalls", rgpu.stats()["stalls"])
"""


def test_threads_that_stall_on_a_full_ring_do_not_lock_each_other_out(run_snippet):
    """Under `sync` nothing is sent until the ring is full, and then its producer stands still."""
    result = run_snippet(PROGRAM, env={"RGPU_FLUSH": "sync"}, timeout=60)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[-1]) > 0
