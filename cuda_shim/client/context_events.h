// Events of a whole context: recorded when all of its streams have got there, waited for by all of
// them. What they need of order is put together from events on the single streams.
//
// Threading: any thread.
#pragma once

#include "cuda_shim/client/context.h"

namespace rgpu::cuda {

[[nodiscard]] CUresult record_event_of_all(Context& context, Event& event);
// Streams that are created later wait as well.
[[nodiscard]] CUresult wait_event_of_all(Context& context, Event& event);

}  // namespace rgpu::cuda
