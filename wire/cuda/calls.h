// Calls: the records of a CUDA session, those that wire/batch.h's commands do not cover.
//
// A session whose Hello asks for CUDA has no op templates: record number kFirstTemplate + Call is a
// call. It has no handles; its immediates are CallHeader, a struct below, and `tail_size_bytes`
// bytes that the struct's comment explains. All integers are little-endian.
//
// The commands of wire/batch.h mean the following here. A handle is a device address, or, below
// kNumberMax, a number that the client chose for an event or for a buffer of bytes on its way.
//   kAllocate, kFree   device memory at this very address; freeing an event or a buffer as well
//   kUpload            to device memory in the order of the stream; or into a new buffer
//   kFetch             from device memory, in the order of the stream
//   kSync, kSyncStream when all before it is done; kSync for all streams of all devices
//   kStream, kRecordEvent, kWaitEvent, kQueryEvent   as they say
// Every reply's first value is an Int, the CUresult; its second a String that says more when that
// is not 0, or ""; further Strings hold what kernels have printed meanwhile. Then come the results.
//
// Ids of calls are fixed for ever: only ever append.
#pragma once

#include <cstdint>
#include <type_traits>

#include "wire/batch.h"

namespace rgpu::wire::cuda {

// Events and buffers have numbers below this, device addresses lie above.
inline constexpr uint64_t kNumberMax = uint64_t{1} << 32;

// Each device has an equal part of the address range, in order. In it the client allocates up to
// here; what follows is the device's own (variables of modules).
[[nodiscard]] constexpr uint64_t device_part_size_bytes(uint64_t range_size_bytes,
                                                        uint32_t device_count) noexcept {
  constexpr uint64_t kGranularity = uint64_t{1} << 30;
  return range_size_bytes / device_count / kGranularity * kGranularity;
}
[[nodiscard]] constexpr uint64_t client_part_size_bytes(uint64_t device_part_size_bytes) noexcept {
  return device_part_size_bytes / 8 * 7;
}

// Whether a context that had this CUresult is of no use any more, as CUDA has it.
[[nodiscard]] constexpr bool is_sticky(int code) noexcept {
  switch (code) {
    case 700:  // Illegal address,
    case 702:  // launch timeout,
    case 710:  // assert,
    case 714:  // hardware stack error,
    case 715:  // illegal instruction,
    case 716:  // misaligned address,
    case 717:  // invalid address space,
    case 718:  // invalid program counter,
    case 719:  // launch failed,
    case 999:  // unknown.
      return true;
    default:
      return false;
  }
}

enum class Call : uint32_t {
  kLaunch = 0,              // Launch; tail: the parameters, as the kernel's layout has them
  kLoadModule = 1,          // LoadModule
  kUnloadModule = 2,        // ModuleId
  kGetFunction = 3,         // GetFunction; tail: the kernel's name
  kGetGlobal = 4,           // GetGlobal; tail: the variable's name. Results: Int address, Int size
  kFunctionAttributes = 5,  // FunctionAttributes. Results: an Int for each CUfunction_attribute
  kSetFunctionAttribute = 6,  // SetFunctionAttribute
  kMemset = 7,                // Memset
  kCopy = 8,                  // Copy, from device memory to device memory
  kScatter = 9,               // Scatter: a buffer's bytes, packed, to device memory
  kGather = 10,               // Gather: from device memory, packed; the reply's payload
  kCreateStream = 11,         // CreateStream, of the current stream's number
  kDestroyStream = 12,        // Empty, of the current stream's number; what is queued is still done
  kHostGate = 13,             // HostGate: replies when the stream is there; which then stands still
  kOpenGate = 14,             // OpenGate: lets it go on. Takes effect at once
  kMemoryInfo = 15,           // MemoryInfo. Results: Int free, Int total
  kSetLimit = 16,             // SetLimit
  kResetDevice = 17,          // DeviceId: all of the session's memory there is freed
  kEnd,
};
[[nodiscard]] constexpr uint32_t number(Call call) noexcept {
  return kFirstTemplate + static_cast<uint32_t>(call);
}

struct CallHeader {
  uint32_t size_bytes = 0;  // Of all that follows.
};

struct Launch {
  static constexpr uint32_t kCooperative = 1;
  uint32_t function = 0;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_size_bytes = 0;
  uint32_t flags = 0;
};
struct LoadModule {  // From a buffer, which is freed.
  uint64_t buffer = 0;
  uint32_t module = 0;
  uint32_t device = 0;
};
struct ModuleId {
  uint32_t module = 0;
};
struct GetFunction {
  uint32_t function = 0;  // Chosen by the client.
  uint32_t module = 0;
};
struct GetGlobal {
  uint64_t request = 0;
  uint32_t module = 0;
  uint32_t reserved = 0;
};
struct FunctionAttributes {
  uint64_t request = 0;
  uint32_t function = 0;
  uint32_t reserved = 0;
};
struct SetFunctionAttribute {
  uint32_t function = 0;
  int32_t attribute = 0;
  int32_t value = 0;
};
// A box of bytes in memory: `depth` slices of `height` rows of `width_bytes`.
struct Box {
  uint64_t address = 0;  // Of its first byte.
  uint64_t row_pitch_bytes = 0;
  uint64_t slice_pitch_bytes = 0;
};
struct Extent {
  uint64_t width_bytes = 0;
  uint64_t height = 1;
  uint64_t depth = 1;
};
struct Memset {
  Box target;
  Extent extent;
  uint32_t value = 0;
  uint32_t value_size_bytes = 1;  // 1, 2 or 4; divides the width and the address.
};
struct Copy {
  Box source;
  Box target;
  Extent extent;
};
struct Scatter {  // The buffer is freed.
  uint64_t buffer = 0;
  Box target;
  Extent extent;
};
struct Gather {
  uint64_t request = 0;
  Box source;
  Extent extent;
};
struct CreateStream {
  static constexpr uint32_t kNonBlocking = 1;  // It does not wait for the legacy default stream.
  uint32_t flags = 0;
  int32_t priority = 0;
};
struct HostGate {
  uint64_t request = 0;
  uint64_t gate = 0;  // Chosen by the client, never twice.
};
struct OpenGate {
  uint64_t gate = 0;
};
struct MemoryInfo {
  uint64_t request = 0;
  uint32_t device = 0;
  uint32_t reserved = 0;
};
struct SetLimit {
  uint64_t value = 0;
  uint32_t device = 0;
  int32_t limit = 0;  // CUlimit
};
struct DeviceId {
  uint32_t device = 0;
};

static_assert(std::is_trivially_copyable_v<Launch> && sizeof(Launch) == 36);
static_assert(std::is_trivially_copyable_v<Memset> && sizeof(Memset) == 56);
static_assert(std::is_trivially_copyable_v<Copy> && sizeof(Copy) == 72);
static_assert(sizeof(Scatter) == 56 && sizeof(Gather) == 56);

}  // namespace rgpu::wire::cuda
