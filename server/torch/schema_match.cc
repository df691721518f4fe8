#include "server/torch/schema_match.h"

#define XXH_INLINE_ALL
#include <torch/version.h>
#include <xxhash.h>

#include <tuple>
#include <utility>

#include "server/torch/op_policy.h"

namespace rgpu::server {
namespace {

std::string full_name(const wire::OpTemplate& op) {
  return op.name + (op.overload.empty() ? "" : ".") + op.overload;
}

SchemaMatch refused(const wire::OpTemplate& op, std::string message) {
  SchemaMatch match;
  match.refusal.code = Code::kUnimplemented;
  match.refusal.type = wire::ErrorType::kNotImplementedError;
  match.refusal.op = full_name(op);
  match.refusal.message = std::move(message);
  return match;
}

std::string versions(const std::string& client_torch_version) {
  return "the client's PyTorch is " + client_torch_version +
         ", the server's " RGPU_TORCH_VERSION
         ". Install the same PyTorch on both sides, or use another op";
}

// The range of arguments without which the server's schema is the client's. Each has a default.
std::optional<std::pair<size_t, size_t>> find_added(const c10::FunctionSchema& schema,
                                                    uint64_t client_hash) {
  const std::vector<c10::Argument>& arguments = schema.arguments();
  for (size_t begin = 0; begin < arguments.size(); ++begin) {
    for (size_t end = begin + 1; end <= arguments.size(); ++end) {
      if (!arguments[end - 1].default_value()) break;
      std::vector<c10::Argument> kept(arguments.begin(),
                                      arguments.begin() + static_cast<std::ptrdiff_t>(begin));
      kept.insert(kept.end(), arguments.begin() + static_cast<std::ptrdiff_t>(end),
                  arguments.end());
      if (schema_hash(schema.cloneWithArguments(std::move(kept))) == client_hash) {
        return std::pair(begin, end);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

uint64_t schema_hash(const c10::FunctionSchema& schema) {
  const std::string text = toString(schema);
  const uint64_t hash = XXH3_64bits(text.data(), text.size());
  return hash == 0 ? 1 : hash;
}

SchemaMatch match_schema(const wire::OpTemplate& op, const std::string& client_torch_version) {
  if (const Status status = check_namespace(op.name); !status.ok()) {
    return refused(op, status.message());
  }
  SchemaMatch match;
  match.op = c10::Dispatcher::singleton().findSchema({op.name, op.overload});
  if (!match.op) {
    return refused(op, "the server's PyTorch has no op " + full_name(op) + ": " +
                           versions(client_torch_version));
  }
  const c10::FunctionSchema& schema = match.op->schema();
  if (const Status status = check_callable(op.name, schema); !status.ok()) {
    return refused(op, status.message());
  }
  if (op.schema_hash == 0 || op.schema_hash == schema_hash(schema)) return match;
  const auto added = find_added(schema, op.schema_hash);
  if (!added) {
    return refused(op, "the schema of " + full_name(op) +
                           " is not the same on both sides: " + versions(client_torch_version) +
                           "\n  the server's schema: " + toString(schema));
  }
  std::tie(match.added_begin, match.added_end) = *added;
  return match;
}

}  // namespace rgpu::server
