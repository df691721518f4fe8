// The driver API: the linker. Pieces of PTX become one PTX text, which any device's own compiler
// takes later; a cubin passes through alone.

#include <cstring>
#include <string>
#include <vector>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/handle_table.h"
#include "cuda_shim/client/image_file.h"
#include "cuda_shim/client/jit_options.h"
#include "cuda_shim/client/modules.h"
#include "wire/cuda/fatbin.h"
#include "wire/cuda/kernel_parameters.h"
#include "wire/cuda/ptx_linker.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

constexpr size_t kLinkersMax = 1u << 12;
// So that a person who looks into the "cubin" sees what it is.
constexpr std::string_view kTag = "// PTX linked by rgpu\n";

struct Piece {
  std::string name;
  std::string text;
};

struct Linker {
  JitOptions options;
  uint32_t capability = 0;
  std::vector<Piece> pieces;
  std::vector<std::byte> cubin;
  std::string linked;  // With its NUL: programs copy the size that they are told.
};

HandleTable<Linker>& linkers() {
  static auto* const table = new HandleTable<Linker>(kLinkersMax);
  return *table;
}

CUresult find_linker(CUlinkState state, Linker*& linker) {
  linker = linkers().find(state);
  return linker == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult fail(Linker& linker, CUresult code, const std::string& why) {
  linker.options.write_errors(why);
  if (!linker.options.wants_errors()) say(why);
  return code;
}

CUresult add_ptx(Linker& linker, std::string name, std::span<const std::byte> bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  text.resize(text.find_last_not_of('\0') + 1);  // Sizes are given with the NUL and without.
  if (const auto header = header_of_ptx(text); !header) {
    return fail(linker, CUDA_ERROR_INVALID_PTX, name + ": " + header.error().message());
  }
  linker.pieces.push_back({std::move(name), std::move(text)});
  return CUDA_SUCCESS;
}

CUresult add_images(Linker& linker, const std::string& name, std::span<const std::byte> bytes) {
  const auto images = read_images(bytes);
  if (!images) {
    return fail(linker, CUDA_ERROR_INVALID_IMAGE, name + ": " + images.error().message());
  }
  if (images->size() == 1 && images->front().kind == ImageKind::kCubin) {
    const auto cubin = unpack(images->front());
    if (!cubin) {
      return fail(linker, CUDA_ERROR_INVALID_IMAGE, name + ": " + cubin.error().message());
    }
    linker.cubin = *cubin;
    return CUDA_SUCCESS;
  }
  const auto choice = choose_ptx(*images, linker.capability);
  if (!choice) {
    return fail(linker, CUDA_ERROR_NO_BINARY_FOR_GPU, name + ": " + choice.error().message());
  }
  const auto text = unpack((*images)[choice->index]);
  if (!text) return fail(linker, CUDA_ERROR_INVALID_IMAGE, name + ": " + text.error().message());
  return add_ptx(linker, name, *text);
}

CUresult add(Linker& linker, CUjitInputType type, const char* given_name,
             std::span<const std::byte> bytes) {
  const std::string name = given_name == nullptr || *given_name == '\0'
                               ? "piece " + std::to_string(linker.pieces.size() + 1)
                               : given_name;
  switch (type) {
    case CU_JIT_INPUT_PTX:
      return add_ptx(linker, name, bytes);
    case CU_JIT_INPUT_CUBIN:
    case CU_JIT_INPUT_FATBINARY:
      return add_images(linker, name, bytes);
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
    case CU_JIT_INPUT_NVVM:
      return fail(linker, CUDA_ERROR_NOT_SUPPORTED,
                  name + ": host objects, archives and NVVM cannot be linked: give PTX");
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* state) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions read;
  RGPU_TRY(read.read(count, options, values));
  Linker* const linker = linkers().create();
  if (linker == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  linker->options = read;
  linker->capability = capability_of(*calling.device);
  *state = reinterpret_cast<CUlinkState>(linker);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size_bytes,
                          const char* name, unsigned int count, CUjit_option* options,
                          void** values) noexcept {
  Linker* linker = nullptr;
  RGPU_TRY(find_linker(state, linker));
  if (data == nullptr || size_bytes == 0 || size_bytes > kImageBytesMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  JitOptions ignored;  // A piece's own are for compilers.
  RGPU_TRY(ignored.read(count, options, values));
  return add(*linker, type, name, {static_cast<const std::byte*>(data), size_bytes});
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int count, CUjit_option* options, void** values) noexcept {
  Linker* linker = nullptr;
  RGPU_TRY(find_linker(state, linker));
  JitOptions ignored;
  RGPU_TRY(ignored.read(count, options, values));
  std::vector<std::byte> bytes;
  RGPU_TRY(read_image_file(path, bytes));
  return add(*linker, type, path, bytes);
}

CUresult cuLinkComplete(CUlinkState state, void** image, size_t* size_bytes) noexcept {
  Linker* linker = nullptr;
  RGPU_TRY(find_linker(state, linker));
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!linker->cubin.empty()) {
    if (!linker->pieces.empty()) {
      return fail(*linker, CUDA_ERROR_INVALID_IMAGE, "a cubin is linked with nothing else here");
    }
    *image = linker->cubin.data();
    if (size_bytes != nullptr) *size_bytes = linker->cubin.size();
    return CUDA_SUCCESS;
  }
  std::vector<PtxPiece> pieces;
  for (const Piece& piece : linker->pieces) pieces.push_back({piece.name, piece.text});
  const auto linked = link_ptx(pieces);
  if (!linked) return fail(*linker, CUDA_ERROR_INVALID_IMAGE, linked.error().message());
  linker->linked.assign(kTag).append(*linked).push_back('\0');
  *image = linker->linked.data();
  if (size_bytes != nullptr) *size_bytes = linker->linked.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) noexcept {
  Linker* linker = nullptr;
  RGPU_TRY(find_linker(state, linker));
  linkers().destroy(linker);
  return CUDA_SUCCESS;
}
