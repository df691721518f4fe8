// From C++ exceptions to what the client raises.
//
// Threading: pure functions.
#pragma once

#include <exception>
#include <string>

#include "server/torch/op_plan.h"
#include "server/torch/slot.h"
#include "wire/messages.h"

namespace rgpu::server {

// The exception's type and message; code kDevice. For use in a handler's rethrow scope. Running out
// of memory is noted in `ledger`, which says what is in use.
[[nodiscard]] wire::RemoteError to_remote_error(const std::exception_ptr& exception,
                                                MemoryLedger& ledger);
// The error of an op whose result nobody can ask for any more, told in the reply to something else.
[[nodiscard]] wire::RemoteError lost_error(const Poison& poison);
// "float32[3, 3], int64[1]": every tensor argument of the plan, host scalars among them.
[[nodiscard]] std::string arguments_text(const OpPlan& plan);

}  // namespace rgpu::server
