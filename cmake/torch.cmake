# rgpu::torch: headers and libraries of the installed PyTorch, from torch.__path__.
# find_package(Torch) is not used: on a CUDA wheel it demands a CUDA toolkit.

find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE RGPU_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "PyTorch is not installed for ${Python3_EXECUTABLE}. "
    "Install it there and build with pip install --no-build-isolation, or use -DRGPU_TORCH=OFF")
endif()
file(STRINGS "${RGPU_TORCH_DIR}/version.py" version_line REGEX "^__version__ = ")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+[^'\"]*" RGPU_TORCH_VERSION "${version_line}")
message(STATUS "PyTorch ${RGPU_TORCH_VERSION} at ${RGPU_TORCH_DIR}")

add_library(rgpu_torch INTERFACE)
add_library(rgpu::torch ALIAS rgpu_torch)
target_include_directories(rgpu_torch SYSTEM INTERFACE
  "${RGPU_TORCH_DIR}/include" "${RGPU_TORCH_DIR}/include/torch/csrc/api/include")
target_link_directories(rgpu_torch INTERFACE "${RGPU_TORCH_DIR}/lib")
# --no-as-needed keeps libtorch.so in NEEDED, through which a CUDA wheel brings its CUDA half.
target_link_libraries(rgpu_torch INTERFACE
  "-Wl,--no-as-needed" torch "-Wl,--as-needed" torch_cpu c10)
target_compile_definitions(rgpu_torch INTERFACE RGPU_TORCH_VERSION="${RGPU_TORCH_VERSION}")
# Conversions are checked in our headers only; ATen's templates instantiate in our code.
target_compile_options(rgpu_torch INTERFACE -Wno-conversion -Wno-sign-conversion)
