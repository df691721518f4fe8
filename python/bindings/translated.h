// What is thrown below the binding becomes the exception that PyTorch's own bindings make of it.
#pragma once

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

namespace rgpu::backend {

template <typename Function>
auto translated(Function function) {
  try {
    return function();
  } catch (python_error& error) {
    error.restore();
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
  throw pybind11::error_already_set();
}

}  // namespace rgpu::backend
