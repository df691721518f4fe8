// OpMemory: what was learnt about each distinct call: its results' geometry and its template.
//
// Threading: the caller holds an IssueLock. Entries stay where they are until forget().
// Lifetime:  bounded by limits::kTemplatesMax entries; when full, everything is forgotten on both
//            sides at once (Command::kForgetTemplates) and learnt again.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/typeid.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "torch_backend/ops/op_info.h"
#include "wire/op_template.h"

namespace rgpu::backend {

// A tensor to make: strided, at offset 0 of a storage of its own.
struct TensorPlan {
  caffe2::TypeMeta dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  size_t size_bytes = 0;
  bool defined = true;  // false: an undefined tensor.
  bool contiguous = true;
  bool knowable = false;  // HostValues takes it.
};

// A sparse tensor to make: its last components are `TensorPlan`s, those before are an argument's.
struct SparsePlan {
  std::vector<int64_t> form;  // form_of().
  std::vector<int64_t> sizes;
  uint32_t argument = 0;  // Whose indices it has; unused where all components are new.
};

struct ReturnPlan {
  // kSparse and kAnyLayout: of a sparse call; of the latter the reply tells what it is.
  enum class Kind : uint8_t { kArgument, kTensor, kTensorList, kConstant, kSparse, kAnyLayout };
  Kind kind = Kind::kTensor;
  uint32_t index = 0;  // The argument, or the first TensorPlan.
  uint32_t count = 1;  // TensorPlans. Of a list that `replies` the most; the reply tells how many.
  c10::IValue constant;
  std::shared_ptr<const SparsePlan> sparse;  // Of kSparse.
};

// An out= argument that the call resizes.
struct ResizePlan {
  uint32_t argument = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

struct OpEntry {
  uint64_t hash = 0;
  std::vector<uint64_t> key;
  const OpInfo* op = nullptr;
  std::vector<TensorPlan> tensors;
  std::vector<ReturnPlan> returns;
  std::vector<ResizePlan> resizes;  // Not empty: resize, then look the call up again.
  c10::DeviceIndex device = 0;      // Where it runs, and its results are.
  uint32_t new_handle_count = 0;
  int64_t random_reserve = 0;  // Elements of the largest result: what a random op draws at most.
  bool draws_exactly = false;  // `random_reserve` is what it draws, whatever its arguments.
  bool out_unknown = false;    // An out= variant whose sizes are unknown: see out_variant.h.
  bool replies = false;        // Geometry or values come from the server, each time.
  wire::OpTemplate description;
  std::vector<std::byte> encoded;  // The description, for the wire.
  uint32_t number = 0;             // 0: not defined in the session of `generation`.
  uint32_t generation = 0;
};

class OpMemory {
 public:
  OpMemory();
  [[nodiscard]] OpEntry* find(std::span<const uint64_t> key, uint64_t hash) const noexcept;
  // The entry now in the table: the given one, or one that another thread was first to insert.
  OpEntry* insert(std::unique_ptr<OpEntry> entry);
  [[nodiscard]] size_t size() const noexcept { return entries_.size(); }
  // All entries go; entries still in use by the caller must not be touched afterwards.
  void forget();

 private:
  void grow();
  std::vector<OpEntry*> slots_;  // Open addressing, a power of two.
  std::vector<std::unique_ptr<OpEntry>> entries_;
};

}  // namespace rgpu::backend
