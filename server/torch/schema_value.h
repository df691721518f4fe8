// Constants of a call as the schema wants them.
//
// Threading: pure functions.
// Errors:    kInvalidArgument for a constant that does not fit its argument.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DeviceType.h>

#include "wire/op_template.h"
#include "wire/status.h"

namespace rgpu::server {

// What the schema wants of one argument, without its Optional.
struct Wanted {
  explicit Wanted(const c10::Type& declared) : type(&declared) {
    if (type->kind() != c10::TypeKind::OptionalType) return;
    optional = true;
    type = type->containedType(0).get();
  }
  [[nodiscard]] c10::TypeKind kind() const { return type->kind(); }

  const c10::Type* type;
  bool optional = false;
};

[[nodiscard]] Status mismatch(const Wanted& wanted);
// `arg` is no tensor, no list of tensors, and nothing that a record carries.
[[nodiscard]] Result<c10::IValue> constant_value(const wire::Arg& arg, const Wanted& wanted,
                                                 c10::DeviceType device_type);

}  // namespace rgpu::server
