// What cudaDeviceReset() and the end of a context do.
//
// Threading: any thread; other threads are not to use what is destroyed.
#pragma once

#include "cuda_shim/client/context.h"

namespace rgpu::cuda {

// Waits for the device, then frees all of its memory, streams and events, and forgets where modules
// are loaded, so that they are loaded anew when they are used.
[[nodiscard]] CUresult reset_device(Context& context);
// The streams and events that were made in this context.
void destroy_streams_of(Context& context);
// The memory that was allocated in a context other than a primary one.
void free_memory_of(Client& client, Context& context);

}  // namespace rgpu::cuda
