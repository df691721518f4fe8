"""What the client knows of small integers: it answers without a wait, and never wrongly.

A value is known because the program uploaded, filled or computed it from known ones. Each case of
CASES changes something in a way that a remembered value could miss.
"""

import copy
import io
import threading

import pytest
import rgpu
import torch
from device_parity import DEVICE
from test_device_waits import Counted


def known(*values, dtype=torch.long):
    return torch.tensor(values, dtype=dtype).to(DEVICE)


def unknown(*values, dtype=torch.long):
    """Integers that only the server has."""
    return torch.tensor(values, dtype=torch.double).to(DEVICE).to(dtype)


QUESTIONS = {
    "uploaded": lambda: known(1, 2, 3).tolist(),
    "item": lambda: known(7).item(),
    "element": lambda: known(1, 2, 3)[1].item(),
    "copy_to_host": lambda: known(1, 2, 3).cpu().tolist(),
    "copy_into_host": lambda: torch.zeros(3, dtype=torch.long).copy_(known(1, 2, 3)).tolist(),
    "all_of_a_mask": lambda: bool(torch.ones(2, 5, dtype=torch.bool).to(DEVICE).all()),
    "padding": lambda: bool((known(3, 0, 3) == 0).any()),
    "isin": lambda: bool(torch.isin(known(1, 2), known(2)).any()),
    "range": lambda: torch.arange(4, device=DEVICE).tolist(),
    "factories": lambda: [
        f(3, dtype=torch.int, device=DEVICE).tolist() for f in (torch.ones, torch.zeros)
    ],
    "full": lambda: torch.full((2,), True, device=DEVICE).tolist(),
    "packed": lambda: bool((torch.diff(torch.arange(5, device=DEVICE)) != 1).cumsum(-1).any()),
    "views": lambda: known(1, 2, 3, 4).view(2, 2).t()[:, 1:].tolist(),
    "overlapping": lambda: known(1, 2).unsqueeze(0).expand(3, 2).tolist(),
    "joined": lambda: torch.cat(
        [known(1), torch.ones(2, dtype=torch.long, device=DEVICE)]
    ).tolist(),
    "converted": lambda: known(0, 3).to(torch.bool).tolist(),
    "decided_by_one_side": lambda: bool((unknown(1, 2) & known(0, 0)).max() == 0),
    "true_by_one_side": lambda: bool(
        (unknown(0, 1, dtype=torch.bool) | torch.ones(2, dtype=torch.bool, device=DEVICE)).all()
    ),
    "assigned": lambda: (x := known(1, 2, 3), x.__setitem__(1, 9), x.tolist())[2],
    "masked": lambda: (x := known(1, 2, 3), x.masked_fill_(x == 2, 5), x.tolist())[2],
}
ANSWERS = {
    "uploaded": [1, 2, 3], "item": 7, "element": 2, "copy_to_host": [1, 2, 3],
    "copy_into_host": [1, 2, 3], "all_of_a_mask": True, "padding": True, "isin": True,
    "range": [0, 1, 2, 3], "factories": [[1, 1, 1], [0, 0, 0]], "full": [True, True],
    "packed": False, "views": [[3], [4]], "overlapping": [[1, 2]] * 3, "joined": [1, 1, 1],
    "converted": [False, True], "decided_by_one_side": True,
    "true_by_one_side": True, "assigned": [1, 9, 3], "masked": [1, 5, 3],
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_the_client_knows_waits_for_nothing(name):
    with Counted() as counted:
        answer = QUESTIONS[name]()
    assert answer == ANSWERS[name]
    assert counted.waits == 0


def test_the_second_read_of_small_integers_waits_for_nothing():
    x = unknown(*range(20)).view(4, 5)
    with Counted() as counted:
        assert x[2, 3].item() == 13
    assert counted.waits == 1
    with Counted() as counted:
        assert [row.tolist() for row in x] == [list(range(i, i + 5)) for i in range(0, 20, 5)]
        assert bool((x[1] == 7).any())
    assert counted.waits == 0


def test_float_values_are_asked_of_the_server():
    x = torch.ones(3).to(DEVICE)
    with Counted() as counted:
        x.sum().item()
        x[0].item()
        x[0].item()
    assert counted.waits == 3


def overwrite_with_unknown(x):
    x.copy_(unknown(4, 5, 6))
    return [4, 5, 6]


def write_through_a_view(x):
    x[1:].mul_(unknown(10, 10))
    return [1, 20, 30]


def write_through_another_type(x):
    x.view(torch.int).view(3, 2)[:, 0] = unknown(7, 8, 9, dtype=torch.int)
    return [7, 8, 9]


def write_through_a_float_view(x):
    x.view(torch.double).copy_(torch.zeros(3).to(DEVICE))
    return [0, 0, 0]


def count(x):
    x.add_(1)
    return [2, 3, 4]


def foreach(x):
    torch._foreach_add_([x, known(1)], 1)
    return [2, 3, 4]


def out_argument(x):
    torch.add(unknown(1, 1, 1), 1, out=x)
    return [2, 2, 2]


def out_of_known_values(x):
    torch.add(known(1, 2, 3), 1, out=x)
    return [2, 3, 4]


def partial_upload(x):
    x[1:] = torch.tensor([8, 9])
    return [1, 8, 9]


def scatter_unknown(x):
    x.scatter_(0, unknown(2), 5)
    return [1, 2, 5]


def sort_in_place(x):
    torch.sort(unknown(9, 7, 8), out=(x, torch.empty(3, dtype=torch.long, device=DEVICE)))
    return [7, 8, 9]


def assign_data(x):
    x.data = unknown(4, 4, 4)
    return [4, 4, 4]


def set_other_storage(x):
    x.set_(unknown(6, 6, 6))
    return [6, 6, 6]


def random_in_place(x):
    x.random_(5, 6)
    return [5, 5, 5]


def resize_and_fill(x):
    x.resize_(6)
    x[3:] = unknown(4, 5, 6)
    x.resize_(3).add_(unknown(1, 1, 1))
    return [2, 3, 4]


def swap_through_a_storage(x):
    y = torch.empty(0, dtype=torch.long, device=DEVICE).set_(x.untyped_storage())
    y.add_(unknown(1, 1, 1))
    return [2, 3, 4]


def file_read_into_the_storage(x):
    file = io.BytesIO()
    torch.save(torch.tensor([7, 8, 9]), file, _use_new_zipfile_serialization=False)
    x.data = torch.load(io.BytesIO(file.getvalue()), map_location=DEVICE)
    return [7, 8, 9]


CASES = [
    overwrite_with_unknown, write_through_a_view, write_through_another_type,
    write_through_a_float_view, count, foreach, out_argument, out_of_known_values, partial_upload,
    scatter_unknown, sort_in_place, assign_data, set_other_storage, random_in_place,
    resize_and_fill, swap_through_a_storage, file_read_into_the_storage,
]  # fmt: skip


@pytest.mark.parametrize("change", CASES, ids=lambda case: case.__name__)
def test_a_value_that_was_written_is_not_remembered(change):
    x = known(1, 2, 3)
    y = x.view(3, 1)
    assert x.tolist() == [1, 2, 3]
    want = change(x)
    assert x.tolist() == want
    if change not in (assign_data, set_other_storage, file_read_into_the_storage):
        assert y.flatten().tolist() == want


def test_a_source_that_changes_after_the_upload_changes_nothing():
    source = torch.tensor([1, 2, 3])
    x = source.to(DEVICE)
    source.zero_()
    assert x.tolist() == [1, 2, 3]
    host = x.cpu()
    host.zero_()
    assert x.tolist() == [1, 2, 3]


def test_a_number_is_not_kept_when_another_thread_writes_during_the_download(monkeypatch):
    x = unknown(*range(100))
    stop = threading.Event()
    wrong = []

    def read():
        last = 0
        while not stop.is_set():
            value = x[5].item()
            if value < last:
                wrong.append((last, value))
            last = value

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(300):
        x.add_(1)
    stop.set()
    reader.join()
    assert not wrong
    assert x[5].item() == 305


def test_an_error_of_a_known_call_is_the_server_s():
    x = known(1, 2, 3)
    y = torch.index_select(x, 0, known(5))
    with pytest.raises(IndexError):
        y.tolist()


def test_values_end_with_their_session(run_snippet, fresh_opserver):
    result = run_snippet(
        f"""
        import rgpu, torch
        x = torch.tensor([1, 2, 3]).to("rgpu")
        rgpu.connect("{fresh_opserver.address}")
        y = torch.empty(3, dtype=torch.long, device="rgpu")
        y.copy_(torch.tensor([4.0, 5.0, 6.0]).to("rgpu"))
        print(y.tolist())
        """
    )
    assert (result.stdout.strip(), result.returncode) == ("[4, 5, 6]", 0), result.stderr


def test_many_small_tensors_stay_right():
    rows = [torch.tensor([i, -i]).to(DEVICE) for i in range(6000)]
    for i in (0, 1, 4095, 4096, 5999):
        assert rows[i].tolist() == [i, -i]


def test_large_integers_are_asked_of_the_server():
    x = torch.arange(1 << 20).to(DEVICE)
    with Counted() as counted:
        assert bool((x[:5] == 3).any())
    assert counted.waits == 1


def test_mirrored_ops_agree_with_the_server():
    """Every op that is repeated on the client, known inputs against the server's own answer."""
    a, b = [3, -2, 0, 7, 3, 1], [2, 2, -5, 7, 0, 1]
    mask = torch.tensor([1, 0, 0, 1, 1, 0], dtype=torch.bool)
    index = torch.tensor([5, 0, 2])

    def results(x, y, m, i):
        square = x.view(2, 3)
        yield from (x == y, x != 2, x < y, x <= 1, x > y, x >= y, m & ~m, m | (x > 0), m ^ (y > 0))
        yield from (x.logical_and(y), x.logical_not(), x & y, x | y, x ^ y, ~x)
        yield from (x + y, x - 1, 5 - x, x * y, -x, x.abs(), x.minimum(y), x.maximum(y))
        yield from (x.clamp(-1, 2), x.clamp_min(0), x.clamp_max(1), x.sign(), m.any(), m.all())
        yield from (x.sum(), square.sum(1), x.max(), x.min(), square.amax(0), square.amin(1))
        yield from (x.cumsum(0), torch.where(m, x, y), x.masked_fill(m, 4), torch.cat([x, y]))
        yield from (square.t().clone(), torch.isin(x, y), x[i], square[:, i[2:]], x.gather(0, i))
        yield from (x.repeat(2, 2), x.flip(0), x.roll(2), square.tril(), square.triu(1))
        yield from (x.index_select(0, i), x.scatter(0, i, 9), torch.constant_pad_nd(square, [1, 2]))
        yield from (x.to(torch.int16), m.long(), torch.stack([x, y], 1), square.any(1), m.sum())

    inputs = (torch.tensor(a), torch.tensor(b), mask, index)
    mine = [value.to(DEVICE) for value in inputs]
    theirs = [value.double().to(DEVICE).to(value.dtype) for value in inputs]
    with Counted() as counted:
        got = [(value.dtype, value.cpu()) for value in results(*mine)]
    assert counted.waits == 0
    for position, ((dtype, value), want) in enumerate(zip(got, results(*theirs), strict=True)):
        assert dtype == want.dtype, position
        assert torch.equal(value, want.cpu()), position
    rgpu.synchronize()


def test_a_row_that_is_asked_about_is_read_as_a_whole():
    rows = list(unknown(*range(40)).view(4, 10))
    with Counted() as counted:
        if rows[0][-1] == 9:
            ends = [bool(row[-1] == 19) for row in rows]
        values = [row[:3].tolist() for row in rows]
    assert ends == [False, True, False, False]
    assert values == [[0, 1, 2], [10, 11, 12], [20, 21, 22], [30, 31, 32]]
    assert counted.waits == 1


def test_what_is_read_beside_is_read_again_once_it_was_written():
    x = unknown(1, 2, 3)
    asked = (x[0] == 1).any()
    x.add_(unknown(1, 1, 1))
    assert bool(asked)
    assert x.tolist() == [2, 3, 4]
    x.add_(unknown(1, 1, 1))
    assert x.tolist() == [3, 4, 5]


def test_an_error_is_raised_where_its_result_is_read_not_beside_it():
    x = torch.index_select(unknown(1, 2, 3), 0, unknown(5))
    y = unknown(4)
    asked = y == 4
    with pytest.raises(IndexError):
        x.item()
    assert bool(asked)


def test_threads_may_read_one_tensor_at_once():
    x = unknown(*range(50))
    mask = known(*([1] * 50))
    wrong = []

    def read():
        for i in range(50):
            if x[i].item() != i or not bool((mask == 1).all()) or (x + mask)[i].item() != i + 1:
                wrong.append(i)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_copied_storage_is_the_server_s():
    x = known(1, 2)
    twin = copy.deepcopy(x)
    twin.add_(1)
    assert (x.tolist(), twin.tolist()) == ([1, 2], [2, 3])


def test_an_interrupted_read_leaves_nothing_behind():
    x = torch.index_select(unknown(1, 2, 3), 0, unknown(5))
    for _ in range(3000):  # More than there may be requests at once.
        asked = x[0] == 1
        with pytest.raises(IndexError):
            bool(asked)
