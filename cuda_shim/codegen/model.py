"""The committed model of the API, and the small file of exceptions to its pattern."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
LIBRARIES = ("libcuda", "libcudart", "libcublas", "libcublasLt", "libcudnn", "libnvidia-ml")


@dataclass
class Function:
    """A prototype and what is known of the symbol."""

    name: str
    returns: str
    params: list[tuple[str, str]]
    header: str = ""
    public: bool = False  # Declared under this very name to a program that includes the header.

    @property
    def is_runtime(self) -> bool:
        """Whether it is one of the CUDA Runtime's."""
        return self.name.startswith(("cuda", "__cuda"))

    @property
    def base(self) -> str | None:
        """For a per-thread variant, the function that it is a variant of."""
        match = re.fullmatch(r"(\w+)_(ptsz|ptds)", self.name)
        return match[1] if match else None


@dataclass
class Model:
    """api/*.json and annotations.toml."""

    cuda: dict[str, Any]
    libraries: dict[str, dict[str, Any]]
    slots: list[tuple[str, str]]
    annotations: dict[str, Any]
    functions: dict[str, Function] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Model:
        """Reads the files beside this one."""
        api = FOLDER / "api"
        cuda = json.loads((api / "cuda.json").read_text())
        libraries = {
            n: json.loads((api / f"{n}.json").read_text())
            for n in LIBRARIES
            if (api / f"{n}.json").exists()
        }
        slots = [tuple(s) for s in json.loads((api / "slots.json").read_text())["slots"]]
        annotations = tomllib.loads((FOLDER / "annotations.toml").read_text())
        model = cls(cuda, libraries, slots, annotations)
        for entry in cuda["functions"]:
            model.add(Function(**{**entry, "params": [tuple(p) for p in entry["params"]]}))
        for name, text in annotations["hidden"].items():
            model.add(hidden(name, text))
        return model

    def add(self, function: Function) -> None:
        """A symbol has one prototype."""
        if function.name in self.functions:
            raise SystemExit(f"generate: two prototypes for {function.name}")
        self.functions[function.name] = function

    def returns(self, library: str, name: str) -> str | None:
        """The type that an export returns; None where no header declares it."""
        if name in self.functions:
            return self.functions[name].returns
        return self.library_returns.get(name)

    @cached_property
    def library_returns(self) -> dict[str, str]:
        """The types that the exports of the other libraries return."""
        entries = [*self.cuda["interop"]]
        for library in self.libraries.values():
            entries += library.get("functions", [])
        return {entry["name"]: entry["returns"] for entry in entries}

    @cached_property
    def slot_of(self) -> dict[str, int]:
        """The slot of a name; no two libraries export the same one."""
        return {name: slot for slot, (_, name) in enumerate(self.slots)}

    @cached_property
    def types(self) -> dict[str, dict[str, Any]]:
        """Every named declaration; a definition wins over a forward one."""
        found: dict[str, dict[str, Any]] = {}
        for entry in self.cuda["declarations"]:
            complete = "fields" in entry or "values" in entry
            if entry["name"] not in found or complete:
                found[entry["name"]] = entry
        return found

    @cached_property
    def typedefs(self) -> dict[str, str]:
        """The target of each typedef that is not a record's own name."""
        return {
            d["name"]: d["type"]
            for d in self.cuda["declarations"]
            if d["kind"] == "typedef" and d["type"].split()[-1] != d["name"]
        }


def hidden(name: str, text: str) -> Function:
    """A prototype written as `returns (type name, …)` in annotations.toml."""
    match = re.fullmatch(r"(.+?)\s*\((.*)\)", text)
    if not match:
        raise SystemExit(f"generate: cannot read the prototype of {name}: {text}")
    params = []
    for part in filter(None, (p.strip() for p in match[2].split(","))):
        declared = re.fullmatch(r"(.+?[ *])(\w+)", part)
        if not declared:
            raise SystemExit(f"generate: cannot read a parameter of {name}: {part}")
        params.append((declared[2], declared[1].strip()))
    return Function(name, match[1], params, "(none)")
