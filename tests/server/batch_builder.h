// BatchBuilder: batches by hand, for tests.
//
// Threading: one thread.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "wire/batch.h"
#include "wire/op_template.h"

namespace rgpu::server::testing {

using wire::Handle;

// Immediates, one value after the other.
class Bytes {
 public:
  template <typename T>
  Bytes& add(T value) {
    const auto* start = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), start, start + sizeof value);
    return *this;
  }
  operator std::span<const std::byte>() const { return bytes_; }  // NOLINT

 private:
  std::vector<std::byte> bytes_;
};

inline constexpr int8_t kLong = 4;  // c10::ScalarType's numbers.
inline constexpr int8_t kFloat = 6;

// Contiguous.
wire::TensorMeta meta(std::vector<int64_t> sizes, int8_t dtype = kFloat);
wire::Arg tensor_arg(std::vector<int64_t> sizes, int8_t dtype = kFloat, uint8_t flags = 0);
wire::Arg list_arg(std::vector<wire::Arg> items);
wire::Arg int_arg(int64_t value);
wire::Arg bool_arg(bool value);
wire::Arg int_list_arg(std::vector<int64_t> values);
wire::Arg scalar_int_arg();  // Value in the record.
wire::Arg scalar_double_arg();
wire::Arg none_arg();
wire::Output new_output(std::vector<int64_t> sizes, int8_t dtype = kFloat);
wire::Output output_of(wire::OutputKind kind);
wire::OpTemplate op(std::string name, std::string overload, std::vector<wire::Arg> args,
                    std::vector<wire::Output> outputs);

class BatchBuilder {
 public:
  // Returns the number that records use. Numbers go on from batch to batch.
  uint32_t define(const wire::OpTemplate& op);
  BatchBuilder& record(uint32_t number, std::initializer_list<Handle> handles,
                       std::span<const std::byte> immediates = {}, uint32_t location = 7);
  BatchBuilder& command(wire::Command command, std::initializer_list<Handle> handles,
                        std::span<const std::byte> immediates = {});

  BatchBuilder& allocate(Handle handle, uint64_t size_bytes);
  template <typename T>
  BatchBuilder& upload(Handle handle, std::vector<T> values) {
    const auto* start = reinterpret_cast<const std::byte*>(values.data());
    return upload_bytes(handle, std::vector<std::byte>(start, start + values.size() * sizeof(T)));
  }
  BatchBuilder& upload_bytes(Handle handle, std::vector<std::byte> bytes) {
    const uint64_t size_bytes = bytes.size();
    return upload_part(handle, std::move(bytes), size_bytes, 0);
  }
  BatchBuilder& upload_part(Handle handle, std::vector<std::byte> bytes,
                            uint64_t storage_size_bytes, uint64_t offset_bytes);
  BatchBuilder& fetch(Handle handle, uint64_t request, uint64_t size_bytes,
                      uint64_t offset_bytes = 0);
  BatchBuilder& sync(uint64_t request);
  BatchBuilder& free(Handle handle);
  BatchBuilder& stream(uint32_t stream);

  struct Built {
    std::vector<std::byte> body;
    std::vector<std::vector<std::byte>> segments;
  };
  // And starts the next batch.
  Built finish();

 private:
  wire::BatchEncoder encoder_;
  std::vector<std::vector<std::byte>> segments_;
  uint32_t next_template_ = wire::kFirstTemplate;
};

}  // namespace rgpu::server::testing
