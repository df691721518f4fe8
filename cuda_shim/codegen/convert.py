"""How an argument of a runtime function becomes a driver function's: only where that is certain.

Same type; same handle; void* and CUdeviceptr; enumerations whose values agree; records whose
members lie at the same offsets with the same sizes. Anything else is refused, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from model import Model

# Size in bytes, and whether it is signed.
NUMBERS = {
    **dict.fromkeys(("char", "signed char"), (1, True)),
    "unsigned char": (1, False),
    "short": (2, True),
    "unsigned short": (2, False),
    **dict.fromkeys(("int", "int32_t"), (4, True)),
    **dict.fromkeys(("unsigned int", "uint32_t"), (4, False)),
    **dict.fromkeys(("long", "long long", "int64_t"), (8, True)),
    **dict.fromkeys(("unsigned long", "unsigned long long", "size_t", "uint64_t"), (8, False)),
}
SIZES = {**{name: size for name, (size, _) in NUMBERS.items()}, "float": 4, "double": 8}


class NotUnderstood(Exception):
    """A pair of types without a rule."""


@dataclass
class Converter:
    """The rules for one model."""

    model: Model

    def canonical(self, kind: str) -> str:
        """Typedefs resolved, tags and const dropped: `CUgraph_st*`."""
        kind = re.sub(r"\b(const|struct|union|enum)\b", "", kind)
        stars = kind.count("*") if "(" not in kind else 0
        base = kind.replace("*", "").strip() if stars or "(" not in kind else kind.strip()
        base = re.sub(r"\s+", " ", base)
        seen = set()
        while True:
            entry = self.model.typedefs.get(base)
            if entry is None or base in seen:
                return base + "*" * stars
            seen.add(base)
            if "(" in entry:
                return re.sub(r"\s+", " ", entry) + "*" * stars
            target = re.sub(r"\b(const|struct|union|enum)\b", "", entry)
            stars += target.count("*")
            base = re.sub(r"\s+", " ", target.replace("*", "")).strip()

    def record(self, name: str) -> dict[str, Any] | None:
        """The definition of a struct, union or enum."""
        return self.model.types.get(name)

    def leaves(self, entry: dict[str, Any], at: int = 0) -> list[tuple[int, int]]:
        """(offset in bytes, size) of each plain member, arrays as one."""
        found = []
        for member in entry["fields"]:
            offset = at + member["offset"] // 8
            if "record" in member and not member["type"]:
                found += self.leaves(member["record"], offset)
            elif "record" in member:
                found.append((offset, self.array_size(member["type"]) * member["record"]["size"]))
            else:
                found += self.leaf(member["type"], offset)
        return found

    def leaf(self, kind: str, offset: int) -> list[tuple[int, int]]:
        """The plain members behind one member's type."""
        dimensions = re.search(r"(\s*\[\d+\])+$", kind)
        count = self.array_size(dimensions[0]) if dimensions else 1
        base = self.canonical(kind[: dimensions.start()] if dimensions else kind)
        if base.endswith("*") or "(*)" in base:
            return [(offset, 8 * count)]
        if base in SIZES:
            return [(offset, SIZES[base] * count)]
        entry = self.record(base)
        if entry is not None and "values" in entry:
            return [(offset, SIZES[entry["underlying"]] * count)]
        if entry is not None and "fields" in entry:
            if count == 1:
                return self.leaves(entry, offset)
            return [(offset, entry["size"] * count)]
        raise NotUnderstood(kind)

    @staticmethod
    def array_size(dimensions: str) -> int:
        """`[2][3]` is 6."""
        count = 1
        for n in re.findall(r"\d+", dimensions):
            count *= int(n)
        return count

    def same_layout(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        """Whether the members lie alike."""
        if one["size"] != other["size"] or one.get("align") != other.get("align"):
            return False
        return set(self.leaves(one)) == set(self.leaves(other))

    def same_values(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        """Whether every value of the runtime's enumeration is one of the driver's."""
        if self.model.annotations["same_enum"].get(one["name"]) == other["name"]:
            return True
        theirs = {v for _, v in other["values"]}
        return all(v in theirs for _, v in one["values"])

    def convert(self, name: str, source: str, target: str) -> str:
        """An expression of type `target` from the parameter `name` of type `source`."""
        have, want = self.canonical(source), self.canonical(target)
        if have == want:
            return name
        handles = self.model.annotations["same_handle"]
        have_base, want_base = have.rstrip("*"), want.rstrip("*")
        stars = have.count("*"), want.count("*")
        cast = f"reinterpret_cast<{target}>({name})"
        if (have_base, want_base) == ("void", "unsigned long long") and stars[0] == stars[1] + 1:
            return cast
        if handles.get(have_base) == want_base and stars[0] == stars[1] and stars[0]:
            return cast
        same_number = have_base in NUMBERS and NUMBERS[have_base] == NUMBERS.get(want_base)
        if same_number and stars[0] == stars[1]:
            return cast if stars[0] else f"static_cast<{target}>({name})"
        if have == "unsigned int" and NUMBERS.get(want) == (8, False):
            return name
        one, other = self.record(have_base), self.record(want_base)
        if one is None or other is None or stars[0] != stars[1] or stars[0] > 2:
            raise NotUnderstood(f"{source} to {target}")
        if "values" in one and "values" in other and self.same_values(one, other):
            return cast if stars[0] else f"static_cast<{target}>({name})"
        if "fields" in one and "fields" in other and self.same_layout(one, other):
            return cast if stars[0] else f"std::bit_cast<{target}>({name})"
        raise NotUnderstood(f"{source} to {target}")
