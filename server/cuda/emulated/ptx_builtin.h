// Functions that programs call and nobody defines: vprintf, __assertfail, malloc, free.
//
// Threading: the block's thread.
// Errors:    through Context::fail().
#pragma once

#include "server/cuda/emulated/ptx_context.h"

namespace rgpu::server::ptx {

class BuiltinCall {
 public:
  virtual ~BuiltinCall() = default;
  virtual uint64_t argument(uint32_t index, uint32_t lane) = 0;
  virtual void set_result(uint32_t lane, uint64_t value) = 0;
};

// For the lanes of context.mask.
void run_builtin(Builtin builtin, Context& context, BuiltinCall& call);

}  // namespace rgpu::server::ptx
