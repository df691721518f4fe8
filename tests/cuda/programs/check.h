// What the programs here check with. The first thing that is wrong ends the program: one line says
// where and what, and the exit status is 1. From any thread, and from any function.
#pragma once

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#define OK(call)                                                                          \
  do {                                                                                    \
    const cudaError_t error_ = (call);                                                    \
    if (error_ != cudaSuccess) fail(__FILE__, __LINE__, cudaGetErrorName(error_), #call); \
  } while (0)
#define CHECK(what)                                         \
  do {                                                      \
    if (!(what)) fail(__FILE__, __LINE__, "not so", #what); \
  } while (0)
// The call returns `code`, which becomes the last error, and asking for it clears it.
#define GIVES(code, call)                                                                \
  do {                                                                                   \
    const cudaError_t error_ = (call);                                                   \
    if (error_ != (code))                                                                \
      fail(__FILE__, __LINE__, cudaGetErrorName(error_), #call " does not give " #code); \
    const cudaError_t last_ = cudaGetLastError();                                        \
    if (last_ != (code))                                                                 \
      fail(__FILE__, __LINE__, cudaGetErrorName(last_), "last error after " #call);      \
  } while (0)

[[noreturn]] inline void fail(const char* file, int line, const char* what, const char* text) {
  printf("FAIL %s:%d: %s: %s\n", file, line, what, text);
  fflush(stdout);
  _exit(1);
}

inline int pass() {
  OK(cudaGetLastError());
  printf("PASS\n");
  return 0;
}
