"""Hugging Face transformers, unmodified, on device rgpu against the CPU: tiny models, 1e-4.

Waits are counted: none for a training step, at most one a token for generate().
"""

import copy

import library_models as models
import pytest
import rgpu
import torch
from device_parity import DEVICE
from test_device_waits import Counted

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
ALL = list(models.KINDS)
TOKENS = 32


def assert_close(mine, theirs, name=""):
    torch.testing.assert_close(
        mine.detach().cpu(),
        theirs.detach(),
        atol=1e-4,
        rtol=1e-4,
        msg=lambda text: f"{name}: {text}",
    )


def assert_parameters_close(mine, theirs, of=lambda parameter: parameter):
    for (name, here), there in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        assert (of(here) is None) == (of(there) is None), name
        if of(here) is not None:
            assert of(here).device.type == DEVICE
            assert_close(of(here), of(there), name)


def assert_gradients_close(mine, theirs):
    assert_parameters_close(mine, theirs, lambda parameter: parameter.grad)


def both(model):
    """The model on the device and on the CPU."""
    return copy.deepcopy(model).to(DEVICE), model


def train(model, device, name, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        loss = model(**models.to_device(models.batch(name, step), device)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


@pytest.mark.parametrize("name", ALL)
def test_logits_and_gradients_are_the_cpu_s(name):
    mine, theirs = both(models.make(name))
    batch = models.batch(name)
    got, want = mine(**models.to_device(batch, DEVICE)), theirs(**batch)
    assert_close(got.logits, want.logits, "logits")
    assert_close(got.loss, want.loss, "loss")
    got.loss.backward()
    want.loss.backward()
    assert_gradients_close(mine, theirs)


@pytest.mark.parametrize("name", ALL)
def test_three_adamw_steps_are_the_cpu_s(name):
    mine, theirs = both(models.make(name))
    assert_close(train(mine, DEVICE, name), train(theirs, "cpu", name), "loss")
    assert_parameters_close(mine, theirs)


@pytest.mark.parametrize("name", ALL)
def test_a_training_step_waits_for_nothing(name):
    model = models.make(name).to(DEVICE)
    with Counted() as counted:
        loss = train(model, DEVICE, name)
    assert counted.waits == 0, rgpu.waits()
    assert loss.isfinite().item()


@pytest.mark.parametrize("name", ALL)
def test_activation_checkpointing_changes_no_gradient(name):
    mine, theirs = both(models.make(name))
    mine.gradient_checkpointing_enable()
    batch = models.batch(name)
    with Counted() as counted:
        mine(**models.to_device(batch, DEVICE)).loss.backward()
    assert counted.waits == 0, rgpu.waits()
    theirs(**batch).loss.backward()
    assert_gradients_close(mine, theirs)


def generate(model, name, device, seed=0, **settings):
    prompt = models.to_device(models.prompt(name), device)
    torch.manual_seed(seed)
    return model.generate(**prompt, max_new_tokens=TOKENS, min_new_tokens=TOKENS, **settings)


@pytest.mark.parametrize("name", models.GENERATING)
def test_greedy_generation_is_the_cpu_s_and_waits_at_most_once_a_token(name):
    mine, theirs = both(models.make_for_generation(name))
    with Counted() as counted:
        tokens = generate(mine, name, DEVICE, do_sample=False)
    assert counted.waits <= TOKENS, rgpu.waits()
    assert torch.equal(tokens.cpu(), generate(theirs, name, "cpu", do_sample=False))


SAMPLING = {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.8}


@pytest.mark.parametrize("name", models.GENERATING)
def test_sampling_repeats_with_its_seed_and_waits_at_most_once_a_token(name):
    model = models.make_for_generation(name).to(DEVICE)

    def sample(seed):
        return generate(model, name, DEVICE, seed, **SAMPLING, repetition_penalty=1.1)

    with Counted() as counted:
        first = sample(5)
    assert counted.waits <= TOKENS, rgpu.waits()
    assert torch.equal(first.cpu(), sample(5).cpu())
    assert not torch.equal(first.cpu(), sample(6).cpu())


def test_generation_ends_where_the_cpu_s_ends():
    mine, theirs = both(models.make_for_generation("llama"))
    prompt = models.prompt("llama")
    kept = theirs.generate(**prompt, do_sample=False, max_new_tokens=12)
    stop = kept[:, prompt["input_ids"].shape[1] + 3].tolist()  # What each row says fourth.
    want = theirs.generate(**prompt, do_sample=False, max_new_tokens=12, eos_token_id=stop)
    got = mine.generate(
        **models.to_device(prompt, DEVICE), do_sample=False, max_new_tokens=12, eos_token_id=stop
    )
    assert want.shape[1] < kept.shape[1]
    assert torch.equal(got.cpu(), want)


def test_a_saved_model_comes_back_on_any_device(tmp_path):
    model = models.make("llama").to(DEVICE)
    model.save_pretrained(tmp_path)
    load = type(model).from_pretrained
    for loaded, device in (
        (load(tmp_path), "cpu"),
        (load(tmp_path, device_map=DEVICE), DEVICE),
        (load(tmp_path, device_map={"": "rgpu:0"}), DEVICE),
        (load(tmp_path, device_map="auto"), DEVICE),
        (load(tmp_path, device_map="cpu"), "cpu"),
    ):
        for (name, mine), theirs in zip(model.named_parameters(), loaded.parameters(), strict=True):
            assert theirs.device.type == device, name
            assert torch.equal(mine.cpu(), theirs.cpu()), name
    half = load(tmp_path, device_map=DEVICE, dtype=torch.bfloat16)
    assert half.lm_head.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_autocast_trains_in_bfloat16_without_a_wait(name):
    model = models.make(name).to(DEVICE)
    with Counted() as counted, torch.autocast(DEVICE, dtype=torch.bfloat16):
        output = model(**models.to_device(models.batch(name), DEVICE))
    with Counted() as backward:
        output.loss.backward()
    assert (counted.waits, backward.waits) == (0, 0), rgpu.waits()
    assert output.loss.isfinite().item()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "vit", "whisper", "mixtral"])
def test_eager_attention_is_the_cpu_s(name):
    model = models.make(name)
    model.set_attn_implementation("eager")
    mine, theirs = both(model)
    batch = models.batch(name)
    got, want = mine(**models.to_device(batch, DEVICE)), theirs(**batch)
    assert_close(got.logits, want.logits, "logits")
    got.loss.backward()
    want.loss.backward()
    assert_gradients_close(mine, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "mixtral"])
def test_beam_search_is_the_cpu_s(name):
    mine, theirs = both(models.make_for_generation(name))
    settings = {"num_beams": 3, "do_sample": False}
    got = generate(mine, name, DEVICE, **settings)
    assert torch.equal(got.cpu(), generate(theirs, name, "cpu", **settings))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_static_cache_generates_the_same(name):
    mine, theirs = both(models.make_for_generation(name))
    settings = {"cache_implementation": "static", "do_sample": False}
    got = generate(mine, name, DEVICE, **settings)
    assert torch.equal(got.cpu(), generate(theirs, name, "cpu", **settings))
