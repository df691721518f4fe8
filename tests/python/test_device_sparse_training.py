"""Gradients of and through sparse tensors of device rgpu, and the optimizers that take them."""

import pytest
import torch
from device_parity import DEVICE
from device_sparse import Waits, assert_parity, connected, coo, dense  # noqa: F401 - a fixture
from torch import nn

pytestmark = [
    pytest.mark.usefixtures("connected"),
    pytest.mark.filterwarnings("ignore:Sparse"),
]


# ---- Gradients ----------------------------------------------------------------------------------

GRADIENTS = {
    "to_dense": lambda s, m: s.to_dense() * m,
    "mm": lambda s, m: torch.sparse.mm(s, m.t()),
    "operator": lambda s, m: s @ m.t(),
    "sum": lambda s, m: torch.sparse.sum(s, 0).to_dense(),
    "total": lambda s, m: torch.sparse.sum(s),
    "softmax": lambda s, m: torch.sparse.softmax(s, 1).to_dense() * m,
    "log_softmax": lambda s, m: torch.sparse.log_softmax(s, 1).to_dense() * m,
    "product": lambda s, m: (s * m).to_dense(),
    "values": lambda s, m: s.coalesce().values() ** 2,
    "made": lambda s, m: torch.sparse_coo_tensor([[0, 2]], m[:2], (3, 4)).to_dense(),
    "mask": lambda s, m: m.sparse_mask(s.detach().coalesce()).to_dense() * m,
    "to_sparse": lambda s, m: m.to_sparse().to_dense() * m,
    "to_sparse_csr": lambda s, m: m.to_sparse_csr().to_dense() * m,
    "addmm": lambda s, m: torch.sparse.addmm(m @ m.t(), s, m.t()),
}


@pytest.mark.parametrize("coalesced", [True, False], ids=["coalesced", "uncoalesced"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_the_cpus(name, coalesced):
    def case(device):
        s = coo(device, coalesced=coalesced, grad=True)
        m = dense(device, 3, 4).requires_grad_()
        result = GRADIENTS[name](s, m)
        weights = torch.linspace(0.5, 1.5, result.numel()).view(result.shape).to(device)
        (result * weights).sum().backward()
        return [t.grad for t in (s, m) if t.grad is not None]

    assert_parity(case)


def test_csr_values_and_products_have_gradients():
    def case(device):
        values = dense(device, 3).requires_grad_()
        crow, col = torch.tensor([0, 1, 3], device=device), torch.tensor([1, 0, 2], device=device)
        c = torch.sparse_csr_tensor(crow, col, values, (2, 3))
        left, right = dense(device, 2, 4).requires_grad_(), dense(device, 4, 3).requires_grad_()
        torch.sparse.sampled_addmm(c, left, right).to_dense().square().sum().backward()
        return [values.grad, left.grad, right.grad]

    assert_parity(case)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reducing_products_have_gradients(reduce):
    def case(device):
        c = coo("cpu", coalesced=True).to_sparse_csr().to(device).requires_grad_()
        other = dense(device, 4, 2).requires_grad_()
        result = torch.sparse.mm(c, other, reduce)
        result.square().sum().backward()
        return [result.detach(), c.grad, other.grad]

    assert_parity(case)


# ---- Embeddings and optimizers ------------------------------------------------------------------

MODELS = {
    "embedding": lambda: nn.Embedding(20, 6, sparse=True),
    "embedding with padding": lambda: nn.Embedding(20, 6, sparse=True, padding_idx=3),
    "bag": lambda: nn.EmbeddingBag(20, 6, sparse=True),
    "bag of sums": lambda: nn.EmbeddingBag(20, 6, mode="sum", sparse=True),
    "bag with padding": lambda: nn.EmbeddingBag(20, 6, sparse=True, padding_idx=2),
}
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "SGD one by one": lambda p: torch.optim.SGD(p, 0.1, foreach=False),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, 0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
}


def train(device, model, optimizer, steps=3):
    """The weight and the last gradient after some steps."""
    torch.default_generator.manual_seed(0)
    model = MODELS[model]().to(device)
    optimizer = OPTIMIZERS[optimizer](list(model.parameters()))
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randint(0, 20, (4, 5)).to(device)).square().sum().backward()
        optimizer.step()
    return [model.weight, model.weight.grad]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_sparse_gradients_train_as_on_the_cpu(model, optimizer):
    assert_parity(lambda device: train(device, model, optimizer))


@pytest.mark.parametrize(
    ("model", "optimizer", "expected"),
    [
        ("embedding", "SGD", 0),
        ("embedding", "SGD with momentum", 0),
        ("embedding", "SparseAdam", 1),  # Coalescing the gradient.
        ("embedding", "Adagrad", 1),
        ("bag", "SGD", 0),
        ("bag", "SparseAdam", 1),
        ("embedding with padding", "SGD", 1),  # How many of the indices are padding.
        ("embedding with padding", "SparseAdam", 2),
    ],
)
def test_a_training_step_waits_for_what_depends_on_data_alone(model, optimizer, expected):
    model = MODELS[model]().to(DEVICE)
    optimizer = OPTIMIZERS[optimizer](list(model.parameters()))
    tokens = torch.randint(0, 20, (4, 5)).to(DEVICE)
    for _ in range(2):
        with Waits() as waits:
            optimizer.zero_grad()
            model(tokens).square().sum().backward()
            optimizer.step()
    assert waits.count == expected


def test_gradients_accumulate_and_are_cleared():
    def case(device):
        torch.default_generator.manual_seed(0)
        model = nn.Embedding(10, 3, sparse=True).to(device)
        for tokens in ([1, 2, 2], [2, 7]):
            model(torch.tensor(tokens, device=device)).square().sum().backward()
        twice = model.weight.grad.clone()
        model.zero_grad(set_to_none=False)
        return [twice, model.weight.grad]

    assert_parity(case)


def test_sum_of_two_embeddings_of_one_weight():
    def case(device):
        weight = dense(device, 8, 3).requires_grad_()
        tokens = torch.tensor([1, 1, 5], device=device)
        first = nn.functional.embedding(tokens, weight, sparse=True)
        second = nn.functional.embedding(tokens + 1, weight, sparse=True)
        (first * second).sum().backward()
        return weight.grad

    assert_parity(case)
