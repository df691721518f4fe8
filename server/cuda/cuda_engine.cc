#include "server/cuda/cuda_engine.h"

#include <array>
#include <cstring>
#include <utility>

#include "wire/limits.h"
#include "wire/stream.h"

namespace rgpu::server::cuda {
namespace {

using wire::Command;
namespace calls = wire::cuda;
using calls::Call;

constexpr uint64_t kBuffersSizeBytesMax = uint64_t{4} << 30;  // On their way to device memory.
constexpr size_t kBuffersMax = 1u << 16;
constexpr size_t kEventsMax = 1u << 20;

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// The struct at the front of a call's bytes; `tail` is what follows it.
template <typename Struct>
Status read(std::span<const std::byte> bytes, Struct& fields, std::span<const std::byte>& tail) {
  if (bytes.size() < sizeof(Struct)) return invalid("a call is cut short");
  std::memcpy(&fields, bytes.data(), sizeof(Struct));
  tail = bytes.subspan(sizeof(Struct));
  return {};
}

// As above, for calls without a tail.
template <typename Struct>
Status read(std::span<const std::byte> bytes, Struct& fields) {
  std::span<const std::byte> tail;
  RGPU_RETURN_IF_ERROR(read(bytes, fields, tail));
  return tail.empty() ? Status() : invalid("a call is longer than it should be");
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

wire::Arg int_of(int64_t value) {
  wire::Arg arg;
  arg.kind = wire::ArgKind::kInt;
  arg.integer = value;
  return arg;
}

wire::Arg text_arg(std::string_view text) {
  wire::Arg arg;
  arg.kind = wire::ArgKind::kString;
  arg.text = text.substr(0, limits::kStringSizeBytesMax);
  return arg;
}

// Of a box; false: it overflows.
bool size_bytes_of(const calls::Extent& extent, uint64_t& size_bytes) {
  return !__builtin_mul_overflow(extent.width_bytes, extent.height, &size_bytes) &&
         !__builtin_mul_overflow(size_bytes, extent.depth, &size_bytes) &&
         size_bytes <= limits::kStorageSizeBytesMax;
}

}  // namespace

// ---- Latch --------------------------------------------------------------------------------------

void Latch::fail(const Outcome& outcome) {
  if (outcome.ok()) return;
  const std::lock_guard lock(mutex_);
  if (is_sticky(outcome.code)) {
    if (sticky_.ok()) sticky_ = outcome;
  } else if (first_.ok()) {
    first_ = outcome;
  }
}

void Latch::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (text_.size() + text.size() > kTextSizeBytesMax) return;
  text_.append(text);
}

void Latch::take(const Outcome& own, wire::Reply& reply) {
  const std::lock_guard lock(mutex_);
  const Outcome& told = !own.ok() ? own : !sticky_.ok() ? sticky_ : first_;
  reply.values.push_back(int_of(told.code));
  reply.values.push_back(text_arg(told.message));
  if (own.ok() && sticky_.ok()) first_ = {};
  if (is_sticky(own.code) && sticky_.ok()) sticky_ = own;
  for (std::string_view rest = text_; !rest.empty();) {
    const std::string_view piece = rest.substr(0, limits::kStringSizeBytesMax);
    reply.values.push_back(text_arg(piece));
    rest.remove_prefix(piece.size());
  }
  text_.clear();
}

// ---- The session --------------------------------------------------------------------------------

CudaEngine::CudaEngine(const EngineContext& context, DriverFactory make_driver)
    : context_(context), make_driver_(std::move(make_driver)) {}

CudaEngine::~CudaEngine() { driver_.reset(); }  // Its callbacks use the rest.

Status CudaEngine::greet(const wire::Hello& hello) {
  if (!hello.cuda) return invalid("not a CUDA session");
  Result<std::unique_ptr<Driver>> driver = make_driver_();
  if (!driver) return driver.error();
  driver_ = *std::move(driver);
  driver_->on_print([this](std::string_view text) { latch_.print(text); });
  Result<wire::CudaInfo> info = driver_->open(*hello.cuda);
  if (!info) return info.error();
  device_count_ = static_cast<uint32_t>(info->devices.size());
  info_.device_type = "cuda";
  info_.cuda = *std::move(info);
  return {};
}

Result<Segment> CudaEngine::allocate_segment(uint64_t size_bytes) {
  std::shared_ptr<void> memory(std::malloc(std::max<uint64_t>(size_bytes, 1)), &std::free);
  if (!memory) {
    return Status(Code::kExhausted, "the server has no memory for a payload of " +
                                        std::to_string(size_bytes) + " bytes");
  }
  auto* const bytes = static_cast<std::byte*>(memory.get());
  return Segment{{bytes, size_bytes}, std::move(memory)};
}

void CudaEngine::apply(std::unique_ptr<IncomingBatch> batch) {
  if (ended_) return;
  sequence_ = batch->sequence;
  progress_.open(sequence_);
  if (Status status = decode(*batch); !status.ok()) {
    ended_ = true;
    context_.sink.failed(status.with_context("batch " + std::to_string(sequence_)));
    return;
  }
  context_.sink.complete({}, progress_.close_one(sequence_));
}

Status CudaEngine::set_stream(uint32_t stream) {
  if (wire::device_of_stream(stream) >= device_count_) {
    return invalid("stream " + std::to_string(stream) + " is of a device that does not exist");
  }
  stream_ = stream;
  return {};
}

Status CudaEngine::decode(IncomingBatch& batch) {
  RGPU_RETURN_IF_ERROR(set_stream(batch.stream));
  next_segment_ = 0;
  wire::BatchReader& reader = batch.reader;
  if (reader.template_count() != 0) return invalid("a CUDA session has no op templates");
  for (uint32_t left = reader.record_count(); left != 0; --left) {
    const Result<wire::BatchReader::Record> record = reader.next();
    if (!record) return record.error();
    Status status = record->number < wire::kFirstTemplate
                        ? command(batch, static_cast<Command>(record->number))
                        : call(batch, static_cast<Call>(record->number - wire::kFirstTemplate));
    if (!status.ok()) {
      return status.with_context("record " + std::to_string(reader.record_count() - left));
    }
  }
  if (next_segment_ != reader.segments().size()) return invalid("a payload segment has no upload");
  return reader.finish();
}

// ---- Answers ------------------------------------------------------------------------------------

void CudaEngine::note(const Outcome& outcome) { latch_.fail(outcome); }

void CudaEngine::answer(uint64_t request, const Outcome& outcome, std::span<const int64_t> results,
                        Bytes payload) {
  OutgoingReply reply;
  reply.reply.request = request;
  latch_.take(outcome, reply.reply);
  for (const int64_t result : results) reply.reply.values.push_back(int_of(result));
  if (!outcome.ok()) {
    reply.reply.failed = true;  // Its payload does not come.
    reply.reply.error.message = outcome.message;
    payload = {};
  }
  reply.reply.payload_size_bytes = payload.bytes.size();
  reply.payload = payload.bytes;
  reply.owner = std::const_pointer_cast<void>(std::move(payload.owner));
  context_.sink.complete({&reply, 1}, progress_.applied());
}

Driver::Callback CudaEngine::answer_to(uint64_t request) {
  return [this, request](const Outcome& outcome) { answer(request, outcome); };
}

// ---- Commands -----------------------------------------------------------------------------------

Status CudaEngine::command(IncomingBatch& batch, Command command) {
  const Result<wire::RecordShape> shape = wire::command_shape(static_cast<uint32_t>(command));
  if (!shape) return shape.error();
  wire::Handle handle = 0;
  RGPU_RETURN_IF_ERROR(batch.reader.read_handles({&handle, shape->handle_count}));
  std::array<uint64_t, 3> words{};
  const Result<std::span<const std::byte>> bytes =
      batch.reader.read_immediates(shape->immediates_size_bytes);
  if (!bytes) return bytes.error();
  if (bytes->size() > sizeof words) return invalid("a command of PyTorch's in a CUDA session");
  if (!bytes->empty()) std::memcpy(words.data(), bytes->data(), bytes->size());
  switch (command) {
    case Command::kFree:
      return free(handle);
    case Command::kAllocate:
      note(driver_->allocate(handle, words[0]));
      return {};
    case Command::kUpload:
      return upload(batch, handle, words[0], words[1], words[2]);
    case Command::kFetch: {
      const uint64_t request = words[0];
      if (words[2] > limits::kPayloadSizeBytesMax) return invalid("a fetch is over the limit");
      driver_->download(stream_, {handle + words[1], words[2], words[2]}, {words[2], 1, 1},
                        [this, request](const Outcome& outcome, Bytes bytes) {
                          answer(request, outcome, {}, std::move(bytes));
                        });
      return {};
    }
    case Command::kSync:
      driver_->when_all_done(answer_to(words[0]));
      return {};
    case Command::kSyncStream:
      driver_->when_done(stream_, answer_to(words[0]));
      return {};
    case Command::kStream:
      return set_stream(static_cast<uint32_t>(words[0]));
    case Command::kRecordEvent:
      if (handle >= calls::kNumberMax) return invalid("an event's number is an address");
      if (events_.size() >= kEventsMax) return invalid("too many events");
      events_[handle] = true;
      note(driver_->record_event(stream_, handle));
      return {};
    case Command::kWaitEvent:
      if (!events_.contains(handle)) return invalid("an event that was never recorded");
      note(driver_->wait_event(stream_, handle));
      return {};
    case Command::kQueryEvent: {
      if (!events_.contains(handle)) return invalid("an event that was never recorded");
      const uint64_t request = words[0];
      driver_->when_reached(handle, [this, request](const Outcome& outcome, int64_t time_ns) {
        answer(request, outcome, {&time_ns, 1});
      });
      return {};
    }
    default:
      return invalid("command " + std::to_string(static_cast<uint32_t>(command)) +
                     " has no meaning in a CUDA session");
  }
}

Status CudaEngine::free(wire::Handle handle) {
  if (handle >= calls::kNumberMax) {
    note(driver_->free(handle));
  } else if (const auto buffer = buffers_.find(handle); buffer != buffers_.end()) {
    buffers_size_bytes_ -= buffer->second.bytes.size();
    buffers_.erase(buffer);
  } else if (events_.erase(handle) != 0) {
    driver_->free_event(handle);
  }
  return {};  // An event that was never recorded is not known here.
}

Status CudaEngine::upload(IncomingBatch& batch, wire::Handle target, uint64_t storage_size,
                          uint64_t offset, uint64_t size) {
  if (next_segment_ == batch.segments.size()) return invalid("an upload has no payload segment");
  Segment& segment = batch.segments[next_segment_++];
  if (segment.bytes.size() != size) return invalid("an upload's segment is of another size");
  if (target >= calls::kNumberMax) {
    note(driver_->upload(stream_, {segment.bytes, segment.owner}, {target + offset, size, size},
                         {size, 1, 1}));
    return {};
  }
  if (offset > storage_size || size > storage_size - offset) {
    return invalid("an upload is larger than its buffer");
  }
  if (const auto found = buffers_.find(target); found == buffers_.end()) {
    if (buffers_.size() >= kBuffersMax) return invalid("too many buffers");
    if (storage_size > kBuffersSizeBytesMax - buffers_size_bytes_) {
      return {Code::kExhausted, "over " + std::to_string(kBuffersSizeBytesMax) +
                                    " bytes are on their way to device memory"};
    }
    if (offset == 0 && size == storage_size) {  // The usual one: no copy.
      buffers_[target] = {{}, segment.owner, segment.bytes};
      return {};
    }
    Buffer& buffer = buffers_[target];
    buffer.bytes.resize(storage_size);
    buffers_size_bytes_ += storage_size;
    buffer.filled = buffer.bytes;
  }
  Buffer& buffer = buffers_[target];
  if (buffer.bytes.size() != storage_size) return invalid("a buffer is of another size");
  if (size != 0) std::memcpy(buffer.bytes.data() + offset, segment.bytes.data(), size);
  return {};
}

Result<Bytes> CudaEngine::take_buffer(uint64_t number) {
  const auto found = buffers_.find(number);
  if (found == buffers_.end()) return invalid("unknown buffer " + std::to_string(number));
  Buffer buffer = std::move(found->second);
  buffers_.erase(found);
  if (buffer.owner) return Bytes{buffer.filled, std::move(buffer.owner)};
  buffers_size_bytes_ -= buffer.bytes.size();
  auto bytes = std::make_shared<std::vector<std::byte>>(std::move(buffer.bytes));
  return Bytes{*bytes, bytes};
}

// ---- Calls --------------------------------------------------------------------------------------

Status CudaEngine::call(IncomingBatch& batch, Call call) {
  calls::CallHeader header;
  const auto head = batch.reader.read_immediates(sizeof header);
  if (!head) return head.error();
  std::memcpy(&header, head->data(), sizeof header);
  if (header.size_bytes > limits::kImmediatesSizeBytesMax) return invalid("a call is too long");
  const auto bytes = batch.reader.read_immediates(header.size_bytes);
  if (!bytes) return bytes.error();
  switch (call) {
    case Call::kLaunch:
      return launch(*bytes);
    case Call::kLoadModule:
    case Call::kUnloadModule:
    case Call::kGetFunction:
    case Call::kGetGlobal:
    case Call::kFunctionAttributes:
    case Call::kSetFunctionAttribute:
      return module_call(call, *bytes);
    case Call::kMemset:
    case Call::kCopy:
    case Call::kScatter:
    case Call::kGather:
    case Call::kMemoryInfo:
    case Call::kResetDevice:
      return memory_call(call, *bytes);
    case Call::kCreateStream:
    case Call::kDestroyStream:
    case Call::kHostGate:
    case Call::kOpenGate:
    case Call::kSetLimit:
      return stream_call(call, *bytes);
    case Call::kEnd:
      break;
  }
  return invalid("unknown call " + std::to_string(static_cast<uint32_t>(call)));
}

Status CudaEngine::launch(std::span<const std::byte> bytes) {
  calls::Launch launch;
  std::span<const std::byte> parameters;
  RGPU_RETURN_IF_ERROR(read(bytes, launch, parameters));
  note(driver_->launch(stream_, launch, parameters));
  return {};
}

Status CudaEngine::module_call(Call call, std::span<const std::byte> bytes) {
  std::span<const std::byte> tail;
  if (call == Call::kLoadModule) {
    calls::LoadModule load;
    RGPU_RETURN_IF_ERROR(read(bytes, load));
    if (load.device >= device_count_) return invalid("a module for a device that does not exist");
    Result<Bytes> image = take_buffer(load.buffer);
    if (!image) return image.error();
    note(driver_->load_module(load.module, load.device, *std::move(image)));
  } else if (call == Call::kUnloadModule) {
    calls::ModuleId unload;
    RGPU_RETURN_IF_ERROR(read(bytes, unload));
    driver_->unload_module(unload.module);
  } else if (call == Call::kGetFunction) {
    calls::GetFunction get;
    RGPU_RETURN_IF_ERROR(read(bytes, get, tail));
    note(driver_->get_function(get.function, get.module, text_of(tail)));
  } else if (call == Call::kGetGlobal) {
    calls::GetGlobal get;
    RGPU_RETURN_IF_ERROR(read(bytes, get, tail));
    Driver::Variable variable;
    const Outcome outcome = driver_->get_global(get.module, text_of(tail), variable);
    const std::array<int64_t, 2> results{static_cast<int64_t>(variable.address),
                                         static_cast<int64_t>(variable.size_bytes)};
    answer(get.request, outcome, results);
  } else if (call == Call::kFunctionAttributes) {
    calls::FunctionAttributes get;
    RGPU_RETURN_IF_ERROR(read(bytes, get));
    std::vector<int32_t> values;
    const Outcome outcome = driver_->function_attributes(get.function, values);
    answer(get.request, outcome, std::vector<int64_t>(values.begin(), values.end()));
  } else {
    calls::SetFunctionAttribute set;
    RGPU_RETURN_IF_ERROR(read(bytes, set));
    note(driver_->set_function_attribute(set.function, set.attribute, set.value));
  }
  return {};
}

Status CudaEngine::memory_call(Call call, std::span<const std::byte> bytes) {
  uint64_t size_bytes = 0;
  if (call == Call::kMemset) {
    calls::Memset memset;
    RGPU_RETURN_IF_ERROR(read(bytes, memset));
    const uint32_t unit = memset.value_size_bytes;
    if ((unit != 1 && unit != 2 && unit != 4) || memset.extent.width_bytes % unit != 0 ||
        !size_bytes_of(memset.extent, size_bytes)) {
      return invalid("a memset of no such size");
    }
    note(driver_->memset(stream_, memset));
  } else if (call == Call::kCopy) {
    calls::Copy copy;
    RGPU_RETURN_IF_ERROR(read(bytes, copy));
    if (!size_bytes_of(copy.extent, size_bytes)) return invalid("a copy is over the limit");
    note(driver_->copy(stream_, copy));
  } else if (call == Call::kScatter) {
    calls::Scatter scatter;
    RGPU_RETURN_IF_ERROR(read(bytes, scatter));
    Result<Bytes> buffer = take_buffer(scatter.buffer);
    if (!buffer) return buffer.error();
    if (!size_bytes_of(scatter.extent, size_bytes) || size_bytes != buffer->bytes.size()) {
      return invalid("a buffer and the box that it goes to are of different sizes");
    }
    note(driver_->upload(stream_, *std::move(buffer), scatter.target, scatter.extent));
  } else if (call == Call::kGather) {
    calls::Gather gather;
    RGPU_RETURN_IF_ERROR(read(bytes, gather));
    if (!size_bytes_of(gather.extent, size_bytes) || size_bytes > limits::kPayloadSizeBytesMax) {
      return invalid("a gather is over the limit");
    }
    driver_->download(stream_, gather.source, gather.extent,
                      [this, request = gather.request](const Outcome& outcome, Bytes packed) {
                        answer(request, outcome, {}, std::move(packed));
                      });
  } else {
    calls::DeviceId device;
    calls::MemoryInfo info;
    const bool reset = call == Call::kResetDevice;
    RGPU_RETURN_IF_ERROR(reset ? read(bytes, device) : read(bytes, info));
    if (!reset) device.device = info.device;
    if (device.device >= device_count_) return invalid("a device that does not exist");
    if (reset) {
      driver_->reset(device.device);
      return {};
    }
    const Driver::Memory memory = driver_->memory(device.device);
    const std::array<int64_t, 2> results{static_cast<int64_t>(memory.free_bytes),
                                         static_cast<int64_t>(memory.total_bytes)};
    answer(info.request, {}, results);
  }
  return {};
}

Status CudaEngine::stream_call(Call call, std::span<const std::byte> bytes) {
  if (call == Call::kCreateStream) {
    calls::CreateStream create;
    RGPU_RETURN_IF_ERROR(read(bytes, create));
    note(driver_->create_stream(stream_, create));
  } else if (call == Call::kDestroyStream) {
    if (!bytes.empty()) return invalid("a call is longer than it should be");
    driver_->destroy_stream(stream_);
  } else if (call == Call::kHostGate) {
    calls::HostGate gate;
    RGPU_RETURN_IF_ERROR(read(bytes, gate));
    driver_->gate(stream_, gate.gate, answer_to(gate.request));
  } else if (call == Call::kOpenGate) {
    calls::OpenGate gate;
    RGPU_RETURN_IF_ERROR(read(bytes, gate));
    driver_->open_gate(gate.gate);
  } else {
    calls::SetLimit set;
    RGPU_RETURN_IF_ERROR(read(bytes, set));
    if (set.device >= device_count_) return invalid("a limit of a device that does not exist");
    note(driver_->set_limit(set.device, set.limit, set.value));
  }
  return {};
}

}  // namespace rgpu::server::cuda
