// Which operators a client may call.
//
// Threading: pure functions.
#pragma once

#include <ATen/core/function_schema.h>

#include <string>
#include <string_view>

#include "wire/status.h"

namespace rgpu::server {

// kUnimplemented for namespaces other than aten and prims, ops that reach outside the session's
// tensors (files, output), and schemas with an argument that is no plain value or tensor.
[[nodiscard]] Status check_callable(std::string_view name, const c10::FunctionSchema& schema);
[[nodiscard]] Status check_namespace(std::string_view name);

}  // namespace rgpu::server
