#include "torch_backend/aten/sparse.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy_sparse_to_sparse.h>
#include <ATen/ops/embedding_sparse_backward_native.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "torch_backend/device/storage.h"
#include "torch_backend/ops/issue.h"
#include "torch_backend/ops/sparse_call.h"
#include "torch_backend/ops/sparse_tensor.h"
#include "torch_backend/ops/transfer.h"

namespace rgpu::backend {
namespace {

using c10::DispatchKey;

// The CPU's kernels of these touch components through PyTorch's ops alone.
constexpr auto kOfComponents = std::to_array<std::string_view>(
    {// Metadata, making and copying.
     "_coalesced_", "_dimI", "_dimV", "_indices", "_nnz", "_sparse_coo_tensor_with_dims",
     "_sparse_coo_tensor_with_dims_and_tensors", "_values", "ccol_indices", "clone", "col_indices",
     "copy_", "copy_sparse_to_sparse_", "crow_indices", "dense_dim", "empty", "empty_like",
     "indices", "is_coalesced", "is_pinned", "resize_as_sparse_", "row_indices", "sparse_dim",
     "sparse_resize_", "sparse_resize_and_clear_", "values", "zero_", "zeros",
     // Value by value, of a coalesced tensor.
     "abs", "abs_", "angle", "asin", "asin_", "asinh", "asinh_", "atan", "atan_", "atanh", "atanh_",
     "ceil", "ceil_", "conj_physical", "conj_physical_", "_conj_physical", "deg2rad", "deg2rad_",
     "erf", "erf_", "erfinv", "erfinv_", "expm1", "expm1_", "fill_", "floor", "floor_", "frac",
     "frac_", "isinf", "isnan", "isneginf", "isposinf", "log1p", "log1p_", "nan_to_num",
     "nan_to_num_", "neg", "neg_", "normal_", "pow", "rad2deg", "rad2deg_", "relu", "relu_",
     "round", "round_", "sgn", "sgn_", "sign", "sign_", "signbit", "sin", "sin_", "sinh", "sinh_",
     "sqrt", "sqrt_", "tan", "tan_", "tanh", "tanh_", "threshold_backward", "trunc", "trunc_",
     "view_as_complex", "view_as_real",
     // With a number.
     "div", "div_", "floor_divide", "floor_divide_",
     // Of indices or values as a whole.
     "any", "cat", "native_norm", "norm", "permute", "unsqueeze"});
// These do so for tensors of the COO layout, and these for the compressed ones.
constexpr auto kOfCooComponents = std::to_array<std::string_view>({"_to_sparse_csr", "sum"});
constexpr auto kOfCompressed =
    std::to_array<std::string_view>({"mul.Scalar", "mul_.Scalar", "sum"});
// These do so as well if an operand is dense.
constexpr auto kOfComponentsWithDense =
    std::to_array<std::string_view>({"mul", "mul_", "sparse_mask"});
// These come down to add.out or go over whole, by whether they have a dense operand.
constexpr auto kSums = std::to_array<std::string_view>({"add", "add_", "sub", "sub_"});
// From dense tensors.
constexpr auto kMakesSparse = std::to_array<std::array<const char*, 2>>({
    {"aten::_to_sparse", ""},
    {"aten::_to_sparse", "sparse_dim"},
    {"aten::_to_sparse_csr", ""},
    {"aten::_to_sparse_csc", ""},
    {"aten::_to_sparse_bsr", ""},
    {"aten::_to_sparse_bsc", ""},
});

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

enum class Way : uint8_t { kWhole, kHere, kHereWithDense, kHereWithoutDense };

// `name` without namespace and overload, `full_name` with the latter.
Way way_of(std::string_view name, std::string_view full_name, DispatchKey key) {
  if (contains(kOfComponents, name)) return Way::kHere;
  if (key != DispatchKey::SparseCPU) {
    return contains(kOfCompressed, full_name) ? Way::kHere : Way::kWhole;
  }
  if (contains(kOfCooComponents, name)) return Way::kHere;
  if (contains(kOfComponentsWithDense, name)) return Way::kHereWithDense;
  return contains(kSums, name) ? Way::kHereWithoutDense : Way::kWhole;
}

// An op at one of the sparse keys; `key` is the one of the CPU whose kernel runs here.
class SparseKernel final : public c10::OperatorKernel {
 public:
  SparseKernel(const c10::OperatorHandle& op, DispatchKey key, Way way)
      : op_(op), key_(key), way_(way) {}

  void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    if (runs_here(*stack)) {
      op_.redispatchBoxed(c10::DispatchKeySet(key_), stack);
    } else {
      issue_sparse(op_info(op_), stack);
    }
  }

