#include "server/cuda/emulated/ptx_context.h"

#include <cstdlib>

#include "server/cuda/emulated/ptx_run.h"

namespace rgpu::server::ptx {

namespace generic {
extern const HandlerTable kHandlers;
}
#if defined(RGPU_PTX_AVX2)
namespace avx2 {
extern const HandlerTable kHandlers;
}
#endif

const HandlerTable& handlers() {
#if defined(RGPU_PTX_AVX2)
  // RGPU_PTX_HANDLERS=generic: as on a processor without it, for tests.
  static const char* const wanted = std::getenv("RGPU_PTX_HANDLERS");
  static const bool generic_wanted = wanted != nullptr && std::string_view(wanted) == "generic";
  static const bool fast = !generic_wanted && __builtin_cpu_supports("avx2") &&
                           __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (fast) return avx2::kHandlers;
#endif
  return generic::kHandlers;
}

namespace {

struct Window {
  std::byte* base = nullptr;
  uint64_t size = 0;
};

std::byte* within(Context& context, const Window& window, uint64_t offset, uint32_t size,
                  uint32_t lane, const char* what) {
  if (offset < window.size && window.size - offset >= size) return window.base + offset;
  context.fail(FaultCode::kIllegalAddress, what, lane, offset);
  return nullptr;
}

std::byte* in_global(Context& context, uint64_t address, uint32_t size, uint32_t lane,
                     uint32_t site) {
  Memory::Interval& cached = (*context.intervals)[site];
  if (address < cached.begin || address >= cached.end || cached.end - address < size) {
    const Memory::Interval found = context.memory->find(address);
    if (address < found.begin || address >= found.end || found.end - address < size) {
      context.fail(FaultCode::kIllegalAddress, "memory access out of bounds", lane, address);
      return nullptr;
    }
    cached = found;
  }
  return reinterpret_cast<std::byte*>(address);
}

}  // namespace

std::byte* resolve_address(Context& context, Space space, uint64_t address, uint32_t size,
                           uint32_t alignment, uint32_t lane, uint32_t site) {
  if ((address & (alignment - 1)) != 0) {
    context.fail(FaultCode::kMisalignedAddress, "misaligned address", lane, address);
    return nullptr;
  }
  const uint64_t window = address & kWindowMask;
  if (window != 0 && (space == Space::kGeneric || space == Space::kParam)) {
    address &= ~kWindowMask;
    space = window == kSharedWindow      ? Space::kShared
            : window == kLocalWindow     ? Space::kLocal
            : window == kParameterWindow ? Space::kParam
                                         : Space::kGlobal;
    if (space == Space::kGlobal) address |= window;
  }
  switch (space) {
    case Space::kShared:
      return within(context, {context.shared, context.shared_size}, address, size, lane,
                    "shared memory access out of bounds");
    case Space::kLocal:
      return within(context, {context.local + lane * context.local_stride, context.local_stride},
                    address, size, lane, "local memory access out of bounds");
    case Space::kParam:
      // Parameters are read-only by convention; a store changes the block's own copy.
      return within(context, {const_cast<std::byte*>(context.parameters), context.parameter_size},
                    address, size, lane, "parameter access out of bounds");
    default:
      return in_global(context, address, size, lane, site);
  }
}

}  // namespace rgpu::server::ptx
