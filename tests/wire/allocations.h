// Allocations: counts those of the whole process, so that a test can say there were none.
#pragma once

#include <cstdint>

namespace rgpu {

[[nodiscard]] uint64_t allocation_count() noexcept;

}  // namespace rgpu
