// The part of OpLauncher that builds an op's arguments from a record.
#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

#include "server/torch/device.h"
#include "server/torch/op_launch.h"
#include "server/torch/sparse.h"

namespace rgpu::server {
namespace {

using Source = ArgPlan::Source;
using Target = ArgPlan::Target;
using wire::ArgKind;

Status invalid(const OpPlan& plan, const std::string& message) {
  return {Code::kInvalidArgument, "op " + plan.full_name + ": " + message};
}

at::Tensor host_scalar(const Geometry& geometry, const std::byte* value) {
  at::Tensor tensor = at::empty({}, at::TensorOptions(geometry.dtype));
  std::memcpy(tensor.mutable_data_ptr(), value, geometry.itemsize_bytes);
  if (geometry.conj) tensor.unsafeGetTensorImpl()->_set_conj(true);
  if (geometry.neg) tensor.unsafeGetTensorImpl()->_set_neg(true);
  if (geometry.wrapped_number) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

}  // namespace

// Reads a record's immediates in order. Their size was checked when the batch was decoded.
class OpLauncher::Immediates {
 public:
  explicit Immediates(const std::byte* at) : at_(at) {}
  template <typename T>
  T read() {
    T value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  const std::byte* skip(size_t size_bytes) { return std::exchange(at_, at_ + size_bytes); }

  c10::IValue scalar(const ArgPlan& arg) {
    switch (arg.kind) {
      case ArgKind::kScalarDouble:
        return real(read<double>(), arg.target);
      case ArgKind::kScalarComplex: {
        const auto real_part = read<double>();
        return {c10::complex<double>(real_part, read<double>())};
      }
      default:
        break;
    }
    const auto integer = read<int64_t>();
    const bool is_bool = arg.kind == ArgKind::kScalarBool && arg.target == Target::kNumber;
    if (is_bool || arg.target == Target::kBool) return {integer != 0};
    if (arg.target == Target::kFloat) return {static_cast<double>(integer)};
    return {integer};
  }

 private:
  static c10::IValue real(double value, Target target) {
    if (target == Target::kInt) return {static_cast<int64_t>(value)};
    return {value};
  }

  const std::byte* at_;
};

Status OpLauncher::build_stack(const OpRecord& record) {
  Immediates immediates(record.immediates);
  next_input_ = 0;
  values_.clear();
  for (const ArgPlan& arg : record.plan->args) {
    RGPU_RETURN_IF_ERROR(push(arg, record, immediates));
  }
  if (record.plan->random) {
    seed_ = immediates.read<uint64_t>();
    offset_ = immediates.read<uint64_t>();
  }
  return {};
}

Status OpLauncher::push(const ArgPlan& arg, const OpRecord& record, Immediates& immediates) {
  switch (arg.source) {
    case Source::kConstant:
      stack_.push_back(arg.constant);
      return {};
    case Source::kTensor: {
      if (arg.is_graph) {
        ++next_input_;
        if (arg.use.has_offset) immediates.skip(sizeof(int64_t));
        stack_.emplace_back();
        return {};
      }
      Result<at::Tensor> tensor = input(arg, record, immediates);
      if (!tensor) return tensor.error();
      stack_.emplace_back(*std::move(tensor));
      return {};
    }
    case Source::kHostScalar:
      stack_.emplace_back(host_scalar(*arg.use.geometry, immediates.skip(16)));
      return {};
    case Source::kScalar:
      stack_.push_back(immediates.scalar(arg));
      return {};
    case Source::kSparse: {
      Result<at::Tensor> tensor = sparse_input(arg, record, immediates);
      if (!tensor) return tensor.error();
      stack_.emplace_back(*std::move(tensor));
      return {};
    }
    case Source::kTensorList:
      return push_tensor_list(arg, record, immediates);
    case Source::kScalarList: {
      c10::List<at::Scalar> list;
      list.reserve(arg.items.size());
      for (const ArgPlan& item : arg.items) list.push_back(immediates.scalar(item).toScalar());
      stack_.emplace_back(std::move(list));
      return {};
    }
  }
  return {};
}

Result<at::Tensor> OpLauncher::input(const ArgPlan& arg, const OpRecord& record,
                                     Immediates& immediates) {
  Slot& slot = *record.handles[next_input_++];
  const Geometry& geometry = *arg.use.geometry;
  const int64_t offset = arg.use.has_offset ? immediates.read<int64_t>() : 0;
  at::Tensor tensor;
  if (slot.opaque) {
    if (slot.graph || slot.program) return invalid(*record.plan, "a graph is no tensor");
    tensor = slot.opaque_tensor;
  } else {
    if (!slot.storage() || !geometry.fits(slot.size_bytes(), offset)) {
      return invalid(*record.plan, geometry.to_string() + " at offset " + std::to_string(offset) +
                                       " is outside its storage of " +
                                       std::to_string(slot.size_bytes()) + " bytes");
    }
    if (slot.home_stream == stream_) {
      tensor = slot.tensor(geometry, offset);
    } else {  // The ready tensor is one stream's; the others make their own.
      tensor = geometry.make_tensor(slot.storage(), offset);
      keep_until_stream_is_done(slot.storage());
    }
  }
  if (!arg.use.requires_grad) return tensor;
  tensor = tensor.detach().requires_grad_(true);
  leaves_.push_back(tensor);
  return tensor;
}

Result<at::Tensor> OpLauncher::sparse_input(const ArgPlan& arg, const OpRecord& record,
                                            Immediates& immediates) {
  std::vector<at::Tensor> components;
  for (const ArgPlan& item : arg.items) {
    Result<at::Tensor> component = input(item, record, immediates);
    if (!component) return component.error();
    components.push_back(*std::move(component));
  }
  return assemble(*arg.sparse, components);
}

Status OpLauncher::push_tensor_list(const ArgPlan& arg, const OpRecord& record,
                                    Immediates& immediates) {
  c10::List<at::Tensor> list;
  c10::List<std::optional<at::Tensor>> optional_list;
  if (arg.optional_items) {
    optional_list.reserve(arg.items.size());
  } else {
    list.reserve(arg.items.size());
  }
  for (const ArgPlan& item : arg.items) {
    std::optional<at::Tensor> tensor;
    if (item.source == Source::kTensor || item.source == Source::kSparse) {
      Result<at::Tensor> found = item.source == Source::kTensor
                                     ? input(item, record, immediates)
                                     : sparse_input(item, record, immediates);
      if (!found) return found.error();
      tensor = *std::move(found);
    } else if (item.source == Source::kHostScalar) {
      tensor = host_scalar(*item.use.geometry, immediates.skip(16));
    }
    if (arg.optional_items) {
      optional_list.push_back(std::move(tensor));
    } else {
      list.push_back(tensor ? *std::move(tensor) : at::Tensor());
    }
  }
  if (arg.optional_items) {
    stack_.emplace_back(std::move(optional_list));
  } else {
    stack_.emplace_back(std::move(list));
  }
  return {};
}

}  // namespace rgpu::server
