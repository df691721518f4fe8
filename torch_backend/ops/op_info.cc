#include "torch_backend/ops/op_info.h"

#include <algorithm>
#include <array>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "torch_backend/device/switches.h"

namespace rgpu::backend {
namespace {

// Ops whose output shape follows from a Scalar's value: the value belongs in the key.
constexpr std::array<std::string_view, 4> kShapedByScalars = {"aten::arange", "aten::linspace",
                                                              "aten::logspace", "aten::range"};

// Ops whose output shape follows from the values of tensors.
constexpr std::array<std::string_view, 14> kShapedByData = {"aten::nonzero",
                                                            "aten::_unique",
                                                            "aten::_unique2",
                                                            "aten::unique_dim",
                                                            "aten::masked_select",
                                                            "aten::unique_consecutive",
                                                            "aten::unique_dim_consecutive",
                                                            "aten::bincount",
                                                            "aten::repeat_interleave",
                                                            "aten::histogram",
                                                            "aten::_histogramdd_bin_edges",
                                                            "aten::_histogramdd_from_bin_cts",
                                                            "aten::equal",
                                                            "aten::histogramdd"};

constexpr std::array<std::string_view, 4> kTakesHostIndices = {
    "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"};

// Random ops that carry no nondeterministic_seeded tag in every release.
constexpr std::array<std::string_view, 8> kUntaggedRandom = {
    "aten::native_dropout",   "aten::_fused_dropout", "aten::scaled_dot_product_attention",
    "aten::rrelu_with_noise", "aten::lstm",           "aten::gru",
    "aten::rnn_tanh",         "aten::rnn_relu"};

// Exact on integers and bools, and the same on every device. So nothing that breaks ties (argmax,
// sort), divides or shifts.
constexpr auto kComputes = std::to_array<std::string_view>({"aten::eq",
                                                            "aten::ne",
                                                            "aten::lt",
                                                            "aten::le",
                                                            "aten::gt",
                                                            "aten::ge",
                                                            "aten::logical_and",
                                                            "aten::logical_or",
                                                            "aten::logical_xor",
                                                            "aten::logical_not",
                                                            "aten::bitwise_and",
                                                            "aten::bitwise_or",
                                                            "aten::bitwise_xor",
                                                            "aten::bitwise_not",
                                                            "aten::add",
                                                            "aten::sub",
                                                            "aten::rsub",
                                                            "aten::mul",
                                                            "aten::neg",
                                                            "aten::abs",
                                                            "aten::minimum",
                                                            "aten::maximum",
                                                            "aten::clamp",
                                                            "aten::clamp_min",
                                                            "aten::clamp_max",
                                                            "aten::sign",
                                                            "aten::any",
                                                            "aten::all",
                                                            "aten::sum",
                                                            "aten::max",
                                                            "aten::min",
                                                            "aten::amax",
                                                            "aten::amin",
                                                            "aten::cumsum",
                                                            "aten::where",
                                                            "aten::masked_fill",
                                                            "aten::cat",
                                                            "aten::clone",
                                                            "aten::isin",
                                                            "aten::index",
                                                            "aten::gather",
                                                            "aten::repeat",
                                                            "aten::flip",
                                                            "aten::roll",
                                                            "aten::tril",
                                                            "aten::triu",
                                                            "aten::index_select",
                                                            "aten::scatter",
                                                            "aten::constant_pad_nd",
                                                            "aten::stack"});
constexpr auto kOverwrites =
    std::to_array<std::string_view>({"aten::fill_", "aten::zero_", "aten::copy_", "aten::arange"});
// Without counters (add_): what nobody reads would be repeated here in every step.
constexpr auto kUpdates = std::to_array<std::string_view>(
    {"aten::masked_fill_", "aten::index_put_", "aten::scatter_", "aten::index_fill_",
     "aten::logical_and_", "aten::logical_or_", "aten::bitwise_and_", "aten::bitwise_or_"});

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

HostFold fold_of(std::string_view name, std::string_view overload) {
  if (contains(kOverwrites, name)) return HostFold::kOverwrites;
  if (contains(kUpdates, name)) return HostFold::kUpdates;
  // max and min along a dimension tell where, too.
  const bool breaks_ties =
      (name == "aten::max" || name == "aten::min") && overload.find("dim") != overload.npos;
  return contains(kComputes, name) && !breaks_ties ? HostFold::kComputes : HostFold::kNone;
}

bool is_immediate_type(const c10::Argument& argument) {
  const c10::TypePtr& real = argument.real_type();
  c10::TypePtr element = real;
  if (real->kind() == c10::TypeKind::ListType) {
    element = real->castRaw<c10::ListType>()->getElementType();
  } else if (real->kind() == c10::TypeKind::OptionalType) {
    element = real->castRaw<c10::OptionalType>()->getElementType();
  }
  // Lists of floats shape upsampling; lists of Scalars are values alone.
  if (element->kind() == c10::TypeKind::NumberType) return true;
  return real->kind() == c10::TypeKind::FloatType;
}

int32_t aliased_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (result.alias_info() == nullptr || !result.alias_info()->isWrite()) return -1;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* info = schema.arguments()[i].alias_info();
    if (info != nullptr && info->isWrite() &&
        info->beforeSets() == result.alias_info()->beforeSets()) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle& op)
    : handle(op),
      schema(&op.schema()),
      name(op.operator_name().name),
      overload(op.operator_name().overload_name) {
  const std::string text = c10::toString(*schema);
  schema_hash = XXH3_64bits(text.data(), text.size());
  const bool shaped = contains(kShapedByScalars, name);
  for (const c10::Argument& argument : schema->arguments()) {
    rules.push_back(!shaped && is_immediate_type(argument) ? ArgRule::kImmediate
                                                           : ArgRule::kStatic);
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) writes = true;
    has_out |= argument.is_out();
  }
  for (const c10::Argument& result : schema->returns()) {
    alias_of.push_back(aliased_argument(*schema, result));
  }
  random = op.hasTag(at::Tag::nondeterministic_seeded) || contains(kUntaggedRandom, name);
  asks_server = contains(kShapedByData, name) && overload != "self_int";
  takes_host_indices = contains(kTakesHostIndices, name);
  fold = fold_of(name, overload);
  switch_use = rgpu::backend::switch_use(op);
}

OpInfo::OpInfo(std::string builtin, std::vector<ArgRule> argument_rules,
               const c10::OperatorHandle& like)
    : handle(like),
      schema(new c10::FunctionSchema(like.schema())),
      name(std::move(builtin)),
      rules(std::move(argument_rules)),
      switch_use(kUsesAll) {}  // The schema's address is the op's identity: kept for ever.

}  // namespace rgpu::backend
