#include "cuda_shim/client/proc_addresses.h"

#include <algorithm>
#include <cstring>
#include <iterator>

extern "C" {
#define RGPU_EXPORT(symbol) void rgpu_entry_##symbol();
#include "cuda_shim/generated/driver_exports.inc"
#undef RGPU_EXPORT
}

namespace rgpu::cuda {
namespace {

using Entry = void (*)();

// Both tables are in the order of their names.
struct Export {
  const char* name;
  Entry entry;
};
constexpr Export kExports[] = {
#define RGPU_EXPORT(symbol) {#symbol, rgpu_entry_##symbol},
#include "cuda_shim/generated/driver_exports.inc"
#undef RGPU_EXPORT
};

struct Row {
  const char* name;
  int version;
  bool per_thread;
  Entry entry;
};
constexpr Row kRows[] = {
#define RGPU_PROC(name, version, per_thread, symbol) \
  {name, version, per_thread, rgpu_entry_##symbol},
#include "cuda_shim/generated/proc_addresses.inc"
#undef RGPU_PROC
};

struct ByName {
  template <typename T>
  bool operator()(const T& row, std::string_view name) const noexcept {
    return row.name < name;
  }
  template <typename T>
  bool operator()(std::string_view name, const T& row) const noexcept {
    return name < row.name;
  }
};

ProcAddress found(Entry entry) noexcept {
  return {ProcFound::kFound, reinterpret_cast<void*>(entry)};
}

}  // namespace

ProcAddress proc_address(std::string_view name, int version, bool per_thread) noexcept {
  const auto [first, last] = std::equal_range(std::begin(kRows), std::end(kRows), name, ByName{});
  const Row* best = nullptr;
  for (const Row* row = first; row != last; ++row) {
    if (row->version > version || (row->per_thread && !per_thread)) continue;
    const bool better = best == nullptr || (row->per_thread && !best->per_thread) ||
                        (row->per_thread == best->per_thread && row->version > best->version);
    if (better) best = row;
  }
  if (best != nullptr) return found(best->entry);
  if (first != last) return {ProcFound::kVersionTooOld, nullptr};
  const auto [exact, end] =
      std::equal_range(std::begin(kExports), std::end(kExports), name, ByName{});
  if (exact == end) return {};
  return found(exact->entry);
}

}  // namespace rgpu::cuda
