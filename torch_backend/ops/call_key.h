// CallKey: everything about a call that decides its result's geometry, as a row of words; and, from
// the same walk over the arguments, what the record carries.
//
// Threading: one per thread; begin() reuses its memory, so a steady state allocates nothing.
#pragma once

#include <ATen/core/stack.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "torch_backend/ops/op_info.h"
#include "wire/batch.h"

namespace rgpu::backend {

// How an argument went into the key; the tags of wire::Arg's making.
enum class KeyTag : uint8_t {
  kNone,
  kUndefined,
  kTensor,
  kHostScalar,
  kInt,
  kDouble,
  kBool,
  kComplex,
  kString,
  kDevice,
  kList,
  kGenerator
};

class CallKey {
 public:
  // Walks the last arguments of `stack`. Throws what CUDA would raise for a tensor of another
  // device, and NotImplementedError for argument types that cannot be sent.
  void build(const OpInfo& op, const torch::jit::Stack& stack, uint64_t context_bits);

  // What else decides the result, for kernels that bring an entry of their own.
  void append_words(std::span<const int64_t> words) {
    words_.insert(words_.end(), words.begin(), words.end());
  }
  [[nodiscard]] std::span<const uint64_t> words() const { return {words_.data(), words_.size()}; }
  [[nodiscard]] uint64_t hash() const noexcept;

  // The record's input handles and immediates, in the order of wire/op_template.h. Storages that
  // the server has not heard of yet are in fresh(); the caller announces them.
  [[nodiscard]] std::span<const wire::Handle> handles() const { return handles_; }
  [[nodiscard]] std::span<const std::byte> immediates() const { return immediates_; }
  [[nodiscard]] std::span<c10::StorageImpl* const> fresh() const { return fresh_; }
  // Storages that HostValues may know.
  [[nodiscard]] std::span<c10::StorageImpl* const> knowable() const { return knowable_; }
  // What the record carries beyond the arguments: outputs, seeds, requests.
  void append_handles(wire::Handle first, uint32_t count);
  void append_u64(uint64_t value) { add_immediate(&value, sizeof(value)); }
  // The one Generator argument, or null.
  [[nodiscard]] const at::Generator* generator() const { return generator_; }
  // The largest number of elements of a tensor argument.
  [[nodiscard]] int64_t numel_max() const { return numel_max_; }

 private:
  void add_value(const c10::IValue& value, bool immediate, const OpInfo& op);
  void add_tensor(const at::Tensor& tensor, const OpInfo& op);
  void add_host_scalar(const at::Tensor& tensor, const OpInfo& op);
  void add_string(const std::string& text);
  void add_immediate(const void* bytes, size_t size_bytes);
  [[nodiscard]] uint64_t alias_index(const c10::StorageImpl* storage);

  std::vector<uint64_t> words_;
  std::vector<wire::Handle> handles_;
  std::vector<std::byte> immediates_;
  std::vector<c10::StorageImpl*> fresh_;
  std::vector<c10::StorageImpl*> knowable_;
  std::array<const c10::StorageImpl*, 8> storages_{};  // The first ones, to find aliases among.
  size_t storage_count_ = 0;
  const at::Generator* generator_ = nullptr;
  int64_t numel_max_ = 0;
};

}  // namespace rgpu::backend
