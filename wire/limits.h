// Limits: the largest of everything that may come from the network.
//
// What breaks one ends that session with kInvalidArgument and touches no other. docs/limits.md
// says what a user sees. Both sides hold to the same numbers, so a correct peer never meets them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::limits {

inline constexpr uint32_t kBodySizeBytesMax = 16u << 20;             // One FlatBuffers body.
inline constexpr uint64_t kPayloadSizeBytesMax = uint64_t{4} << 30;  // All segments of one frame.
inline constexpr uint32_t kSegmentsMax = 4096;     // Payload segments of one frame.
inline constexpr uint32_t kRecordsMax = 1u << 20;  // Records of one batch.
inline constexpr uint32_t kHandlesPerRecordMax = 1u << 16;
inline constexpr uint32_t kImmediatesSizeBytesMax = 1u << 20;  // Of one record.
inline constexpr uint32_t kTemplatesMax = 1u << 14;            // Live at once in a session.
inline constexpr uint32_t kTemplateSizeBytesMax = 1u << 20;
inline constexpr uint32_t kArgDepthMax = 3;  // Lists in lists.
inline constexpr uint32_t kDimensionsMax = 64;
inline constexpr uint32_t kNameSizeBytesMax = 256;
inline constexpr uint32_t kStringSizeBytesMax = 1u << 16;
inline constexpr uint32_t kDevicesMax = 128;  // c10 counts them in an int8_t.
inline constexpr uint32_t kStreamsPerDeviceMax = 64;
inline constexpr uint32_t kStreamsMax = kDevicesMax * kStreamsPerDeviceMax;  // wire/stream.h
inline constexpr uint32_t kTokenProofSizeBytesMax = 64;
inline constexpr uint32_t kSessionIdSizeBytes = 16;  // Exactly, or none.
inline constexpr uint64_t kLiveHandlesMax = uint64_t{1} << 26;
inline constexpr uint64_t kHandleMax = (uint64_t{1} << 48) - 1;  // Handles are 1 … this.
inline constexpr uint64_t kStorageSizeBytesMax = uint64_t{1} << 46;
inline constexpr uint32_t kGraphSizeBytesMax = 16u << 20;
inline constexpr uint32_t kGraphsMax = 4096;  // Of a session, at once.
inline constexpr uint32_t kGraphNodesMax = 1u << 16;
inline constexpr uint32_t kGraphValuesMax = 1u << 20;
inline constexpr uint32_t kCudaAddressBasesMax = 64;
inline constexpr uint32_t kCudaAttributesMax = 1024;  // Of a device.
inline constexpr uint32_t kCudaUuidSizeBytes = 16;
inline constexpr uint32_t kVerifierDepthMax = 16;
inline constexpr uint32_t kVerifierTablesMax = 1u << 18;

}  // namespace rgpu::limits
