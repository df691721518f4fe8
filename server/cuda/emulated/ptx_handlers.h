// The handlers of this build variant, one function a family; null: not emulated.
#pragma once

#include "server/cuda/emulated/ptx_context.h"

#ifndef RGPU_PTX_VARIANT
#define RGPU_PTX_VARIANT generic
#endif

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {

Handler integer_handler(const Shape& shape);
Handler bits_handler(const Shape& shape);  // integer_handler() asks it.
Handler real_handler(const Shape& shape);
Handler half_handler(const Shape& shape);
Handler compare_handler(const Shape& shape);
Handler select_handler(const Shape& shape);
Handler convert_handler(const Shape& shape);
Handler parameter_handler(const Shape& shape, uint32_t register_size);
Handler load_handler(const Shape& shape, uint32_t register_size);
Handler store_handler(const Shape& shape, uint32_t register_size);

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
