// RawBody: FlatBuffers bodies that no encoder of ours writes, and a look into those that it does.
//
// Fields go by their position in the schema's table, so that these tests also hold the bytes: a
// field that is moved or retyped in rgpu.fbs turns them red.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace rgpu::wire {

using Builder = flatbuffers::FlatBufferBuilder;
using Part = flatbuffers::Offset<void>;
using Field = std::function<void(Builder&)>;

constexpr flatbuffers::voffset_t slot(unsigned position) {
  return static_cast<flatbuffers::voffset_t>(4 + 2 * position);
}

template <typename T>
Field scalar(unsigned position, T value) {
  return [=](Builder& builder) { builder.AddElement<T>(slot(position), value); };
}

inline Field part(unsigned position, Part value) {
  return [=](Builder& builder) { builder.AddOffset(slot(position), value); };
}

inline Part table(Builder& builder, const std::vector<Field>& fields) {
  const auto start = builder.StartTable();
  for (const Field& field : fields) field(builder);
  return Part(builder.EndTable(start));
}

template <typename T>
Part vector_of(Builder& builder, const std::vector<T>& values) {
  return Part(builder.CreateVector(values).o);
}

inline Part text(Builder& builder, const std::string& value) {
  return Part(builder.CreateString(value).o);
}

inline std::vector<std::byte> finish(Builder& builder, Part root) {
  builder.Finish(root);
  const auto* start = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {start, start + builder.GetSize()};
}

// A copy of `bytes` that starts `misalignment` bytes behind an 8-byte boundary.
class PlacedBody {
 public:
  explicit PlacedBody(std::span<const std::byte> bytes, size_t misalignment = 0)
      : storage_((bytes.size() + misalignment) / 8 + 1),
        bytes_(reinterpret_cast<std::byte*>(storage_.data()) + misalignment, bytes.size()) {
    if (!bytes.empty()) std::memcpy(bytes_.data(), bytes.data(), bytes.size());
  }
  [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }

 private:
  std::vector<uint64_t> storage_;
  std::span<std::byte> bytes_;
};

// Calls `read` with `body` cut short at every length, and with every single bit of it turned.
// `read` must come back; what it says is its own affair.
template <typename Read>
void for_every_damage(std::span<const std::byte> body, const Read& read) {
  for (size_t size = 0; size < body.size(); ++size) {
    PlacedBody cut(body.first(size));
    read(cut.bytes());
  }
  PlacedBody turned(body);
  for (size_t bit = 0; bit < body.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1u << (bit % 8));
    turned.bytes()[bit / 8] ^= mask;
    read(turned.bytes());
    turned.bytes()[bit / 8] ^= mask;
  }
}

}  // namespace rgpu::wire
