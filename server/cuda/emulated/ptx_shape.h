// What an opcode with its suffixes means.
//
// Threading: pure.
// Errors:    empty when a suffix is not known: such an instruction is not emulated.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "server/cuda/emulated/ptx_types.h"

namespace rgpu::server::ptx {

// `suffixes` without the base opcode.
[[nodiscard]] std::optional<Shape> parse_shape(std::span<const std::string_view> suffixes);

}  // namespace rgpu::server::ptx
