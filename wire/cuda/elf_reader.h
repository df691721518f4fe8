// ElfReader: the sections and symbols of a cubin (ELF, 64 bits, little-endian), every access
// checked.
//
// Threading: any thread once open. Lifetime: refers to the bytes. Errors: kInvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "wire/cuda/image.h"
#include "wire/status.h"

namespace rgpu::cuda {

struct ElfSection {
  std::string_view name;
  uint32_t type = 0;
  uint32_t link = 0;
  uint64_t size_bytes = 0;
  std::span<const std::byte> bytes;  // Empty where it takes no room in the file.
};

struct ElfSymbol {
  std::string_view name;
  uint8_t type = 0;   // The low four bits of st_info.
  uint8_t other = 0;  // st_other.
  uint16_t section = 0;
  uint64_t size_bytes = 0;
};

class ElfReader {
 public:
  static constexpr uint8_t kObject = 1;
  static constexpr uint8_t kFunction = 2;

  [[nodiscard]] static Result<ElfReader> open(std::span<const std::byte> bytes);

  [[nodiscard]] Arch arch() const noexcept { return arch_; }
  [[nodiscard]] const std::vector<ElfSection>& sections() const noexcept { return sections_; }
  // Those of every symbol table.
  [[nodiscard]] Result<std::vector<ElfSymbol>> symbols() const;

 private:
  [[nodiscard]] Status read_sections(uint64_t at, uint16_t count, uint16_t names);
  [[nodiscard]] Status read_symbols(const ElfSection& table, uint64_t& name_bytes_left,
                                    std::vector<ElfSymbol>& out) const;

  std::span<const std::byte> bytes_;
  Arch arch_;
  std::vector<ElfSection> sections_;
};

// Where the last header, section or segment ends. Reads the tables that the header points to, so
// the pointer must be to a whole cubin.
[[nodiscard]] Result<uint64_t> elf_size_bytes(const std::byte* at);

}  // namespace rgpu::cuda
