#include "cuda_shim/loader/static_runtime.h"

#include <algorithm>
#include <string_view>

namespace rgpu::loader {
namespace {

// The vendor aligns each function of the archive; what lies between is padding.
constexpr uint64_t kAlignment = 16;

bool looks_like_runtime(const char* name) {
  return std::strncmp(name, "cuda", 4) == 0 || std::strncmp(name, "__cuda", 6) == 0;
}

// The names that a file defines as functions, for a lookup each.
class NameSet {
 public:
  explicit NameSet(const ElfFile& file) {
    file.each_symbol([this](const Symbol& symbol) {
      if (symbol.is_function && looks_like_runtime(symbol.name)) add(symbol.name);
    });
  }
  [[nodiscard]] bool holds(const char* name) const { return *find(name) != nullptr; }

 private:
  static constexpr uint32_t kSlots = 4096;
  static constexpr uint32_t kNamesMax = kSlots / 2;

  void add(const char* name) {
    const char** slot = find(name);
    if (*slot != nullptr || count_ == kNamesMax) return;
    *slot = name;
    ++count_;
  }
  [[nodiscard]] const char** find(const char* name) const {
    uint32_t hash = 5381;
    for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    for (uint32_t i = hash % kSlots;; i = (i + 1) % kSlots) {
      if (names_[i] == nullptr || std::strcmp(names_[i], name) == 0) return &names_[i];
    }
  }

  mutable const char* names_[kSlots] = {};
  uint32_t count_ = 0;
};

}  // namespace

int StaticRuntime::version(const ElfFile& file) {
  bool registers = false;
  bool is_runtime = false;
  bool has_texture_references = false;  // Gone in 12.
  bool has_properties_v2 = false;       // Came in 12, gone in 13.
  file.each_symbol([&](const Symbol& symbol) {
    if (!symbol.is_function || !looks_like_runtime(symbol.name)) return;
    const std::string_view name = symbol.name;
    if (name == "__cudaRegisterFatBinary") registers = true;
    if (name == "cudaRuntimeGetVersion") is_runtime = true;
    if (name == "cudaBindTexture") has_texture_references = true;
    if (name == "cudaGetDeviceProperties_v2") has_properties_v2 = true;
  });
  // A program that defines a function or two of those names itself has not all of the runtime.
  if (!registers || !is_runtime) return 0;
  return has_texture_references ? 11 : has_properties_v2 ? 12 : 13;
}

StaticRuntime::StaticRuntime(const ElfFile& file, const ElfFile& exports) {
  const NameSet known(exports);
  file.each_symbol([&](const Symbol& symbol) {
    if (symbol.is_function && known.holds(symbol.name)) add(symbol);
  });
  // A runtime of another release has functions that ours has not. A program's own may have such
  // names too (nvcc makes __cudaUnregisterBinaryUtil), but they do not lie inside the archive.
  const auto [first, last] = std::minmax_element(
      entries_, entries_ + count_,
      [](const Entry& left, const Entry& right) { return left.address < right.address; });
  const uint64_t begin = count_ == 0 ? 0 : first->address;
  const uint64_t end = count_ == 0 ? 0 : last->address;
  file.each_symbol([&](const Symbol& symbol) {
    if (symbol.is_function && looks_like_runtime(symbol.name) && symbol.address >= begin &&
        symbol.address < end && !known.holds(symbol.name)) {
      add(symbol);
    }
  });
  measure_room(file);
}

void StaticRuntime::add(const Symbol& symbol) {
  // A name is in .symtab and again in .dynsym; two names of one address were folded by the linker.
  const bool seen = std::any_of(entries_, entries_ + count_, [&](const Entry& entry) {
    return entry.address == symbol.address;
  });
  if (seen || count_ == kEntriesMax) return;
  const uint64_t size_bytes = symbol.address % kAlignment == 0
                                  ? (symbol.size_bytes + kAlignment - 1) / kAlignment * kAlignment
                                  : symbol.size_bytes;
  entries_[count_++] = {symbol.name, symbol.address,
                        static_cast<uint32_t>(std::min<uint64_t>(size_bytes, kAlignment))};
}

// The padding after a short function is ours unless a symbol begins in it.
void StaticRuntime::measure_room(const ElfFile& file) {
  std::sort(entries_, entries_ + count_,
            [](const Entry& left, const Entry& right) { return left.address < right.address; });
  file.each_symbol([this](const Symbol& symbol) {
    if (!symbol.is_defined) return;
    Entry* after = std::lower_bound(
        entries_, entries_ + count_, symbol.address,
        [](const Entry& entry, uint64_t address) { return entry.address < address; });
    if (after == entries_) return;
    Entry& before = *(after - 1);
    const uint64_t distance = symbol.address - before.address;
    if (distance < before.room_bytes) before.room_bytes = static_cast<uint32_t>(distance);
  });
}

}  // namespace rgpu::loader
