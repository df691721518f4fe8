// InitialValues: numbers that storages of one element were filled with before the server heard of
// them. Such a fill is no record: the number goes with the storage's first use, or with the record
// of a graph call (graphs/stored_graph.h), and with nothing if it is never used. The gradient of a
// loss by itself, a one, is such a storage in every step.
//
// Threading: any thread; a mutex around the table, asked only while it holds something.
// Lifetime:  an entry goes when its storage is announced or freed; at most kEntriesMax.
// Errors:    none.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace rgpu::backend {

class InitialValues {
 public:
  static constexpr size_t kEntriesMax = 4096;
  static constexpr size_t kSizeBytesMax = 8;
  using Bytes = std::array<std::byte, kSizeBytesMax>;

  [[nodiscard]] static InitialValues& get() noexcept;

  // Whether the tensor is all of a storage that no server knows, and now has this value.
  [[nodiscard]] bool fill(const at::Tensor& tensor, const at::Scalar& value);
  // The same number as a CPU tensor; undefined if there is none.
  [[nodiscard]] at::Tensor find(const at::Tensor& tensor);
  [[nodiscard]] bool holds(const c10::StorageImpl* storage) noexcept;
  // What the storage begins with; forgets it.
  [[nodiscard]] std::optional<Bytes> take(const c10::StorageImpl* storage) noexcept;
  void erase(uint64_t key) noexcept;

 private:
  InitialValues() = default;
  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::unordered_map<uint64_t, Bytes> entries_;  // By key_of().
};

}  // namespace rgpu::backend
