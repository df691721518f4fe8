// Tables: what the codecs of this folder share about FlatBuffers. For wire/*.cc alone.
//
// Threading: pure functions and plain values.
// Lifetime:  VerifiedBody borrows the bytes it was made from when they are aligned, and copies them
//            when they are not; the table lives as long as the VerifiedBody.
// Errors:    kInvalidArgument for what does not verify or breaks a limit.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/limits.h"
#include "wire/op_template.h"
#include "wire/status.h"

namespace rgpu::fb {
struct TensorMeta;
struct Arg;
}  // namespace rgpu::fb

namespace rgpu::wire {

[[nodiscard]] inline Status invalid(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}

[[nodiscard]] inline flatbuffers::Verifier make_verifier(std::span<const std::byte> bytes) {
  return flatbuffers::Verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                               limits::kVerifierDepthMax, limits::kVerifierTablesMax);
}

// The root table of a body, once it has been verified.
template <typename Table>
class VerifiedBody {
 public:
  [[nodiscard]] static Result<VerifiedBody> open(std::span<const std::byte> bytes,
                                                 const char* name) {
    if (bytes.size() > limits::kBodySizeBytesMax) {
      return invalid(std::string(name) + ": the body is over " +
                     std::to_string(limits::kBodySizeBytesMax) + " bytes");
    }
    VerifiedBody body;
    const void* start = bytes.data();
    if (reinterpret_cast<uintptr_t>(start) % alignof(uint64_t) != 0) {
      body.copy_ = std::make_unique<uint64_t[]>(bytes.size() / sizeof(uint64_t) + 1);
      std::memcpy(body.copy_.get(), start, bytes.size());
      start = body.copy_.get();
    }
    auto verifier = make_verifier({static_cast<const std::byte*>(start), bytes.size()});
    if (bytes.empty() || !verifier.VerifyBuffer<Table>(nullptr)) {
      return invalid(std::string(name) + ": the body does not verify");
    }
    body.table_ = flatbuffers::GetRoot<Table>(start);
    return body;
  }

  [[nodiscard]] const Table* table() const { return table_; }

 private:
  std::unique_ptr<uint64_t[]> copy_;
  const Table* table_ = nullptr;
};

// Parts of a FlatBuffers body may be shared, so that a small body could unfold into a large value.
// No correct encoder shares, so what is unpacked may not exceed what was sent.
class UnpackBudget {
 public:
  explicit UnpackBudget(size_t size_bytes) : left_(size_bytes) {}
  [[nodiscard]] bool take(size_t size_bytes) {
    if (size_bytes > left_) return false;
    left_ -= size_bytes;
    return true;
  }

 private:
  size_t left_;
};

template <typename T>
[[nodiscard]] bool unpack(const flatbuffers::Vector<T>* source, std::vector<T>& target,
                          UnpackBudget& budget) {
  target.clear();
  if (source == nullptr || source->size() == 0) return true;
  const size_t size_bytes = size_t{source->size()} * sizeof(T);
  if (!budget.take(size_bytes)) return false;
  target.resize(source->size());
  std::memcpy(target.data(), source->Data(), size_bytes);  // The source may be unaligned.
  return true;
}

[[nodiscard]] inline bool unpack(const flatbuffers::String* source, std::string& target,
                                 UnpackBudget& budget) {
  target.clear();
  if (source == nullptr) return true;
  if (!budget.take(source->size())) return false;
  target.assign(source->c_str(), source->size());
  return true;
}

template <typename T>
[[nodiscard]] flatbuffers::Offset<flatbuffers::Vector<T>> pack(
    flatbuffers::FlatBufferBuilder& builder, const std::vector<T>& source) {
  return source.empty() ? 0 : builder.CreateVector(source);
}

[[nodiscard]] inline flatbuffers::Offset<flatbuffers::String> pack(
    flatbuffers::FlatBufferBuilder& builder, std::string_view source) {
  return source.empty() ? 0 : builder.CreateString(source.data(), source.size());
}

[[nodiscard]] inline std::vector<std::byte> finished_bytes(
    const flatbuffers::FlatBufferBuilder& builder) {
  const auto* start = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {start, start + builder.GetSize()};
}

// In op_template.cc. The pack functions write whatever they get, the unpack functions check that it
// fits the budget, and the check functions hold it against limits.h.
[[nodiscard]] flatbuffers::Offset<fb::TensorMeta> pack(flatbuffers::FlatBufferBuilder& builder,
                                                       const TensorMeta& meta);
[[nodiscard]] flatbuffers::Offset<fb::Arg> pack(flatbuffers::FlatBufferBuilder& builder,
                                                const Arg& arg);
[[nodiscard]] bool unpack(const fb::TensorMeta& table, TensorMeta& meta, UnpackBudget& budget);
[[nodiscard]] bool unpack(const fb::Arg& table, Arg& arg, UnpackBudget& budget);
[[nodiscard]] Status check_meta(const TensorMeta& meta);
[[nodiscard]] Status check_arg(const Arg& arg, uint32_t depth);
[[nodiscard]] Status check_op_name(const std::string& name, const std::string& overload);
// float64, float32, float16 or bfloat16.
[[nodiscard]] Status check_default_dtype(int8_t dtype);
// "what: longer than limit bytes", or ok.
[[nodiscard]] Status check_size(const char* what, size_t size_bytes, size_t size_bytes_max);

}  // namespace rgpu::wire
