// Handlers that gain nothing from vector instructions and are compiled once.
//
// Errors: null: not emulated.
#pragma once

#include "server/cuda/emulated/ptx_context.h"

namespace rgpu::server::ptx {

// Address in `a` (option: 4 or 8 bytes wide) plus `immediate`, space in option2, values in b and c.
Handler atomic_handler(const Shape& shape);

// shfl: d value, p predicate, a value, b lane, c clamp and segments, e member mask.
Handler shuffle_handler(const Shape& shape);
// vote, match, redux, activemask, elect: e member mask.
Handler vote_handler(const Shape& shape);
Handler match_handler(const Shape& shape);
Handler reduce_handler(const Shape& shape);
Handler elect_handler();
Handler active_mask_handler();

// The special register `name` ("%tid.x"): its width in bytes and its handler, which writes d.
struct SpecialRegister {
  Handler run = nullptr;
  uint32_t size_bytes = 4;
  int64_t immediate = 0;
};
SpecialRegister special_register(std::string_view name);

// d = an address that depends on the launch or the frame.
Handler shared_address_handler();  // Of the variable `target`, plus `immediate`: 8 bytes.
Handler local_address_handler();   // Of the frame's local memory, plus `immediate`.
// cvta and cvta.to: option 1 means to the space. d and a have 8 bytes.
Handler convert_address_handler();
Handler is_space_handler();  // isspacep: predicate d, address a, option2 the space.
// Moves a register's bytes: `extra` operands of option bytes each to or from one of option2 bytes.
Handler pack_handler();
Handler unpack_handler();
Handler fence_handler();
// cp.async: to the shared address a (4 bytes) from the global address b; option: the size; c: how
// much of it is read; e: a predicate, nothing is read where it holds.
Handler copy_async_handler();
Handler nothing_handler();

// mbarrier: address in `a` plus `immediate`, space in option2 (ptx_mbarrier.cc).
enum class BarrierWord : uint8_t { kInitialize, kArrive, kTestWait, kPendingCount };
Handler barrier_word_handler(BarrierWord what);

}  // namespace rgpu::server::ptx
