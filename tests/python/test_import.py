"""What `import rgpu` does and does not do."""


def test_another_minor_version_of_pytorch_is_refused_in_one_line(run_snippet):
    result = run_snippet(
        """
        import torch
        torch.__version__ = "2.99.0"
        try:
            import rgpu
        except ImportError as error:
            print(error)
        """,
        server=None,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 1
    assert "was built against PyTorch 2." in result.stdout
    assert "2.99.0" in result.stdout
    assert "pip install --no-build-isolation ." in result.stdout


def test_another_patch_version_of_pytorch_is_taken(run_snippet):
    result = run_snippet(
        """
        import torch
        torch.__version__ = ".".join(torch.__version__.split(".")[:2]) + ".99"
        import rgpu
        """,
        server=None,
    )
    assert result.returncode == 0, result.stderr


def test_importing_connects_to_no_server_and_loads_no_compiler(run_snippet):
    result = run_snippet(
        """
        import sys, torch
        before = set(sys.modules)
        import rgpu
        print(rgpu.stats()["frames"], rgpu._C.connected())
        print([name for name in set(sys.modules) - before if name.startswith("torch")])
        """,
        server=None,
    )
    assert result.returncode == 0, result.stderr
    # torch.rgpu is the device module itself.
    assert result.stdout.splitlines() == ["0 False", "['torch.rgpu']"]


def test_ops_load_no_compiler_and_one_loaded_later_works(run_snippet):
    result = run_snippet(
        """
        import sys, torch, rgpu

        def layer(x):
            return torch.nn.functional.layer_norm(torch.relu(x @ x + 1), (4,)).sum()

        x = torch.eye(4, device="rgpu", requires_grad=True)
        eager = layer(x)
        eager.backward()
        print("torch._dynamo" in sys.modules)
        compiled = torch.compile(layer, backend="aot_eager")
        print(torch.allclose(compiled(x).detach().cpu(), eager.detach().cpu()))
        print("torch._dynamo" in sys.modules)
        """
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["False", "True", "True"]
