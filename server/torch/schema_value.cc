#include "server/torch/schema_value.h"

#include <ATen/core/List.h>

#include <utility>

namespace rgpu::server {
namespace {

using wire::Arg;
using wire::ArgKind;

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

template <typename T, typename Values>
c10::IValue list_of(const Values& values) {
  c10::List<T> list;
  list.reserve(values.size());
  for (const auto& value : values) list.push_back(static_cast<T>(value));
  return list;
}

Result<c10::IValue> number_constant(const Arg& arg, const Wanted& wanted) {
  const bool is_real = arg.kind == ArgKind::kDouble;
  switch (wanted.kind()) {
    case c10::TypeKind::IntType:
      if (is_real || arg.kind == ArgKind::kComplex) return mismatch(wanted);
      return c10::IValue(arg.integer);
    case c10::TypeKind::BoolType:
      if (is_real || arg.kind == ArgKind::kComplex) return mismatch(wanted);
      return c10::IValue(arg.integer != 0);
    case c10::TypeKind::FloatType:
      if (arg.kind == ArgKind::kComplex) return mismatch(wanted);
      return c10::IValue(is_real ? arg.real : static_cast<double>(arg.integer));
    case c10::TypeKind::NumberType:
      if (arg.kind == ArgKind::kComplex) {
        return c10::IValue(c10::complex<double>(arg.reals.at(0), arg.reals.at(1)));
      }
      if (is_real) return c10::IValue(arg.real);
      if (arg.kind == ArgKind::kBool) return c10::IValue(arg.integer != 0);
      return c10::IValue(arg.integer);
    default:
      return mismatch(wanted);
  }
}

Result<c10::IValue> list_constant(const Arg& arg, const Wanted& wanted) {
  if (wanted.kind() != c10::TypeKind::ListType) return mismatch(wanted);
  const c10::TypeKind element = wanted.type->containedType(0)->kind();
  if (element == c10::TypeKind::IntType && arg.kind == ArgKind::kIntList) {
    return list_of<int64_t>(arg.integers);
  }
  if (element == c10::TypeKind::FloatType && arg.kind == ArgKind::kDoubleList) {
    return list_of<double>(arg.reals);
  }
  if (element == c10::TypeKind::FloatType && arg.kind == ArgKind::kIntList) {
    return list_of<double>(arg.integers);
  }
  if (element == c10::TypeKind::BoolType && arg.kind == ArgKind::kBoolList) {
    return list_of<bool>(arg.integers);
  }
  if (element == c10::TypeKind::NumberType) {
    if (arg.kind == ArgKind::kDoubleList) return list_of<at::Scalar>(arg.reals);
    if (arg.kind == ArgKind::kIntList) return list_of<at::Scalar>(arg.integers);
  }
  return mismatch(wanted);
}

}  // namespace

Status mismatch(const Wanted& wanted) {
  return invalid("an argument does not fit the schema's " + wanted.type->str());
}

Result<c10::IValue> constant_value(const Arg& arg, const Wanted& wanted,
                                   c10::DeviceType device_type) {
  if (wanted.kind() == c10::TypeKind::GeneratorType) return c10::IValue();
  switch (arg.kind) {
    case ArgKind::kNone:
      if (wanted.optional) return c10::IValue();
      if (wanted.kind() == c10::TypeKind::TensorType) return c10::IValue(at::Tensor());
      return mismatch(wanted);
    case ArgKind::kBool:
    case ArgKind::kInt:
    case ArgKind::kDouble:
    case ArgKind::kComplex:
      return number_constant(arg, wanted);
    case ArgKind::kString:
      if (wanted.kind() != c10::TypeKind::StringType) return mismatch(wanted);
      return c10::IValue(arg.text);
    case ArgKind::kDevice: {
      if (wanted.kind() != c10::TypeKind::DeviceObjType) return mismatch(wanted);
      // The CPU's logical devices are all one to PyTorch.
      if (device_type == c10::DeviceType::CPU) return c10::IValue(c10::Device("cpu"));
      if (arg.integer < -1 || arg.integer > 127) return invalid("a device index out of range");
      return c10::IValue(c10::Device(device_type, static_cast<c10::DeviceIndex>(arg.integer)));
    }
    default:
      return list_constant(arg, wanted);
  }
}

}  // namespace rgpu::server
