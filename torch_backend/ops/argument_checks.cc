#include "torch_backend/ops/argument_checks.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "torch_backend/ops/cpu_verdict.h"
#include "torch_backend/ops/sparse_tensor.h"

namespace rgpu::backend {
namespace {

bool overlaps_itself(const c10::IValue& value) {
  if (value.isTensorList()) {
    const auto items = value.toListRef();
    return std::any_of(items.begin(), items.end(), overlaps_itself);
  }
  return value.isTensor() && value.toTensor().defined() && !is_sparse(value.toTensor()) &&
         at::has_internal_overlap(value.toTensor()) == at::MemOverlap::Yes;
}

// Writing through a tensor whose elements share memory has mostly no defined result: the CPU says
// whether it is refused.
void refuse_overlaps(const OpInfo& op, const c10::IValue* arguments) {
  for (size_t i = 0; op.writes && i < op.rules.size(); ++i) {
    const c10::AliasInfo* info = op.schema->arguments()[i].alias_info();
    if (info == nullptr || !info->isWrite() || !overlaps_itself(arguments[i])) continue;
    if (cpu_takes(op, arguments)) return;
    TORCH_CHECK(!arguments[i].isTensor(),
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the "
                "operation.");
  }
}

// PyTorch's Meta kernels of matrix products look at shapes alone.
void refuse_mixed_dtypes(const OpInfo& op, const c10::IValue* arguments) {
  constexpr auto kProducts = std::to_array<std::string_view>(
      {"aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::vdot", "aten::addmm",
       "aten::addmm_", "aten::baddbmm", "aten::baddbmm_", "aten::addmv", "aten::addbmm",
       "aten::addr", "aten::_addmm_activation"});
  if (std::find(kProducts.begin(), kProducts.end(), op.name) == kProducts.end()) return;
  const at::Tensor* first = nullptr;
  for (size_t i = 0; i < op.rules.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const at::Tensor& tensor = arguments[i].toTensor();
    if (first == nullptr) first = &tensor;
    TORCH_CHECK(tensor.scalar_type() == first->scalar_type(), op.name,
                ": expected m1 and m2 to have the same dtype, but got: ", first->dtype(),
                " != ", tensor.dtype());
  }
}

// The CPU makes the tensor larger; who changes a tensor in place hardly means that.
void refuse_growth(const OpInfo& op, const c10::IValue* arguments) {
  if (op.name != "aten::addbmm_") return;
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& batch1 = arguments[1].toTensor();
  const at::Tensor& batch2 = arguments[2].toTensor();
  if (batch1.dim() != 3 || batch2.dim() != 3) return;  // The shape function says so.
  TORCH_CHECK(self.dim() == 2 && self.size(0) == batch1.size(1) && self.size(1) == batch2.size(2),
              "addbmm_: the output with shape ", self.sizes(), " doesn't match the shape [",
              batch1.size(1), ", ", batch2.size(2), "] of the result");
}

}  // namespace

void check_arguments(const OpInfo& op, const c10::IValue* arguments) {
  refuse_overlaps(op, arguments);
  refuse_mixed_dtypes(op, arguments);
  refuse_growth(op, arguments);
}

}  // namespace rgpu::backend
