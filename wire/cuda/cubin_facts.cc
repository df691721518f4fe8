#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "wire/cuda/elf_reader.h"
#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

constexpr std::string_view kInfo = ".nv.info.";
constexpr std::string_view kShared = ".nv.shared.";
constexpr uint8_t kEntry = 0x10;    // In a symbol's `other`.
constexpr uint8_t kManaged = 0x04;  // The same.
// From 9.0 on the section counts what the system keeps for itself at its beginning, which is no
// part of what the program may use.
constexpr uint64_t kReservedShared = 1024;
constexpr uint32_t kReservesShared = 90;

// Records of .nv.info.<kernel>: a format, an attribute, two bytes of value or of size.
constexpr size_t kRecordHeader = 4;
constexpr uint8_t kSized = 4;
constexpr uint8_t kMaxThreads = 0x05;
constexpr uint8_t kParameterBank = 0x0a;  // u32 symbol, u16 offset, u16 size of all parameters.
constexpr uint8_t kRequiredThreads = 0x10;
constexpr uint8_t kParameter = 0x17;
constexpr uint8_t kParameterLarge = 0x45;  // Of kernels with more than 4 KiB of them.

Status error_of(std::string_view kernel, const std::string& what) {
  return {Code::kInvalidArgument,
          "cubin: kernel " + std::string(kernel.substr(0, 200)) + ": " + what};
}

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

class InfoReader {
 public:
  explicit InfoReader(KernelLayout& kernel) : kernel_(kernel) {}

  Status read(std::span<const std::byte> records);

 private:
  Status take(uint8_t attribute, std::span<const std::byte> value);
  Status take_parameter(uint8_t attribute, std::span<const std::byte> value);
  Status finish();

  KernelLayout& kernel_;
  std::vector<std::optional<KernelParameter>> parameters_;
  std::optional<uint32_t> bank_size_bytes_;
};

Status InfoReader::read(std::span<const std::byte> records) {
  while (records.size() >= kRecordHeader) {
    const auto format = load<uint8_t>(records, 0);
    const auto attribute = load<uint8_t>(records, 1);
    const auto value = load<uint16_t>(records, 2);
    records = records.subspan(kRecordHeader);
    if (format != kSized) continue;
    if (value > records.size()) return error_of(kernel_.name, "a record beyond its section");
    RGPU_RETURN_IF_ERROR(take(attribute, records.first(value)));
    records = records.subspan(value);
  }
  return finish();
}

Status InfoReader::take(uint8_t attribute, std::span<const std::byte> value) {
  if (attribute == kParameter || attribute == kParameterLarge) {
    return take_parameter(attribute, value);
  }
  if (attribute == kMaxThreads || attribute == kRequiredThreads) {
    auto& block = attribute == kMaxThreads ? kernel_.block_max : kernel_.block_required;
    if (value.size() < sizeof block) return error_of(kernel_.name, "a block cut short");
    std::memcpy(block.data(), value.data(), sizeof block);
  }
  if (attribute == kParameterBank) {
    if (value.size() < 8) return error_of(kernel_.name, "its parameters' bank cut short");
    bank_size_bytes_ = load<uint16_t>(value, 6);
  }
  return {};
}

Status InfoReader::take_parameter(uint8_t attribute, std::span<const std::byte> value) {
  if (value.size() < 12) return error_of(kernel_.name, "a parameter's record cut short");
  const auto ordinal = load<uint16_t>(value, 4);
  KernelParameter parameter;
  parameter.offset_bytes = load<uint16_t>(value, 6);
  // The older record keeps the size in its last word's upper 14 bits, the newer one in 16 below.
  parameter.size_bytes =
      attribute == kParameter ? load<uint32_t>(value, 8) >> 18 : load<uint16_t>(value, 8);
  if (ordinal >= kParameterBytesMax) return error_of(kernel_.name, "too many parameters");
  if (ordinal >= parameters_.size()) parameters_.resize(ordinal + size_t{1});
  std::optional<KernelParameter>& slot = parameters_[ordinal];
  if (slot && *slot != parameter) {
    return error_of(kernel_.name, "two layouts of parameter " + std::to_string(ordinal));
  }
  slot = parameter;
  return {};
}

