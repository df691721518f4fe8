#include "cuda_shim/client/device_reset.h"

#include <vector>

#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory_pool.h"
#include "cuda_shim/client/modules.h"
#include "wire/stream.h"

namespace rgpu::cuda {

void destroy_streams_of(Context& context) {
  std::vector<Stream*> its_streams;
  std::vector<Event*> its_events;
  streams().for_each([&](Stream& stream) {
    if (stream.context == &context) its_streams.push_back(&stream);
  });
  events().for_each([&](Event& event) {
    if (event.context == &context) its_events.push_back(&event);
  });
  for (Event* const event : its_events) (void)destroy_event(*event);
  for (Stream* const stream : its_streams) (void)destroy_stream(*stream);
  forget_default_streams(context);
}

void free_memory_of(Client& client, Context& context) {
  AddressSpace& addresses = context.device->addresses;
  for (const uint64_t address : addresses.owned_by(context.id)) {
    // On its way to the server before anybody can be given the address.
    client.session().free(address);
    (void)addresses.free(address);
  }
}

CUresult reset_device(Context& context) {
  Client* const client = connected_client();
  if (client == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Device& device = *context.device;
  RGPU_TRY(synchronize_device(device));
  destroy_streams_of(context);
  const uint32_t stream = wire::stream_of(device.number, 0);
  unload_from(device);
  RGPU_TRY(client->append(stream, Call::kResetDevice, wire::cuda::DeviceId{device.number}));
  device.addresses.clear();
  clear_pools(device);
  const std::lock_guard lock(context.mutex);
  context.limits.clear();
  context.cache_config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::cuda
