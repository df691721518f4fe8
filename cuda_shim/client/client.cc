#include "cuda_shim/client/client.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "cuda_shim/client/api_calls.h"

namespace rgpu::cuda {
namespace {

constexpr uint64_t kAddressSizeBytes = uint64_t{1} << 40;
constexpr uint64_t kAddressSizeBytesMin = uint64_t{64} << 30;  // Where a process may not have more.
// Where the range may begin: where processes have nothing as a rule, also under the sanitizers.
constexpr std::array<uint64_t, 8> kAddressBases = {
    uint64_t{0x2000} << 32, uint64_t{0x3000} << 32, uint64_t{0x1800} << 32, uint64_t{0x4000} << 32,
    uint64_t{0x5000} << 32, uint64_t{0x7c00} << 32, uint64_t{0x0600} << 32, uint64_t{0x7000} << 32};
constexpr size_t kSaidMax = 64;

std::atomic<Client*> the_client{nullptr};
std::atomic<bool> forked{false};
std::mutex connect_mutex;
CUresult refused =
    CUDA_SUCCESS;  // Why connecting failed: it is tried, and said, once. Guarded by it.

void in_forked_child() {
  forked.store(true, std::memory_order_relaxed);
  if (Client* const client = the_client.load()) client->abandon_after_fork();
}

// Addresses that nothing of this process uses from now on.
bool reserve(uint64_t address, uint64_t size_bytes) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const mapped =
      mmap(wanted, size_bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  if (mapped != wanted) {
    munmap(mapped, size_bytes);
    return false;
  }
  (void)madvise(mapped, size_bytes, MADV_DONTDUMP);
  return true;
}

// The candidates that are free here, each reserved, and their size: a smaller one where none would
// fit into what the process may map.
std::vector<uint64_t> reserve_ranges(uint64_t& size_bytes) {
  std::vector<uint64_t> bases;
  for (size_bytes = kAddressSizeBytes;; size_bytes /= 2) {
    for (const uint64_t base : kAddressBases) {
      if (reserve(base, size_bytes)) bases.push_back(base);
    }
    if (!bases.empty() || size_bytes <= kAddressSizeBytesMin) return bases;
  }
}

void release_ranges(const std::vector<uint64_t>& bases, uint64_t size_bytes, uint64_t but) {
  for (const uint64_t base : bases) {
    if (base != but) munmap(reinterpret_cast<void*>(base), size_bytes);
  }
}

// "host:port" of RGPU_OPSERVER; false: it says no such thing.
bool server_address(SessionOptions& options) {
  const char* const text = std::getenv("RGPU_OPSERVER");
  if (text == nullptr || *text == '\0') {
    say("no server is named: start the program with rgpu-run, or set RGPU_OPSERVER=host:port");
    return false;
  }
  const std::string address = text;
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  const char* const end = address.data() + address.size();
  if (colon == std::string::npos || colon == 0 ||
      std::from_chars(address.data() + colon + 1, end, port).ptr != end || port == 0) {
    say("RGPU_OPSERVER=" + address + " is not host:port");
    return false;
  }
  options.host = address.substr(0, colon);
  options.port = port;
  return true;
}

// The numbers that CUDA_VISIBLE_DEVICES names: as CUDA has it, up to the first that is none.
std::vector<uint32_t> visible_devices(const std::vector<wire::CudaDevice>& devices) {
  std::vector<uint32_t> visible;
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (uint32_t i = 0; i < devices.size(); ++i) visible.push_back(i);
    return visible;
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    uint32_t number = 0;
    const char* const end = item.data() + item.size();
    if (item.empty() || std::from_chars(item.data(), end, number).ptr != end ||
        number >= devices.size() ||
        std::find(visible.begin(), visible.end(), number) != visible.end()) {
      break;
    }
    visible.push_back(number);
  }
  return visible;
}

bool is_set(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && *text != '\0' && std::strcmp(text, "0") != 0;
}

}  // namespace

namespace {
thread_local std::string message_of_thread;
}  // namespace

const std::string& last_message() noexcept { return message_of_thread; }

