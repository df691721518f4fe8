// Client: the one session of a program that uses CUDA, its devices, and the way to wait for it.
//
// Threading: any thread. client() connects on the first call; others wait for that.
// Lifetime:  made once and leaked; at the process's exit the session is closed (exit.cc).
// Errors:    CUresult. What says more than CUDA's own text goes to stderr as one line, once.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cuda_shim/client/address_space.h"
#include "cuda_shim/generated/cuda_api.h"
#include "runtime/session.h"
#include "wire/cuda/calls.h"
#include "wire/messages.h"

namespace rgpu::cuda {

using wire::cuda::Call;

struct Device {
  Device(uint32_t number, wire::CudaDevice described, uint64_t base, uint64_t part_size_bytes)
      : number(number),
        info(std::move(described)),
        addresses(base, wire::cuda::client_part_size_bytes(part_size_bytes),
                  info.memory_size_bytes) {}
  // By CUdevice_attribute; 0 for those that the server does not know.
  [[nodiscard]] int attribute(int number) const {
    const auto at = static_cast<size_t>(number);
    return at < info.attributes.size() ? info.attributes[at] : 0;
  }

  const uint32_t number;  // The server's. A program sees its place among the visible ones.
  const wire::CudaDevice info;
  AddressSpace addresses;
};

// Of a reply to a request of ours.
struct Answer {
  CUresult code = CUDA_SUCCESS;
  std::vector<int64_t> results;
};

class Client {
 public:
  [[nodiscard]] Session& session() noexcept { return *session_; }
  [[nodiscard]] const wire::CudaInfo& info() const noexcept { return info_; }
  // Those that CUDA_VISIBLE_DEVICES lets a program see, in its order.
  [[nodiscard]] std::span<const std::unique_ptr<Device>> devices() const { return devices_; }
  [[nodiscard]] bool is_device_address(uint64_t address) const noexcept {
    return address - info_.address_base < info_.address_size_bytes ||
           (has_foreign_.load(std::memory_order_acquire) && foreign_device(address) != nullptr);
  }
  // Memory of a device that the server's driver placed outside the range: a module's variable. Its
  // addresses are reserved here as well. False: something of the program's is there.
  [[nodiscard]] bool add_foreign(Device& device, uint64_t address, uint64_t size_bytes);
  // Of an address; nullptr: of no visible device.
  [[nodiscard]] Device* device_of(uint64_t address) const noexcept;
  // Its number as the program counts; -1: none of these.
  [[nodiscard]] int ordinal_of(const Device* device) const noexcept;
  [[nodiscard]] bool launch_blocking() const noexcept { return launch_blocking_; }

  // ---- Records. CUDA_SUCCESS, or what the session was lost of.
  [[nodiscard]] CUresult append(uint32_t stream, wire::Command command, uint64_t handle);
  [[nodiscard]] CUresult append_allocate(uint32_t stream, uint64_t address, uint64_t size_bytes);
  [[nodiscard]] CUresult append_fetch(uint32_t stream, uint64_t address, uint64_t request,
                                      uint64_t size_bytes);
  template <typename Struct>
  [[nodiscard]] CUresult append(uint32_t stream, Call call, const Struct& fields,
                                std::span<const std::byte> tail = {}) {
    return append_call(stream, call, std::as_bytes(std::span(&fields, 1)), tail);
  }
  [[nodiscard]] CUresult append_bare(uint32_t stream, Call call) {
    return append_call(stream, call, {}, {});
  }
  // `bytes`: a CallHeader and what follows it.
  [[nodiscard]] CUresult append_prepared(uint32_t stream, Call call,
                                         std::span<const std::byte> bytes) {
    return append_record(stream, {wire::cuda::number(call), 0, {}, bytes});
  }
  // Copies the bytes before it returns, unless they have an owner.
  [[nodiscard]] CUresult upload(uint32_t stream, uint64_t target, uint64_t storage_size_bytes,
                                Payload bytes);
  // The number of a new buffer on the server that holds the bytes.
  [[nodiscard]] CUresult upload_buffer(uint32_t stream, std::span<const std::byte> bytes,
                                       uint64_t& buffer);
  [[nodiscard]] uint64_t new_number() noexcept { return session_->new_handles(1); }

