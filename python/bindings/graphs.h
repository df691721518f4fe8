// The binding of graphs: GraphBuilder, GraphResults and StoredGraph (torch_backend/graphs/).
#pragma once

#include <pybind11/pybind11.h>

namespace rgpu::backend {

void bind_graphs(pybind11::module_& m);

}  // namespace rgpu::backend
