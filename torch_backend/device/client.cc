#include "torch_backend/device/client.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "torch_backend/device/downloads.h"
#include "torch_backend/device/switches.h"
#include "torch_backend/device/trace.h"

namespace rgpu::backend {
namespace {

constexpr const char* kDefaultAddress = "127.0.0.1:9720";

SessionOptions parse_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  SessionOptions options;
  const char* first = address.data() + colon + 1;
  const char* last = address.data() + address.size();
  const bool has_port = colon != std::string::npos && colon > 0;
  const auto [end, error] = has_port ? std::from_chars(first, last, options.port)
                                     : std::from_chars_result{first, std::errc::invalid_argument};
  TORCH_CHECK_VALUE(error == std::errc() && end == last && options.port != 0, "the address \"",
                    address, "\" is not HOST:PORT, for example ", kDefaultAddress,
                    " (it comes from RGPU_OPSERVER or rgpu.connect())");
  options.host = address.substr(0, colon);
  if (options.host.size() > 2 && options.host.front() == '[' && options.host.back() == ']') {
    options.host = options.host.substr(1, options.host.size() - 2);
  }
  return options;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Beside the server's schema, which its refusal names, the one that was asked for.
std::string client_schema(const wire::RemoteError& error) {
  if (error.code != Code::kUnimplemented) return {};
  const size_t dot = error.op.find('.');
  const std::string overload = dot == std::string::npos ? "" : error.op.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchema({error.op.substr(0, dot), overload});
  return op ? "\n  the client's schema: " + toString(op->schema()) : std::string();
}

std::string with_origin(const wire::RemoteError& error) {
  std::string text = error.message + client_schema(error);
  if (!error.op.empty()) {
    text += "\n  rgpu: raised on the server by " + error.op + "(" + error.arguments + ")";
    const std::string line = Client::hooks().describe_location(error.location);
    text += line.empty() ? ", program line unknown" : ", issued at " + line;
  }
  if (Client::debug()) {
    const std::string stack = Client::hooks().stack();
    if (!stack.empty()) text += "\n  rgpu: RGPU_DEBUG, the program's stack:\n" + stack;
  }
  return text;
}

}  // namespace

Client& Client::get() noexcept {
  static Client* client = [] {
    // Leaked: storages are released by deleters that may run after static destructors.
    pthread_atfork(nullptr, nullptr, [] { Client::get().after_fork_in_child(); });
    return new Client();
  }();
  return *client;
}

HostHooks& Client::hooks() noexcept {
  static HostHooks hooks;
  return hooks;
}

std::string Client::default_address() {
  const std::string address = environment("RGPU_OPSERVER");
  return address.empty() ? kDefaultAddress : address;
}

Session& Client::connect_default() {
  const std::lock_guard lock(connect_mutex_);
  if (current_.load(std::memory_order_acquire) == nullptr) connect_locked(default_address(), 5.0);
  return *current_.load(std::memory_order_acquire);
}

void Client::connect(const std::string& address, double timeout_s) {
  const std::lock_guard lock(connect_mutex_);
  connect_locked(address.empty() ? default_address() : address, timeout_s);
}

std::string Client::chosen_policy() const {
  if (!flush_policy_.empty()) return flush_policy_;
  const std::string named = environment("RGPU_FLUSH");
  return named.empty() ? SessionOptions().flush_policy : named;
}

std::string Client::flush_policy() {
  const std::lock_guard lock(connect_mutex_);
  return chosen_policy();
}

void Client::connect_locked(const std::string& address, double timeout_s) {
  TORCH_CHECK(!forked_.load(),
              "rgpu cannot be used in a forked child process: the session belongs to the parent. "
              "Use the 'spawn' start method of multiprocessing");
  SessionOptions options = parse_address(address);
  options.flush_policy = chosen_policy();
  options.torch_version = RGPU_TORCH_VERSION;
  options.client_version = RGPU_VERSION;
  options.connect_timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3));
  Result<std::shared_ptr<Session>> session = Session::connect(options);
  if (!session) raise_if_error(session.error());
  const IssueLock issue;
  sessions_.push_back(*std::move(session));
  device_count_.store(-1);
  generation_.fetch_add(1, std::memory_order_release);
  SwitchWatch::mark_stale();
  records_waited_for_ = 0;
  current_.store(sessions_.back().get(), std::memory_order_release);
}

