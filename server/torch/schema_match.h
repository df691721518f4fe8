// SchemaMatch: whether a client's op is one that this server can run, though its PyTorch is
// another.
//
// A client says which schema it means by its hash. The same schema is a match. So is one that the
// server's has grown out of by arguments with defaults: without them its text is the client's, and
// whoever does not know them means the defaults. All else is refused, op by op.
//
// Threading: pure functions.
// Errors:    a refusal is no Status: it poisons the outputs of the records that use the op.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/messages.h"
#include "wire/op_template.h"

namespace rgpu::server {

// xxHash3 of the schema's text, never 0: what a client's template carries.
[[nodiscard]] uint64_t schema_hash(const c10::FunctionSchema& schema);

struct SchemaMatch {
  std::optional<c10::OperatorHandle> op;  // Empty: refused.
  // The server's arguments that the client knows nothing of.
  size_t added_begin = 0;
  size_t added_end = 0;
  wire::RemoteError refusal;
};
[[nodiscard]] SchemaMatch match_schema(const wire::OpTemplate& op,
                                       const std::string& client_torch_version);

}  // namespace rgpu::server
