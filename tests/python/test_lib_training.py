"""Trainer of transformers, accelerate and Lightning, unmodified: they choose and train the device.

Each is run on the CPU and on device rgpu with the arguments a user would write, and must come to
the same losses.
"""

import contextlib
import gc
import warnings

import library_models as models
import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_parity import DEVICE
from test_device_waits import Counted
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerate = pytest.importorskip("accelerate")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(180),
]


@pytest.fixture(autouse=True)
def fresh_accelerate_state():
    """Accelerate keeps its device for the life of the process."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def rows_of(name, count=40):
    return [{key: value[0] for key, value in models.batch(name, i).items()} for i in range(count)]


def run_trainer(folder, name="gpt2", **settings):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        **{
            "max_steps": 20,
            "per_device_train_batch_size": 2,
            "logging_steps": 5,
            "save_strategy": "no",
            "report_to": [],
            "seed": 3,
            "disable_tqdm": True,
            **settings,
        },
    )
    trainer = Trainer(model=models.make(name), args=arguments, train_dataset=rows_of(name),
                      eval_dataset=rows_of(name, 4))  # fmt: skip
    with contextlib.redirect_stdout(None):
        trainer.train()
    return trainer


def losses_of(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_trainer_takes_the_device_and_comes_to_the_cpu_s_losses(name, tmp_path):
    mine = run_trainer(tmp_path, name)
    assert (mine.args.device.type, mine.model.device.type) == (DEVICE, DEVICE)
    theirs = run_trainer(tmp_path, name, use_cpu=True)
    assert (theirs.args.device.type, theirs.model.device.type) == ("cpu", "cpu")
    assert len(losses_of(mine)) == 4
    assert losses_of(mine) == pytest.approx(losses_of(theirs), abs=1e-4)
    for got, want in zip(mine.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(got.detach().cpu(), want.detach(), atol=1e-4, rtol=1e-4)


def test_trainer_s_steps_wait_for_nothing_but_what_it_logs(tmp_path):
    with Counted() as counted:
        run_trainer(tmp_path, logging_nan_inf_filter=False, logging_steps=20)
    # The loss and the gradient's norm when they are logged, and the loss at the end.
    assert counted.waits <= 3, rgpu.waits()


TRAINERS = {
    "bfloat16": {"bf16": True},
    "fused": {"optim": "adamw_torch_fused"},
    "accumulation": {"gradient_accumulation_steps": 2, "gradient_checkpointing": True},
    "workers": {"dataloader_num_workers": 1},
    "checkpoints": {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps",
                    "save_steps": 2, "load_best_model_at_end": True},
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINERS)
def test_trainer_s_settings_train_the_same(name, tmp_path):
    settings = {"max_steps": 4, "logging_steps": 2, **TRAINERS[name]}
    mine = run_trainer(tmp_path, **settings)
    assert mine.model.device.type == DEVICE
    theirs = run_trainer(tmp_path, use_cpu=True, **settings)
    tolerance = 5e-2 if name == "bfloat16" else 1e-4
    assert losses_of(mine) == pytest.approx(losses_of(theirs), abs=tolerance)


def test_trainer_goes_on_from_its_checkpoint(tmp_path):
    settings = {"max_steps": 4, "logging_steps": 1, "save_strategy": "steps", "save_steps": 2}
    whole = run_trainer(tmp_path, **settings)
    again = run_trainer(tmp_path / "again", **settings)
    with contextlib.redirect_stdout(None):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert losses_of(again)[-2:] == pytest.approx(losses_of(whole)[-2:], abs=1e-4)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def loader():
    torch.manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(3, (64,))), batch_size=8)


def run_accelerate(folder=None, **settings):
    accelerator = accelerate.Accelerator(**settings)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    model, optimizer, batches, schedule = accelerator.prepare(model, optimizer, loader(), schedule)
    losses = []
    for _ in range(2):
        for x, y in batches:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
    if folder is not None:
        accelerator.save_state(str(folder))
        accelerator.load_state(str(folder))
    return accelerator, losses


def test_accelerate_takes_the_device_and_trains_the_same_without_a_wait():
    with Counted() as counted:
        accelerator, mine = run_accelerate()
    assert accelerator.device.type == DEVICE and mine[0].device.type == DEVICE
    assert counted.waits == 0, rgpu.waits()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator, theirs = run_accelerate(cpu=True)
    assert accelerator.device.type == "cpu" and theirs[0].device.type == "cpu"
    torch.testing.assert_close(torch.stack(mine).cpu(), torch.stack(theirs))


def test_accelerate_saves_and_loads_its_state(tmp_path):
    accelerator, losses = run_accelerate(tmp_path)
    assert accelerator.gather(losses[-1]).isfinite().item()
    assert any(tmp_path.iterdir())


def test_accelerate_trains_in_bfloat16():
    accelerator, losses = run_accelerate(mixed_precision="bf16")
    assert accelerator.device.type == DEVICE
    assert torch.stack(losses).isfinite().all()


def test_the_environment_s_device_is_left_as_the_user_set_it(run_snippet):
    code = "import rgpu, accelerate; print(accelerate.Accelerator().device)"
    assert run_snippet(code).stdout.strip() == "rgpu"
    chosen = run_snippet(code, env={"ACCELERATE_TORCH_DEVICE": "cpu"})
    assert chosen.stdout.strip() == "cpu", chosen.stderr
    late = "import accelerate, rgpu; print(accelerate.Accelerator(cpu=True).device)"
    assert run_snippet(late).stdout.strip() == "cpu"


def run_lightning(accelerator, plugins=None, epochs=2):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.losses = []
            self.types = set()

        def training_step(self, batch, index):
            x, y = batch
            result = self.net(x)
            loss = F.cross_entropy(result.float(), y)
            self.log("loss", loss)
            self.losses.append(loss.detach())
            self.types.add((x.device.type, result.dtype))
            return loss

        def validation_step(self, batch, index):
            self.log("validation", F.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    module = Module()
    trainer = lightning.Trainer(
        accelerator=accelerator, devices=1, max_epochs=epochs, plugins=plugins,
        gradient_clip_val=1.0, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, loader(), loader())
    return module, trainer


def test_lightning_trains_the_same(tmp_path):
    from rgpu.lightning import RgpuAccelerator

    mine, trainer = run_lightning(RgpuAccelerator())
    assert mine.types == {(DEVICE, torch.float32)}
    theirs, _ = run_lightning("cpu")
    assert theirs.types == {("cpu", torch.float32)}
    torch.testing.assert_close(torch.stack(mine.losses).cpu(), torch.stack(theirs.losses))
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = torch.load(tmp_path / "model.ckpt", map_location=DEVICE, weights_only=False)
    weight = loaded["state_dict"]["net.0.weight"]
    assert weight.device.type == DEVICE
    torch.testing.assert_close(weight.cpu(), mine.net[0].weight.detach().cpu())


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_lightning_trains_in_mixed_precision(precision):
    from lightning.pytorch.plugins import MixedPrecision
    from rgpu.lightning import RgpuAccelerator

    module, _ = run_lightning(RgpuAccelerator(), MixedPrecision(precision, DEVICE), epochs=1)
    half = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}[precision]
    assert module.types == {(DEVICE, half)}
    assert torch.stack(module.losses).isfinite().all()


def run_fabric(accelerator):
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator=accelerator, devices=1)
    fabric.launch()
    model = net()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    losses = []
    for x, y in fabric.setup_dataloaders(loader()):
        loss = F.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return fabric.device.type, torch.stack(losses)


def test_fabric_trains_the_same():
    from rgpu.lightning import RgpuAccelerator

    device, mine = run_fabric(RgpuAccelerator())
    assert device == DEVICE and mine.device.type == DEVICE
    torch.testing.assert_close(mine.cpu(), run_fabric("cpu")[1])


def test_lightning_s_devices_are_parsed():
    from rgpu.lightning import RgpuAccelerator

    parse = RgpuAccelerator.parse_devices
    count = torch.rgpu.device_count()
    assert (parse(1), parse("auto"), parse(-1)) == ([0], [*range(count)], [*range(count)])
    assert (parse("0,1"), parse([1])) == ([0, 1], [1])
    assert RgpuAccelerator.get_parallel_devices([0]) == [torch.device(DEVICE, 0)]
    gc.collect()
