#include "wire/messages.h"

#include "rgpu_generated.h"
#include "wire/limits.h"
#include "wire/tables.h"

namespace rgpu::wire {

static_assert(static_cast<int>(fb::Code::MAX) == static_cast<int>(Code::kInternal));
static_assert(static_cast<int>(fb::ErrorType::MAX) ==
              static_cast<int>(ErrorType::kOutOfMemoryError));

namespace {

// Text for people comes from ops and from systems, so it may be of any length. It is cut, not
// refused; never within a UTF-8 character.
std::string_view cut(std::string_view text, size_t size_bytes_max) {
  if (text.size() <= size_bytes_max) return text;
  size_t end = size_bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

flatbuffers::Offset<flatbuffers::String> pack_text(flatbuffers::FlatBufferBuilder& builder,
                                                   std::string_view text) {
  return pack(builder, cut(text, limits::kStringSizeBytesMax));
}

flatbuffers::Offset<flatbuffers::String> pack_name(flatbuffers::FlatBufferBuilder& builder,
                                                   std::string_view name) {
  return pack(builder, cut(name, limits::kNameSizeBytesMax));
}

flatbuffers::Offset<flatbuffers::Vector<uint8_t>> pack_bytes(
    flatbuffers::FlatBufferBuilder& builder, std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  return builder.CreateVector(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

// These need no budget: each is read once, into one value.
std::string text_of(const flatbuffers::String* source) {
  return source == nullptr ? std::string() : source->str();
}

std::vector<std::byte> bytes_of(const flatbuffers::Vector<uint8_t>* source) {
  if (source == nullptr) return {};
  const auto* start = reinterpret_cast<const std::byte*>(source->data());
  return {start, start + source->size()};
}

Status check_text(const char* what, const flatbuffers::String* text) {
  return check_size(what, text == nullptr ? 0 : text->size(), limits::kStringSizeBytesMax);
}

Status check_name(const char* what, const flatbuffers::String* name) {
  return check_size(what, name == nullptr ? 0 : name->size(), limits::kNameSizeBytesMax);
}

Status check_code(const char* what, fb::Code code) {
  if (code <= fb::Code::MAX) return {};
  return invalid(std::string(what) + ": unknown code");
}

Status check_session_id(const char* what, const flatbuffers::Vector<uint8_t>* id) {
  if (id == nullptr || id->size() == 0 || id->size() == limits::kSessionIdSizeBytes) return {};
  return invalid(std::string(what) + ": not " + std::to_string(limits::kSessionIdSizeBytes) +
                 " bytes");
}

bool is_result(ArgKind kind) {
  return kind == ArgKind::kBool || kind == ArgKind::kInt || kind == ArgKind::kDouble ||
         kind == ArgKind::kComplex || kind == ArgKind::kString;
}

Status check_value(const Arg& value) {
  if (!is_result(value.kind))
    return invalid("reply: a value is no bool, int, double, complex or string");
  return check_arg(value, 0);
}

Status check_result(const Arg& result) {
  if (result.kind != ArgKind::kNone && result.kind != ArgKind::kTensor &&
      result.kind != ArgKind::kSparse) {
    return invalid("reply: a result is no tensor");
  }
  return check_arg(result, 0).with_context("reply");
}

flatbuffers::Offset<fb::RemoteError> pack(flatbuffers::FlatBufferBuilder& builder,
                                          const RemoteError& error) {
  const auto message = pack_text(builder, error.message);
  const auto op = pack_name(builder, error.op);
  const auto arguments = pack_text(builder, error.arguments);
  return fb::CreateRemoteError(builder, static_cast<fb::Code>(error.code),
                               static_cast<fb::ErrorType>(error.type), message, op, arguments,
                               error.location);
}

Result<RemoteError> unpack_error(const fb::RemoteError& table) {
  RGPU_RETURN_IF_ERROR(check_code("reply: error", table.code()));
  if (table.code() == fb::Code::Ok) return invalid("reply: an error with the code for none");
  if (table.type() > fb::ErrorType::MAX) return invalid("reply: unknown type of error");
  RGPU_RETURN_IF_ERROR(check_text("reply: error message", table.message()));
  RGPU_RETURN_IF_ERROR(check_name("reply: op", table.op()));
  RGPU_RETURN_IF_ERROR(check_text("reply: arguments", table.arguments()));
  return RemoteError{.code = static_cast<Code>(table.code()),
                     .type = static_cast<ErrorType>(table.type()),
                     .message = text_of(table.message()),
                     .op = text_of(table.op()),
                     .arguments = text_of(table.arguments()),
                     .location = table.location()};
}

Status unpack_results(const fb::Reply& table, Reply& reply, UnpackBudget& budget) {
  const auto too_large = [] { return invalid("reply: it unfolds into more than was sent"); };
  if (table.metas() != nullptr) {
    for (const fb::TensorMeta* meta : *table.metas()) {
      if (!unpack(*meta, reply.metas.emplace_back(), budget)) return too_large();
      RGPU_RETURN_IF_ERROR(check_meta(reply.metas.back()).with_context("reply"));
    }
  }
  if (table.values() != nullptr) {
    for (const fb::Arg* value : *table.values()) {
      if (!unpack(*value, reply.values.emplace_back(), budget)) return too_large();
      RGPU_RETURN_IF_ERROR(check_value(reply.values.back()));
    }
  }
  if (table.results() != nullptr) {
    for (const fb::Arg* result : *table.results()) {
      if (!unpack(*result, reply.results.emplace_back(), budget)) return too_large();
      RGPU_RETURN_IF_ERROR(check_result(reply.results.back()));
    }
  }
  return {};
}

Result<std::vector<DeviceInfo>> unpack_devices(const fb::HelloReply& table) {
  std::vector<DeviceInfo> devices;
  if (table.devices() == nullptr) return devices;
  if (table.devices()->size() > limits::kDevicesMax) {
    return invalid("hello reply: over " + std::to_string(limits::kDevicesMax) + " devices");
  }
  for (const fb::DeviceInfo* device : *table.devices()) {
    RGPU_RETURN_IF_ERROR(check_name("hello reply: device name", device->name()));
    devices.push_back({text_of(device->name()), device->memory_size_bytes()});
  }
  return devices;
}

flatbuffers::Offset<fb::CudaHello> pack(flatbuffers::FlatBufferBuilder& builder,
                                        const CudaHello& hello) {
  RGPU_CHECK(hello.address_bases.size() <= limits::kCudaAddressBasesMax);
  return fb::CreateCudaHello(builder, builder.CreateVector(hello.address_bases),
                             hello.address_size_bytes);
}

flatbuffers::Offset<fb::CudaInfo> pack(flatbuffers::FlatBufferBuilder& builder,
                                       const CudaInfo& info) {
  RGPU_CHECK(info.devices.size() <= limits::kDevicesMax);
  std::vector<flatbuffers::Offset<fb::CudaDevice>> devices;
  for (const CudaDevice& device : info.devices) {
    RGPU_CHECK(device.attributes.size() <= limits::kCudaAttributesMax);
    RGPU_CHECK(device.uuid.size() == limits::kCudaUuidSizeBytes);
    const auto name = pack_name(builder, device.name);
    const auto uuid = pack_bytes(builder, device.uuid);
    devices.push_back(fb::CreateCudaDevice(builder, name, uuid, device.memory_size_bytes,
                                           builder.CreateVector(device.attributes)));
  }
  return fb::CreateCudaInfo(builder, info.driver_version, info.emulated, info.address_base,
                            info.address_size_bytes, builder.CreateVector(devices));
}

template <typename Value>
std::vector<Value> values_of(const flatbuffers::Vector<Value>* source) {
  if (source == nullptr) return {};
  return {source->begin(), source->end()};
}

Result<std::optional<CudaHello>> unpack(const fb::CudaHello* table) {
  if (table == nullptr) return std::optional<CudaHello>();
  RGPU_RETURN_IF_ERROR(check_size("hello: address bases",
                                  table->address_bases() ? table->address_bases()->size() : 0,
                                  limits::kCudaAddressBasesMax));
  return std::optional(CudaHello{values_of(table->address_bases()), table->address_size_bytes()});
}

Result<CudaDevice> unpack(const fb::CudaDevice& table) {
  RGPU_RETURN_IF_ERROR(check_name("hello reply: device name", table.name()));
  if (table.uuid() == nullptr || table.uuid()->size() != limits::kCudaUuidSizeBytes) {
    return invalid("hello reply: a device's UUID is not " +
                   std::to_string(limits::kCudaUuidSizeBytes) + " bytes");
  }
  RGPU_RETURN_IF_ERROR(check_size("hello reply: device attributes",
                                  table.attributes() ? table.attributes()->size() : 0,
                                  limits::kCudaAttributesMax));
  return CudaDevice{text_of(table.name()), bytes_of(table.uuid()), table.memory_size_bytes(),
                    values_of(table.attributes())};
}

Result<std::optional<CudaInfo>> unpack(const fb::CudaInfo* table) {
  if (table == nullptr) return std::optional<CudaInfo>();
  CudaInfo info{.driver_version = table->driver_version(),
                .emulated = table->emulated(),
                .address_base = table->address_base(),
                .address_size_bytes = table->address_size_bytes()};
  if (table->devices() != nullptr) {
    RGPU_RETURN_IF_ERROR(
        check_size("hello reply: CUDA devices", table->devices()->size(), limits::kDevicesMax));
    for (const fb::CudaDevice* device : *table->devices()) {
      Result<CudaDevice> unpacked = unpack(*device);
      if (!unpacked) return unpacked.error();
      info.devices.push_back(*std::move(unpacked));
    }
  }
  return std::optional(std::move(info));
}

}  // namespace

// ---- Encoding -----------------------------------------------------------------------------------

std::vector<std::byte> encode(const Hello& message) {
  RGPU_CHECK(message.token_proof.size() <= limits::kTokenProofSizeBytesMax);
  RGPU_CHECK(message.resume_session.empty() ||
             message.resume_session.size() == limits::kSessionIdSizeBytes);
  flatbuffers::FlatBufferBuilder builder;
  const auto client_version = pack_name(builder, message.client_version);
  const auto torch_version = pack_name(builder, message.torch_version);
  const auto token_proof = pack_bytes(builder, message.token_proof);
  const auto resume_session = pack_bytes(builder, message.resume_session);
  flatbuffers::Offset<fb::CudaHello> cuda;
  if (message.cuda) cuda = pack(builder, *message.cuda);
  builder.Finish(fb::CreateHello(builder, message.protocol_version, message.capabilities,
                                 client_version, torch_version, token_proof, resume_session,
                                 message.batches_sent, cuda));
  return finished_bytes(builder);
}

std::vector<std::byte> encode(const HelloReply& message) {
  RGPU_CHECK(message.session_id.size() == limits::kSessionIdSizeBytes ||
             (message.session_id.empty() && message.code != Code::kOk));
  RGPU_CHECK(message.devices.size() <= limits::kDevicesMax);
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::DeviceInfo>> devices;
  for (const DeviceInfo& device : message.devices) {
    const auto name = pack_name(builder, device.name);
    devices.push_back(fb::CreateDeviceInfo(builder, name, device.memory_size_bytes));
  }
  const auto text = pack_text(builder, message.message);
  const auto server_version = pack_name(builder, message.server_version);
  const auto torch_version = pack_name(builder, message.torch_version);
  const auto session_id = pack_bytes(builder, message.session_id);
  const auto device_type = pack_name(builder, message.device_type);
  flatbuffers::Offset<fb::CudaInfo> cuda;
  if (message.cuda) cuda = pack(builder, *message.cuda);
  builder.Finish(fb::CreateHelloReply(
      builder, static_cast<fb::Code>(message.code), text, message.protocol_version,
      message.capabilities, server_version, torch_version, session_id, message.batches_applied,
      device_type, builder.CreateVector(devices), cuda));
  return finished_bytes(builder);
}

std::vector<std::byte> encode(const Reply& message) {
  RGPU_CHECK(!message.failed || message.error.code != Code::kOk);
  RGPU_CHECK(message.payload_size_bytes <= limits::kPayloadSizeBytesMax);
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::TensorMeta>> metas;
  for (const TensorMeta& meta : message.metas) {
    RGPU_CHECK(check_meta(meta).ok());
    metas.push_back(pack(builder, meta));
  }
  std::vector<flatbuffers::Offset<fb::Arg>> values;
  for (const Arg& value : message.values) {
    RGPU_CHECK(check_value(value).ok());
    values.push_back(pack(builder, value));
  }
  std::vector<flatbuffers::Offset<fb::Arg>> results;
  for (const Arg& result : message.results) {
    RGPU_CHECK(check_result(result).ok());
    results.push_back(pack(builder, result));
  }
  flatbuffers::Offset<fb::RemoteError> error;
  if (message.failed) error = pack(builder, message.error);
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::TensorMeta>>> metas_offset;
  if (!metas.empty()) metas_offset = builder.CreateVector(metas);
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::Arg>>> values_offset;
  if (!values.empty()) values_offset = builder.CreateVector(values);
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::Arg>>> results_offset;
  if (!results.empty()) results_offset = builder.CreateVector(results);
  builder.Finish(fb::CreateReply(builder, message.request, error, metas_offset, values_offset,
                                 message.payload_size_bytes, message.server_busy_ns,
                                 message.server_idle_ns, results_offset));
  return finished_bytes(builder);
}

std::vector<std::byte> encode(const Goodbye& message) {
  flatbuffers::FlatBufferBuilder builder;
  const auto text = pack_text(builder, message.message);
  builder.Finish(fb::CreateGoodbye(builder, static_cast<fb::Code>(message.code), text));
  return finished_bytes(builder);
}

// ---- Decoding -----------------------------------------------------------------------------------

Result<Hello> decode_hello(std::span<const std::byte> bytes) {
  auto body = VerifiedBody<fb::Hello>::open(bytes, "hello");
  if (!body) return body.error();
  const fb::Hello& table = *body->table();
  RGPU_RETURN_IF_ERROR(check_name("hello: client version", table.client_version()));
  RGPU_RETURN_IF_ERROR(check_name("hello: torch version", table.torch_version()));
  RGPU_RETURN_IF_ERROR(check_size("hello: token proof",
                                  table.token_proof() ? table.token_proof()->size() : 0,
                                  limits::kTokenProofSizeBytesMax));
  RGPU_RETURN_IF_ERROR(check_session_id("hello: session to resume", table.resume_session()));
  auto cuda = unpack(table.cuda());
  if (!cuda) return cuda.error();
  return Hello{.protocol_version = table.protocol_version(),
               .capabilities = table.capabilities(),
               .client_version = text_of(table.client_version()),
               .torch_version = text_of(table.torch_version()),
               .token_proof = bytes_of(table.token_proof()),
               .resume_session = bytes_of(table.resume_session()),
               .batches_sent = table.batches_sent(),
               .cuda = *std::move(cuda)};
}

Result<HelloReply> decode_hello_reply(std::span<const std::byte> bytes) {
  auto body = VerifiedBody<fb::HelloReply>::open(bytes, "hello reply");
  if (!body) return body.error();
  const fb::HelloReply& table = *body->table();
  RGPU_RETURN_IF_ERROR(check_code("hello reply", table.code()));
  RGPU_RETURN_IF_ERROR(check_text("hello reply: message", table.message()));
  RGPU_RETURN_IF_ERROR(check_name("hello reply: server version", table.server_version()));
  RGPU_RETURN_IF_ERROR(check_name("hello reply: torch version", table.torch_version()));
  RGPU_RETURN_IF_ERROR(check_name("hello reply: device type", table.device_type()));
  RGPU_RETURN_IF_ERROR(check_session_id("hello reply: session id", table.session_id()));
  if (table.code() == fb::Code::Ok && bytes_of(table.session_id()).empty()) {
    return invalid("hello reply: no session id");
  }
  auto devices = unpack_devices(table);
  if (!devices) return devices.error();
  auto cuda = unpack(table.cuda());
  if (!cuda) return cuda.error();
  return HelloReply{.code = static_cast<Code>(table.code()),
                    .message = text_of(table.message()),
                    .protocol_version = table.protocol_version(),
                    .capabilities = table.capabilities(),
                    .server_version = text_of(table.server_version()),
                    .torch_version = text_of(table.torch_version()),
                    .session_id = bytes_of(table.session_id()),
                    .batches_applied = table.batches_applied(),
                    .device_type = text_of(table.device_type()),
                    .devices = *std::move(devices),
                    .cuda = *std::move(cuda)};
}

Result<Reply> decode_reply(std::span<const std::byte> bytes) {
  auto body = VerifiedBody<fb::Reply>::open(bytes, "reply");
  if (!body) return body.error();
  const fb::Reply& table = *body->table();
  if (table.payload_size_bytes() > limits::kPayloadSizeBytesMax) {
    return invalid("reply: over " + std::to_string(limits::kPayloadSizeBytesMax) +
                   " payload bytes");
  }
  Reply reply;
  reply.request = table.request();
  reply.payload_size_bytes = table.payload_size_bytes();
  reply.server_busy_ns = table.server_busy_ns();
  reply.server_idle_ns = table.server_idle_ns();
  if (table.error() != nullptr) {
    auto error = unpack_error(*table.error());
    if (!error) return error.error();
    reply.failed = true;
    reply.error = *std::move(error);
  }
  UnpackBudget budget(bytes.size());
  RGPU_RETURN_IF_ERROR(unpack_results(table, reply, budget));
  return reply;
}

Result<Goodbye> decode_goodbye(std::span<const std::byte> bytes) {
  auto body = VerifiedBody<fb::Goodbye>::open(bytes, "goodbye");
  if (!body) return body.error();
  const fb::Goodbye& table = *body->table();
  RGPU_RETURN_IF_ERROR(check_code("goodbye", table.code()));
  RGPU_RETURN_IF_ERROR(check_text("goodbye: message", table.message()));
  return Goodbye{.code = static_cast<Code>(table.code()), .message = text_of(table.message())};
}

}  // namespace rgpu::wire
