// The table of one build variant.
#include "server/cuda/emulated/ptx_handlers.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {

extern const HandlerTable kHandlers;
const HandlerTable kHandlers = {integer_handler,   real_handler,   half_handler,
                                compare_handler,   select_handler, convert_handler,
                                parameter_handler, load_handler,   store_handler};

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