  // ---- Requests and their answers
  [[nodiscard]] CUresult open_request(uint64_t& request, Destination destination = {});
  void abandon(uint64_t request) noexcept { session_->abandon_request(request); }
  // Waits. The answer's code; sticky ones are remembered.
  [[nodiscard]] CUresult wait(uint64_t request, std::vector<int64_t>* results = nullptr);
  // Whether the answer is here; if so it is as wait() would have it.
  [[nodiscard]] bool poll(uint64_t request, CUresult& code,
                          std::vector<int64_t>* results = nullptr);
  template <typename Struct>
  [[nodiscard]] CUresult ask(uint32_t stream, Call call, Struct fields,
                             std::vector<int64_t>& results, std::span<const std::byte> tail = {});
  // Sends one that is polled or waited for later. `handle` 0: the command has none.
  [[nodiscard]] CUresult request(uint32_t stream, wire::Command command, uint64_t handle,
                                 uint64_t& request);
  [[nodiscard]] CUresult ask(uint32_t stream, wire::Command command, uint64_t handle,
                             std::vector<int64_t>* results = nullptr);

  // The failure that spoiled the session; CUDA_SUCCESS: none.
  [[nodiscard]] CUresult sticky() const noexcept { return sticky_.load(std::memory_order_relaxed); }
  void close() noexcept;
  void abandon_after_fork() noexcept;

 private:
  friend CUresult connect(std::unique_ptr<Client>& client);
  [[nodiscard]] CUresult append_record(uint32_t stream, const Record& record);
  [[nodiscard]] CUresult append_call(uint32_t stream, Call call, std::span<const std::byte> fields,
                                     std::span<const std::byte> tail);
  [[nodiscard]] CUresult read(const Result<wire::Reply>& reply, std::vector<int64_t>* results);
  [[nodiscard]] CUresult lost(const Status& status) noexcept;
  [[nodiscard]] Device* foreign_device(uint64_t address) const noexcept;

  struct Foreign {
    uint64_t end = 0;
    Device* device = nullptr;
  };

  std::shared_ptr<Session> session_;
  wire::CudaInfo info_;
  std::vector<std::unique_ptr<Device>> devices_;
  bool launch_blocking_ = false;
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};
  std::atomic<bool> said_lost_{false};
  WaitObserver observer_;
  std::atomic<bool> has_foreign_{false};
  mutable std::mutex foreign_mutex_;
  std::map<uint64_t, Foreign> foreign_;  // Pages, by their begin. Guarded by foreign_mutex_.
  std::mutex said_mutex_;
  std::vector<std::string> said_;  // Messages, each once; bounded.
};

// The program's client; connects when it is the first call. CUDA_ERROR_NO_DEVICE when there is no
// server, CUDA_ERROR_NOT_INITIALIZED in a child of fork().
[[nodiscard]] CUresult client(Client*& client) noexcept;
// nullptr: not connected (yet, or not any more).
[[nodiscard]] Client* connected_client() noexcept;

// What more was said of the calling thread's last failure, here or by the server.
[[nodiscard]] const std::string& last_message() noexcept;

// One line to stderr, beginning with "rgpu: ".
void say(const std::string& line) noexcept;

template <typename Struct>
CUresult Client::ask(uint32_t stream, Call call, Struct fields, std::vector<int64_t>& results,
                     std::span<const std::byte> tail) {
  if (const CUresult code = open_request(fields.request); code != CUDA_SUCCESS) return code;
  if (const CUresult code = append(stream, call, fields, tail); code != CUDA_SUCCESS) {
    abandon(fields.request);
    return code;
  }
  return wait(fields.request, &results);
}

}  // namespace rgpu::cuda
