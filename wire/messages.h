// Messages: the bodies of every frame that is not a batch, as hand-written values.
//
// Threading: plain values. Errors: decoders return kInvalidArgument for what does not verify or
// breaks a limit of limits.h. Bodies given to a decoder need no alignment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wire/op_template.h"
#include "wire/status.h"

namespace rgpu::wire {

// What a client of the CUDA shim asks for: device addresses lie in one range that is unused in both
// processes.
struct CudaHello {
  std::vector<uint64_t> address_bases;  // Where that range may begin.
  uint64_t address_size_bytes = 0;
  bool operator==(const CudaHello&) const = default;
};

struct CudaDevice {
  std::string name;
  std::vector<std::byte> uuid;  // 16 bytes.
  uint64_t memory_size_bytes = 0;
  std::vector<int32_t> attributes;  // By CUdevice_attribute.
  bool operator==(const CudaDevice&) const = default;
};

struct CudaInfo {
  int32_t driver_version = 0;  // 13000 is 13.0.
  bool emulated = false;
  uint64_t address_base = 0;  // One of the Hello's.
  uint64_t address_size_bytes = 0;
  std::vector<CudaDevice> devices = {};
  bool operator==(const CudaInfo&) const = default;
};

struct Hello {
  uint16_t protocol_version = 0;
  uint64_t capabilities = 0;              // Bits the client understands; none is defined yet.
  std::string client_version;             // rgpu's.
  std::string torch_version;              // "2.13.0+cpu"; empty for a client without PyTorch.
  std::vector<std::byte> token_proof;     // Empty: no token. At most 64 bytes.
  std::vector<std::byte> resume_session;  // Empty: a new session. Otherwise a session id, 16 bytes.
  uint64_t batches_sent = 0;              // When resuming: the last batch this client has sent.
  std::optional<CudaHello> cuda = {};  // A session of CUDA calls (wire/cuda/calls.h), not of ops.
};

struct DeviceInfo {
  std::string name;  // "cpu", "NVIDIA H200" …
  uint64_t memory_size_bytes = 0;
};

struct HelloReply {
  Code code = Code::kOk;  // Not kOk: refused; `message` says why, then the server closes.
  std::string message;
  uint16_t protocol_version = 0;
  uint64_t capabilities = 0;
  std::string server_version;
  std::string torch_version;
  std::vector<std::byte> session_id;  // 16 bytes.
  uint64_t batches_applied = 0;       // When resuming: the last batch this server has applied.
  std::string device_type;            // "cpu", "cuda"
  std::vector<DeviceInfo> devices;    // One per device index.
  std::optional<CudaInfo> cuda = {};  // When the Hello asked for CUDA.
};

// Which exception PyTorch on the CPU would raise.
enum class ErrorType : uint8_t {
  kRuntimeError = 0,
  kIndexError = 1,
  kValueError = 2,
  kTypeError = 3,
  kNotImplementedError = 4,
  kLinAlgError = 5,
  kOutOfMemoryError = 6,
};

struct RemoteError {
  Code code = Code::kDevice;
  ErrorType type = ErrorType::kRuntimeError;
  std::string message;    // What the op said.
  std::string op;         // "aten::embedding"
  std::string arguments;  // "float32[3, 3], int64[1]"
  uint32_t location = 0;  // The record's location: the client knows the program line.
};

struct Reply {
  uint64_t request = 0;
  bool failed = false;
  RemoteError error;                // When failed.
  std::vector<TensorMeta> metas;    // Of kUnknown outputs, in order.
  std::vector<Arg> values;          // Non-tensor results, in order: numbers, kBool, kString.
  uint64_t payload_size_bytes = 0;  // One segment follows the body when not 0.
  uint64_t server_busy_ns = 0;      // Time the session's executors have worked so far, and
  uint64_t server_idle_ns = 0;      // time they waited for records, since its first batch.
  std::vector<Arg> results;         // Of kAnyLayout outputs, in order: kNone, kTensor or kSparse.
};

struct Goodbye {
  Code code = Code::kOk;  // kOk: the peer is done. Otherwise why the session ends.
  std::string message;
};

[[nodiscard]] std::vector<std::byte> encode(const Hello& message);
[[nodiscard]] std::vector<std::byte> encode(const HelloReply& message);
[[nodiscard]] std::vector<std::byte> encode(const Reply& message);
[[nodiscard]] std::vector<std::byte> encode(const Goodbye& message);
[[nodiscard]] Result<Hello> decode_hello(std::span<const std::byte> body);
[[nodiscard]] Result<HelloReply> decode_hello_reply(std::span<const std::byte> body);
[[nodiscard]] Result<Reply> decode_reply(std::span<const std::byte> body);
[[nodiscard]] Result<Goodbye> decode_goodbye(std::span<const std::byte> body);

}  // namespace rgpu::wire
