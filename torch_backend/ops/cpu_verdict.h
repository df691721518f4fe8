// The CPU's verdict on a call that PyTorch's shape function refuses.
//
// Most shape functions are Python and know RuntimeError where the kernels raise IndexError; some
// refuse what the kernels take. So a refused call is tried here, on zeros of the same geometry, and
// the program gets the exception that it would get on the CPU.
//
// Threading: any thread, without the IssueLock. Cost: a refused call's only.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include "torch_backend/ops/op_info.h"

namespace rgpu::backend {

// While it lives, what PyTorch's C++ on this thread warns of is not shown.
class NoWarnings {
 private:
  struct Handler final : c10::WarningHandler {
    void process(const c10::Warning& /*warning*/) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

// Throws what the CPU raises. True: it takes the call. False: it was not asked (the call draws
// numbers, is PyTorch's own business, or is large) or has no kernel for it.
[[nodiscard]] bool cpu_takes(const OpInfo& op, const c10::IValue* arguments);

}  // namespace rgpu::backend
