// kernel_parameters: what a client must know of an image to issue launches and look symbols up
// without asking anybody: each kernel's parameter layout and limits, each variable's size.
//
// Threading: plain functions; any thread.
// Lifetime:  results own their names.
// Errors:    kInvalidArgument names what is wrong, and where; the bytes are not trusted.
// Cost:      linear in the image; kernel bodies are skipped at about memory speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/cuda/image.h"
#include "wire/status.h"

namespace rgpu::cuda {

inline constexpr uint32_t kParameterBytesMax = 32764;  // CUDA's own, from 12.1 on.
inline constexpr size_t kSymbolNameBytesMax = 65536;
inline constexpr size_t kSymbolsMax = size_t{1} << 20;  // Kernels, and variables, of one image.

// Sizes are those of the source, the same in all images of a kernel. Offsets are too, up to an
// alignment of 16: beyond, a cubin counts from its constant bank's start, whose distance from the
// first parameter differs between architectures. So arguments that were laid out by one image must
// be passed on one by one where another one runs.
struct KernelParameter {
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
  friend bool operator==(const KernelParameter&, const KernelParameter&) = default;
};

struct KernelLayout {
  std::string name;
  std::vector<KernelParameter> parameters;
  uint32_t parameters_size_bytes = 0;  // To the end of the last one.
  // .maxntid and .reqntid; zeros where not given.
  std::array<uint32_t, 3> block_max{};
  std::array<uint32_t, 3> block_required{};
  // Declared in the kernel itself and, in PTX, in the functions that it may call.
  uint32_t static_shared_size_bytes = 0;
};

enum class VariableSpace : uint8_t { kGlobal, kConstant };

struct Variable {
  std::string name;
  VariableSpace space = VariableSpace::kGlobal;
  bool is_managed = false;
  uint32_t align_bytes = 1;  // 1 where a cubin does not say.
  uint64_t size_bytes = 0;
};

struct ImageFacts {
  // Of PTX: .version, 78 for 7.8. Of a cubin: 0.
  uint32_t ptx_version = 0;
  Arch arch;
  std::vector<KernelLayout> kernels;  // In the image's order; those with a body.
  std::vector<Variable> variables;    // Without .extern ones.
};

[[nodiscard]] Result<ImageFacts> facts_of_ptx(std::string_view text);
[[nodiscard]] Result<ImageFacts> facts_of_cubin(std::span<const std::byte> bytes);
// Unpacks and reads either.
[[nodiscard]] Result<ImageFacts> facts_of(const Image& image);

// Of the one image among a container's that says most about what the device will run: the PTX of
// choose_ptx(), else a cubin for its major version, else the first that can be read at all.
[[nodiscard]] Result<ImageFacts> facts_for(std::span<const Image> images,
                                           uint32_t device_capability);

// The first lines alone: .version and .target. What is not PTX is an error.
struct PtxHeader {
  uint32_t version = 0;
  Arch arch;
};
[[nodiscard]] Result<PtxHeader> header_of_ptx(std::string_view text);

}  // namespace rgpu::cuda
