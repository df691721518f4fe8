// ptx_linker: several PTX texts as one, which is what -rdc programs and cuLinkComplete need.
//
// Names without linkage stay each piece's own (a second one of the same name gets another); .extern
// declarations are resolved; of .weak and .common definitions one is kept. Lines for debuggers are
// dropped: their numbers mean something else in the whole. Functions are declared before
// everything, variables stand in the order in which their initialisers need each other.
//
// Threading: plain functions.
// Errors:    kInvalidArgument names the piece and the line, the symbol that is missing, or the two
//            pieces that define it. The texts are not trusted. Cost: linear in the texts.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "wire/status.h"

namespace rgpu::cuda {

struct PtxPiece {
  std::string_view name;  // For messages.
  std::string_view text;
};

// One piece comes back as it is, if nothing is missing in it.
[[nodiscard]] Result<std::string> link_ptx(std::span<const PtxPiece> pieces);

}  // namespace rgpu::cuda
