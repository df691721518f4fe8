// StaticRuntime: the entries of the CUDA Runtime that is linked statically into an ELF file.
//
// Threading: none.
// Lifetime:  names point into the bytes of the files given.
// Errors:    a file without one has no entries.
#pragma once

#include <cstdint>
#include <span>

#include "cuda_shim/loader/elf_file.h"

namespace rgpu::loader {

struct Entry {
  const char* name;
  uint64_t address;     // Without the load bias.
  uint32_t room_bytes;  // That can be overwritten there without touching another function.
};

class StaticRuntime {
 public:
  static constexpr uint32_t kEntriesMax = 1024;  // CUDA 13.0 has 423.

  // `exports` are the functions of our libcudart: those that a runtime's are known by.
  StaticRuntime(const ElfFile& file, const ElfFile& exports);

  [[nodiscard]] std::span<const Entry> entries() const { return {entries_, count_}; }
  // Whether a file holds one, and its CUDA version: 13, 12, 11 (or older); 0 if there is none.
  [[nodiscard]] static int version(const ElfFile& file);

 private:
  void add(const Symbol& symbol);
  void measure_room(const ElfFile& file);

  Entry entries_[kEntriesMax];
  uint32_t count_ = 0;
};

}  // namespace rgpu::loader
