#include "tests/server/batch_builder.h"

#include <utility>

namespace rgpu::server::testing {

using wire::Arg;
using wire::ArgKind;

wire::TensorMeta meta(std::vector<int64_t> sizes, int8_t dtype) {
  wire::TensorMeta meta;
  meta.dtype = dtype;
  meta.strides.resize(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    meta.strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  meta.sizes = std::move(sizes);
  return meta;
}

Arg tensor_arg(std::vector<int64_t> sizes, int8_t dtype, uint8_t flags) {
  Arg arg;
  arg.kind = ArgKind::kTensor;
  arg.tensor = meta(std::move(sizes), dtype);
  arg.tensor.flags = flags;
  return arg;
}

Arg list_arg(std::vector<Arg> items) {
  Arg arg;
  arg.kind = ArgKind::kTensorList;
  arg.items = std::move(items);
  return arg;
}

Arg int_arg(int64_t value) {
  Arg arg;
  arg.kind = ArgKind::kInt;
  arg.integer = value;
  return arg;
}

Arg bool_arg(bool value) {
  Arg arg;
  arg.kind = ArgKind::kBool;
  arg.integer = value ? 1 : 0;
  return arg;
}

Arg int_list_arg(std::vector<int64_t> values) {
  Arg arg;
  arg.kind = ArgKind::kIntList;
  arg.integers = std::move(values);
  return arg;
}

Arg scalar_int_arg() {
  Arg arg;
  arg.kind = ArgKind::kScalarInt;
  return arg;
}

Arg scalar_double_arg() {
  Arg arg;
  arg.kind = ArgKind::kScalarDouble;
  return arg;
}

Arg none_arg() { return {}; }

wire::Output new_output(std::vector<int64_t> sizes, int8_t dtype) {
  return {wire::OutputKind::kNew, meta(std::move(sizes), dtype)};
}

wire::Output output_of(wire::OutputKind kind) { return {kind, {}}; }

wire::OpTemplate op(std::string name, std::string overload, std::vector<Arg> args,
                    std::vector<wire::Output> outputs) {
  wire::OpTemplate op;
  op.name = std::move(name);
  op.overload = std::move(overload);
  op.args = std::move(args);
  op.outputs = std::move(outputs);
  return op;
}

uint32_t BatchBuilder::define(const wire::OpTemplate& op) {
  encoder_.add_template(wire::encode_op_template(op));
  return next_template_++;
}

BatchBuilder& BatchBuilder::record(uint32_t number, std::initializer_list<Handle> handles,
                                   std::span<const std::byte> immediates, uint32_t location) {
  encoder_.add_record(number, location, {handles.begin(), handles.size()}, immediates);
  return *this;
}

BatchBuilder& BatchBuilder::command(wire::Command command, std::initializer_list<Handle> handles,
                                    std::span<const std::byte> immediates) {
  encoder_.add_record(static_cast<uint32_t>(command), 0, {handles.begin(), handles.size()},
                      immediates);
  if (command == wire::Command::kForgetTemplates) next_template_ = wire::kFirstTemplate;
  return *this;
}

BatchBuilder& BatchBuilder::allocate(Handle handle, uint64_t size_bytes) {
  return command(wire::Command::kAllocate, {handle}, Bytes().add(size_bytes));
}

BatchBuilder& BatchBuilder::upload_part(Handle handle, std::vector<std::byte> bytes,
                                        uint64_t storage_size_bytes, uint64_t offset_bytes) {
  const uint64_t size_bytes = bytes.size();
  command(wire::Command::kUpload, {handle},
          Bytes().add(storage_size_bytes).add(offset_bytes).add(size_bytes));
  encoder_.add_segment(size_bytes);
  segments_.push_back(std::move(bytes));
  return *this;
}

BatchBuilder& BatchBuilder::fetch(Handle handle, uint64_t request, uint64_t size_bytes,
                                  uint64_t offset_bytes) {
  return command(wire::Command::kFetch, {handle},
                 Bytes().add(request).add(offset_bytes).add(size_bytes));
}

BatchBuilder& BatchBuilder::sync(uint64_t request) {
  return command(wire::Command::kSync, {}, Bytes().add(request));
}

BatchBuilder& BatchBuilder::free(Handle handle) { return command(wire::Command::kFree, {handle}); }

BatchBuilder& BatchBuilder::stream(uint32_t stream) {
  return command(wire::Command::kStream, {}, Bytes().add(stream));
}

BatchBuilder::Built BatchBuilder::finish() {
  Built built;
  const std::span<const std::byte> body = encoder_.finish();
  built.body.assign(body.begin(), body.end());
  built.segments = std::move(segments_);
  segments_.clear();
  encoder_.clear();
  return built;
}

}  // namespace rgpu::server::testing
