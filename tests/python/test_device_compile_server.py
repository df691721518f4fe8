"""What the server makes of graphs: compiled in the background, kept on disk, never in the way."""

import json
import stat
import sys
import textwrap
from pathlib import Path

import pytest
from rgpu_launch.services import start_opserver

# Trains a program of device_compile, and prints what the server made of it and how its results
# differ from an interpreted run's.
TRAINS = """
import json, sys, warnings
sys.path.insert(0, {folder!r})
import rgpu, torch
from device_compile import PROGRAMS, batches, compiled, train
from rgpu.capture import stored

shown = []
warnings.showwarning = lambda message, *_: shown.append(str(message))
rows = []
for name in {names!r}:
    data = batches({steps})
    options = dict(compiler="inductor", wait={wait}, **{options!r})
    ours = train(PROGRAMS[name], "rgpu", compiled(**options), data)
    found = [vars(graph) for graph in rgpu.graphs()]
    stored._live.clear()
    theirs = train(PROGRAMS[name], "rgpu", compiled(compiler="eager"), data)
    stored._live.clear()
    worst = max((a - b).abs().max().item() for one, other in zip(ours, theirs)
                for a, b in zip(one, other) if isinstance(b, torch.Tensor) and b.numel())
    rows.append([name, found, worst])
print(json.dumps([rows, [text for text in shown if "rgpu" in text]]))
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Starts a server with a compiler of its own, and a cache that its tests share."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    started = []

    def start(compiler=None):
        started.append(start_opserver("cpu", threads=1, compiler=compiler))
        return started[-1]

    yield start
    for service in started:
        service.stop()


def outcome(run_snippet, address, names, *, steps=3, wait=True, **options):
    folder = str(Path(__file__).parent)
    code = TRAINS.format(folder=folder, names=names, steps=steps, wait=wait, options=options)
    result = run_snippet(code, server=address, timeout=600)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.timeout(600)
def test_compiled_graphs_agree_with_interpreted_ones_and_are_made_once(server, run_snippet):
    names = ["linear_layers", "batch_norm"]
    rows, _ = outcome(run_snippet, server().address, names, steps=6)
    for name, graphs, worst in rows:
        assert worst < 1e-4, name
        assert [g["state"] for g in graphs] == ["compiled"] * 2, graphs
        assert all(g["compiles"] == 1 and g["sent_bytes"] == g["size_bytes"] for g in graphs)
        assert graphs[0]["compiled_calls"] == graphs[1]["compiled_calls"] > 0
    # Another program, another session, another server over the same cache.
    rows, _ = outcome(run_snippet, server().address, names, steps=6)
    for _, graphs, worst in rows:
        assert worst < 1e-4
        assert all(
            (g["state"], g["compiles"], g["sent_bytes"]) == ("compiled", 0, 0) for g in graphs
        )


AGREE = ["causal_attention", "convolutions", "channels_last", "tied_embedding", "buffers",
         "scatter_and_index", "views_of_one_result", "input_as_output", "host_scalar",
         "checkpointed", "in_place_on_views", "losses", "masks", "half", "encoder_layer",
         "cumulative", "interpolate", "sort_and_topk"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", AGREE)
def test_compiled_program_agrees_with_the_interpreted_one(name, server, run_snippet):
    rows, _ = outcome(run_snippet, server().address, [name], steps=4)
    ((_, graphs, worst),) = rows
    assert worst < (0.02 if name == "half" else 1e-3)
    assert [g["state"] for g in graphs] == ["compiled"] * len(graphs), graphs


def script(path, text):
    path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(text))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    "compiler, reason",
    [
        ("import sys; sys.stderr.write('no memory left'); sys.exit(3)", "no memory left"),
        ("import os; os.kill(os.getpid(), 9)", "the compiler process ended"),
        (
            "import sys\nfor _ in sys.stdin: print('failed\\tit is Tuesday', flush=True)",
            "it is Tuesday",
        ),
        ("import sys\nfor _ in sys.stdin: print('ok', flush=True)", "cannot be loaded"),
    ],
)
def test_a_compiler_that_fails_leaves_the_interpreter_and_one_warning(
    compiler, reason, server, run_snippet, tmp_path
):
    address = server(script(tmp_path / "compiler", compiler)).address
    rows, warned = outcome(run_snippet, address, ["linear_layers"])
    ((_, graphs, worst),) = rows
    assert worst == 0
    assert [(g["state"], g["compiled_calls"]) for g in graphs] == [("failed", 0)] * 2
    assert all(reason in g["reason"] for g in graphs)
    assert len(warned) == 2 and all("goes on interpreting it: " in text for text in warned)


def test_no_step_waits_for_the_compiler(server, run_snippet, tmp_path):
    address = server(script(tmp_path / "compiler", "import time; time.sleep(600)")).address
    rows, warned = outcome(run_snippet, address, ["linear_layers"], steps=40, wait=False)
    ((_, graphs, worst),) = rows
    assert worst == 0 and warned == []
    assert [(g["state"], g["calls"]) for g in graphs] == [("compiling", 40)] * 2


def test_graphs_that_draw_numbers_say_why_they_are_interpreted(server, run_snippet, tmp_path):
    address = server(script(tmp_path / "compiler", "import time; time.sleep(600)")).address
    code = """
    import rgpu, torch
    run = torch.compile(lambda x: torch.nn.functional.dropout(x, 0.5), backend="rgpu")
    run(torch.ones(4, device="rgpu"))
    (graph,) = rgpu.graphs()
    print(graph.state, graph.reason)
    """
    result = run_snippet(code, server=address)
    assert result.stdout.split("\n")[0] == (
        "interpreting it draws random numbers (aten::native_dropout)"
    ), result.stderr


def test_a_cache_that_others_may_write_is_not_used(server, run_snippet, tmp_path):
    folder = tmp_path / "cache" / "rgpu" / "packages"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    rows, _ = outcome(run_snippet, server().address, ["linear_layers"])
    ((_, graphs, _),) = rows
    assert all("must belong to the server's user alone (chmod 700)" in g["reason"] for g in graphs)