 private:
  [[nodiscard]] bool runs_here(const torch::jit::Stack& stack) const {
    if (way_ == Way::kHere || way_ == Way::kWhole) return way_ == Way::kHere;
    const size_t count = op_.schema().arguments().size();
    const bool has_dense = std::any_of(stack.end() - static_cast<std::ptrdiff_t>(count),
                                       stack.end(), [](const c10::IValue& value) {
                                         return value.isTensor() && value.toTensor().defined() &&
                                                !is_sparse(value.toTensor());
                                       });
    return has_dense == (way_ == Way::kHereWithDense);
  }

  c10::OperatorHandle op_;
  DispatchKey key_;
  Way way_;
};

// What CUDA does: the elements of both, one after the other. The CPU would merge them, which needs
// their indices.
at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                    at::Tensor& out) {
  if (!self.is_sparse() || !other.is_sparse() || !out.is_sparse()) {
    TORCH_CHECK(!self.is_sparse(),
                "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
    static const OpInfo& op = op_info("aten::add", "out");
    torch::jit::Stack stack{self, other, alpha, out};
    issue_sparse(op, &stack);
    return out;
  }
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
              " != ", other.sizes());
  const at::ScalarType common = at::promoteTypes(self.scalar_type(), other.scalar_type());
  TORCH_CHECK(c10::canCast(common, out.scalar_type()), "Can't convert result type ", common,
              " to output ", out.scalar_type(), " in add operation");
  if (other._nnz() == 0) return at::copy_sparse_to_sparse_(out, self);
  TORCH_CHECK(
      self._nnz() == 0 ||
          (self.sparse_dim() == other.sparse_dim() && self.dense_dim() == other.dense_dim()),
      "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
      " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
  at::Tensor added = other._values().to(common);
  if (alpha.isComplex() || alpha.toDouble() != 1) added = added.mul(alpha);
  at::Tensor indices = other._indices();
  bool coalesced = other.is_coalesced();
  if (self._nnz() != 0) {
    indices = at::cat({self._indices(), indices}, 1);
    added = at::cat({self._values().to(common), added}, 0);
    coalesced = false;
  }
  const std::array<at::Tensor, 2> parts = {std::move(indices), added.to(out.scalar_type())};
  at::Tensor sum =
      sparse_tensor({static_cast<int64_t>(at::kSparse), coalesced ? 1 : 0}, other.sizes(), parts);
  // Many sums in a row must not grow without an end.
  take_components(out, sum._nnz() > sum.numel() ? sum.coalesce() : sum);
  return out;
}

// To the CPU: all components by one wait.
at::Tensor to_copy_sparse(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                          std::optional<at::Layout> layout, std::optional<at::Device> device,
                          std::optional<bool> pin_memory, bool non_blocking,
                          std::optional<at::MemoryFormat> format) {
  const bool is_plain = device && device->is_cpu() && !pin_memory.value_or(false) &&
                        layout.value_or(self.layout()) == self.layout() &&
                        self.device().type() == kDeviceType;
  if (!is_plain) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  }
  std::vector<at::Tensor> parts = download_together(components_of(self));
  parts.back() = parts.back().to(dtype.value_or(self.scalar_type()));
  return sparse_tensor(form_of(self), self.sizes(), parts);
}

// To COO only the indices change, and how many there are is known.
void compressed_to_sparse(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const c10::IValue& layout = (*stack)[first + 1];
  if (layout.isNone() || layout.toLayout() == at::kSparse) {
    op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::SparseCsrCPU), stack);
  } else {
    issue_sparse(op_info(op), stack);
  }
}

// A number times a compressed tensor is no work for its indices.
at::Tensor mul_compressed(const at::Tensor& self, const at::Tensor& other) {
  if (is_sparse(self) && other.device().is_cpu() && other.dim() == 0) {
    return at::mul(self, other.item());
  }
  static const OpInfo& op = op_info("aten::mul", "Tensor");
  torch::jit::Stack stack{self, other};
  issue_sparse(op, &stack);
  return stack.back().toTensor();
}

// How many rows a padding index leaves only the server knows; without one nothing is asked.
at::Tensor embedding_sparse_backward(const at::Tensor& grad, const at::Tensor& indices,
                                     int64_t num_weights, int64_t padding_idx,
                                     bool scale_grad_by_freq) {
  const bool differentiates = at::GradMode::is_enabled() && grad.requires_grad();
  if (padding_idx < 0 || differentiates) {
    return at::native::embedding_sparse_backward(grad, indices, num_weights, padding_idx,
                                                 scale_grad_by_freq);
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  static const OpInfo& op = op_info("aten::embedding_sparse_backward", "");
  torch::jit::Stack stack{grad, indices, num_weights, padding_idx, scale_grad_by_freq};
  issue_sparse(op, &stack);
  return stack.back().toTensor();
}

void embedding_bag_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr size_t kSparseArgument = 9;
  const OpInfo& info = op_info(op);
  const bool sparse = (*stack)[stack->size() - info.rules.size() + kSparseArgument].toBool();
  sparse ? issue_sparse(info, stack) : issue(info, stack);
}