void say(const std::string& line) noexcept {
  message_of_thread = line;
  const std::string text = "rgpu: " + line + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

// ---- Connecting ---------------------------------------------------------------------------------

CUresult connect(std::unique_ptr<Client>& client) {
  SessionOptions options;
  if (!server_address(options)) return CUDA_ERROR_NO_DEVICE;
  if (const char* const policy = std::getenv("RGPU_FLUSH")) options.flush_policy = policy;
  options.client_version = RGPU_VERSION;
  uint64_t range_size_bytes = 0;
  const std::vector<uint64_t> bases = reserve_ranges(range_size_bytes);
  options.cuda = wire::CudaHello{bases, range_size_bytes};
  auto made = std::make_unique<Client>();
  Result<std::shared_ptr<Session>> session = Session::connect(options);
  if (!session) {
    release_ranges(bases, range_size_bytes, 0);
    say(session.error().message());
    return CUDA_ERROR_NO_DEVICE;
  }
  made->session_ = *std::move(session);
  const Result<wire::HelloReply> greeting = made->session_->server_info(made->observer_);
  std::string problem = !greeting ? greeting.error().message() : "";
  if (greeting && !greeting->cuda) problem = "the server is of a version without CUDA";
  if (!problem.empty()) {
    release_ranges(bases, range_size_bytes, 0);
    say(problem);
    return CUDA_ERROR_NO_DEVICE;
  }
  made->info_ = *greeting->cuda;
  release_ranges(bases, range_size_bytes, made->info_.address_base);
  const auto count = static_cast<uint32_t>(made->info_.devices.size());
  if (count != 0) {
    const uint64_t part = wire::cuda::device_part_size_bytes(made->info_.address_size_bytes, count);
    for (const uint32_t number : visible_devices(made->info_.devices)) {
      made->devices_.push_back(std::make_unique<Device>(
          number, made->info_.devices[number], made->info_.address_base + number * part, part));
    }
  }
  made->launch_blocking_ = is_set("CUDA_LAUNCH_BLOCKING");
  client = std::move(made);
  return CUDA_SUCCESS;
}

CUresult client(Client*& client) noexcept {
  client = the_client.load(std::memory_order_acquire);
  if (client != nullptr) [[likely]] {
    return forked.load(std::memory_order_relaxed) ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
  }
  const std::lock_guard lock(connect_mutex);
  client = the_client.load(std::memory_order_acquire);
  if (client != nullptr) return CUDA_SUCCESS;
  if (refused != CUDA_SUCCESS) return refused;
  std::unique_ptr<Client> made;
  try {
    refused = connect(made);
  } catch (const std::exception& error) {
    say(error.what());
    refused = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (refused != CUDA_SUCCESS) return refused;
  static const int registered = pthread_atfork(nullptr, nullptr, &in_forked_child);
  (void)registered;
  client = made.release();
  the_client.store(client, std::memory_order_release);
  return CUDA_SUCCESS;
}

Client* connected_client() noexcept {
  if (forked.load(std::memory_order_relaxed)) return nullptr;
  return the_client.load(std::memory_order_acquire);
}

int Client::ordinal_of(const Device* device) const noexcept {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].get() == device) return static_cast<int>(i);
  }
  return -1;
}

Device* Client::device_of(uint64_t address) const noexcept {
  if (address - info_.address_base >= info_.address_size_bytes) return foreign_device(address);
  const uint64_t part = wire::cuda::device_part_size_bytes(
      info_.address_size_bytes, static_cast<uint32_t>(info_.devices.size()));
  const uint64_t number = (address - info_.address_base) / part;
  for (const std::unique_ptr<Device>& device : devices_) {
    if (device->number == number) return device.get();
  }
  return nullptr;
}

