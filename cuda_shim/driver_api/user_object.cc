// The driver API: counted objects of the program's, which graphs keep alive.

#include <mutex>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/handle_table.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

constexpr size_t kObjectsMax = 1u << 16;

struct UserObject {
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  std::mutex mutex;  // Guards what follows.
  uint64_t count = 0;
};

HandleTable<UserObject>& user_objects() {
  static auto* const table = new HandleTable<UserObject>(kObjectsMax);
  return *table;
}

CUresult find_object(CUuserObject handle, unsigned count, UserObject*& object) {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  object = user_objects().find(handle);
  return object == nullptr || count == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* handle, void* data, CUhostFn destroy, unsigned int count,
                            unsigned int flags) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || destroy == nullptr || count == 0 ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  UserObject* const object = user_objects().create();
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  object->data = data;
  object->destroy = destroy;
  object->count = count;
  *handle = reinterpret_cast<CUuserObject>(object);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) noexcept {
  UserObject* object = nullptr;
  RGPU_TRY(find_object(handle, count, object));
  const std::lock_guard lock(object->mutex);
  object->count += count;
  return CUDA_SUCCESS;
}

// The destructor runs here: it may not call CUDA, so that it matters to nobody where.
CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) noexcept {
  UserObject* object = nullptr;
  RGPU_TRY(find_object(handle, count, object));
  {
    const std::lock_guard lock(object->mutex);
    if (count > object->count) return CUDA_ERROR_INVALID_VALUE;
    object->count -= count;
    if (object->count != 0) return CUDA_SUCCESS;
  }
  object->destroy(object->data);
  user_objects().destroy(object);
  return CUDA_SUCCESS;
}
