# rgpu_library, rgpu_test, rgpu_bench: the only helpers. Sources are listed, never globbed.

function(rgpu_options target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion
    $<$<BOOL:${RGPU_WERROR}>:-Werror>
    # g++ 12 reports these inside coroutine frames and inlined library code that is sound.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-error=array-bounds -Wno-error=maybe-uninitialized>)
  if(RGPU_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${RGPU_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer $<$<CXX_COMPILER_ID:GNU>:-Wno-error=mismatched-new-delete>)
    target_link_options(${target} PRIVATE -fsanitize=${RGPU_SANITIZE})
  endif()
endfunction()

# rgpu_library(name SOURCES a.cc … LINK targets …) makes the static library rgpu::name.
function(rgpu_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(rgpu_${name} STATIC ${ARG_SOURCES})
  add_library(rgpu::${name} ALIAS rgpu_${name})
  target_link_libraries(rgpu_${name} PUBLIC ${ARG_LINK})
  rgpu_options(rgpu_${name})
endfunction()

# rgpu_test(name LABEL unit SOURCES x_test.cc … LINK targets …)
function(rgpu_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  rgpu_options(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 120)
endfunction()

# rgpu_bench(name SOURCES x_bench.cc … LINK targets …); also run once as a smoke test.
function(rgpu_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} benchmark::benchmark)
  rgpu_options(${name})
  if(RGPU_TESTS)
    add_test(NAME ${name}_smoke COMMAND ${name} --benchmark_min_time=0.001)
    set_tests_properties(${name}_smoke PROPERTIES LABELS bench TIMEOUT 120)
  endif()
endfunction()