Status InfoReader::finish() {
  uint32_t end = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i]) {
      return error_of(kernel_.name, "nothing about parameter " + std::to_string(i));
    }
    if (parameters_[i]->offset_bytes < end) {
      return error_of(kernel_.name, "parameter " + std::to_string(i) + " overlaps the one before");
    }
    end = parameters_[i]->offset_bytes + parameters_[i]->size_bytes;
    if (end > kParameterBytesMax) return error_of(kernel_.name, "more than 32764 bytes");
    kernel_.parameters.push_back(*parameters_[i]);
  }
  if (bank_size_bytes_ && *bank_size_bytes_ != end) {
    return error_of(kernel_.name, "parameters up to byte " + std::to_string(end) +
                                      " in a bank of " + std::to_string(*bank_size_bytes_));
  }
  kernel_.parameters_size_bytes = end;
  return {};
}

bool is_kernel(const ElfSymbol& symbol) {
  return symbol.type == ElfReader::kFunction && (symbol.other & kEntry) != 0 &&
         symbol.section != 0 && !symbol.name.empty();
}

std::optional<VariableSpace> space_of(std::string_view section) {
  if (section.starts_with(".nv.global")) return VariableSpace::kGlobal;
  // Bank 3 is the program's; others are the compiler's own.
  if (section == ".nv.constant3" || section.starts_with(".nv.constant3.")) {
    return VariableSpace::kConstant;
  }
  return std::nullopt;
}

void add_variable(const ElfReader& elf, const ElfSymbol& symbol, ImageFacts& facts) {
  if (symbol.type != ElfReader::kObject || symbol.name.empty() || symbol.section == 0 ||
      symbol.section >= elf.sections().size()) {
    return;
  }
  const std::optional<VariableSpace> space = space_of(elf.sections()[symbol.section].name);
  if (!space) return;
  facts.variables.push_back(
      {std::string(symbol.name), *space, (symbol.other & kManaged) != 0, 1, symbol.size_bytes});
}

uint64_t usable_shared(const ElfSection& section, Arch arch) {
  const bool reserves = arch.capability >= kReservesShared;
  return section.size_bytes - (reserves ? std::min(section.size_bytes, kReservedShared) : 0);
}

using KernelIndex = std::unordered_map<std::string_view, size_t>;

// Sections may lie over one another; what is read of them together is bounded by the file's size.
Status read_sections(const ElfReader& elf, uint64_t bytes_left, const KernelIndex& kernels,
                     ImageFacts& facts) {
  for (const ElfSection& section : elf.sections()) {
    const bool is_info = section.name.starts_with(kInfo);
    if (!is_info && !section.name.starts_with(kShared)) continue;
    const auto found = kernels.find(section.name.substr(is_info ? kInfo.size() : kShared.size()));
    if (found == kernels.end()) continue;  // A function's.
    KernelLayout& kernel = facts.kernels[found->second];
    if (!is_info) {
      kernel.static_shared_size_bytes =
          static_cast<uint32_t>(std::min<uint64_t>(usable_shared(section, facts.arch), UINT32_MAX));
      continue;
    }
    if (section.bytes.size() > bytes_left) return error_of(kernel.name, "sections that overlap");
    bytes_left -= section.bytes.size();
    kernel.parameters.clear();
    RGPU_RETURN_IF_ERROR(InfoReader(kernel).read(section.bytes));
  }
  return {};
}

}  // namespace

Result<ImageFacts> facts_of_cubin(std::span<const std::byte> bytes) {
  Result<ElfReader> elf = ElfReader::open(bytes);
  if (!elf) return elf.error();
  Result<std::vector<ElfSymbol>> symbols = elf->symbols();
  if (!symbols) return symbols.error();
  ImageFacts facts;
  facts.arch = elf->arch();
  KernelIndex kernels;
  for (const ElfSymbol& symbol : *symbols) {
    if (kernels.size() + facts.variables.size() > kSymbolsMax) {
      return error_of(symbol.name, "the last of more than 1048576 symbols");
    }
    add_variable(*elf, symbol, facts);
    if (!is_kernel(symbol) || !kernels.emplace(symbol.name, facts.kernels.size()).second) continue;
    facts.kernels.emplace_back().name = std::string(symbol.name);
  }
  RGPU_RETURN_IF_ERROR(read_sections(*elf, bytes.size(), kernels, facts));
  return facts;
}

}  // namespace rgpu::cuda
