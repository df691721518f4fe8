// HandleTable: objects that a program holds by pointers which may be wrong.
//
// CUDA's handles are pointers. A program may pass one that was destroyed, or any other number, and
// is to get INVALID_HANDLE for it. So all objects of a kind lie in one reserved piece of address
// space, where a pointer can be judged without being followed; a place is used again as late as
// possible.
//
// Threading: any thread. find() takes no lock; the caller sees to it, as CUDA asks of programs,
// that an
//            object is not destroyed while another thread uses it.
// Lifetime:  tables are made once and leaked: programs call CUDA from their last destructors.
// Errors:    create() returns nullptr when `count_max` objects are alive.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

namespace rgpu::cuda {

template <typename T>
class HandleTable {
 public:
  explicit HandleTable(size_t count_max) : count_max_(count_max) {
    void* const memory = mmap(nullptr, count_max * sizeof(Place), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      count_max_ = 0;
      return;
    }
    places_ = static_cast<Place*>(memory);  // Zeros are places that nobody uses.
  }
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  template <typename... Args>
  [[nodiscard]] T* create(Args&&... args) {
    const std::lock_guard lock(mutex_);
    Place* place = nullptr;
    if (freed_.size() >= kFreedMin || (used_ == count_max_ && !freed_.empty())) {
      place = freed_.front();
      freed_.pop_front();
    } else if (used_ < count_max_) {
      place = &places_[used_++];
    } else {
      return nullptr;
    }
    T* const object = new (place->bytes) T(std::forward<Args>(args)...);
    place->alive.store(true, std::memory_order_release);
    return object;
  }
  void destroy(T* object) {
    auto* const place = reinterpret_cast<Place*>(object);
    place->alive.store(false, std::memory_order_release);
    object->~T();
    const std::lock_guard lock(mutex_);
    freed_.push_back(place);
  }
  // The object that a handle names; nullptr: none.
  [[nodiscard]] T* find(const void* handle) const noexcept {
    const auto at = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(places_);
    if (at >= count_max_ * sizeof(Place) || at % sizeof(Place) != 0) return nullptr;
    Place& place = places_[at / sizeof(Place)];
    return place.alive.load(std::memory_order_acquire) ? reinterpret_cast<T*>(place.bytes)
                                                       : nullptr;
  }
  template <typename Visit>
  void for_each(Visit visit) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < used_; ++i) {
      if (places_[i].alive.load(std::memory_order_acquire)) {
        visit(*reinterpret_cast<T*>(places_[i].bytes));
      }
    }
  }

 private:
  struct Place {
    alignas(64) std::byte bytes[sizeof(T)];  // First: a handle is its address.
    std::atomic<bool> alive;
  };
  static constexpr size_t kFreedMin = 1024;  // So many wait before one is used again.

  size_t count_max_;
  Place* places_ = nullptr;
  std::mutex mutex_;  // Guards what follows.
  size_t used_ = 0;   // Places that ever were.
  std::deque<Place*> freed_;
};

}  // namespace rgpu::cuda
