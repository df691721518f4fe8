"""The command line of ./dev."""

import argparse
import shutil
import sys

from devtool.console import ROOT, DevError, run, say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev",
        description="Each command first installs and builds what it needs; a second run is quick.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("setup", help="install Debian packages and .venv")
    commands.add_parser("build", help="setup, then build and install rgpu into .venv")
    test = commands.add_parser("test", help="build, then run every test")
    test.add_argument(
        "--all", action="store_true", help="the slow tests as well, and ThreadSanitizer"
    )
    test.add_argument("-k", metavar="NAME", help="only tests whose names hold NAME")
    commands.add_parser(
        "demo", help="build, then train two models over an emulated 50 ms link", add_help=False
    )
    commands.add_parser(
        "demo-cuda", help="build, then run sample CUDA programs on an emulated GPU", add_help=False
    )
    bench = commands.add_parser("bench", help="build, then run the benchmarks")
    bench.add_argument("-k", metavar="NAME", help="only benchmarks whose names match NAME")
    bench.add_argument("--report", action="store_true", help="write a table as well")
    commands.add_parser("wheel", help="make the wheel for other machines in dist/")
    lint = commands.add_parser("lint", help="formatting, linters, each header alone")
    lint.add_argument("--fix", action="store_true", help="change the files where that is possible")
    lint.add_argument("--all", action="store_true", help="lint the code that includes torch, too")
    codegen = commands.add_parser("codegen", help="rewrite cuda_shim/generated/ from its model")
    codegen.add_argument("--headers", action="store_true", help="read CUDA's headers again, first")
    codegen.add_argument("--check", action="store_true", help="only say what differs")
    codegen.add_argument(
        "--coverage", metavar="LOG", help="write docs/cuda/coverage.md from a list of calls"
    )
    clean = commands.add_parser("clean", help="remove what was built")
    clean.add_argument("--all", action="store_true", help=".venv as well")
    return parser


def _demo(arguments: list[str]) -> int:
    from devtool.build import build_and_install
    from devtool.venv import PYTHON, ensure_group

    build_and_install()
    ensure_group("demo")
    return run([PYTHON, ROOT / "python" / "demo", *arguments], check=False)


def _demo_cuda(arguments: list[str]) -> int:
    from devtool import cuda
    from devtool.build import build_and_install
    from devtool.venv import PYTHON, ensure_group

    build_and_install()
    ensure_group("demo")
    folder = ROOT / "python" / "demo_cuda"
    return run([PYTHON, folder, "--nvcc", cuda.find_nvcc(), *arguments], check=False)


def _clean(everything: bool) -> int:
    for name in ("build", ".dev", "dist", "demo-report", *([".venv"] if everything else [])):
        if (ROOT / name).exists():
            say(f"removing {name}/")
            shutil.rmtree(ROOT / name)
    return 0


def _dispatch(options: argparse.Namespace, rest: list[str]) -> int:
    from devtool import bench, build, checks, codegen, lint, wheel

    match options.command:
        case "setup":
            build.setup()
            say("set up: .venv is ready for the build")
            return 0
        case "build":
            build.build_and_install()
            say("rgpu is installed in .venv: .venv/bin/python, rgpu-run, rgpu-opserver")
            return 0
        case "test":
            return checks.test(options.all, options.k)
        case "demo":
            return _demo(rest)
        case "demo-cuda":
            return _demo_cuda(rest)
        case "bench":
            return bench.bench(options.report, options.k)
        case "wheel":
            wheel.wheel()
            return 0
        case "lint":
            return lint.lint(options.fix, options.all)
        case "codegen":
            return codegen.codegen(options.headers, options.check, options.coverage)
        case _:
            return _clean(options.all)


def main() -> int:
    """Run the command line; an exit status."""
    parser = _parser()
    options, rest = parser.parse_known_args()
    if rest and options.command not in ("demo", "demo-cuda"):
        parser.error(f"unknown argument {rest[0]}")
    try:
        return _dispatch(options, rest)
    except DevError as error:
        print(f"dev: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("dev: interrupted", file=sys.stderr, flush=True)
        return 130
