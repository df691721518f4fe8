// ElfFile: the section headers and symbols of a 64-bit ELF file of this machine, read in place.
//
// Threading: none; a value over bytes that it does not own.
// Lifetime:  names point into the bytes given.
// Errors:    what is out of bounds or of another machine has no symbols; nothing is read outside.
//
// This and the rest of the folder run inside ld.so and before any constructor: no exceptions, no
// heap, no C++ run-time library.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rgpu::loader {

struct Symbol {
  const char* name;
  uint64_t address;  // Without the load bias.
  uint64_t size_bytes;
  bool is_function;  // Defined here, and code.
  bool is_defined;
};

// What lies at an address of this process: a file's plus the load bias.
inline std::byte* memory_at(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// A file mapped for reading; empty if it cannot be.
class MappedFile {
 public:
  explicit MappedFile(const char* path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

class ElfFile {
 public:
  explicit ElfFile(std::span<const std::byte> bytes);

  [[nodiscard]] bool is_valid() const { return is_valid_; }
  // Calls visit(const Symbol&) for every named symbol of .symtab and .dynsym.
  template <typename Visitor>
  void each_symbol(Visitor visit) const {
    for (uint32_t i = 0; i < section_count_; ++i) {
      const SymbolTable table = symbol_table(i);
      for (uint64_t k = 0; k < table.count; ++k) {
        Symbol symbol;
        if (read_symbol(table, k, symbol)) visit(symbol);
      }
    }
  }
  // Calls visit(const Elf64_Phdr&) for every program header.
  template <typename Visitor>
  void each_segment(Visitor visit) const {
    for (uint32_t i = 0; i < segment_count_; ++i) {
      Elf64_Phdr segment;
      std::memcpy(&segment, bytes_.data() + segments_at_ + i * sizeof segment, sizeof segment);
      visit(segment);
    }
  }
  // Whether its program headers are these bytes: that it is the file that was loaded.
  [[nodiscard]] bool has_segments(const void* headers, uint64_t count) const;

 private:
  struct SymbolTable {
    const std::byte* symbols = nullptr;
    uint64_t count = 0;
    const char* strings = nullptr;
    uint64_t strings_size_bytes = 0;
  };
  [[nodiscard]] bool holds(uint64_t offset, uint64_t size_bytes) const;
  [[nodiscard]] bool read_section(uint64_t index, Elf64_Shdr& section) const;
  [[nodiscard]] SymbolTable symbol_table(uint64_t index) const;
  [[nodiscard]] static bool read_symbol(const SymbolTable& table, uint64_t index, Symbol& symbol);

  std::span<const std::byte> bytes_;
  bool is_valid_ = false;
  uint64_t sections_at_ = 0;
  uint64_t segments_at_ = 0;
  uint32_t section_count_ = 0;
  uint32_t segment_count_ = 0;
};

}  // namespace rgpu::loader
