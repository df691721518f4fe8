#include "torch_backend/ops/host_op.h"

#include <ATen/native/CPUFallback.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string_view>

namespace rgpu::backend {
namespace {

bool is_first_use(const std::string& name) {
  static std::mutex mutex;
  static auto* seen = new std::set<std::string>();  // Leaked: ops run until the very end.
  const std::lock_guard lock(mutex);
  return seen->insert(name).second;
}

}  // namespace

bool is_of_pytorch(const c10::OperatorHandle& op) {
  constexpr auto kNamespaces = std::to_array<std::string_view>({"aten::", "prims::"});
  const std::string& name = op.operator_name().name;
  return std::any_of(kNamespaces.begin(), kNamespaces.end(),
                     [&](std::string_view space) { return name.starts_with(space); });
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(c10::DispatchKey::CPU), "rgpu: the operator ", name,
      " belongs to another library and has no kernel for the CPU either: write it in terms of "
      "PyTorch's own ops, or move its tensors to a device that has it");
  if (is_first_use(name)) {
    TORCH_WARN("rgpu: the operator ", name,
               " belongs to another library, which the server does not have. It runs on this "
               "machine, and its tensors go down and up again each time.");
  }
  at::native::cpu_fallback(op, stack);
}

}  // namespace rgpu::backend
