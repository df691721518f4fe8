"""The entry point of the group `torch.backends`: the device is there once a server is named."""

PROBE = """
import torch
print(torch._C._get_privateuse1_backend_name(), torch.accelerator.current_accelerator(),
      torch.accelerator.is_available(), hasattr(torch, "rgpu"))
"""


def test_without_a_server_torch_is_as_before(run_snippet):
    ours = run_snippet(PROBE, server=None)
    plain = run_snippet(PROBE, server=None, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == plain.stdout
    assert "rgpu" not in ours.stdout


def test_without_a_server_rgpu_is_not_imported(run_snippet):
    result = run_snippet("import sys, torch; print('rgpu' in sys.modules)", server=None)
    assert result.stdout == "False\n"


def test_with_a_server_import_torch_alone_makes_the_device(run_snippet):
    result = run_snippet("import torch; print(torch.ones(4, device='rgpu').sum().item())")
    assert (result.returncode, result.stdout) == (0, "4.0\n"), result.stderr


def test_either_order_of_imports_works_with_and_without_a_server(run_snippet):
    for server in ("shared", None):
        for modules in ("rgpu, torch", "torch, rgpu"):
            code = f"import {modules}; print(torch._C._get_privateuse1_backend_name(), rgpu.stats)"
            result = run_snippet(code, server=server)
            assert result.returncode == 0, result.stderr
            assert result.stdout.startswith("rgpu <"), result.stdout


def test_the_import_asks_no_server_for_anything(run_snippet):
    # Port 9 of loopback: nothing listens there. The first op would say so, not the import.
    result = run_snippet("import torch; print(torch.rgpu)", server="127.0.0.1:9")
    assert result.returncode == 0, result.stderr


def test_what_starts_a_program_does_not_import_torch(run_snippet):
    code = "import sys, rgpu_launch.run, rgpu_launch.opserver; print('torch' in sys.modules)"
    assert run_snippet(code).stdout == "False\n"