Device* Client::foreign_device(uint64_t address) const noexcept {
  if (!has_foreign_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(foreign_mutex_);
  auto at = foreign_.upper_bound(address);
  if (at == foreign_.begin()) return nullptr;
  --at;
  return address < at->second.end ? at->second.device : nullptr;
}

bool Client::add_foreign(Device& device, uint64_t address, uint64_t size_bytes) {
  if (address - info_.address_base < info_.address_size_bytes) return true;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t begin = address / page * page;
  if (size_bytes > kAddressSizeBytes || address > UINT64_MAX - size_bytes - page) return false;
  const uint64_t end = (address + size_bytes + page - 1) / page * page;
  const std::lock_guard lock(foreign_mutex_);
  // Variables share pages: those that are known already are left out.
  while (begin < end) {
    auto next = foreign_.upper_bound(begin);
    if (next != foreign_.begin() && std::prev(next)->second.end > begin) {
      begin = std::prev(next)->second.end;
      continue;
    }
    const uint64_t gap_end = next == foreign_.end() ? end : std::min(end, next->first);
    if (!reserve(begin, gap_end - begin)) return false;
    foreign_[begin] = {gap_end, &device};
    begin = gap_end;
  }
  has_foreign_.store(true, std::memory_order_release);
  return true;
}

// ---- Records ------------------------------------------------------------------------------------

CUresult Client::lost(const Status& status) noexcept {
  if (status.code() == Code::kInvalidArgument) return CUDA_ERROR_INVALID_VALUE;
  if (status.code() == Code::kExhausted) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!said_lost_.exchange(true)) say(status.message());
  sticky_.store(CUDA_ERROR_DEVICE_UNAVAILABLE, std::memory_order_relaxed);
  return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult Client::append_record(uint32_t stream, const Record& record) {
  const Status status = session_->append(stream, record, observer_);
  return status.ok() ? CUDA_SUCCESS : lost(status);
}

CUresult Client::append(uint32_t stream, wire::Command command, uint64_t handle) {
  return append_record(stream, {static_cast<uint32_t>(command), 0, {&handle, 1}, {}});
}

CUresult Client::append_allocate(uint32_t stream, uint64_t address, uint64_t size_bytes) {
  return append_record(stream, {static_cast<uint32_t>(wire::Command::kAllocate),
                                0,
                                {&address, 1},
                                std::as_bytes(std::span(&size_bytes, 1))});
}

CUresult Client::append_fetch(uint32_t stream, uint64_t address, uint64_t request,
                              uint64_t size_bytes) {
  note_bytes_in(size_bytes);
  const std::array<uint64_t, 3> immediates{request, 0, size_bytes};
  return append_record(stream, {static_cast<uint32_t>(wire::Command::kFetch),
                                0,
                                {&address, 1},
                                std::as_bytes(std::span(immediates))});
}

CUresult Client::append_call(uint32_t stream, Call call, std::span<const std::byte> fields,
                             std::span<const std::byte> tail) {
  const wire::cuda::CallHeader header{static_cast<uint32_t>(fields.size() + tail.size())};
  std::array<std::byte, 256> small;
  std::vector<std::byte> large;
  const size_t size_bytes = sizeof header + fields.size() + tail.size();
  std::byte* bytes = small.data();
  if (size_bytes > small.size()) {
    large.resize(size_bytes);
    bytes = large.data();
  }
  std::memcpy(bytes, &header, sizeof header);
  if (!fields.empty()) std::memcpy(bytes + sizeof header, fields.data(), fields.size());
  if (!tail.empty()) std::memcpy(bytes + sizeof header + fields.size(), tail.data(), tail.size());
  return append_prepared(stream, call, {bytes, size_bytes});
}

CUresult Client::upload(uint32_t stream, uint64_t target, uint64_t storage_size_bytes,
                        Payload bytes) {
  note_bytes_out(bytes.bytes.size());
  const Status status =
      session_->upload(stream, target, storage_size_bytes, 0, std::move(bytes), observer_);
  return status.ok() ? CUDA_SUCCESS : lost(status);
}

CUresult Client::upload_buffer(uint32_t stream, std::span<const std::byte> bytes,
                               uint64_t& buffer) {
  buffer = new_number();
  return upload(stream, buffer, bytes.size(), {bytes, nullptr});
}

// ---- Requests -----------------------------------------------------------------------------------

CUresult Client::open_request(uint64_t& request, Destination destination) {
  const Result<uint64_t> opened = session_->new_request(std::move(destination));
  if (!opened) return lost(opened.error());
  request = *opened;
  return CUDA_SUCCESS;
}

CUresult Client::request(uint32_t stream, wire::Command command, uint64_t handle,
                         uint64_t& request) {
  if (const CUresult code = open_request(request); code != CUDA_SUCCESS) return code;
  const std::span<const Handle> handles(&handle, handle == 0 ? 0 : 1);
  const CUresult code = append_record(
      stream, {static_cast<uint32_t>(command), 0, handles, std::as_bytes(std::span(&request, 1))});
  if (code != CUDA_SUCCESS) abandon(std::exchange(request, 0));
  return code;
}

CUresult Client::ask(uint32_t stream, wire::Command command, uint64_t handle,
                     std::vector<int64_t>* results) {
  uint64_t number = 0;
  const CUresult code = request(stream, command, handle, number);
  return code == CUDA_SUCCESS ? wait(number, results) : code;
}

CUresult Client::wait(uint64_t request, std::vector<int64_t>* results) {
  note_wait();
  return read(session_->wait(request, observer_), results);
}

bool Client::poll(uint64_t request, CUresult& code, std::vector<int64_t>* results) {
  const std::optional<Result<wire::Reply>> reply = session_->poll(request);
  if (!reply) return false;
  code = read(*reply, results);
  return true;
}

CUresult Client::read(const Result<wire::Reply>& reply, std::vector<int64_t>* results) {
  if (!reply) return lost(reply.error());
  auto code = CUDA_SUCCESS;
  bool first = true;
  bool message = true;
  for (const wire::Arg& value : reply->values) {
    if (value.kind == wire::ArgKind::kString) {
      if (!std::exchange(message, false)) {
        std::fwrite(value.text.data(), 1, value.text.size(), stdout);
        std::fflush(stdout);
      } else if (!value.text.empty()) {
        message_of_thread = value.text;
        const std::lock_guard lock(said_mutex_);
        if (said_.size() < kSaidMax &&
            std::find(said_.begin(), said_.end(), value.text) == said_.end()) {
          said_.push_back(value.text);
          say(value.text);
        }
      }
    } else if (std::exchange(first, false)) {
      code = static_cast<CUresult>(value.integer);
    } else if (results != nullptr) {
      results->push_back(value.integer);
    }
  }
  if (wire::cuda::is_sticky(code)) sticky_.store(code, std::memory_order_relaxed);
  return code;
}

void Client::close() noexcept { session_->close(); }

void Client::abandon_after_fork() noexcept { session_->abandon_after_fork(); }

}  // namespace rgpu::cuda
