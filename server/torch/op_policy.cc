#include "server/torch/op_policy.h"

#include <ATen/core/jit_type.h>

#include <array>

namespace rgpu::server {
namespace {

// rgpu:: are the server's own; they are found before the dispatcher is asked.
constexpr std::array<std::string_view, 2> kNamespaces = {"aten", "prims"};
constexpr std::array<std::string_view, 4> kRefused = {
    "aten::from_file",  // Maps a file of the server.
    "aten::_print",     // Writes to the server's output.
    "aten::_cuda_getCurrentRawStream",
    "aten::record_stream",
};

bool is_plain(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::GeneratorType:
      return true;
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::ListType:
      return is_plain(*type.containedType(0));
    default:
      return false;
  }
}

}  // namespace

Status check_namespace(std::string_view name) {
  const size_t colons = name.find("::");
  const std::string_view space = name.substr(0, colons == std::string_view::npos ? 0 : colons);
  for (const std::string_view allowed : kNamespaces) {
    if (space == allowed) return {};
  }
  return {Code::kUnimplemented, "the op " + std::string(name) + " is not in a callable namespace"};
}

Status check_callable(std::string_view name, const c10::FunctionSchema& schema) {
  for (const std::string_view refused : kRefused) {
    if (name == refused) {
      return {Code::kUnimplemented, "the op " + std::string(name) + " may not be called remotely"};
    }
  }
  for (const c10::Argument& argument : schema.arguments()) {
    if (is_plain(*argument.type())) continue;
    return {Code::kUnimplemented, "the op " + std::string(name) + " takes a " +
                                      argument.type()->str() + ", which cannot be sent"};
  }
  return {};
}

}  // namespace rgpu::server