void refuse_nested(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "rgpu: ", op.operator_name(),
                              " of a nested tensor of the strided layout; make nested tensors with "
                              "layout=torch.jagged");
}

void refuse_quantized(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "rgpu: ", op.operator_name(),
                              ": quantized tensors are not supported; quantize on the CPU");
}

bool is_written_by_hand(const c10::OperatorName& name, DispatchKey key) {
  if (key == DispatchKey::SparseCPU) return name == c10::OperatorName("aten::add", "out");
  return name == c10::OperatorName("aten::mul", "Tensor") ||
         name == c10::OperatorName("aten::_to_sparse", "");
}

// The ops that would make one; Meta kernels give a tensor of another dtype for them.
void refuse_quantized_ops(torch::Library& dense) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::optional<c10::OperatorHandle> op = c10::Dispatcher::singleton().findSchema(name);
    const bool makes = name.name.starts_with("aten::quantize_per_") ||
                       name.name.starts_with("aten::_empty_affine_quantized") ||
                       name.name.starts_with("aten::_empty_per_channel_affine_quantized") ||
                       name.name.starts_with("aten::_make_per_");
    if (!makes || !op || op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      continue;
    }
    const std::string target =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    dense.impl(target.c_str(), torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
  }
}

void register_at(torch::Library& library, DispatchKey key) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    constexpr std::string_view kNamespace = "aten::";
    const std::optional<c10::OperatorHandle> op = dispatcher.findSchema(name);
    if (!op.has_value() || name.name.rfind(kNamespace, 0) != 0) continue;
    if (!op->hasKernelForDispatchKey(key) || is_written_by_hand(name, key)) continue;
    const std::string target =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    const Way way = way_of(std::string_view(name.name).substr(kNamespace.size()),
                           std::string_view(target).substr(kNamespace.size()), key);
    library.impl(target.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                     std::make_unique<SparseKernel>(*op, key, way)));
  }
}

}  // namespace

void register_sparse_kernels() {
  static torch::Library coo(torch::Library::IMPL, "aten", DispatchKey::SparsePrivateUse1, __FILE__,
                            __LINE__);
  static torch::Library compressed(torch::Library::IMPL, "aten", DispatchKey::SparseCsrPrivateUse1,
                                   __FILE__, __LINE__);
  static torch::Library dense(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__,
                              __LINE__);
  static torch::Library autograd(torch::Library::IMPL, "aten", DispatchKey::AutogradPrivateUse1,
                                 __FILE__, __LINE__);
  static torch::Library nested(torch::Library::IMPL, "_", DispatchKey::NestedTensorPrivateUse1,
                               __FILE__, __LINE__);
  static torch::Library quantized(torch::Library::IMPL, "_", DispatchKey::QuantizedPrivateUse1,
                                  __FILE__, __LINE__);
  register_at(coo, DispatchKey::SparseCPU);
  register_at(compressed, DispatchKey::SparseCsrCPU);
  coo.impl("add.out", &add_out);
  coo.impl("_to_copy", &to_copy_sparse);
  compressed.impl("_to_copy", &to_copy_sparse);
  compressed.impl("mul.Tensor", &mul_compressed);
  compressed.impl("_to_sparse", torch::CppFunction::makeFromBoxedFunction<&compressed_to_sparse>());
  dense.impl("embedding_sparse_backward", &embedding_sparse_backward);
  autograd.impl("embedding_sparse_backward", &embedding_sparse_backward);
  dense.impl("_embedding_bag_backward",
             torch::CppFunction::makeFromBoxedFunction<&embedding_bag_backward>());
  quantized.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
  nested.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_nested>());
  refuse_quantized_ops(dense);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& [name, overload] : kMakesSparse) {
    const c10::OperatorHandle op = dispatcher.findSchemaOrThrow(name, overload);
    const std::string target = std::string(name) + (*overload == 0 ? "" : ".") + overload;
    dense.impl(target.c_str(),
               torch::CppFunction::makeFromBoxedFunctor(
                   std::make_unique<SparseKernel>(op, DispatchKey::CPU, Way::kWhole)));
  }
}

}  // namespace rgpu::backend
