#include "torch_backend/ops/cpu_verdict.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>

#include "torch_backend/device/storage.h"
#include "torch_backend/ops/sparse_tensor.h"
#include "torch_backend/ops/stand_ins.h"

namespace rgpu::backend {
namespace {

constexpr size_t kSizeBytesMax = size_t{64} << 20;

size_t size_bytes_of(const c10::IValue& value) {
  size_t size_bytes = 0;
  if (value.isTensor() && value.toTensor().defined() && !is_sparse(value.toTensor())) {
    size_bytes = value.toTensor().unsafeGetTensorImpl()->unsafe_storage().nbytes();
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) size_bytes += size_bytes_of(item);
  }
  return size_bytes;
}

// Kernels that only PyTorch calls do not all check what they are given.
bool is_internal(const OpInfo& op) {
  return (op.name.starts_with("aten::_") && !op.name.starts_with("aten::_foreach")) ||
         op.name.find("backward") != std::string::npos ||
         op.name.find("unsafe") != std::string::npos;
}

}  // namespace

bool cpu_takes(const OpInfo& op, const c10::IValue* arguments) {
  if (op.random || is_internal(op)) return false;
  size_t size_bytes = 0;
  for (size_t i = 0; i < op.rules.size(); ++i) size_bytes += size_bytes_of(arguments[i]);
  if (size_bytes > kSizeBytesMax) return false;
  StandIns zeros(c10::DeviceType::CPU);
  torch::jit::Stack stack;
  for (size_t i = 0; i < op.rules.size(); ++i) stack.push_back(zeros.convert(arguments[i]));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const NoWarnings no_warnings;
  try {
    op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::NotImplementedError&) {
    return false;
  } catch (const c10::LinAlgError&) {  // Of the zeros, not of the call.
  }
  return true;
}

}  // namespace rgpu::backend