void IssueLock::wait() {
  WaitObserver& observer = Client::hooks().observer();
  observer.before_wait();
  lock_.lock();
  observer.after_wait();
}

void NotingObserver::counted(std::chrono::nanoseconds waited) noexcept {
  Client::get().note_wait(waited);
}

bool Client::is_debug_wanted() noexcept {
  const char* value = std::getenv("RGPU_DEBUG");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

void Client::close() noexcept {
  if (Session* session = current_.load(std::memory_order_acquire); session != nullptr && !forked_) {
    tell_unread_error(*session);
    session->close();
  }
}

void Client::tell_unread_error(Session& session) noexcept {
  // An end that takes long is worse than an error untold.
  class HalfASecond final : public WaitObserver {
   public:
    bool keep_waiting() override { return std::chrono::steady_clock::now() < end_; }

   private:
    const std::chrono::steady_clock::time_point end_ =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  };
  if (!session.alive() || session.stats().records == records_waited_for_) return;
  try {
    HalfASecond patience;
    const Result<wire::Reply> reply = session.sync(patience);
    if (!reply || !reply->failed) return;
    std::fprintf(stderr,
                 "rgpu: warning: an op failed, and the program ended without reading it: %s\n",
                 with_origin(reply->error).c_str());
  } catch (const std::exception&) {  // No memory for a text that nobody asked for.
  }
}

void Client::release(uint32_t generation, Handle handle) noexcept {
  // A session that is not the current one is lost or closed: its server has freed everything.
  if (generation != generation_.load(std::memory_order_acquire)) return;
  if (Session* session = current_.load(std::memory_order_acquire)) session->free(handle);
}

void Client::append(wire::Command command, uint32_t stream, std::span<const Handle> handles,
                    std::span<const std::byte> immediates) {
  Session& target = session();
  const Record record{static_cast<uint32_t>(command), 0, handles, immediates};
  const Status status = target.append(stream, record, hooks().observer());
  if (!status.ok()) [[unlikely]]
    raise_if_error(status);
}

void Client::ask(wire::Command command, uint32_t stream, std::span<const Handle> handles,
                 uint64_t request) {
  Session& target = session();
  const Record record{static_cast<uint32_t>(command), 0, handles,
                      std::as_bytes(std::span(&request, 1))};
  const Status status = target.append(stream, record, hooks().observer());
  if (!status.ok()) {
    target.abandon_request(request);
    raise_if_error(status);
  }
  target.flush();
}

template <typename Wait>
wire::Reply Client::noted(Wait wait) {
  const CallTracer traced("wait", /*is_wait=*/true);
  Session& target = session();
  records_waited_for_.store(target.stats().records, std::memory_order_relaxed);
  Result<wire::Reply> reply = wait(target);
  raise_if_failed(reply);
  return *std::move(reply);
}

wire::Reply Client::wait(uint64_t request) {
  return noted([&](Session& target) { return target.wait(request, hooks().observer()); });
}

void Client::synchronize() {
  if (!connected()) return;
  (void)noted([](Session& target) { return target.sync(hooks().observer()); });
  Downloads::get().collect();
}

void Client::synchronize_stream(uint32_t stream) {
  if (!connected()) return;
  (void)noted([&](Session& target) { return target.sync_stream(stream, hooks().observer()); });
  Downloads::get().collect();
}

void Client::note_wait(std::chrono::nanoseconds waited) noexcept {
  constexpr size_t kSitesMax = 4096;  // Those beyond are counted together, as the unknown line.
  try {
    uint32_t location = hooks().location();
    const std::lock_guard lock(sites_mutex_);
    const auto find = [&] {
      return std::find_if(sites_.begin(), sites_.end(),
                          [&](const WaitSite& s) { return s.location == location; });
    };
    auto site = find();
    if (site == sites_.end() && sites_.size() >= kSitesMax) {
      location = 0;
      site = find();
    }
    if (site == sites_.end()) site = sites_.insert(sites_.end(), WaitSite{location, 0, 0});
    ++site->count;
    site->wait_ns += static_cast<uint64_t>(waited.count());
  } catch (const std::exception&) {  // No memory for one more line of a list.
  }
}

std::vector<WaitSite> Client::wait_sites() {
  const std::lock_guard lock(sites_mutex_);
  return sites_;
}

void Client::reset_wait_sites() {
  const std::lock_guard lock(sites_mutex_);
  sites_.clear();
}

wire::HelloReply Client::server_info() {
  Result<wire::HelloReply> info = session().server_info(hooks().observer());
  if (!info) raise_if_error(info.error());
  return *std::move(info);
}

int Client::device_count() {
  int count = device_count_.load();
  if (count < 0) {
    count = static_cast<int>(std::min<size_t>(server_info().devices.size(), INT8_MAX));
    device_count_.store(count);
  }
  return count;
}

void Client::set_flush_policy(const std::string& name) {
  const Result<std::unique_ptr<FlushPolicy>> policy = make_flush_policy(name);
  TORCH_CHECK_VALUE(policy.has_value(), policy.error().message());
  const std::lock_guard lock(connect_mutex_);
  flush_policy_ = name;
  if (Session* session = current_.load()) raise_if_error(session->set_flush_policy(name));
}

SessionStats Client::stats() {
  Session* session = current_.load(std::memory_order_acquire);
  return session == nullptr ? SessionStats{} : session->stats();
}

void Client::after_fork_in_child() noexcept {
  if (Session* session = current_.load()) {
    session->abandon_after_fork();
    forked_.store(true);
  }
}

void raise_if_error(const Status& status) {
  if (status.ok()) return;
  switch (status.code()) {
    case Code::kCancelled:
      Client::hooks().throw_interrupted();
      TORCH_CHECK(false, "rgpu: the wait was given up");
    case Code::kUnimplemented:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "rgpu: ", status.message());
    case Code::kExhausted:
      TORCH_CHECK_WITH(OutOfMemoryError, false, "rgpu: ", status.message());
    default:
      TORCH_CHECK(false, "rgpu: ", status.message());
  }
}

void raise_if_failed(const Result<wire::Reply>& reply) {
  if (!reply) raise_if_error(reply.error());
  if (reply->failed) raise(reply->error);
}

int64_t integer_of(const wire::Reply& reply) {
  TORCH_CHECK(reply.values.size() == 1 && reply.values[0].kind == wire::ArgKind::kInt,
              "rgpu: the server sent no number where one was asked for");
  return reply.values[0].integer;
}

void raise(const wire::RemoteError& error) {
  const std::string text = with_origin(error);
  switch (error.type) {
    case wire::ErrorType::kIndexError:
      TORCH_CHECK_INDEX(false, text);
    case wire::ErrorType::kValueError:
      TORCH_CHECK_VALUE(false, text);
    case wire::ErrorType::kTypeError:
      TORCH_CHECK_TYPE(false, text);
    case wire::ErrorType::kNotImplementedError:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case wire::ErrorType::kLinAlgError:
      TORCH_CHECK_LINALG(false, text);
    case wire::ErrorType::kOutOfMemoryError:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case wire::ErrorType::kRuntimeError:
      break;
  }
  TORCH_CHECK(false, text);
}

}  // namespace rgpu::backend
