#include "wire/op_template.h"

#include <bit>
#include <limits>

#include "rgpu_generated.h"
#include "wire/limits.h"
#include "wire/tables.h"

namespace rgpu::wire {

static_assert(static_cast<int>(fb::ArgKind::MAX) == static_cast<int>(ArgKind::kSparse));
static_assert(static_cast<int>(fb::OutputKind::MAX) == static_cast<int>(OutputKind::kAnyLayout));

namespace {

constexpr uint8_t kKnownFlags = TensorMeta::kHasOffset | TensorMeta::kConj | TensorMeta::kNeg |
                                TensorMeta::kWrappedNumber | TensorMeta::kRequiresGrad;
constexpr int64_t kDeviceIndexMax = limits::kDevicesMax - 1;
// A table costs its encoder at least this much: a reference to it and one to its layout.
constexpr size_t kTableSizeBytesMin = 8;

bool needs_meta(ArgKind kind) {
  return kind == ArgKind::kTensor || kind == ArgKind::kHostScalar || kind == ArgKind::kSparse;
}

bool is_record_scalar(ArgKind kind) {
  return kind == ArgKind::kScalarInt || kind == ArgKind::kScalarDouble ||
         kind == ArgKind::kScalarComplex || kind == ArgKind::kScalarBool;
}

uint32_t handles_bound(OutputKind kind) {
  if (kind == OutputKind::kAnyLayout) return kComponentsMax;
  const bool one =
      kind == OutputKind::kNew || kind == OutputKind::kOpaque || kind == OutputKind::kUnknown;
  return one ? 1 : 0;
}

// Names go into messages and logs as they are.
bool is_printable(const std::string& name) {
  for (const char c : name) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

bool is_bool(int64_t value) { return value == 0 || value == 1; }

uint32_t tensor_count(const Arg& arg) {
  uint32_t count = arg.kind == ArgKind::kTensor ? 1 : 0;
  for (const Arg& item : arg.items) count += tensor_count(item);
  return count;
}

uint32_t immediates_size_of(const Arg& arg) {
  uint32_t size_bytes = 0;
  switch (arg.kind) {
    case ArgKind::kTensor:
      size_bytes = (arg.tensor.flags & TensorMeta::kHasOffset) != 0 ? 8 : 0;
      break;
    case ArgKind::kHostScalar:
    case ArgKind::kScalarComplex:
      size_bytes = 16;
      break;
    case ArgKind::kScalarInt:
    case ArgKind::kScalarBool:
    case ArgKind::kScalarDouble:
      size_bytes = 8;
      break;
    default:
      break;
  }
  for (const Arg& item : arg.items) size_bytes += immediates_size_of(item);
  return size_bytes;
}

// How many components a tensor of this c10::Layout has; 0: no sparse layout.
size_t component_count(int64_t layout) {
  constexpr int64_t kCoo = 1;
  constexpr int64_t kCsr = 2;
  constexpr int64_t kCsc = 4;
  constexpr int64_t kBsc = 6;  // kBsr is 5.
  if (layout == kCoo) return 2;
  return layout == kCsr || (layout >= kCsc && layout <= kBsc) ? 3 : 0;
}

Status check_sparse(const Arg& arg) {
  if (arg.integers.size() != 2 || !is_bool(arg.integers[1])) {
    return invalid("a sparse tensor does not tell its layout and whether it is coalesced");
  }
  const size_t count = component_count(arg.integers[0]);
  if (count == 0) return invalid("a sparse tensor's layout is unknown");
  if (arg.items.size() != count) return invalid("a sparse tensor has a wrong number of components");
  for (const Arg& item : arg.items) {
    if (item.kind != ArgKind::kTensor) return invalid("a sparse tensor's component is no tensor");
  }
  for (const int64_t stride : arg.tensor.strides) {
    if (stride != 0) return invalid("a sparse tensor has strides");
  }
  return {};
}

// The kinds that may have items, and which.
Status check_items(const Arg& arg, uint32_t depth) {
  if (arg.kind == ArgKind::kSparse) {
    RGPU_RETURN_IF_ERROR(check_sparse(arg));
    for (const Arg& item : arg.items) RGPU_RETURN_IF_ERROR(check_arg(item, depth + 1));
    return {};
  }
  if (arg.items.empty()) return {};
  if (arg.kind != ArgKind::kTensorList && arg.kind != ArgKind::kScalarList) {
    return invalid("an argument that is no list has items");
  }
  for (const Arg& item : arg.items) {
    RGPU_RETURN_IF_ERROR(check_arg(item, depth + 1));
    if (arg.kind == ArgKind::kTensorList && item.kind != ArgKind::kTensor &&
        item.kind != ArgKind::kSparse && item.kind != ArgKind::kNone &&
        item.kind != ArgKind::kHostScalar) {
      return invalid("a list of tensors holds something else");
    }
    if (arg.kind == ArgKind::kScalarList && !is_record_scalar(item.kind)) {
      return invalid("a list of scalars holds something else");
    }
  }
  return {};
}

Status check_output(const Output& output, const OpTemplate& op) {
  if (output.kind > OutputKind::kAnyLayout) return invalid("an output's kind is unknown");
  if (output.kind >= OutputKind::kUnknown && !op.replies) {
    return invalid("an output of unknown geometry needs a reply");
  }
  return check_meta(output.meta);
}

bool unpack(const fb::OpTemplate& table, OpTemplate& op, UnpackBudget& budget) {
  if (!unpack(table.name(), op.name, budget) || !unpack(table.overload(), op.overload, budget)) {
    return false;
  }
  op.schema_hash = table.schema_hash();
  op.random = table.random();
  op.replies = table.replies();
  op.keeps_graph = table.keeps_graph();
  op.default_dtype = table.default_dtype();
  if (table.args() != nullptr) {
    for (const fb::Arg* arg : *table.args()) {
      if (!unpack(*arg, op.args.emplace_back(), budget)) return false;
    }
  }
  if (table.outputs() != nullptr) {
    for (const fb::Output* source : *table.outputs()) {
      if (!budget.take(kTableSizeBytesMin)) return false;
      Output& output = op.outputs.emplace_back();
      output.kind = static_cast<OutputKind>(source->kind());
      if (source->meta() != nullptr && !unpack(*source->meta(), output.meta, budget)) return false;
    }
  }
  return true;
}

// What unpacking cannot tell afterwards: whether a meta was there at all.
bool has_metas(const fb::Arg& arg) {
  if (needs_meta(static_cast<ArgKind>(arg.kind())) && arg.tensor() == nullptr) return false;
  if (arg.items() != nullptr) {
    for (const fb::Arg* item : *arg.items()) {
      if (!has_metas(*item)) return false;
    }
  }
  return true;
}

bool has_metas(const fb::OpTemplate& op) {
  if (op.args() != nullptr) {
    for (const fb::Arg* arg : *op.args()) {
      if (!has_metas(*arg)) return false;
    }
  }
  if (op.outputs() != nullptr) {
    for (const fb::Output* output : *op.outputs()) {
      if (output->kind() == fb::OutputKind::New && output->meta() == nullptr) return false;
    }
  }
  return true;
}

}  // namespace

// ---- Shared with messages.cc (tables.h) ---------------------------------------------------------

Status check_size(const char* what, size_t size_bytes, size_t size_bytes_max) {
  if (size_bytes <= size_bytes_max) return {};
  return invalid(std::string(what) + ": " + std::to_string(size_bytes) +
                 " bytes are over the limit of " + std::to_string(size_bytes_max));
}

Status check_op_name(const std::string& name, const std::string& overload) {
  if (name.empty()) return invalid("the op has no name");
  RGPU_RETURN_IF_ERROR(check_size("the op's name", name.size(), limits::kNameSizeBytesMax));
  RGPU_RETURN_IF_ERROR(check_size("the overload", overload.size(), limits::kNameSizeBytesMax));
  if (is_printable(name) && is_printable(overload)) return {};
  return invalid("the op's name is not printable");
}

Status check_default_dtype(int8_t dtype) {
  if ((dtype >= 5 && dtype <= 7) || dtype == 15) return {};
  return invalid(std::to_string(dtype) + " is no default dtype");
}

Status check_meta(const TensorMeta& meta) {
  if (meta.dtype < 0) return invalid("a tensor's dtype is negative");
  if ((meta.flags & ~kKnownFlags) != 0) return invalid("a tensor has an unknown flag");
  if (meta.sizes.size() > limits::kDimensionsMax) {
    return invalid("a tensor has " + std::to_string(meta.sizes.size()) +
                   " dimensions; the limit is " + std::to_string(limits::kDimensionsMax));
  }
  if (meta.strides.size() != meta.sizes.size()) {
    return invalid("a tensor has " + std::to_string(meta.sizes.size()) + " sizes but " +
                   std::to_string(meta.strides.size()) + " strides");
  }
  int64_t count = 1;  // Empty dimensions count as one, as for contiguous strides.
  int64_t last = 0;   // The element furthest from the first.
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    const int64_t size = meta.sizes[i];
    int64_t step = 0;
    if (size < 0 || meta.strides[i] < 0) return invalid("a tensor has a negative size or stride");
    if (size <= 1) continue;
    if (__builtin_mul_overflow(count, size, &count) ||
        __builtin_mul_overflow(size - 1, meta.strides[i], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return invalid("a tensor has 2^63 elements or more, or reaches so far");
    }
  }
  return {};
}

Status check_arg(const Arg& arg, uint32_t depth) {
  if (depth > limits::kArgDepthMax) {
    return invalid("lists nest deeper than " + std::to_string(limits::kArgDepthMax));
  }
  if (arg.kind > ArgKind::kSparse) return invalid("an argument's kind is unknown");
  RGPU_RETURN_IF_ERROR(check_size("a string", arg.text.size(), limits::kStringSizeBytesMax));
  RGPU_RETURN_IF_ERROR(check_meta(arg.tensor));
  if (arg.kind == ArgKind::kBool && !is_bool(arg.integer)) {
    return invalid("a bool is neither 0 nor 1");
  }
  if (arg.kind == ArgKind::kBoolList) {
    for (const int64_t value : arg.integers) {
      if (!is_bool(value)) return invalid("a bool of a list is neither 0 nor 1");
    }
  }
  if (arg.kind == ArgKind::kDevice && (arg.integer < -1 || arg.integer > kDeviceIndexMax)) {
    return invalid("a device index is out of range");
  }
  if (arg.kind == ArgKind::kComplex && arg.reals.size() != 2) {
    return invalid("a complex number has not exactly two parts");
  }
  return check_items(arg, depth);
}

flatbuffers::Offset<fb::TensorMeta> pack(flatbuffers::FlatBufferBuilder& builder,
                                         const TensorMeta& meta) {
  const auto sizes = pack(builder, meta.sizes);
  const auto strides = pack(builder, meta.strides);
  return fb::CreateTensorMeta(builder, meta.dtype, meta.flags, sizes, strides);
}

flatbuffers::Offset<fb::Arg> pack(flatbuffers::FlatBufferBuilder& builder, const Arg& arg) {
  std::vector<flatbuffers::Offset<fb::Arg>> items;
  items.reserve(arg.items.size());
  for (const Arg& item : arg.items) items.push_back(pack(builder, item));
  const auto text = pack(builder, arg.text);
  const auto integers = pack(builder, arg.integers);
  const auto reals = pack(builder, arg.reals);
  flatbuffers::Offset<fb::TensorMeta> tensor;
  if (needs_meta(arg.kind) || arg.tensor != TensorMeta{}) tensor = pack(builder, arg.tensor);
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::Arg>>> items_offset;
  if (!items.empty()) items_offset = builder.CreateVector(items);
  fb::ArgBuilder table(builder);
  table.add_integer(arg.integer);
  if (std::bit_cast<uint64_t>(arg.real) != 0) table.add_real(arg.real);  // Keeps -0.0.
  table.add_text(text);
  table.add_integers(integers);
  table.add_reals(reals);
  table.add_tensor(tensor);
  table.add_items(items_offset);
  table.add_kind(static_cast<fb::ArgKind>(arg.kind));
  return table.Finish();
}

bool unpack(const fb::TensorMeta& table, TensorMeta& meta, UnpackBudget& budget) {
  if (!budget.take(kTableSizeBytesMin)) return false;
  meta.dtype = table.dtype();
  meta.flags = table.flags();
  return unpack(table.sizes(), meta.sizes, budget) && unpack(table.strides(), meta.strides, budget);
}

bool unpack(const fb::Arg& table, Arg& arg, UnpackBudget& budget) {
  if (!budget.take(kTableSizeBytesMin)) return false;
  arg.kind = static_cast<ArgKind>(table.kind());
  arg.integer = table.integer();
  arg.real = table.real().has_value() ? *table.real() : 0.0;
  if (!unpack(table.text(), arg.text, budget) || !unpack(table.integers(), arg.integers, budget) ||
      !unpack(table.reals(), arg.reals, budget)) {
    return false;
  }
  if (table.tensor() != nullptr && !unpack(*table.tensor(), arg.tensor, budget)) return false;
  if (table.items() == nullptr) return true;
  for (const fb::Arg* item : *table.items()) {
    if (!unpack(*item, arg.items.emplace_back(), budget)) return false;
  }
  return true;
}

// ---- OpTemplate ---------------------------------------------------------------------------------

uint32_t OpTemplate::new_handle_count() const {
  uint32_t count = 0;
  for (const Output& output : outputs) count += handles_bound(output.kind);
  return count;
}

uint32_t OpTemplate::handle_count() const {
  uint32_t count = new_handle_count();
  for (const Arg& arg : args) count += tensor_count(arg);
  return count;
}

uint32_t OpTemplate::immediates_size_bytes() const {
  uint32_t size_bytes = (random ? 16 : 0) + (replies ? 8 : 0);
  for (const Arg& arg : args) size_bytes += immediates_size_of(arg);
  return size_bytes;
}

Status check_op_template(const OpTemplate& op) {
  RGPU_RETURN_IF_ERROR(check_op_name(op.name, op.overload));
  if (Status status = check_default_dtype(op.default_dtype); !status) {
    return status.with_context(op.name);
  }
  for (size_t i = 0; i < op.args.size(); ++i) {
    if (Status status = check_arg(op.args[i], 0); !status) {
      return status.with_context(op.name + ", argument " + std::to_string(i));
    }
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (Status status = check_output(op.outputs[i], op); !status) {
      return status.with_context(op.name + ", output " + std::to_string(i));
    }
  }
  if (op.keeps_graph && (op.outputs.empty() || op.outputs.back().kind != OutputKind::kOpaque)) {
    return invalid(op.name + ": keeps_graph needs an opaque last output");
  }
  if (op.handle_count() > limits::kHandlesPerRecordMax) {
    return invalid(op.name + ": over " + std::to_string(limits::kHandlesPerRecordMax) +
                   " handles in a record");
  }
  return check_size((op.name + ": immediates").c_str(), op.immediates_size_bytes(),
                    limits::kImmediatesSizeBytesMax);
}

std::vector<std::byte> encode_op_template(const OpTemplate& op) {
  RGPU_CHECK(check_op_template(op).ok());
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::Arg>> args;
  args.reserve(op.args.size());
  for (const Arg& arg : op.args) args.push_back(pack(builder, arg));
  std::vector<flatbuffers::Offset<fb::Output>> outputs;
  outputs.reserve(op.outputs.size());
  for (const Output& output : op.outputs) {
    flatbuffers::Offset<fb::TensorMeta> meta;
    if (output.kind == OutputKind::kNew || output.meta != TensorMeta{}) {
      meta = pack(builder, output.meta);
    }
    outputs.push_back(fb::CreateOutput(builder, static_cast<fb::OutputKind>(output.kind), meta));
  }
  const auto name = pack(builder, op.name);
  const auto overload = pack(builder, op.overload);
  builder.Finish(fb::CreateOpTemplate(builder, name, overload, op.schema_hash,
                                      builder.CreateVector(args), builder.CreateVector(outputs),
                                      op.random, op.replies, op.keeps_graph, op.default_dtype));
  return finished_bytes(builder);
}

Result<OpTemplate> decode_op_template(std::span<const std::byte> bytes) {
  if (Status status = check_size("op template", bytes.size(), limits::kTemplateSizeBytesMax);
      !status) {
    return status;
  }
  auto body = VerifiedBody<fb::OpTemplate>::open(bytes, "op template");
  if (!body) return body.error();
  const fb::OpTemplate& table = *body->table();
  OpTemplate op;
  UnpackBudget budget(bytes.size());
  if (!unpack(table, op, budget)) {
    return invalid("op template: it unfolds into more than was sent");
  }
  if (Status status = check_op_template(op); !status) return status.with_context("op template");
  if (!has_metas(table)) return invalid("op template: a tensor has no description");
  return op;
}

}  // namespace rgpu::wire
